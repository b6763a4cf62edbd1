"""Example commands and code for using a fine-tuned run, by kind of task."""

import shlex

from hornbook.report.finetuned import FinetunedRun


def example_input(run: FinetunedRun) -> object:
    """An example input of the task: a text, a pair, a question with its passage, or a context with its endings."""
    return run.task_kind.sample_input(run.is_pair)


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
    kind = run.task_kind
    if not run.is_published or not kind.pipeline:
        return ""
    folder, given = str(run.folder), example_input(run)
    if not kind.has_pipeline:
        name = run.hf_class if run.has_double_heads else f"AutoModel{kind.hf_class}"
        return (
            f"from transformers import {name}, AutoTokenizer\n\n"
            f"model = {name}.from_pretrained({folder!r})\n"
            f"tokenizer = AutoTokenizer.from_pretrained({folder!r})\n"
        ) + kind.forward_code(given, run.has_double_heads)
    text = f"{{'text': {given[0]!r}, 'text_pair': {given[1]!r}}}" if isinstance(given, tuple) else repr(given)
    start = f"from transformers import pipeline\n\nuse = pipeline({kind.pipeline!r}, {folder!r})"
    return f"{start}\nuse({text}{kind.pipeline_arguments})"
