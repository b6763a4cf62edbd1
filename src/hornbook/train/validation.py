"""Mean loss on batches that are held out from training."""

import torch
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.train.device import Runtime
from hornbook.train.objective import Objective
from hornbook.train.randomness import seed_of


# Compiling the way forward a second time, for evaluation, takes longer than short runs ever save by it.
@torch.compiler.set_stance("force_eager")
@torch.no_grad()
def validate(
    model: nn.Module, objective: Objective, held_out: list[Batch], runtime: Runtime, micro_tokens: int = 65_536
) -> dict[str, float]:
    """Mean loss and accuracy of each term over the held-out batches, with the same masks each time."""
    if not held_out:
        return {}
    was_training = model.training
    model.eval()
    generator = torch.Generator(runtime.device)
    sums: dict[str, Tensor] = {}
    counts: dict[str, Tensor] = {}
    for i, batch in enumerate(held_out):
        generator.manual_seed(seed_of("validation", i))
        step_inputs = objective.prepare(batch.to(runtime.device), generator)
        for part in step_inputs.split(micro_tokens):
            with runtime.autocast():
                found = objective.evaluate(model, part)
            sums = {name: sums.get(name, 0.0) + value.double() for name, value in found.items()}
        counts = {term: counts.get(term, 0.0) + count for term, count in step_inputs.counts().items()}
    model.train(was_training)
    of_term = {name: name if name in counts else name.rpartition("_")[0] for name in sums}
    means = {name: float(value / counts[of_term[name]]) for name, value in sums.items()}
    loss = sum(weight * means[term] for term, weight in objective.weights.items())
    return {"loss": loss, **means}
