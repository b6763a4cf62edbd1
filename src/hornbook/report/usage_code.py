"""How to use a model with a task head: sample inputs, and programs for `transformers`, `sentence-transformers` and ONNX
Runtime. They follow from the output of the head, so that new kinds of tasks have them too."""

from typing import Any

from hornbook.tasks.kinds import Task
from hornbook.tasks.kinds.multi_label import MultiLabel

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


def library_code(kind: type[Task], folder: str) -> tuple[str, str] | None:
    """(name of a library other than `transformers` that opens a run of this kind, code that uses it there)."""
    if kind.output != "vectors":
        return None
    code = (
        "from sentence_transformers import SentenceTransformer\n\n"
        f"SentenceTransformer({folder!r}).encode(['How do I reset my password?'])"
    )
    return "sentence-transformers", code


def forward_code(kind: type[Task], has_double_heads: bool) -> str:
    """Lines of Python that run a model of `hf_class` on the sample input, if `transformers` has no pipeline."""
    sample = SAMPLE_INPUTS[kind.output]
    if kind.output == "spans":
        return (
            f'inputs = tokenizer({sample[0]!r}, {sample[1]!r}, return_tensors="pt")\n'
            "outputs = model(**inputs)\n"
            "first, last = int(outputs.start_logits.argmax()), int(outputs.end_logits.argmax())\n"
            'tokenizer.decode(inputs["input_ids"][0, first : last + 1])'
        )
    start = (
        f"context, choices = {sample!r}\n"
        'inputs = tokenizer([context] * len(choices), choices, return_tensors="pt", padding=True)\n'
    )
    if has_double_heads:
        return start + (
            'last = inputs["attention_mask"].sum(-1) - 1\n'
            'model(inputs["input_ids"][None], mc_token_ids=last[None]).mc_logits.softmax(-1)'
        )
    return start + "model(**{name: value[None] for name, value in inputs.items()}).logits.softmax(-1)"


def onnx_code(task: Task, num_rows: int, has_pair: bool) -> tuple[list, str]:
    """Example texts for an exported model, and the lines of a program that decode its outputs. `num_rows`: sequences
    per input."""
    if task.output == "choice":
        return [("She opened the door", choice) for choice in (SAMPLE_CHOICES * num_rows)[:num_rows]], (
            'logits = session.run(["logits"], {name: each[None] for name, each in fed.items()})[0]\n'
            "print(texts[logits[0].argmax()][1])\n"
        )
    if task.output == "spans":
        return [("Who wrote it?", "It was written by a teacher in 1543.")], (
            'start, end = (each[0] for each in session.run(["start_logits", "end_logits"], fed))\n'
            "passage = [i for i, part in enumerate(rows[0].sequence_ids) if part == 1]\n"
            "spans = [(start[i] + end[j], i, j) for i in passage for j in passage if i <= j < i + 30]\n"
            "_, first, last = max(spans)\n"
            "print(texts[0][1][rows[0].offsets[first][0] : rows[0].offsets[last][1]])\n"
        )
    texts, change = SAMPLE_PAIRS if has_pair and task.output == "sequence" else SAMPLE_TEXTS, ""
    if task.head_config.pair_encoding != "joint":  # the two texts of a pair, or its two orders, are two rows
        is_separate = task.head_config.pair_encoding == "separate"
        texts = SAMPLE_TEXTS if is_separate else [SAMPLE_PAIRS[0], SAMPLE_PAIRS[0][::-1]]
        change = "fed = {name: each[None] for name, each in fed.items()}\n"
    labels = f"labels = {list(task.head_config.labels)}\n" if task.has_labels else ""
    return texts, f'{change}logits = session.run(["logits"], fed)[0]\n{labels}{_decoding_code(task)}'


def _decoding_code(task: Task) -> str:
    """A line of Python that prints what `logits` of an exported model predict."""
    if task.output == "tokens":
        pairs = "[(row.tokens[i], labels[k]) for row, ks in zip(rows, logits.argmax(-1)) for i, k in enumerate(ks)]"
        return f"print({pairs})\n"
    if task.problem_type == "regression":
        return "print(logits[:, 0])\n"
    if isinstance(task, MultiLabel):
        return f"print([[labels[i] for i in numpy.flatnonzero(row >= {task.min_logit:.6g})] for row in logits])\n"
    return "print([labels[i] for i in logits.argmax(-1)])\n"
