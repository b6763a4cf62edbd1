"""The verbs. Each parses, calls one function and prints; nothing heavy is imported before a verb needs it."""

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup


class Verbs(TyperGroup):
    def invoke(self, ctx):
        """Says that a verb was stopped, which typer would leave unsaid."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            _complain(str(stop) or "stopped")
            raise typer.Exit(130) from None

    def list_commands(self, ctx) -> list[str]:
        """In the order in which a person needs them."""
        return sorted(super().list_commands(ctx), key=lambda name: name not in ("tokenizer", "corpus"))


def _complain(error: Exception | str) -> None:
    if isinstance(error, OSError) and error.filename and error.strerror:
        error = f"{error.filename}: {error.strerror.lower()}"
    print(f"hornbook: {error}", file=sys.stderr)


app = typer.Typer(
    name="hornbook",
    cls=Verbs,
    help="Raw text to a pre-trained language model, and the model to the people who use it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
tokenizer_app = typer.Typer(help="Train a vocabulary, or add words to one.", no_args_is_help=True)
corpus_app = typer.Typer(help="Turn files of text into token shards.", no_args_is_help=True)
app.add_typer(tokenizer_app, name="tokenizer")
app.add_typer(corpus_app, name="corpus")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")]
Files = Annotated[list[Path], typer.Argument(help="Files or folders: .txt, .jsonl, .parquet, also .gz, .xz, .zst.")]
TextColumn = Annotated[str | None, typer.Option(help="The column (parquet) or key (jsonl) that holds the text.")]
Model = Annotated[str, typer.Argument(help="A run folder, a folder that transformers wrote, or a Hugging Face name.")]


def _answer(as_json: bool, value: dict) -> None:
    if as_json:
        print(json.dumps(value, ensure_ascii=False), flush=True)


@tokenizer_app.command(
    "train", epilog="Example: hornbook tokenizer train texts/ --out vocabulary --kind wordpiece --vocab-size 30000"
)
def tokenizer_train(
    files: Files,
    out: Annotated[Path, typer.Option(help="Where the tokenizer goes.")],
    kind: Annotated[str, typer.Option(help="wordpiece, bpe (byte-level) or unigram.")] = "wordpiece",
    vocab_size: Annotated[int, typer.Option(help="Tokens at most.")] = 30000,
    cased: Annotated[bool, typer.Option("--cased", help="Keep upper case and accents.")] = False,
    text_column: TextColumn = None,
    as_json: Json = False,
) -> None:
    """Train a vocabulary, and show how it fits the text."""
    from hornbook.data.problems import Problems
    from hornbook.data.readers import read_documents
    from hornbook.terminal import counting_display, say
    from hornbook.text.training import train_tokenizer

    _check_writable(out)
    _refuse_existing(out, "tokenizer.json", "a tokenizer")
    problems = Problems()
    texts = (document.text for document in read_documents(files, text_column=text_column, problems=problems))
    with _stopped_at_once(), counting_display("reading") as show:
        train = partial(train_tokenizer, texts, kind=kind, vocab_size=vocab_size, cased=cased, progress=show)
        trained = _in_a_thread(train)
    trained.save(out)
    _say_problems(problems.as_dict())
    say(f"{out}: {trained.vocab_size:,} tokens, {kind}, {'cased' if cased else 'uncased'}")
    _answer(as_json, {"out": str(out), "vocab_size": trained.vocab_size, "fit": _show_fit(trained, files, text_column)})


def _in_a_thread(work: Callable):
    """The library that learns a vocabulary hears no Ctrl-C, for minutes; the main thread, waiting, does."""
    future: Future = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future.result()


@contextlib.contextmanager
def _stopped_at_once() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        _complain("stopped; nothing was written")
        sys.stdout.flush()
        os._exit(130)  # without waiting for the thread


@tokenizer_app.command(
    "extend", epilog="Example: hornbook tokenizer extend bert-base-uncased law/ --words 500 --out law-vocabulary"
)
def tokenizer_extend(
    tokenizer: Annotated[str, typer.Argument(help="A tokenizer or model folder, or a Hugging Face name.")],
    files: Files,
    out: Annotated[Path, typer.Option(help="Where the larger tokenizer goes.")],
    words: Annotated[int, typer.Option(help="How many words to add.")] = 500,
    word_list: Annotated[Path | None, typer.Option(help="Add just these words, one a line.")] = None,
    text_column: TextColumn = None,
    as_json: Json = False,
) -> None:
    """Add a domain's words to a vocabulary, for 'pretrain --from'."""
    from hornbook.data.readers import read_documents
    from hornbook.interop.hub import model_folder
    from hornbook.terminal import say
    from hornbook.text.extension import words_worth_adding
    from hornbook.text.tokenizer import Tokenizer

    _check_writable(out)
    _refuse_existing(out, "tokenizer.json", "a tokenizer")
    extended = Tokenizer.load(model_folder(tokenizer))
    if word_list is None:
        texts = (document.text for document in read_documents(files, text_column=text_column))
        chosen = words_worth_adding(extended, texts, words)
    else:
        chosen = _words_in(word_list)
    added = extended.add_words(chosen)
    extended.save(out)
    some = ", ".join(extended.token(number) for number, _ in added[:12]) + (" ..." if len(added) > 12 else "")
    say(f"{out}: {len(added):,} words added{f' ({some})' if some else ''}, {extended.vocab_size:,} tokens")
    fit = _show_fit(extended, files, text_column)
    _answer(as_json, {"out": str(out), "added": len(added), "vocab_size": extended.vocab_size, "fit": fit})


def _words_in(word_list: Path) -> list[str]:
    try:
        return word_list.read_text(encoding="utf-8-sig").split()
    except UnicodeDecodeError:
        raise ValueError(f"{word_list} is not UTF-8 text: give a file with one word a line") from None


def _show_fit(tokenizer, files: list[Path], text_column: str | None) -> dict:
    """Measures on the first 5 million characters, and prints."""
    from hornbook.data.readers import read_documents
    from hornbook.terminal import say, table
    from hornbook.text.fit import measure_fit

    def beginning():
        left = 5_000_000
        for document in read_documents(files, text_column=text_column):
            yield document.text[:left]
            left -= len(document.text)
            if left <= 0:
                return

    fit = measure_fit(tokenizer, beginning())
    say(
        f"{fit.pieces_per_word:.3f} pieces a word, {fit.characters_per_token:.2f} characters a token, "
        f"{fit.unknown_rate:.3%} unknown, {fit.vocabulary_used:.0%} of the vocabulary used"
    )
    split = [each for each in fit.longest_splits if len(each.pieces) > 1]
    if split:
        rows = [(each.word, each.count, len(each.pieces), " ".join(each.pieces)) for each in split]
        table(rows, ("longest-split words", "count", "pieces", "split as"))
    return fit.to_dict()


@corpus_app.command(
    "build", epilog="Example: hornbook corpus build texts/ --tokenizer vocabulary --out corpus --workers 4"
)
def corpus_build(
    files: Files,
    tokenizer: Annotated[str, typer.Option(help="A tokenizer or model folder, or a Hugging Face name.")],
    out: Annotated[Path, typer.Option(help="Where the corpus goes.")],
    workers: Annotated[int | None, typer.Option(help="Processes; one a core when not said.")] = None,
    documents: Annotated[
        str, typer.Option(help="In .txt, a document ends at a 'blank-line', or is a 'file'.")
    ] = "blank-line",
    text_column: TextColumn = None,
    clean: Annotated[str | None, typer.Option(help="'wiki' removes lists, tables and headings.")] = None,
    keep_duplicates: Annotated[
        bool, typer.Option("--keep-duplicates", help="Keep documents that occur twice.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Turn text into token shards. The same command goes on with a build that was stopped."""
    from hornbook.data.build import build_corpus
    from hornbook.interop.hub import model_folder
    from hornbook.terminal import building_display, say, short

    if documents not in ("blank-line", "file"):
        raise ValueError(f"--documents must be blank-line or file, not '{documents}'")
    _check_writable(out)
    with building_display() as show:
        manifest = build_corpus(
            files,
            model_folder(tokenizer),
            out,
            workers=workers,
            documents=documents,
            text_column=text_column,
            clean=clean,
            deduplicate=not keep_duplicates,
            progress=show,
        )
    totals, num_shards = manifest["totals"], len(manifest["shards"])
    if manifest.get("already_built"):
        say(f"{out} is already built")
    say(
        f"{out}: {totals['documents']:,} documents, {totals['sentences']:,} sentences, {short(totals['tokens'])} "
        f"tokens in {num_shards} shard{'s' if num_shards > 1 else ''}, {manifest['megabytes_per_second']:.1f} MB/s"
    )
    for kind, count in manifest["cleaned"].items():
        say(f"  removed {count:,}: {kind.replace('_', ' ')}")
    _say_problems(manifest["problems"])
    _say_repeated_lines(manifest["repeated_lines"])
    _answer(as_json, {"out": str(out), **{key: value for key, value in manifest.items() if key != "sources"}})


def _say_problems(problems: dict) -> None:
    from hornbook.terminal import say

    for entry in problems.values():
        places = [" ".join(filter(None, map(each.get, ("file", "place", "detail")))) for each in entry["examples"][:2]]
        say(f"  note: {entry['count']:,} {entry['what']} ({'; '.join(places)})")


def _say_repeated_lines(report: dict) -> None:
    from hornbook.terminal import say

    if report.get("repeated_share", 0) > 0.01:
        say(f"  note: {report['repeated_share']:.1%} of the lines repeat earlier ones, most often:")
        for line in report.get("most_repeated", [])[:3]:
            say(f"    {line['count']:,} x {line['line'][:90]}")


def _check_writable(out: Path) -> None:
    """Before the work rather than after it."""
    nearest = next(path for path in (out, *out.parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise ValueError(
            f"{out} cannot be written, as {nearest} is no folder that you may write to: choose another --out"
        )


def _refuse_existing(out: Path, file: str, what: str) -> None:
    if (out / file).exists():
        raise ValueError(f"{out} already holds {what}: choose another --out, or remove it")


@app.command(
    "pretrain", epilog="Example: hornbook pretrain bert-base --corpus wiki:3 --corpus law --out runs/law --minutes 60"
)
def pretrain_verb(
    preset: Annotated[str, typer.Argument(help="bert-tiny, -mini, -small, -medium, -base or -large.")],
    out: Annotated[Path | None, typer.Option(help="The run folder.")] = None,
    corpus: Annotated[list[str] | None, typer.Option(help="A corpus folder, with :WEIGHT when mixing several.")] = None,
    base: Annotated[
        str | None, typer.Option("--from", help="Go on from this model (its size wins over the preset's).")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Number of updates.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Or: number of tokens.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Or: minutes, measured and turned into steps.")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Tokens in a batch.")] = None,
    seed: Annotated[int | None, typer.Option(help="Everything random follows from it.")] = None,
    change: Annotated[list[str] | None, typer.Option("--set", help="key=value; --show lists the keys.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, or start it.")] = False,
    show: Annotated[bool, typer.Option("--show", help="List all settings with their values, and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Pre-train a model on corpora. Stop it at any moment; --resume goes on as if nothing had happened."""
    changes = _changes(change)
    if sum(each is not None for each in (steps, tokens, minutes)) > 1:
        raise ValueError("give only one of --steps, --tokens and --minutes")
    numbers = {"--steps": (steps, 1), "--tokens": (tokens, 1), "--batch-tokens": (batch_tokens, 8), "--seed": (seed, 0)}
    for option, (number, least) in numbers.items():
        if number is not None and number < least:
            raise ValueError(f"{option} must be at least {least}, not {number}")
    if minutes is not None and not 0 < minutes < float("inf"):
        raise ValueError(f"--minutes must be above 0, not {minutes:g}")
    if show:
        flags = {"schedule.steps": steps, "batch.tokens": batch_tokens, "runtime.seed": seed}
        named = {name: value for name, value in flags.items() if value is not None}
        _show_settings(preset, changes | named, as_json)
        return
    if out is None or (not corpus and not (resume and (out / "run.json").exists())):
        missing = "--out" if out is None else "--corpus"
        raise ValueError(f"pretrain needs {missing}; see 'hornbook pretrain --help'")
    _check_writable(out)
    from hornbook.pretraining.run import pretrain
    from hornbook.terminal import TrainingDisplay, say

    with TrainingDisplay() as display:
        outcome = pretrain(
            preset,
            corpus or [],
            out,
            base=base,
            steps=steps,
            tokens=tokens,
            minutes=minutes,
            batch_tokens=batch_tokens,
            seed=seed,
            changes=changes,
            resume=resume,
            watch=display,
            say=say,
        )
    _say_outcome(out, outcome)
    _answer(as_json, {"out": str(out), **vars(outcome)})
    if outcome.ended == "stopped":
        sys.stdout.flush()
        raise typer.Exit(130)


def _say_outcome(out: Path, outcome) -> None:
    from hornbook.terminal import duration, say, short

    if outcome.ended == "already finished":
        say(f"{out} is finished: there is nothing to do")
        return
    seen = f"{outcome.step:,} steps, {short(outcome.tokens)} tokens, {duration(outcome.seconds)}"
    if outcome.ended == "stopped":
        say(f"stopped and saved at {seen}; the same command with --resume goes on")
        return
    terms = [name for name in outcome.last if f"validation_{name}" in outcome.last and name != "loss"]
    summed = f" ({' + '.join(terms)})" if len(terms) > 1 else ""
    best = f", best validation loss {outcome.best:.3f}{summed}" if outcome.best is not None else ""
    say(f"{out}: finished, {seen}{best}")
    say(f'  hornbook report {out}      hornbook fill-mask {out} "...[MASK]..."')


def _changes(pairs: list[str] | None) -> dict[str, str]:
    for pair in pairs or []:
        if "=" not in pair:
            raise ValueError(f"--set takes key=value, such as --set optimizer.lr=3e-4, not '{pair}'")
    return {key.strip(): value.strip() for key, _, value in (pair.partition("=") for pair in pairs or [])}


def _show_settings(preset: str, changes: dict[str, str], as_json: bool) -> None:
    from hornbook.config import listed
    from hornbook.pretraining.settings import preset_settings
    from hornbook.terminal import table

    found = list(listed(preset_settings(preset, changes)))
    table([(each.name, each.value, each.doc) for each in found], ("setting", "value", "what it is"))
    _answer(as_json, {each.name: each.value for each in found})


@app.command("fill-mask", epilog='Example: hornbook fill-mask runs/first "Paris is the [MASK] of France." --top 3')
def fill_mask(
    model: Model,
    text: Annotated[str, typer.Argument(help="A text with [MASK] where words are missing.")],
    top: Annotated[int, typer.Option(help="How many guesses for each mask.")] = 5,
    as_json: Json = False,
) -> None:
    """Fill in the masks of a text."""
    import hornbook
    from hornbook.terminal import table

    masks = hornbook.load(model).fill_mask(text, top)
    for guesses in masks:
        table([(f"{guess.probability:.2%}", guess.word, guess.text) for guess in guesses], ("", "word", "text"))
    _answer(as_json, {"masks": [[vars(guess) for guess in guesses] for guesses in masks]})


@app.command("next-sentence", epilog='Example: hornbook next-sentence runs/first "He went out." "It was raining."')
def next_sentence(
    model: Model,
    a: Annotated[str, typer.Argument(help="The first sentence.")],
    b: Annotated[str, typer.Argument(help="The one that may follow it.")],
    as_json: Json = False,
) -> None:
    """Say how likely B is to follow A."""
    import hornbook
    from hornbook.terminal import say

    probability = hornbook.load(model).next_sentence(a, b)
    say(f"{probability:.1%} that the second follows the first")
    _answer(as_json, {"is_next": probability})


@app.command("info", epilog="Example: hornbook info runs/first")
def info(
    path: Annotated[Path, typer.Argument(help="Any folder that Hornbook or transformers wrote.")], as_json: Json = False
) -> None:
    """Say what a folder is: parameters, tokens, data, last loss."""
    from hornbook.report.info import describe, lines
    from hornbook.terminal import table

    description = describe(path)
    table(lines(description))
    _answer(as_json, description)


@app.command("report", epilog="Example: hornbook report runs/first")
def report(run: Annotated[Path, typer.Argument(help="A run folder.")], as_json: Json = False) -> None:
    """Write report.html and curves.png into a run folder."""
    from hornbook.report.page import write_report
    from hornbook.terminal import say

    page = write_report(run)
    say(f"{page} and {page.with_name('curves.png')}")
    _answer(as_json, {"page": str(page), "curves": str(page.with_name("curves.png"))})


@app.callback(invoke_without_command=True)
def hornbook(
    version: Annotated[bool, typer.Option("--version", help="Print the version, and stop.")] = False,
) -> None:
    if version:
        from hornbook import __version__

        print(__version__)
        raise typer.Exit


def main() -> None:
    """Runs a verb. What a person did wrong is one sentence and exit status 2, never a traceback."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        app()
    except (ValueError, OSError, RuntimeError) as error:
        if os.environ.get("HORNBOOK_TRACEBACK") or not _is_for_the_user(error):
            raise
        _complain(error)
        sys.exit(2)


def _is_for_the_user(error: Exception) -> bool:
    """Everything but a RuntimeError that is not ours: that is a fault of the program, and its traceback helps."""
    return not isinstance(error, RuntimeError) or type(error).__module__.startswith("hornbook.")
