"""Any model with the padded interface of `transformers`: padded rows and a mask in, named tensors out.

Training and prediction use packed batches without padding. An exported model (`interop/onnx.py`) takes padded rows,
with the input and output names of `transformers`:

    input_ids, attention_mask, token_type_ids (families with segments)    N x S, or N x C x S if rows are classified in
                                  groups: the choices of a question, pairs encoded separately or in both orders
    logits                        N x L for sequences, N x C for choices, N x S x L for tokens
    start_logits, end_logits      N x S for spans; with `has_answer_classifier`, also answerable_logits, N x 2
    last_hidden_state             N x S x D for a model without a task

Rows are padded at the end. Shapes: T = N x S tokens, N rows, S row length, C rows per group, L labels, D width; in
attention H heads, C head width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hornbook.batch import Batch, Tokens
from hornbook.models.head_config import MASKED_LOGIT, HeadConfig
from hornbook.models.heads import HEADS
from hornbook.models.transformer import Transformer, TransformerConfig
from hornbook.nn.block import Direction


@dataclass(frozen=True, kw_only=True)
class PaddedBatch(Batch):
    """Rows of equal length as a batch: the first `num_real_N` tokens of each row are real, the others padding."""

    num_real_N: Tensor

    @property
    def lengths_N(self) -> Tensor:
        return self.num_real_N


class PaddedRows:
    """Attention over padded rows without a loop over sequences; `mask_NS` is True at real tokens. It has the interface
    of `KeyValueCache` (`nn/kv_cache.py`), so that the blocks need no change; one instance serves all of them."""

    attends = True

    def __init__(self, mask_NS: Tensor, direction: Direction):
        self.mask_NS = mask_NS
        self.direction = direction
        self._biases: dict[int | None, Tensor] = {}

    def write(self, kv_T2HC: Tensor) -> None:
        self.keys_THC, self.values_THC = kv_T2HC.unbind(1)

    def attend(self, q_THC: Tensor, window: int | None) -> Tensor:
        """softmax(q k / sqrt(C)) v within each sequence, T x H x C."""
        qkv = (q_THC, self.keys_THC, self.values_THC)
        q_NHSC, k_NHSC, v_NHSC = (x.unflatten(0, self.mask_NS.shape).transpose(1, 2) for x in qkv)
        scores_NHSS = (q_NHSC * q_NHSC.shape[-1] ** -0.5) @ k_NHSC.transpose(-2, -1) + self._bias(window)
        return (scores_NHSS.softmax(-1) @ v_NHSC).transpose(1, 2).flatten(0, 1)

    def _bias(self, window: int | None) -> Tensor:
        """The additive attention mask, N x 1 x (S or 1) x S; computed once per window size."""
        if window not in self._biases:
            mask = self.mask_NS[:, None, None]
            if self.direction == "causal":
                positions_S = torch.arange(self.mask_NS.shape[1])
                distance_SS = positions_S[:, None] - positions_S
                mask_SS = distance_SS >= 0 if window is None else (distance_SS >= 0) & (distance_SS < window)
                mask = mask & mask_SS
            self._biases[window] = torch.where(mask, 0.0, MASKED_LOGIT)  # finite: rows without tokens give no NaN
        return self._biases[window]


class PaddedModel(nn.Module):
    """A model of any family, with its task head if it has one."""

    def __init__(self, model: Transformer):
        super().__init__()
        if model.head_config is not None and model.head_config.layers == "bilstm":
            raise ValueError(
                "the bilstm head needs the length of each sequence and cannot be exported with padded inputs: "
                "fine-tune with another head (task.head=): linear, mlp, cnn or attention"
            )
        if model.reads_entities:
            raise ValueError(
                "an exported model takes tokens only, and this model also reads entities: export a BERT instead"
            )
        self.model = model

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The tensors named by `output_names`, in that order."""
        group_size = input_ids.shape[1] if rows_together(self.model.head_config) else 1
        ids_NS, mask_NS = input_ids.flatten(0, -2), attention_mask.flatten(0, -2)
        segments_NS = torch.zeros_like(ids_NS) if token_type_ids is None else token_type_ids.flatten(0, -2)
        num_rows, length = ids_NS.shape
        tokens = Tokens(
            ids_T=ids_NS.flatten(),
            positions_T=torch.arange(length).expand(num_rows, length).flatten(),
            segments_T=segments_NS.flatten(),
            word_starts_T=mask_NS.flatten() != 0,
            offsets=torch.arange(num_rows + 1) * length,
            offsets_host=None,
        )
        batch = PaddedBatch({"tokens": tokens}, max_length=length, group_size=group_size, num_real_N=mask_NS.sum(-1))
        rows = PaddedRows(mask_NS != 0, self.model.config.direction)
        x_TD = self.model(batch, caches=[rows] * len(self.model.blocks))
        head_config = self.model.head_config
        if head_config is None:
            return (x_TD.unflatten(0, (num_rows, length)),)
        logits = self.model.outputs_of(x_TD, batch)
        return HEADS[head_config.output].to_padded_outputs(head_config, logits, (num_rows, length))


def input_names(config: TransformerConfig) -> tuple[str, ...]:
    names = ("input_ids", "attention_mask", "token_type_ids")
    return names if config.num_segments > 1 else names[:2]


def output_names(head_config: HeadConfig | None) -> tuple[str, ...]:
    if head_config is None:
        return ("last_hidden_state",)
    return HEADS[head_config.output].padded_names(head_config)


def rows_together(head_config: HeadConfig | None) -> bool:
    """Whether rows are classified in groups, which adds a dimension to the inputs."""
    return head_config is not None and head_config.is_grouped
