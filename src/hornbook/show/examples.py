"""One training example of a corpus as the model gets it, in each layout of `data/sequences.py`."""

from pathlib import Path

from hornbook.config import checked
from hornbook.data.corpus import Corpus
from hornbook.data.sequences import SequenceLayout, SequenceSampler
from hornbook.objectives.masking import MaskingSettings
from hornbook.show.masking import bounds, masked_cells, masking_of
from hornbook.show.picture import Cell, Picture, Strip, readable_token, token_cells
from hornbook.train.randomness import token_keys

LAYOUTS = {
    "nsp": "next-sentence prediction (BERT): half of the second segments follow the first, half are random",
    "sop": "sentence-order prediction (ALBERT): two consecutive segments, half of them swapped",
    "pairs": "two segments without a sentence task (ELECTRA)",
    "packed": "full sentences, across documents (RoBERTa)",
    "documents": "left to right (GPT): every token predicts the next one",
}
LABELS = {
    "nsp": ("label 0: the second segment follows the first", "label 1: the second segment is from another document"),
    "sop": ("label 0: the segments are in order", "label 1: the segments are swapped"),
}


def show_example(
    corpus: str | Path,
    layout: SequenceLayout = "nsp",
    length: int = 64,
    number: int = 0,
    settings: MaskingSettings | None = None,
    seed: int = 0,
) -> Picture:
    """Example `number` of a corpus in a layout, masked unless it is for a left-to-right model.

    >>> show_example("corpus", "sop").notes[1].split(":")[0] in ("label 0", "label 1")
    True
    """
    if layout not in LAYOUTS:
        raise ValueError(f"there is no layout '{layout}': choose {', '.join(LAYOUTS)}")
    length = checked(length, int, "the length", low=8, high=100_000)
    number = checked(number, int, "the number of the example", low=0)
    opened = Corpus(corpus, held_out_fraction=0.0)
    tokenizer = opened.tokenizer
    batch = SequenceSampler([(opened, 1.0)], length, seed, layout).batch(number, 1)
    notes = [LAYOUTS[layout]]
    if layout in LABELS:
        notes.append(LABELS[layout][int(batch.labels_N[0])])
    if layout == "documents":
        cells = token_cells(tokenizer, batch.ids_T.tolist())
        labels = batch.labels_T.tolist()
        cells = [
            Cell(cell.text, "target", readable_token(tokenizer, label) if label >= 0 else "")
            for cell, label in zip(cells, labels, strict=True)
        ]
        strips = [Strip(f"sequence {i}", cells[start:stop]) for i, (start, stop) in enumerate(bounds(batch), 1)]
        return Picture("Training example", notes, strips)
    ids_T, targets = masking_of(tokenizer, settings or MaskingSettings()).prepare(batch, token_keys(batch, seed))
    cells = masked_cells(tokenizer, batch, ids_T, targets)
    by_segment: dict[int, list[Cell]] = {}
    for cell, segment in zip(cells, batch.segments_T.tolist(), strict=True):
        by_segment.setdefault(segment, []).append(cell)
    strips = [Strip(f"segment {segment}", by_segment[segment]) for segment in sorted(by_segment)]
    notes.append(f"{batch.num_tokens} tokens, {int((targets.weights_K > 0).sum())} of them predicted")
    return Picture("Training example", notes, strips)
