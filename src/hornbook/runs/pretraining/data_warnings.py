"""Warnings about the data of a run, logged before it starts."""

from hornbook.runs.pretraining.batches import BatchMaker, Corpora
from hornbook.runs.pretraining.settings import PretrainSettings

MAX_NOT_NEXT = 0.55  # share of the pairs
MAX_EPOCHS = 100


def warnings_of(settings: PretrainSettings, corpora: Corpora, batches: BatchMaker) -> list[str]:
    return _repetition_warnings(corpora, settings) + _label_warnings(batches)


def _repetition_warnings(corpora: Corpora, settings: PretrainSettings) -> list[str]:
    total = settings.schedule.steps * settings.batch.mean_tokens
    weight_sum = sum(weight for _, weight in corpora)
    out = []
    for corpus, weight in corpora:
        epochs = total * weight / weight_sum / max(1, corpus.num_tokens)
        if epochs > MAX_EPOCHS:
            out.append(f"note: the run repeats {corpus.folder} {epochs:,.0f} times; more text would help")
    return out


def _label_warnings(batches: BatchMaker) -> list[str]:
    """Warns if the two labels of next-sentence prediction are far from balanced."""
    shares = {length: each.not_next_share() for length, each in batches.samplers.items() if each.layout == "nsp"}
    length, share = max(shares.items(), key=lambda item: item[1], default=(0, 0.0))
    if share <= MAX_NOT_NEXT:
        return []
    return [
        f"warning: {share:.0%} of the pairs for next-sentence prediction are labelled 'not next' at length {length}, "
        f"because {2 * share - 1:.0%} of the sequences are documents of one sentence, which have no next one: put "
        "consecutive sentences into one document, or set objective.sentence=none"
    ]
