"""The loss of a task's labels, in a run and in every stage of a distillation."""

import numpy as np

from hornbook.finetuning.inputs import Inputs
from hornbook.finetuning.settings import FinetuneSettings
from hornbook.tasks.objective import TaskObjective, class_weights


def label_objective(inputs: Inputs, settings: FinetuneSettings) -> TaskObjective:
    """With `task.class_weights`, rare classes count more in it and in what is matched of a teacher's logits."""
    output, features = inputs.saved.task.output, inputs.train_features
    if not settings.task.class_weights:
        return TaskObjective(output)
    if output.kind == "tokens":
        return TaskObjective(output, class_weights(np.concatenate(features.token_labels), output.num_labels))
    if output.kind == "sequence" and output.problem == "single":
        return TaskObjective(output, class_weights(features.labels, output.num_labels))
    raise ValueError("task.class_weights is for one class of several and for tags: leave it out here")
