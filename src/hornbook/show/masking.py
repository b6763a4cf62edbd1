"""The same text masked several times, as in pre-training; ELECTRA's steps: masks, samples, predictions; and training
examples of a corpus as the model gets them, in each layout of `data/sequences.py`.

Shapes: T tokens of all copies, K masked tokens, V vocabulary.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from hornbook.batch import Batch, pack
from hornbook.config import checked
from hornbook.data.corpus import Corpus
from hornbook.data.sequences import SequenceLayout, SequenceSampler
from hornbook.inference.encoder import EncoderModel
from hornbook.objectives.masking import Masking, MaskingSettings
from hornbook.objectives.rtd import RtdObjective, replace_at_targets, sample_tokens
from hornbook.show.translations import Language, translate
from hornbook.show.visualization import Cell, TitledTable, TokenRow, Visualization, readable_token, token_cells
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.objective import Targets
from hornbook.train.randomness import token_keys

ELECTRA_MASKING = {"mask_fraction": 0.85, "random_fraction": 0.0}  # as published
LAYOUTS = {
    "nsp": "next-sentence prediction (BERT): half of the second segments follow the first, half are random",
    "sop": "sentence-order prediction (ALBERT): two consecutive segments, half of them swapped",
    "pairs": "two segments without a sentence task (ELECTRA)",
    "full-sentences": "full sentences, across documents (RoBERTa)",
    "documents": "left to right (GPT): every token predicts the next one",
}
LABELS = {
    "nsp": ("label 0: the second segment follows the first", "label 1: the second segment is from another document"),
    "sop": ("label 0: the segments are in order", "label 1: the segments are swapped"),
}


def show_masking(
    tokenizer: Tokenizer,
    text: str,
    pair: str | None = None,
    settings: MaskingSettings | None = None,
    num: int = 5,
    seed: int = 0,
    language: Language = "en",
) -> Visualization:
    """The text masked `num` times with different random numbers, as pre-training masks it in every epoch."""
    settings, message = settings or MaskingSettings(), partial(translate, language)
    batch = copies(tokenizer, text, pair, num)
    ids_T, targets = masking_of(tokenizer, settings).prepare(batch, token_keys(batch, seed))
    token_rows, outcomes = [], Counter()
    cells = masked_cells(tokenizer, batch, ids_T, targets)
    for number, (start, stop) in enumerate(bounds(batch), 1):
        token_rows.append(TokenRow(message("copy", number=number), cells[start:stop]))
        outcomes.update(cell.mark for cell in cells[start:stop] if cell.mark in ("masked", "random", "kept"))
    total = sum(outcomes.values())
    if not total:
        raise ValueError("the text has no tokens that can be masked: give a sentence of words in the vocabulary")
    random, mask = settings.random_fraction, settings.mask_fraction
    expected = {"masked": mask, "random": random, "kept": 1 - mask - random}
    rows = [
        (message(name), outcomes[name], f"{outcomes[name] / total:.0%}", f"{fraction:.0%}")
        for name, fraction in expected.items()
    ]
    notes = [message("share", share=settings.probability, unit=message(f"unit.{settings.unit}"))]
    headings = (message("predicted"), message("here"), "", message("expected"))
    return Visualization(message("masking"), notes, token_rows, [TitledTable("", headings, rows)], language=language)


@torch.no_grad()
def show_replaced(
    model: EncoderModel,
    text: str,
    num: int = 3,
    probability: float = 0.15,
    seed: int = 0,
    language: Language = "en",
) -> Visualization:
    """ELECTRA's pre-training on a text (Clark et al. 2020, figure 2): tokens are masked, the generator samples others
    in their place, and the discriminator judges for every token whether it was replaced."""
    if "rtd" not in model.model.heads:
        raise ValueError(f"{model.folder} has no head that detects replaced tokens: give an ELECTRA")
    masked_lm, tokenizer, message = model.masked_lm, model.tokenizer, partial(translate, language)
    batch = copies(tokenizer, text, None, num)
    settings = MaskingSettings(probability=probability, **ELECTRA_MASKING)
    step = RtdObjective(masking_of(tokenizer, settings)).prepare(batch, seed)
    masks, original_T = step.targets["mlm"], batch.ids_T
    step_batch = step.batch.to(model.device)
    logits_KV = masked_lm.vocabulary_logits(masked_lm(step_batch)[masks.indices_K.to(model.device)])
    logits_KV = logits_KV[:, : tokenizer.vocab_size].float().cpu()
    text_T = replace_at_targets(step.batch.ids_T, masks, sample_tokens(logits_KV, step.targets["noise_seeds"].values_K))
    judged = step_batch.with_values("tokens", ids_T=text_T.to(model.device))
    replaced_T = torch.sigmoid(model.model.rtd(model.model(judged)).float()).cpu()

    masked_at = set(masks.indices_K[masks.weights_K > 0].tolist())
    token_rows, num_right = [], 0
    masked = masked_cells(tokenizer, batch, step.batch.ids_T, masks)
    for number, (start, stop) in enumerate(bounds(batch), 1):
        generated, verdicts = [], []
        for position in range(start, stop):
            token, original = text_T[position].item(), original_T[position].item()
            cell = token_cells(tokenizer, [token])[0]
            is_replaced, probability = token != original, replaced_T[position].item()
            note = readable_token(tokenizer, original) if position in masked_at else ""
            generated.append(Cell(cell.text, "replaced" if position in masked_at else cell.mark, note))
            is_right = (probability > 0.5) == is_replaced
            num_right += is_right
            mark = ("found" if is_replaced else cell.mark) if is_right else "wrong"
            verdicts.append(Cell(cell.text, mark, f"{probability:.0%}" if mark in ("found", "wrong") else ""))
        token_rows.append(TokenRow(message("step.masked", number=number), masked[start:stop]))
        token_rows.append(TokenRow(message("step.generated", number=number), generated))
        token_rows.append(TokenRow(message("step.judged", number=number), verdicts))
    by = message("generator" if masked_lm is not model.model else "own head")
    notes = [message("sampled", by=by), message("judged", right=num_right, tokens=batch.num_tokens)]
    return Visualization(message("detection"), notes, token_rows, language=language)


def show_example(
    corpus: str | Path,
    layout: SequenceLayout = "nsp",
    length: int = 64,
    number: int = 0,
    settings: MaskingSettings | None = None,
    seed: int = 0,
) -> Visualization:
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
        token_rows = [TokenRow(f"sequence {i}", cells[start:stop]) for i, (start, stop) in enumerate(bounds(batch), 1)]
        return Visualization("Training example", notes, token_rows)
    ids_T, targets = masking_of(tokenizer, settings or MaskingSettings()).prepare(batch, token_keys(batch, seed))
    cells = masked_cells(tokenizer, batch, ids_T, targets)
    by_segment: dict[int, list[Cell]] = {}
    for cell, segment in zip(cells, batch.segments_T.tolist(), strict=True):
        by_segment.setdefault(segment, []).append(cell)
    token_rows = [TokenRow(f"segment {segment}", by_segment[segment]) for segment in sorted(by_segment)]
    notes.append(f"{batch.num_tokens} tokens, {int((targets.weights_K > 0).sum())} of them predicted")
    return Visualization("Training example", notes, token_rows)


def copies(tokenizer: Tokenizer, text: str, pair: str | None, num: int) -> Batch:
    """A batch of `num` copies of an encoded text or pair."""
    num = checked(num, int, "the number of copies", low=1, high=1000)
    encoded = tokenizer.encode(text, pair)
    if all(word is None for word in encoded.word_ids):
        raise ValueError("the text has no words to mask: give a sentence")
    words = encoded.word_ids
    starts = [word is None or i == 0 or word != words[i - 1] for i, word in enumerate(words)]
    arrays = ((encoded.ids, np.int64), (encoded.segments, np.int64), (starts, bool))
    return pack(*([np.array(values, dtype)] * num for values, dtype in arrays))


def masking_of(tokenizer: Tokenizer, settings: MaskingSettings) -> Masking:
    if tokenizer.mask_id is None:
        raise ValueError("the tokenizer has no mask token, so the model was not trained on masks: use an encoder")
    return Masking(settings, tokenizer.vocab_size, tokenizer.mask_id, tokenizer.special_ids)


def bounds(batch: Batch) -> Sequence[tuple[int, int]]:
    """(start, stop) of the tokens of each sequence."""
    return list(zip(batch.offsets_host[:-1].tolist(), batch.offsets_host[1:].tolist(), strict=True))


def masked_cells(tokenizer: Tokenizer, batch: Batch, ids_T: torch.Tensor, targets: Targets) -> list[Cell]:
    """The tokens of a masked batch: predicted ones have the original as note."""
    cells = token_cells(tokenizer, ids_T.tolist(), batch.word_starts_T.tolist())
    for position in targets.indices_K[targets.weights_K > 0].tolist():
        token, original = ids_T[position].item(), batch.ids_T[position].item()
        mark = "masked" if token == tokenizer.mask_id else "kept" if token == original else "random"
        cells[position] = Cell(cells[position].text, mark, readable_token(tokenizer, original))
    return cells
