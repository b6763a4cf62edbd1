"""Any model as the outside world calls it: padded rows with a mask in, named tensors out.

Training and predicting here run on packed batches without padding. A graph for another machine (`interop/onnx.py`)
takes rows, under the names that `transformers` gives to inputs and outputs:

    input_ids, attention_mask, token_type_ids (of families with segments)    N x S, or N x C x S where rows are judged
                                  together: endings, pairs apart, pairs in both orders
    logits                        N x L of sequences, N x C of endings, N x S x L of tokens
    start_logits, end_logits      N x S of spans; with `answerable`, answerable_logits N x 2
    last_hidden_state             N x S x D of a model without a task

Rows are padded at their end. Shapes: T = N x S tokens, N rows, S length of a row, C rows together, L labels, D width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.models.outputs import Output
from hornbook.models.transformer import Transformer, TransformerConfig
from hornbook.nn.padded import PaddedRows


@dataclass(frozen=True, kw_only=True)
class PaddedBatch(Batch):
    """Rows of equal length as a batch: `num_there_N` tokens of each are there, the others pad it."""

    num_there_N: Tensor

    @property
    def lengths_N(self) -> Tensor:
        return self.num_there_N


class PaddedModel(nn.Module):
    """A model of any family, with the head of its task if it has one."""

    def __init__(self, model: Transformer):
        super().__init__()
        if model.output is not None and model.output.head == "bilstm":
            raise ValueError(
                "the bilstm head follows each sequence to its own end, which no padded graph does: fine-tune with "
                "--head linear, mlp, cnn or attention to export it"
            )
        self.model = model

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Tensors in the order of `output_names`."""
        together = input_ids.shape[1] if rows_together(self.model.output) else 1
        ids_NS, mask_NS = input_ids.flatten(0, -2), attention_mask.flatten(0, -2)
        segments_NS = torch.zeros_like(ids_NS) if token_type_ids is None else token_type_ids.flatten(0, -2)
        num_rows, length = ids_NS.shape
        batch = PaddedBatch(
            ids_T=ids_NS.flatten(),
            positions_T=torch.arange(length).expand(num_rows, length).flatten(),
            segments_T=segments_NS.flatten(),
            word_starts_T=mask_NS.flatten() != 0,
            starts=torch.arange(num_rows + 1) * length,
            starts_host=None,
            longest=length,
            group_size=together,
            num_there_N=mask_NS.sum(-1),
        )
        rows = PaddedRows(mask_NS != 0, self.model.config.direction)
        x_TD = self.model(batch, cached=[rows] * len(self.model.blocks))
        output = self.model.output
        if output is None:
            return (x_TD.unflatten(0, (num_rows, length)),)
        found = self.model.outputs_of(x_TD, batch)
        if output.kind == "tokens":
            return (found.unflatten(0, (num_rows, length)),)
        if output.kind != "spans":
            return (found,)
        start_NS, end_NS = found[:, :length].unbind(-1)
        return (start_NS, end_NS, found[:, length]) if output.answerable else (start_NS, end_NS)


def input_names(config: TransformerConfig) -> tuple[str, ...]:
    names = ("input_ids", "attention_mask", "token_type_ids")
    return names if config.num_segments > 1 else names[:2]


def output_names(output: Output | None) -> tuple[str, ...]:
    if output is None:
        return ("last_hidden_state",)
    if output.kind == "spans":
        return ("start_logits", "end_logits", *(("answerable_logits",) if output.answerable else ()))
    return ("logits",)


def rows_together(output: Output | None) -> bool:
    """Whether several rows are judged together, and stand in a dimension of their own."""
    return output is not None and (output.kind == "choice" or output.pairs != "joint")
