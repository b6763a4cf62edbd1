"""Warnings about the data of a run, logged before it starts."""

from hornbook.runs.pretraining.batches import BatchMaker, Corpora
from hornbook.runs.pretraining.settings import PretrainSettings

MAX_NOT_NEXT = 0.55  # share of the pairs
MAX_EPOCHS = 100


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
    shares = {sampler.not_next_share(): length for length, sampler in samplers.items()}
    share = max(shares, default=0.0)
    if share > MAX_NOT_NEXT:
        warnings.append(
            f"warning: {share:.0%} of the pairs for next-sentence prediction are labelled 'not next' at length "
            f"{shares[share]}, because {2 * share - 1:.0%} of the sequences are documents of one sentence, which have "
            "no next one: put consecutive sentences into one document, or set objective.sentence=none"
        )
    return warnings
