"""The loss on a task's labels, for a run and for every stage of a distillation."""

import numpy as np

from hornbook.runs.finetuning.inputs import Inputs
from hornbook.runs.finetuning.settings import FinetuneSettings
from hornbook.tasks.objective import TaskObjective, class_weights


def label_objective(inputs: Inputs, settings: FinetuneSettings) -> TaskObjective:
    """The loss on labels. With `task.class_weights`, rare classes weigh more in it and in the match of teacher
    logits."""
    output, features = inputs.saved.task.output, inputs.train_features
    if not settings.task.class_weights:
        return TaskObjective(output)
    if not output.type.has_labels or output.problem != "single":
        raise ValueError("task.class_weights is for single-label classification and tagging: leave it out here")
    labels = np.concatenate(features.token_labels) if output.type.per_token else features.labels
    return TaskObjective(output, class_weights(labels, output.num_labels))
