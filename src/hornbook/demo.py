"""The whole life of a model in a few minutes on a CPU: text, vocabulary, corpus, training, masks filled in, a report.

The text is what every Python carries: the language reference in `pydoc_data.topics` and the standard library's
docstrings. Each step is a verb of the `hornbook` command, shown as a person would type it.

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
# Small and short: a wider start and no dropout leave the plateau of word frequencies in half the steps.
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
    """The prose of each chapter of the language reference, then of each standard module's docstrings."""
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
    """The paragraphs that are made of words, each on one line; tables and drawings are left out."""
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    return "\n".join(each for each in paragraphs if len(each) >= SHORTEST_PARAGRAPH and _is_words(each))


def _is_words(paragraph: str) -> bool:
    if re.search(r"[-=+|]{4}", paragraph):
        return False
    return sum(character.isalpha() or character == " " for character in paragraph) >= len(paragraph) / 2


def main(folder: str = "runs/demo", minutes: str = "3") -> None:
    """Runs every step into `folder`, which must not hold an earlier demo."""
    from hornbook.terminal import log

    began = time.monotonic()
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
    overrides = [word for setting in SETTINGS for word in ("--set", setting)]
    settled = ("--minutes", minutes, "--batch-tokens", "2048", *overrides)
    _run_command("pretrain", "bert-tiny", "--corpus", corpus, "--out", run, *settled)
    _show_samples(Path(run))
    _run_command("report", run)
    _show_result(Path(run), time.monotonic() - began)


def _run_command(*words: str) -> None:
    from hornbook.cli import app
    from hornbook.terminal import log, log_console

    log_console.print(f"$ hornbook {shlex.join(words)}", style="bold", markup=False, soft_wrap=True)
    try:
        stopped = app(list(words), standalone_mode=False)
    except ValueError as error:
        log(f"hornbook: {error}")
        sys.exit(2)
    if stopped:
        sys.exit(stopped)
    log("")


def _show_samples(run: Path) -> None:
    from hornbook.terminal import log, table

    log("sentences that were held out, with a word hidden:")
    rows = []
    for sample in json.loads((run / "samples.json").read_text(encoding="utf-8")):
        guesses = [f"{guess['token']} {guess['probability']:.0%}" for guess in sample["guesses"][:3]]
        mark = "✓" if sample["guesses"][0]["token"] == sample["answer"] else ""
        rows.append((mark, sample["text"], sample["answer"], ", ".join(guesses)))
    table(rows, ("", "sentence", "hidden", "guesses"))
    log("")


def _show_result(run: Path, seconds: float) -> None:
    from hornbook.report.run import RunRecord
    from hornbook.terminal import print_result

    baseline = read_json(run / "run.json")["frequency_baseline"]
    last = RunRecord.load(run).last_validation
    print_result(
        f"masked-word loss on held-out text: {last['mlm']:.2f}, guessing by word frequency: {baseline['mlm']:.2f}; "
        f"right words: {last['mlm_accuracy']:.0%} against {baseline['mlm_accuracy']:.0%}"
    )
    if last["mlm"] > baseline["mlm"] - 0.3:
        steps = RunRecord.load(run).num_steps
        print_result(f"little was learned: only {steps:,} steps fit in the time; try again on an idle machine")
    print_result(f"the whole life of a model took {seconds / 60:.1f} minutes; open {run / 'report.html'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
