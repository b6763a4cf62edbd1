"""Example commands and code for using a fine-tuned run, by kind of task."""

import shlex

from hornbook.report.finetuned import FinetunedRun

INPUTS = {
    "spans": ("Who wrote the letter?", "The teacher wrote the letter in the morning."),
    "choice": ("She opened the door and", ["walked in.", "swam away."]),
    "tagging": "The teacher walked to the river in Seoul.",
}
PIPELINES = {
    "classification": "text-classification",
    "regression": "text-classification",
    "spans": "question-answering",
    "tagging": "token-classification",
    "choice": "multiple-choice",
}


def example_input(run: FinetunedRun) -> object:
    """An example input of the task: a text, a pair, a question with its passage, or a context with its endings."""
    if run.kind in INPUTS:
        return INPUTS[run.kind]
    return ("The first text.", "The second text.") if run.is_pair else "A text to judge."


def predict_command(run: FinetunedRun) -> str:
    """A `hornbook predict` command; inputs other than a single text are read from a file."""
    given = example_input(run)
    rest = [given] if isinstance(given, str) else ["--file", "inputs.jsonl"]
    return shlex.join(["hornbook", "predict", str(run.folder), *rest])


def python_code(run: FinetunedRun) -> str:
    return (
        "from hornbook.inference.predictor import load_predictor\n\n"
        f"predictor = load_predictor({str(run.folder)!r})\npredictor.predict([{example_input(run)!r}])"
    )


def transformers_code(run: FinetunedRun) -> str:
    """Code that runs the model in `transformers`; empty if it has no class for the head."""
    if not run.is_published or run.kind not in PIPELINES:
        return ""
    folder, given = str(run.folder), example_input(run)
    if run.kind in ("choice", "spans"):
        return _without_pipeline(run, folder, given)
    if isinstance(given, tuple):
        call = f"use({{'text': {given[0]!r}, 'text_pair': {given[1]!r}}}{_call_arguments(run)})"
    else:
        call = f"use({given!r}{_call_arguments(run)})"
    start = f"from transformers import pipeline\n\nuse = pipeline({PIPELINES[run.kind]!r}, {folder!r})"
    return f"{start}\n{call}"


def _without_pipeline(run: FinetunedRun, folder: str, given: tuple) -> str:
    """For tasks that have a model class in `transformers` but, since version 5, no pipeline."""
    name = "AutoModelForMultipleChoice" if run.kind == "choice" else "AutoModelForQuestionAnswering"
    name = run.hf_class if run.has_double_heads else name
    start = (
        f"from transformers import {name}, AutoTokenizer\n\n"
        f"model = {name}.from_pretrained({folder!r})\n"
        f"tokenizer = AutoTokenizer.from_pretrained({folder!r})\n"
    )
    if run.kind == "choice":
        start += (
            f"context, endings = {given!r}\n"
            'inputs = tokenizer([context] * len(endings), endings, return_tensors="pt", padding=True)\n'
        )
        if run.has_double_heads:
            return start + (
                'last = inputs["attention_mask"].sum(-1) - 1\n'
                'model(inputs["input_ids"][None], mc_token_ids=last[None]).mc_logits.softmax(-1)'
            )
        return start + "model(**{name: value[None] for name, value in inputs.items()}).logits.softmax(-1)"
    return start + (
        f'inputs = tokenizer({given[0]!r}, {given[1]!r}, return_tensors="pt")\n'
        "found = model(**inputs)\n"
        "first, last = int(found.start_logits.argmax()), int(found.end_logits.argmax())\n"
        'tokenizer.decode(inputs["input_ids"][0, first : last + 1])'
    )


def _call_arguments(run: FinetunedRun) -> str:
    if run.kind == "regression":
        return ', function_to_apply="none"'
    return ', top_k=None, function_to_apply="sigmoid"' if run.is_multi else ""
