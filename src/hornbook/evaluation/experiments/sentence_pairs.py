"""Evaluation on held-out sentence pairs: a sentence head on the task it was trained for and, without further training,
on the other one; and a classifier that counts shared words. Label 0 means in order, in both tasks. Intervals are over
the documents that pairs start in, because pairs of one document are not independent.

Shapes: N pairs.
"""

from pathlib import Path

import numpy as np
import torch

from hornbook.batch import Batch
from hornbook.data.sequences import SENTENCE_LAYOUTS, SequenceSampler
from hornbook.interop.folder import load_model
from hornbook.metrics.confidence_intervals import interval
from hornbook.runs.pretraining.batches import Corpora
from hornbook.runs.pretraining.settings import PretrainSettings
from hornbook.train.runtime import choose_runtime, configure_torch, torch_settings_restored

PAIRS_PER_BATCH = 256


@torch_settings_restored()
def sentence_head_accuracies(
    weights: Path, settings: PretrainSettings, corpora: Corpora, num_pairs: int
) -> dict[str, dict]:
    """Accuracy in percent of a saved sentence head on `num_pairs` held-out pairs of each task, with intervals."""
    runtime = choose_runtime(settings.runtime, 0.0)
    configure_torch(runtime)
    model = load_model(weights).to(runtime.device)
    accuracies = {}
    for layout in SENTENCE_LAYOUTS:
        is_right, documents = [], []
        for batch, of_batch in _batches(settings, corpora, layout, num_pairs, held_out=True):
            documents += of_batch
            batch = batch.to(runtime.device)
            with torch.no_grad(), runtime.autocast():
                logits = model.sentence_logits(model(batch)[batch.offsets[:-1].long()])
            is_right.append((logits.argmax(-1) == batch.labels_N).cpu().numpy())
        accuracies[layout] = _accuracy(np.concatenate(is_right), documents)
    return accuracies


def shared_words_accuracies(
    settings: PretrainSettings, corpora: Corpora, num_pairs: int, num_fitted: int
) -> dict[str, dict]:
    """As `sentence_head_accuracies`, of logistic regression on shared-word features of `num_fitted` training pairs."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    accuracies = {}
    for layout in SENTENCE_LAYOUTS:
        (seen, labels, _), (unseen, gold, documents) = (
            _shared_words(settings, corpora, layout, num, held_out)
            for num, held_out in ((num_fitted, False), (num_pairs, True))
        )
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(seen, labels)
        accuracies[layout] = _accuracy(model.predict(unseen) == gold, documents)
    return accuracies


def _batches(
    settings: PretrainSettings, corpora: Corpora, layout: str, num_pairs: int, held_out: bool
) -> list[tuple[Batch, list[tuple[int, int]]]]:
    """Batches of pairs, each with the documents that its pairs start in."""
    data = settings.data
    length = data.short_length if data.short_fraction > 0 else data.length
    sampler = SequenceSampler(corpora, length, 0, layout, 0.0, held_out=held_out)
    num_pairs = min(num_pairs, sum(chunks.total for chunks in sampler.chunks))
    size = min(PAIRS_PER_BATCH, num_pairs)
    return [(sampler.batch(i, size), sampler.documents_of(i, size)) for i in range(num_pairs // size)]


def _shared_words(
    settings: PretrainSettings, corpora: Corpora, layout: str, num_pairs: int, held_out: bool
) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
    """(features of N pairs, labels, documents). The features are the number of shared tokens, all and distinct, as
    count, fraction, and weighted by rarity."""
    tokenizer = corpora[0][0].tokenizer
    counts = sum(corpus.token_counts for corpus, _ in corpora).astype(float)
    rarity = np.log((counts.sum() + 1) / (counts + 1))
    features, labels, documents = [], [], []
    for batch, of_batch in _batches(settings, corpora, layout, num_pairs, held_out):
        sequences = np.split(batch.ids_T.numpy(), batch.offsets_host[1:-1])
        features += [_features(ids, tokenizer.sep_id, rarity) for ids in sequences]
        labels += batch.labels_N.tolist()
        documents += of_batch
    return np.array(features), np.array(labels), documents


def _features(ids: np.ndarray, sep_id: int, rarity: np.ndarray) -> list[float]:
    middle = int(np.argmax(ids == sep_id))
    a, b = ids[1:middle], ids[middle:][ids[middle:] != sep_id]
    (kinds_a, times_a), (kinds_b, times_b) = (np.unique(each, return_counts=True) for each in (a, b))
    both, at_a, at_b = np.intersect1d(kinds_a, kinds_b, return_indices=True)
    num_shared = float(np.minimum(times_a[at_a], times_b[at_b]).sum())
    rare_smaller = min(rarity[kinds_a].sum(), rarity[kinds_b].sum())
    return [
        num_shared,
        num_shared / max(1, min(len(a), len(b))),
        float(len(both)),
        len(both) / max(1, min(len(kinds_a), len(kinds_b))),
        float(rarity[both].sum()),
        float(rarity[both].sum() / max(1e-9, rare_smaller)),
        float(rarity[both].max(initial=0.0)),
    ]


def _accuracy(is_right: np.ndarray, documents: list[tuple[int, int]]) -> dict:
    """Accuracy in percent, with a bootstrap interval that resamples whole documents."""
    _, document_ids = np.unique(np.array(documents), axis=0, return_inverse=True)
    sizes = np.bincount(document_ids)
    num_right = np.bincount(document_ids, weights=is_right.astype(float))
    low, high = interval(lambda chosen: float(num_right[chosen].sum() / sizes[chosen].sum()), len(sizes))
    value = 100 * float(is_right.mean())
    return {"value": value, "low": 100 * low, "high": 100 * high, "pairs": len(is_right), "documents": len(sizes)}
