"""What a person should know about the data of a run before it starts."""

from hornbook.pretraining.batches import BatchMaker, Corpora
from hornbook.pretraining.settings import PretrainSettings

MOST_NOT_NEXT = 0.55  # share of the pairs
MOST_EPOCHS = 100


def warnings_of(settings: PretrainSettings, opened: Corpora, batches: BatchMaker) -> list[str]:
    return _of_repetition(opened, settings) + _of_labels(batches)


def _of_repetition(opened: Corpora, settings: PretrainSettings) -> list[str]:
    total = settings.schedule.steps * settings.batch.mean_tokens
    weight_sum = sum(weight for _, weight in opened)
    out = []
    for corpus, weight in opened:
        epochs = total * weight / weight_sum / max(1, corpus.num_tokens)
        if epochs > MOST_EPOCHS:
            out.append(f"note: the run reads {corpus.folder} {epochs:,.0f} times over; more text would serve it better")
    return out


def _of_labels(batches: BatchMaker) -> list[str]:
    """Where next-sentence prediction meets one label far more often than the other."""
    shares = {length: each.not_next_share() for length, each in batches.examples.items() if each.layout == "nsp"}
    length, share = max(shares.items(), key=lambda item: item[1], default=(0, 0.0))
    if share <= MOST_NOT_NEXT:
        return []
    return [
        f"warning: {share:.0%} of the pairs for next-sentence prediction are labelled 'not next' at length {length}, "
        f"because {2 * share - 1:.0%} of the sequences are documents of one sentence, which have no next one: keep "
        "sentences that follow each other in one document, or set objective.sentence=none"
    ]
