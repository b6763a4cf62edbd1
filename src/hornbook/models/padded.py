"""Any model with the padded interface of `transformers`: padded rows and a mask in, named tensors out.

Training and prediction use packed batches without padding. An exported graph (`interop/onnx.py`) takes padded rows,
with the input and output names of `transformers`:

    input_ids, attention_mask, token_type_ids (families with segments)    N x S, or N x C x S if rows are classified in
                                  groups: multiple-choice endings, pairs encoded separately or in both orders
    logits                        N x L for sequences, N x C for endings, N x S x L for tokens
    start_logits, end_logits      N x S for spans; with `answerable`, also answerable_logits, N x 2
    last_hidden_state             N x S x D for a model without a task

Rows are padded at the end. Shapes: T = N x S tokens, N rows, S row length, C rows per group, L labels, D width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hornbook.batch import Batch, Tokens
from hornbook.models.heads import HEADS
from hornbook.models.outputs import Output
from hornbook.models.transformer import Transformer, TransformerConfig
from hornbook.nn.padded import PaddedRows


@dataclass(frozen=True, kw_only=True)
class PaddedBatch(Batch):
    """Rows of equal length as a batch: the first `num_real_N` tokens of each row are real, the others padding."""

    num_real_N: Tensor

    @property
    def lengths_N(self) -> Tensor:
        return self.num_real_N


class PaddedModel(nn.Module):
    """A model of any family, with its task head if it has one."""

    def __init__(self, model: Transformer):
        super().__init__()
        if model.output is not None and model.output.head == "bilstm":
            raise ValueError(
                "the bilstm head needs the length of each sequence and cannot be exported as a padded graph: fine-tune "
                "with --head linear, mlp, cnn or attention to export it"
            )
        if model.reads_entities:
            raise ValueError(
                "an exported graph takes tokens only, and this model also reads entities: export a BERT instead"
            )
        self.model = model

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The tensors named by `output_names`, in that order."""
        group_size = input_ids.shape[1] if rows_together(self.model.output) else 1
        ids_NS, mask_NS = input_ids.flatten(0, -2), attention_mask.flatten(0, -2)
        segments_NS = torch.zeros_like(ids_NS) if token_type_ids is None else token_type_ids.flatten(0, -2)
        num_rows, length = ids_NS.shape
        tokens = Tokens(
            ids_T=ids_NS.flatten(),
            positions_T=torch.arange(length).expand(num_rows, length).flatten(),
            segments_T=segments_NS.flatten(),
            word_starts_T=mask_NS.flatten() != 0,
            starts=torch.arange(num_rows + 1) * length,
            starts_host=None,
        )
        batch = PaddedBatch({"tokens": tokens}, longest=length, group_size=group_size, num_real_N=mask_NS.sum(-1))
        rows = PaddedRows(mask_NS != 0, self.model.config.direction)
        x_TD = self.model(batch, caches=[rows] * len(self.model.blocks))
        output = self.model.output
        if output is None:
            return (x_TD.unflatten(0, (num_rows, length)),)
        logits = self.model.outputs_of(x_TD, batch)
        return HEADS[output.kind].to_rows(output, logits, num_rows, length)


def input_names(config: TransformerConfig) -> tuple[str, ...]:
    names = ("input_ids", "attention_mask", "token_type_ids")
    return names if config.num_segments > 1 else names[:2]


def output_names(output: Output | None) -> tuple[str, ...]:
    if output is None:
        return ("last_hidden_state",)
    return HEADS[output.kind].padded_names(output)


def rows_together(output: Output | None) -> bool:
    """Whether rows are classified in groups, which adds a dimension to the inputs."""
    return output is not None and output.is_grouped
