"""Sample inputs of a model with a task head, and its names in `transformers`. They follow from the output of the head,
so that new kinds of tasks have them too."""

from typing import Any

from hornbook.tasks.task import Task

# The task on the Hugging Face Hub, by output of the head.
HUB_TASKS = {
    "sequence": "text-classification",
    "choice": "multiple-choice",
    "tokens": "token-classification",
    "spans": "question-answering",
    "vectors": "sentence-similarity",
}
WITH_PIPELINE = ("sequence", "tokens")  # in `transformers`, which dropped some in version 5
PIPELINE_ARGUMENTS = {
    "multi_label_classification": ', top_k=None, function_to_apply="sigmoid"',
    "regression": ', function_to_apply="none"',
}
SAMPLE_TEXTS, SAMPLE_PAIRS = ["A charming journey.", "Slow, very slow."], [("A charming journey.", "A fine film.")]
SAMPLE_CHOICES = ("and went in.", "of the sea.", "for seven.", "and slept.")
SAMPLE_INPUTS = {
    "choice": ("She opened the door and", ["walked in.", "swam away."]),
    "tokens": "The teacher walked to the river in Seoul.",
    "spans": ("Who wrote the letter?", "The teacher wrote the letter in the morning."),
    "vectors": ("How do I reset my password?", "Choose a new password."),
}


def sample_input(kind: type[Task], has_pair: bool) -> Any:
    """An example input, as `predict` takes it: a text, a pair, a question with its passage, or a context with its
    choices."""
    if kind.marks:
        marked = zip(kind.marks, ("London", "Paris"), strict=False)
        return " and ".join(f"{mark} {word} {mark}" for mark, word in marked)
    if kind.output in SAMPLE_INPUTS:
        return SAMPLE_INPUTS[kind.output]
    return ("The first text.", "The second text.") if has_pair else "A text to judge."


def sample_texts(task: Task, num_rows: int, has_pair: bool) -> list:
    """Texts or pairs as the rows of an exported model: `num_rows` for one input, or two inputs."""
    if task.output == "choice":
        return [("She opened the door", choice) for choice in (SAMPLE_CHOICES * num_rows)[:num_rows]]
    if task.output == "spans":
        return [("Who wrote it?", "It was written by a teacher in 1543.")]
    if task.head_config.pair_encoding == "both":  # the two orders of a pair
        return [SAMPLE_PAIRS[0], SAMPLE_PAIRS[0][::-1]]
    is_pair = has_pair and task.output == "sequence" and task.head_config.pair_encoding == "joint"
    return SAMPLE_PAIRS if is_pair else SAMPLE_TEXTS
