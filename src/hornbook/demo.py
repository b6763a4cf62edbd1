"""The whole life of a model in a few minutes on a CPU: text, vocabulary, corpus, training, masks filled in, a report.

The text is what every Python carries: the language reference in `pydoc_data.topics` and the standard library's
docstrings. Each step is a verb of the `hornbook` command, shown as a person would type it.

    python -m hornbook.demo [FOLDER] [MINUTES]
"""

import ast
import json
import shlex
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

from hornbook.files import read_json, write_text

LEFT_OUT = {"test", "tests", "idlelib", "site-packages", "dist-packages", "lib2to3", "__pycache__", "ensurepip"}
SHORTEST_DOCUMENT = 400  # characters


def built_in_documents() -> Iterator[str]:
    """The chapters of the language reference, then each standard module's docstrings as one document."""
    from pydoc_data.topics import topics

    yield from (text for _, text in sorted(topics.items()))
    standard = Path(sysconfig.get_paths()["stdlib"])
    for file in sorted(standard.rglob("*.py")):
        if not LEFT_OUT & set(file.relative_to(standard).parts):
            yield _docstrings(file)


def _docstrings(file: Path) -> str:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError, ValueError):
        return ""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
    return "\n".join(text for text in found if text and " " in text)


def main(folder: str = "runs/demo", minutes: str = "2") -> None:
    """Runs every step into `folder`, which must not hold an earlier demo."""
    from hornbook.terminal import say

    began = time.monotonic()
    home = Path(folder)
    if (home / "run").exists():
        say(f"{home} holds an earlier demo: remove it to run the demo again (rm -r {shlex.quote(str(home))})")
        return
    documents = [text for text in built_in_documents() if len(text) >= SHORTEST_DOCUMENT]
    write_text(home / "python.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in documents))
    size = sum(map(len, documents)) / 1e6
    say(f"{len(documents):,} documents, {size:.1f} million characters of Python's own documentation\n")
    text, vocabulary, corpus, run = (str(home / name) for name in ("python.jsonl", "vocabulary", "corpus", "run"))
    _verb("tokenizer", "train", text, "--out", vocabulary, "--vocab-size", "8000")
    _verb("corpus", "build", text, "--tokenizer", vocabulary, "--out", corpus)
    settings = ["optimizer.lr=3e-3", "schedule.warmup_fraction=0.1", "data.short_length=64", "data.short_share=1"]
    changes = [part for setting in settings for part in ("--set", setting)]
    _verb(
        "pretrain",
        "bert-tiny",
        "--corpus",
        corpus,
        "--out",
        run,
        "--minutes",
        minutes,
        "--batch-tokens",
        "4096",
        *changes,
    )
    _show_samples(Path(run))
    _verb("report", run)
    _show_result(Path(run), time.monotonic() - began)


def _verb(*words: str) -> None:
    from hornbook.cli import app
    from hornbook.terminal import console, say

    console.print(f"$ hornbook {shlex.join(words)}", style="bold", markup=False, soft_wrap=True)
    try:
        app(list(words), standalone_mode=False)
    except ValueError as error:
        say(f"hornbook: {error}")
        sys.exit(2)
    say("")


def _show_samples(run: Path) -> None:
    from hornbook.terminal import say, table

    say("sentences that were held out, with a word hidden:")
    rows = []
    for sample in json.loads((run / "samples.json").read_text(encoding="utf-8")):
        guesses = [f"{guess['token']} {guess['probability']:.0%}" for guess in sample["guesses"][:3]]
        mark = "✓" if sample["guesses"][0]["token"] == sample["answer"] else ""
        rows.append((mark, sample["text"], sample["answer"], ", ".join(guesses)))
    table(rows, ("", "sentence", "hidden", "guesses"))
    say("")


def _show_result(run: Path, seconds: float) -> None:
    from hornbook.report.run import RunRecord
    from hornbook.terminal import say

    baseline = read_json(run / "run.json")["frequency_baseline"]
    last = RunRecord.load(run).last_validation
    say(
        f"masked-word loss on held-out text: {last['mlm']:.2f}, guessing by word frequency: {baseline['mlm']:.2f}; "
        f"right words: {last['mlm_accuracy']:.0%} against {baseline['mlm_accuracy']:.0%}"
    )
    say(f"the whole life of a model took {seconds / 60:.1f} minutes; open {run / 'report.html'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
