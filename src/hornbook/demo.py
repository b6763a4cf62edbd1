"""A demo of a few minutes on a CPU: what the built-in model can do, and the whole life of a model from raw text.

1. The built-in models fill in masks and find replaced words, in English and in Korean.
2. The English one is fine-tuned on a small table of customer messages, predicts new ones, and gets a report.
3. A tiny model is trained from scratch: text, tokenizer, corpus, pre-training, predictions, report. The text comes with
   Python: the language reference in `pydoc_data.topics` and the docstrings of the standard library.

Each step is a `hornbook` command, which is printed before it runs.

    python -m hornbook.demo [FOLDER] [MINUTES]          # MINUTES of pre-training
"""

import argparse
import ast
import re
import shlex
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

from hornbook.files import read_json, write_json_lines
from hornbook.interop.hub import BUILTIN_MODELS
from hornbook.terminal import log, log_console, print_result, table

LEFT_OUT = {"test", "tests", "site-packages", "dist-packages", "__pycache__", "ensurepip"}
SHORTEST_DOCUMENT, SHORTEST_PARAGRAPH = 200, 20  # characters
MASKED = ("The book was [MASK] in 1998.", "He was elected [MASK] of the United States.", "Paris is a [MASK] in France.")
REPLACED = "The museum is open two the public."
KOREAN_MASKED, KOREAN_REPLACED = "나는 도서관에서 [MASK]을 읽었다.", "이 소설은 1998년에 먹었다."
MESSAGES = BUILTIN_MODELS / "messages.csv"  # written for this demo: 144 messages of four kinds
NEW_MESSAGES = (
    "Where is my parcel?",
    "The refund has not reached my bank.",
    "The app crashes when I log in.",
    "What a wonderful shop!",
    "My invoice is wrong.",
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
    docstrings = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
    return "\n\n".join(filter(None, docstrings))


def _prose(text: str) -> str:
    """Returns the paragraphs that consist of words, one per line, without tables and diagrams."""
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    return "\n".join(each for each in paragraphs if len(each) >= SHORTEST_PARAGRAPH and _is_words(each))


def _is_words(paragraph: str) -> bool:
    if re.search(r"[-=+|]{4}", paragraph):
        return False
    return sum(character.isalpha() or character == " " for character in paragraph) >= len(paragraph) / 2


def main() -> None:
    """Runs all steps in a folder that must not hold an earlier demo."""
    parser = argparse.ArgumentParser("python -m hornbook.demo", description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", default="runs/demo", type=Path)
    parser.add_argument("minutes", nargs="?", default=2.0, type=float, help="of pre-training (2)")
    args = parser.parse_args()
    start, home = time.monotonic(), args.folder
    if (home / "run").exists() or (home / "messages").exists():
        log(f"{home} holds an earlier demo: remove it to run the demo again (rm -r {shlex.quote(str(home))})")
        return
    _use_builtin_model()
    _finetune(home)
    _train_from_scratch(home, f"{args.minutes:g}")
    print_result(f"finished in {(time.monotonic() - start) / 60:.1f} minutes; the reports are:")
    for name in ("messages", "run"):
        print_result(f"  {home / name / 'report.html'}")


def _explain(text: str) -> None:
    log_console.print(text, style="cyan", markup=False, highlight=False, soft_wrap=True)


def _use_builtin_model() -> None:
    _explain("1. The English model inside the package predicts masked words, without a download or training:")
    for text in MASKED:
        _run_command("fill-mask", text, "--top-k", "3")
    _explain("It was pre-trained to notice replaced words, so it also finds words that do not fit:")
    _run_command("detect", REPLACED)
    _explain("Korean texts are read by a Korean model (I read [MASK] in the library; this novel was eaten in 1998):")
    _run_command("fill-mask", KOREAN_MASKED, "--top-k", "3")
    _run_command("detect", KOREAN_REPLACED)


def _finetune(home: Path) -> None:
    run = str(home / "messages")
    _explain("2. Fine-tuning `en` on 144 messages to a shop turns it into a classifier; a tenth of them is held out:")
    _run_command("finetune", "--data", str(MESSAGES), "--out", run)
    _explain("The classifier on messages it has not seen (130 examples are few: it errs), and a page with its scores:")
    _run_command("predict", run, *NEW_MESSAGES)
    _run_command("report", run)


def _train_from_scratch(home: Path, minutes: str) -> None:
    documents = [text for text in built_in_documents() if len(text) >= SHORTEST_DOCUMENT]
    write_json_lines(home / "python.jsonl", ({"text": text} for text in documents))
    characters = sum(map(len, documents)) / 1e6
    text, vocabulary, corpus, run = (str(home / name) for name in ("python.jsonl", "vocabulary", "corpus", "run"))
    _explain(f"3. A tiny model from scratch, on {characters:.1f} million characters of Python's own documentation.")
    _explain("A tokenizer splits words into the pieces that the model reads:")
    _run_command("tokenizer", "train", text, "--out", vocabulary, "--vocab-size", "5000")
    _explain("A corpus holds the tokens of all documents, so that training reads them quickly:")
    _run_command("corpus", "build", text, "--tokenizer", vocabulary, "--out", corpus)
    _explain(f"Pre-training for {minutes} minutes; with more time and text it would become a model like the first one:")
    _run_command("pretrain", "bert-tiny", "--corpus", corpus, "--out", run, "--minutes", minutes)
    _show_samples(Path(run))
    _run_command("report", run)
    _show_result(Path(run))


def _run_command(*arguments: str) -> None:
    from hornbook.cli import app

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
    log("held-out sentences with a masked word:")
    rows = []
    for sample in read_json(run / "samples.json", list):
        predictions = [f"{guess['token']} {guess['probability']:.0%}" for guess in sample["guesses"][:3]]
        mark = "✓" if sample["guesses"][0]["token"] == sample["answer"] else ""
        rows.append((mark, sample["text"], sample["answer"], ", ".join(predictions)))
    table(rows, ("", "sentence", "word", "predictions"))
    log("")


def _show_result(run: Path) -> None:
    from hornbook.report.run_files import ReportedRun

    reported = ReportedRun.load(run)
    last, baseline = reported.last_validation, reported.record["unigram_baseline"]
    print_result(
        f"masked-word loss on held-out text: {last['mlm']:.2f} (by word frequency alone {baseline['mlm']:.2f}), "
        f"accuracy {last['mlm_accuracy']:.0%} ({baseline['mlm_accuracy']:.0%})"
    )
    if last["mlm"] > baseline["mlm"] - 0.3:
        print_result(
            f"the model learned little, as only {reported.num_steps:,} steps fitted in the time: try again on an idle "
            "machine"
        )


if __name__ == "__main__":
    main()
