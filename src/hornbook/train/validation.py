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
    objective, ranks = module.objective, current_ranks()

    def totals(indices: Iterable[int]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The sums and total weights of these batches."""
        sums: dict[str, Tensor] = {}
        total_weights: dict[str, Tensor] = {}
        for i in indices:
            step_inputs = objective.prepare(held_out[i].to(runtime.device), seed_of("validation", i))
            for micro_batch in step_inputs.split(micro_tokens):
                with runtime.autocast():
                    values = module(micro_batch, with_metrics=True)
                sums = {name: sums.get(name, 0.0) + value.double() for name, value in values.items()}
            total_weights = {
                term: total_weights.get(term, 0.0) + total for term, total in step_inputs.total_weights().items()
            }
        return sums, total_weights

    # Each rank validates on its own batches; one without any computes one that does not count.
    own = range(ranks.rank, len(held_out), ranks.size)
    with evaluation_mode(module):
        sums, total_weights = ranks.raise_oom_on_all(lambda: totals(own or [0]))
    if not own:
        sums, total_weights = (
            {name: torch.zeros_like(value) for name, value in each.items()} for each in (sums, total_weights)
        )
    sums, total_weights = ranks.all_reduce(sums), ranks.all_reduce(total_weights)
    term_of = {name: name if name in total_weights else name.rpartition("_")[0] for name in sums}
    # A term may have no targets, such as mentions of entities: its loss is 0.
    means = {
        name: float(value / total_weights[term_of[name]]) if total_weights[term_of[name]] else 0.0
        for name, value in sums.items()
    }
    loss = sum(weight * means[term] for term, weight in objective.weights.items())
    return {"loss": loss, **means}
