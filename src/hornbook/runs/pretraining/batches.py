"""Opens the corpora of a run, makes its training and validation batches, and warns of unsuitable data."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hornbook.batch import Batch, part_bounds
from hornbook.data.corpus import Corpus
from hornbook.data.remote import is_url
from hornbook.data.sequences import SequenceSampler
from hornbook.runs.pretraining.settings import PretrainSettings

Corpora = list[tuple[Corpus, float]]
MAX_NOT_NEXT = 0.55  # share of the pairs for next-sentence prediction; more is logged as a warning
MAX_EPOCHS = 100


def folder_and_weight(text: str) -> tuple[str, float]:
    """(folder, weight) of a corpus argument: `wiki:3` is the folder wiki with weight 3, unless `wiki:3` exists. A
    number after the host of a URL is its port.

    >>> folder_and_weight("wiki:3"), folder_and_weight("wiki")
    (('wiki', 3.0), ('wiki', 1.0))
    >>> folder_and_weight("http://host:8000"), folder_and_weight("http://host:8000/wiki:3")
    (('http://host:8000', 1.0), ('http://host:8000/wiki', 3.0))
    """
    folder, _, weight = text.rpartition(":")
    has_port = is_url(text) and "/" not in text.partition("://")[2]
    try:
        return (text, 1.0) if has_port or Path(text).exists() or not folder else (folder, float(weight))
    except ValueError:
        return text, 1.0


def corpus_names(corpora: Sequence[str | Path] | str | Path) -> list[str]:
    """The corpus arguments (`folder` or `folder:weight`) as a list of strings, from one argument or several.

    >>> corpus_names("wiki:3"), corpus_names([Path("wiki"), "law:2"])
    (['wiki:3'], ['wiki', 'law:2'])
    """
    return [str(corpus) for corpus in ([corpora] if isinstance(corpora, str | Path) else corpora)]


def open_corpora(names: Sequence[str], settings: PretrainSettings) -> Corpora:
    """Opens the corpora (`folder` or `folder:weight`), and checks that they share one tokenizer that has the special
    tokens of the layout."""
    if not names:
        raise ValueError("no corpus was given: give a folder made by 'hornbook corpus build'")
    named = [folder_and_weight(name) for name in names]
    for folder, weight in named:
        if not (math.isfinite(weight) and weight > 0):
            raise ValueError(f"the weight of {folder} must be above 0, not {weight:g}")
    corpora = [(Corpus(folder, settings.data.held_out_fraction), weight) for folder, weight in named]
    first = corpora[0][0]
    for corpus, _ in corpora[1:]:
        if corpus.tokenizer.fingerprint != first.tokenizer.fingerprint:
            raise ValueError(
                f"{corpus.folder} and {first.folder} were built with different tokenizers: build both with the same one"
            )
    names = {"eos_id": "end-of-text"} if settings.reads_documents else {"cls_id": "cls", "sep_id": "sep"}
    names |= {} if settings.masks_nothing else {"mask_id": "mask"}
    gpt = "a GPT" if settings.masks_nothing else "a hybrid model"
    for name, token in names.items():
        if getattr(first.tokenizer, name) is None:
            model = gpt if settings.reads_documents else "an encoder"
            raise ValueError(f"the tokenizer in {first.folder} has no {token} token, which {model} needs")
    return corpora


def mixed_token_counts(corpora: Corpora, with_ends: bool) -> np.ndarray:
    """How often each token occurs in a text of the length of all corpora that is mixed by their weights. `with_ends`:
    with an end-of-text token per document, as a GPT predicts it."""
    shares, num_tokens, weight_sum = [], 0.0, sum(weight for _, weight in corpora)
    for corpus, weight in corpora:
        counts = corpus.token_counts.astype(np.float64)
        if with_ends:
            counts[corpus.tokenizer.eos_id] += corpus.num_documents
        num_tokens += counts.sum()
        shares.append(counts / counts.sum() * (weight / weight_sum))
    return num_tokens * sum(shares)


def _sampler(
    settings: PretrainSettings, corpora: Corpora, length: int, seed: int, short_probability: float, **flags: bool
) -> SequenceSampler:
    data = settings.data
    return SequenceSampler(
        *(corpora, length, seed, settings.layout, short_probability, data.single_segment_probability),
        crosses_documents=data.crosses_documents,
        with_entities=settings.reads_entities,
        mlm_fraction=settings.mlm_fraction,
        **flags,
    )


class BatchMaker:
    """Makes batch k of the run: short sequences first, then long ones. Growing batches start with fewer sequences."""

    def __init__(self, settings: PretrainSettings, corpora: Corpora):
        self.data = settings.data
        self.batch = settings.batch
        self.num_steps = settings.schedule.steps
        seed, short, shift = settings.runtime.seed, self.data.short_sequence_probability, self.data.shift_chunks
        self.samplers = {
            length: _sampler(settings, corpora, length, seed, short, shift_chunks=shift)
            for length in set(settings.lengths)
        }

    def __call__(self, step: int, part: tuple[int, int] = (0, 1)) -> Batch:
        """The batch of a step, or part `part[0]` of `part[1]` of it, made without the rest. An empty one is padding."""
        length, steps_at_length = self.data.length_at(step, self.num_steps)
        first, num_sequences = None, max(1, self.batch.tokens // length)
        if self.batch.grows:
            begin = step - steps_at_length
            first, stop = (self._sequences_before(end, begin, length) for end in (step, step + 1))
            num_sequences = stop - first
        start, stop = part_bounds(num_sequences, part)
        bounds = (start, stop) if start < stop else (0, 1)
        batch = self.samplers[length].batch(steps_at_length, num_sequences, first, bounds)
        batch = dataclasses.replace(batch, run_fraction=min(1.0, step / self.num_steps))
        return batch.as_padding() if start == stop else batch

    def _sequences_before(self, step: int, begin: int, length: int) -> int:
        """The number of sequences of this length in the batches `begin` to `step` - 1."""
        tokens = self.batch.tokens_before(step, self.num_steps) - self.batch.tokens_before(begin, self.num_steps)
        return math.floor(tokens / length + 0.5)


def held_out_batches(settings: PretrainSettings, corpora: Corpora) -> list[Batch]:
    """Validation batches of held-out documents, which are never trained on; the last one may be smaller. They are the
    same in all runs on these corpora with the same layout and lengths, and the same tokens per batch and micro-batch.
    """
    data = settings.data
    if data.held_out_fraction <= 0:
        return []
    length = data.short_length if data.short_fraction > 0 else data.length
    sampler = _sampler(settings, corpora, length, 0, 0.0, held_out=True)
    available = sum(chunks.total for chunks in sampler.chunks)
    total = min(available, max(1, settings.validation.tokens // length))
    num_sequences = min(total, max(1, min(settings.batch.micro_tokens, settings.batch.tokens) // length))
    starts = range(0, total, num_sequences)
    return [
        sampler.batch(i, num_sequences, span=(0, min(num_sequences, total - start))) for i, start in enumerate(starts)
    ]


def warnings_of(settings: PretrainSettings, corpora: Corpora, batches: BatchMaker) -> list[str]:
    """Warnings if the run repeats a corpus very often, or if the labels of next-sentence prediction are unbalanced."""
    num_tokens = settings.schedule.steps * settings.batch.mean_tokens
    weight_sum = sum(weight for _, weight in corpora)
    warnings = []
    for corpus, weight in corpora:
        epochs = num_tokens * weight / weight_sum / max(1, corpus.num_tokens)
        if epochs > MAX_EPOCHS:
            warnings.append(f"note: the run repeats {corpus.folder} {epochs:,.0f} times; more text would help")
    samplers = {length: sampler for length, sampler in batches.samplers.items() if sampler.layout == "nsp"}
    shares = {sampler.not_next_fraction(): length for length, sampler in samplers.items()}
    share = max(shares, default=0.0)
    if share > MAX_NOT_NEXT:
        warnings.append(
            f"warning: {share:.0%} of the pairs for next-sentence prediction are labelled 'not next' at length "
            f"{shares[share]}, because {2 * share - 1:.0%} of the sequences are documents of one sentence, which have "
            "no next one: put consecutive sentences into one document, or set objective.sentence=none"
        )
    return warnings
