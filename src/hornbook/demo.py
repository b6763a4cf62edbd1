"""A demo that takes a few minutes on a CPU: text, tokenizer, corpus, pre-training, masked-word predictions, report.

The text comes with Python: the language reference in `pydoc_data.topics` and the docstrings of the standard library.
Each step is a `hornbook` command, which is printed before it runs.

    python -m hornbook.demo [FOLDER] [MINUTES]
"""

import ast
import json
import re
import shlex
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

from hornbook.files import read_json, write_text

LEFT_OUT = {"test", "tests", "site-packages", "dist-packages", "__pycache__", "ensurepip"}
SHORTEST_DOCUMENT, SHORTEST_PARAGRAPH = 200, 20  # characters
# For a small model and a short run: a larger initialisation and no dropout halve the steps on the initial plateau,
# where the model predicts by word frequency.
SETTINGS = (
    "optimizer.lr=3e-3",
    "optimizer.beta2=0.98",
    "schedule.warmup_fraction=0.1",
    "model.init_std=0.06",
    "model.dropout=0",
    "model.attention_dropout=0",
    "data.short_length=64",
    "data.short_fraction=1",
)


def built_in_documents() -> Iterator[str]:
    """Yields the prose of each topic of the language reference, then of the docstrings of each standard module."""
    from pydoc_data.topics import topics

    yield from (_prose(text) for _, text in sorted(topics.items()))
    standard = Path(sysconfig.get_paths()["stdlib"])
    for file in sorted(standard.rglob("*.py")):
        if not LEFT_OUT & set(file.relative_to(standard).parts):
            yield _prose(_docstrings(file))


def _docstrings(file: Path) -> str:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError, ValueError):
        return ""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
    return "\n\n".join(text for text in found if text)


def _prose(text: str) -> str:
    """Returns the paragraphs that consist of words, one per line, without tables and diagrams."""
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    return "\n".join(each for each in paragraphs if len(each) >= SHORTEST_PARAGRAPH and _is_words(each))


def _is_words(paragraph: str) -> bool:
    if re.search(r"[-=+|]{4}", paragraph):
        return False
    return sum(character.isalpha() or character == " " for character in paragraph) >= len(paragraph) / 2


def main(folder: str = "runs/demo", minutes: str = "3") -> None:
    """Runs all steps in `folder`, which must not hold an earlier demo."""
    from hornbook.terminal import log

    start = time.monotonic()
    home = Path(folder)
    if (home / "run").exists():
        log(f"{home} holds an earlier demo: remove it to run the demo again (rm -r {shlex.quote(str(home))})")
        return
    documents = [text for text in built_in_documents() if len(text) >= SHORTEST_DOCUMENT]
    write_text(home / "python.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in documents))
    characters = sum(map(len, documents)) / 1e6
    log(f"{len(documents):,} documents, {characters:.1f} million characters of Python's own documentation\n")
    text, vocabulary, corpus, run = (str(home / name) for name in ("python.jsonl", "vocabulary", "corpus", "run"))
    _run_command("tokenizer", "train", text, "--out", vocabulary, "--vocab-size", "5000")
    _run_command("corpus", "build", text, "--tokenizer", vocabulary, "--out", corpus)
    overrides = [argument for setting in SETTINGS for argument in ("--set", setting)]
    options = ("--minutes", minutes, "--batch-tokens", "2048", *overrides)
    _run_command("pretrain", "bert-tiny", "--corpus", corpus, "--out", run, *options)
    _show_samples(Path(run))
    _run_command("report", run)
    _show_result(Path(run), time.monotonic() - start)


def _run_command(*arguments: str) -> None:
    from hornbook.cli import app
    from hornbook.terminal import log, log_console

    log_console.print(f"$ hornbook {shlex.join(arguments)}", style="bold", markup=False, soft_wrap=True)
    try:
        status = app(list(arguments), standalone_mode=False)
    except ValueError as error:
        log(f"hornbook: {error}")
        sys.exit(2)
    if status:
        sys.exit(status)
    log("")


def _show_samples(run: Path) -> None:
    from hornbook.terminal import log, table

    log("held-out sentences with a masked word:")
    rows = []
    for sample in json.loads((run / "samples.json").read_text(encoding="utf-8")):
        guesses = [f"{guess['token']} {guess['probability']:.0%}" for guess in sample["guesses"][:3]]
        mark = "✓" if sample["guesses"][0]["token"] == sample["answer"] else ""
        rows.append((mark, sample["text"], sample["answer"], ", ".join(guesses)))
    table(rows, ("", "sentence", "word", "predictions"))
    log("")


def _show_result(run: Path, seconds: float) -> None:
    from hornbook.report.run import RunRecord
    from hornbook.terminal import print_result

    baseline = read_json(run / "run.json")["frequency_baseline"]
    last = RunRecord.load(run).last_validation
    print_result(
        f"masked-word loss on held-out text: {last['mlm']:.2f} (by word frequency alone {baseline['mlm']:.2f}), "
        f"accuracy {last['mlm_accuracy']:.0%} ({baseline['mlm_accuracy']:.0%})"
    )
    if last["mlm"] > baseline["mlm"] - 0.3:
        steps = RunRecord.load(run).num_steps
        print_result(
            f"the model learned little, as only {steps:,} steps fitted in the time: try again on an idle machine"
        )
    print_result(f"finished in {seconds / 60:.1f} minutes; open {run / 'report.html'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
