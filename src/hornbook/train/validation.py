"""Mean loss and accuracy on held-out batches."""

from collections.abc import Iterable

import torch
from torch import Tensor

from hornbook.batch import Batch
from hornbook.devices import eagerly, evaluation_mode
from hornbook.train.objective import TrainingModule
from hornbook.train.parallel.ranks import current_ranks
from hornbook.train.randomness import seed_of
from hornbook.train.runtime import Runtime


# Compiling the forward pass a second time, for evaluation, takes longer than it saves in short runs.
@eagerly()
@torch.no_grad()
def validate(
    module: TrainingModule, held_out: list[Batch], runtime: Runtime, micro_tokens: int = 65_536
) -> dict[str, float]:
    """Mean loss and metrics of each term over the held-out batches, with the same random masks every time. `loss` is
    the weighted sum of the terms."""
    if not held_out:
        return {}
    objective, ranks = module.objective, current_ranks()

    def totals(indices: Iterable[int]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The sums and counts of these batches."""
        sums: dict[str, Tensor] = {}
        counts: dict[str, Tensor] = {}
        for i in indices:
            step_inputs = objective.prepare(held_out[i].to(runtime.device), seed_of("validation", i))
            for micro_batch in step_inputs.split(micro_tokens):
                with runtime.autocast():
                    values = module(micro_batch, with_metrics=True)
                sums = {name: sums.get(name, 0.0) + value.double() for name, value in values.items()}
            counts = {term: counts.get(term, 0.0) + count for term, count in step_inputs.counts().items()}
        return sums, counts

    # Each rank validates on its own batches; one without any computes one that does not count.
    own = range(ranks.rank, len(held_out), ranks.size)
    with evaluation_mode(module):
        sums, counts = ranks.raise_oom_on_all(lambda: totals(own or [0]))
    if not own:
        sums, counts = ({name: torch.zeros_like(value) for name, value in each.items()} for each in (sums, counts))
    sums, counts = ranks.all_reduce(sums), ranks.all_reduce(counts)
    term_of = {name: name if name in counts else name.rpartition("_")[0] for name in sums}
    # A term may have no targets, such as mentions of entities: its loss is 0.
    means = {
        name: float(value / counts[term_of[name]]) if counts[term_of[name]] else 0.0 for name, value in sums.items()
    }
    loss = sum(weight * means[term] for term, weight in objective.weights.items())
    return {"loss": loss, **means}
