"""Steps with what was kept of a teacher: captured and plain, the losses and weights of a teacher that runs."""

import copy

import numpy as np
import pytest
import torch

from gpu.test_cuda_graphs import OUTPUTS, batch_of, small
from hornbook.batch import Batch
from hornbook.models.head_config import HeadConfig
from hornbook.models.transformer import Transformer
from hornbook.objectives.distillation.matching import Match, StageRecipe
from hornbook.objectives.distillation.task import (
    TaskDistillation,
    TeacherColumns,
    columns_for,
    compute_rows,
    needed_columns,
)
from hornbook.runs.distillation.teacher import Teacher
from hornbook.runs.finetuning.job import with_teacher
from hornbook.tasks.objective import TaskObjective
from hornbook.train.objective import TrainingModule
from hornbook.train.optimizer import make_optimizer
from hornbook.train.runtime import Runtime
from hornbook.train.settings import OptimizerSettings
from hornbook.train.step import Stepper

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]
RECIPES = {
    "scores": StageRecipe((Match("logits", "mse"),), 0.5),
    "layers": StageRecipe((Match("embeddings", "mse"), Match("hidden", "mse"), Match("attention", "mse"))),
}
A_BATCH = 1000  # numbers of sequences that are left for each batch


class InMemory:
    """Rows of the teacher by number."""

    def __init__(self, teacher: Transformer, columns: TeacherColumns, batches: list[Batch], runtime: Runtime):
        self.columns, self.of_groups, self.of_sequences = columns, {}, {}
        for number, batch in enumerate(batches):
            with torch.no_grad(), runtime.autocast():
                groups, tokens = compute_rows(teacher, columns, batch)
            together = batch.group_size
            if groups is not None:
                first = number * A_BATCH // together
                self.of_groups |= {first + i: row for i, row in enumerate(groups.cpu().numpy())}
            if tokens is not None:
                rows = np.split(tokens.cpu().numpy(), batch.offsets_host[1:-1])
                self.of_sequences |= {number * A_BATCH + i: row for i, row in enumerate(rows)}

    def groups(self, groups: np.ndarray, columns: TeacherColumns) -> np.ndarray:
        return np.stack([self.of_groups[group] for group in groups.tolist()])

    def tokens(self, sequences: np.ndarray, columns: TeacherColumns) -> np.ndarray:
        return np.concatenate([self.of_sequences[each] for each in sequences.tolist()])


def losses_of(
    head_config: HeadConfig, recipe: StageRecipe, is_kept: bool, runtime: Runtime
) -> tuple[list[float], dict]:
    student, large = small(head_config).to(runtime.device), small(head_config).to(runtime.device)
    with torch.no_grad():
        for parameter in large.parameters():
            parameter.mul_(1.5)
    plain = TaskDistillation(TaskObjective(head_config), head_config, recipe, student.config, large.config)
    batches = [batch_of(head_config, number).to(runtime.device) for number in range(5)]
    columns = columns_for(needed_columns(plain.matches, plain.layers), head_config, large.config, batches[0].group_size)
    kept = InMemory(large.eval(), columns, batches, runtime) if is_kept else None
    teacher = Teacher("", None, copy.deepcopy(large), None, "")
    pair, objective = with_teacher(student, TaskObjective(head_config), recipe, teacher, 0, kept)
    stepper = Stepper(
        TrainingModule(pair, objective), make_optimizer(pair, OptimizerSettings(lr=1e-4)), runtime, 0, 1.0, 65_536
    )
    if is_kept:
        numbers = [number * A_BATCH + np.arange(batch.num_sequences) for number, batch in enumerate(batches)]
        batches = [a.with_values("sequences", dataset_index_host=b) for a, b in zip(batches, numbers, strict=True)]
        absent = torch.nn.Identity()  # nothing but its size is asked again
        absent.config = large.config
        pair._teacher = (absent,)
    found = [float(stepper.train_step(batch, number, 1e-4).loss) for number, batch in enumerate(batches)]
    return found, {name: value.detach().float().cpu() for name, value in student.named_parameters()}


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", OUTPUTS)
def test_kept_rows_are_those_of_a_teacher_that_runs(name, recipe, graphs):
    runtime = Runtime(torch.device("cuda"), torch.bfloat16, False, 1, 0, "test", graphs)
    head_config = OUTPUTS[name]
    kept, weights = losses_of(head_config, RECIPES[recipe], True, runtime)
    wanted, others = losses_of(head_config, RECIPES[recipe], False, runtime)
    np.testing.assert_allclose(kept, wanted, rtol=0.02)
    for parameter, value in weights.items():
        torch.testing.assert_close(value, others[parameter], rtol=0, atol=2e-3)
