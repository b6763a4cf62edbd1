"""Commands that make vocabularies and corpora: `tokenizer train`, `tokenizer extend`, `corpus build`,
`corpus web`."""

import contextlib
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import typer

from hornbook.cli.app import app, log_problems, print_error, print_json, refuse_unused_options
from hornbook.cli.options import Documents, Overwrite, argument, flag, named_values, option
from hornbook.cli.overwriting import check_writable, overwriting, refuse_existing
from hornbook.terminal import (
    building_display,
    counting_display,
    log,
    log_console,
    print_result,
    short,
    table,
    web_display,
)

tokenizer_app = typer.Typer(help="Train a tokenizer, or add words to one.", no_args_is_help=True)
corpus_app = typer.Typer(
    help="Tokenize text files into a corpus of shards; extract text from web pages.", no_args_is_help=True
)
app.add_typer(tokenizer_app, name="tokenizer")
app.add_typer(corpus_app, name="corpus")

FILES_HELP = "Files or folders: .txt, .jsonl, .csv, .tsv, .parquet, also .gz, .xz, .zst."
Files = argument(list[Path], FILES_HELP)
TextColumn = option(str | None, "Column (.csv, .tsv, .parquet) or key (.jsonl) of the text.")


@tokenizer_app.command(
    "train", epilog="Example: hornbook tokenizer train texts/ --out vocabulary --kind wordpiece --vocab-size 30000"
)
def tokenizer_train(
    files: Files,
    out: option(Path, "Folder to write the tokenizer to."),
    kind: option(str, "wordpiece, bpe (byte-level) or unigram.") = "wordpiece",
    vocab_size: option(int, "Maximum vocabulary size.") = 30000,
    cased: flag("--cased", "Keep upper case and accents.") = False,
    add_prefix_space: flag("--add-prefix-space", "bpe: add a space before the first word (for encoders).") = False,
    text_column: TextColumn = None,
    overwrite: Overwrite = False,
) -> None:
    """Train a tokenizer, and print how well it fits the text."""
    from hornbook.data.problems import Problems
    from hornbook.data.readers import read_documents
    from hornbook.lifecycle.locking import run_lock
    from hornbook.text.training import train_tokenizer

    problems = Problems()
    texts = (document.text for document in read_documents(files, text_column=text_column, problems=problems))
    with _exit_on_interrupt(), overwriting(out, {"tokenizer"}, overwrite), run_lock(out):
        refuse_existing(out, "tokenizer.json", "a tokenizer")
        with counting_display("reading") as show:
            options = {"kind": kind, "vocab_size": vocab_size, "cased": cased, "add_prefix_space": add_prefix_space}
            # In a thread: training ignores Ctrl-C for minutes, the waiting main thread does not.
            trained = ThreadPoolExecutor(1).submit(train_tokenizer, texts, **options, on_progress=show).result()
        trained.save(out)
    log_problems(problems.to_dict())
    print_result(f"{out}: {trained.vocab_size:,} tokens, {kind}, {'cased' if cased else 'uncased'}")
    if trained.vocab_size < vocab_size:
        log(f"note: the texts have too few different words for {vocab_size:,} tokens: give more texts for a larger one")
    print_json({"out": str(out), "vocab_size": trained.vocab_size, "fit": _show_fit(trained, files, text_column)})


@contextlib.contextmanager
def _exit_on_interrupt() -> Iterator[None]:
    """Exits at once with status 130 on Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        print_error("stopped; nothing was written")
        sys.stdout.flush()
        os._exit(130)  # without waiting for the thread


@tokenizer_app.command(
    "extend", epilog="Example: hornbook tokenizer extend bert-base-uncased law/ --words 500 --out law-vocabulary"
)
def tokenizer_extend(
    tokenizer: argument(str, "A tokenizer or model folder, or a Hugging Face name."),
    files: Files,
    out: option(Path, "Folder to write the extended tokenizer to."),
    num_words: option(int | None, "Number of words to add; defaults to 500.", "--words") = None,
    word_list: option(Path | None, "Add only the words in this file, one per line.") = None,
    text_column: TextColumn = None,
    overwrite: Overwrite = False,
) -> None:
    """Add a domain's words to a tokenizer, for 'pretrain --from'."""
    from hornbook.data.readers import read_documents
    from hornbook.interop.hub import model_folder
    from hornbook.lifecycle.locking import run_lock
    from hornbook.text.tokenizer import Tokenizer
    from hornbook.text.vocabulary_fit import MIN_COUNT, words_worth_adding

    if word_list is not None and num_words is not None:
        refuse_unused_options("with --word-list", ["--words"])
    with overwriting(out, {"tokenizer"}, overwrite), run_lock(out):
        refuse_existing(out, "tokenizer.json", "a tokenizer")
        extended = Tokenizer.load(model_folder(tokenizer))
        if word_list is None:
            texts = (document.text for document in read_documents(files, text_column=text_column))
            new_words = words_worth_adding(extended, texts, 500 if num_words is None else num_words)
        else:
            new_words = _words_in(word_list)
        added = extended.add_words(new_words)
        extended.save(out)
    if not added and word_list is None:
        log(f"note: no word of several tokens occurs {MIN_COUNT} times or more; use --word-list to add words")
    words = ", ".join(extended.token(token_id) for token_id, _ in added[:12]) + (" ..." if len(added) > 12 else "")
    print_result(f"{out}: {len(added):,} words added{f' ({words})' if words else ''}, {extended.vocab_size:,} tokens")
    fit = _show_fit(extended, files, text_column)
    print_json({"out": str(out), "added": len(added), "vocab_size": extended.vocab_size, "fit": fit})


def _words_in(word_list: Path) -> list[str]:
    from hornbook.data.text_encoding import encoding_of

    data = word_list.read_bytes()
    try:
        lines = data.decode(encoding_of(data)).removeprefix("\ufeff").split("\n")
    except UnicodeDecodeError:
        raise ValueError(f"{word_list} is not UTF-8 text: give a file with one word per line") from None
    return [line.strip() for line in lines if line.strip()]


def _show_fit(tokenizer, files: list[Path], text_column: str | None) -> dict:
    """Measures how well a tokenizer fits the first 5 million characters of the files, and prints it."""
    from hornbook.data.readers import read_documents
    from hornbook.metrics.formatting import cut
    from hornbook.text.vocabulary_fit import measure_fit

    def beginning():
        left = 5_000_000
        for document in read_documents(files, text_column=text_column):
            yield document.text[:left]
            left -= len(document.text)
            if left <= 0:
                return

    fit = measure_fit(tokenizer, beginning())
    print_result(
        f"{fit.tokens_per_word:.3f} tokens per word, {fit.characters_per_token:.2f} characters per token, "
        f"{fit.unknown_rate:.3%} unknown, {fit.vocabulary_used:.0%} of the vocabulary used"
    )
    rows = [
        (cut(each.word, 40), each.count, len(each.pieces), cut(" ".join(each.pieces), 80))
        for each in fit.longest_splits
        if len(each.pieces) > 1
    ]
    if rows:
        table(rows, ("words with the most tokens", "count", "tokens", "split as"))
    return fit.to_dict()


@corpus_app.command(
    "build", epilog="Example: hornbook corpus build texts/ --tokenizer vocabulary --out corpus --workers 4"
)
def corpus_build(
    files: Files,
    tokenizer: option(str, "A tokenizer or model folder, or a Hugging Face name."),
    out: option(Path, "Folder to write the corpus to."),
    workers: option(int | None, "Worker processes; defaults to one per core, at most 12.") = None,
    documents: Documents = "blank-line",
    text_column: TextColumn = None,
    clean: option(str | None, "'wiki' removes lists, tables and headings.") = None,
    keep_duplicates: flag("--keep-duplicates", "Keep duplicate documents.") = False,
    near_duplicates: flag("--near-duplicates", "Also drop documents that hardly differ from earlier ones.") = False,
    exclude: option(
        list[str] | None,
        "Drop documents that share 13 words in sequence with this evaluation set: a file, a folder, or "
        "TASK:FOLDER, such as rte:glue/RTE; may be repeated.",
    ) = None,
    graph: option(Path | None, "Also store which entities of this graph the texts mention (for ERNIE).") = None,
    overwrite: Overwrite = False,
) -> None:
    """Tokenize text into shards. Run the same command again to resume a stopped build."""
    from hornbook.data.build import build_corpus
    from hornbook.interop.hub import model_folder
    from hornbook.report.formatting import counted

    options = {"workers": workers, "documents": documents, "text_column": text_column, "clean": clean}
    options |= {"deduplicate": not keep_duplicates, "near_duplicates": near_duplicates}
    linker = None
    if graph is not None:
        from hornbook.graph.linking import EntityLinker

        linker = EntityLinker(graph)
    with overwriting(out, {"corpus", "unfinished corpus"}, overwrite), building_display() as show:
        options["exclude"] = [_evaluation_set(name) for name in exclude or ()]
        manifest = build_corpus(files, model_folder(tokenizer), out, **options, linker=linker, on_progress=show)
    totals, num_shards = manifest["totals"], len(manifest["shards"])
    if manifest.get("already_built"):
        log(f"{out} is already built")
    print_result(
        f"{out}: {counted(totals['documents'], 'document')}, {counted(totals['sentences'], 'sentence')}, "
        f"{short(totals['tokens'])} tokens in {counted(num_shards, 'shard')}, "
        f"{manifest['megabytes_per_second']:.1f} MB/s"
    )
    if graph is not None:
        log(f"  {counted(totals.get('mentions', 0), 'mention')} of entities of {graph}")
    for kind, count in manifest["cleaned"].items():
        log(f"  removed {count:,}: {kind.replace('_', ' ')}")
    log_problems(manifest["problems"])
    _log_repeated_lines(manifest["repeated_lines"])
    print_json({"out": str(out), **{key: value for key, value in manifest.items() if key != "sources"}})


def _evaluation_set(text: str) -> str | list[str]:
    """The path of an evaluation set or, of TASK:FOLDER, its texts."""
    task, _, folder = text.partition(":")
    if not folder or Path(text).exists():
        return text
    from hornbook.tasks.reading.read import evaluation_texts

    return evaluation_texts(task, folder)


def _log_repeated_lines(report: dict) -> None:
    if report.get("repeated_share", 0) > 0.01:
        log(f"  note: {report['repeated_share']:.1%} of the lines repeat earlier ones, most often:")
        for line in report.get("most_repeated", [])[:3]:
            log_console.print(f"    {line['count']:,} x {line['line'][:90]}")  # as it is: the text is the user's


@corpus_app.command(
    "web", epilog="Example: hornbook corpus web crawl/ --links links.tsv --preset webtext --out webtext"
)
def corpus_web(
    pages: argument(list[str], "WARC archives, HTML files, or folders or URLs of them."),
    out: option(Path, "Folder to write the texts to, for 'corpus build OUT/texts'."),
    links: option(
        list[Path] | None, "Keep only pages with votes in this list: .tsv (URL, votes) or .jsonl; may be repeated."
    ) = None,
    preset: option(str | None, "'webtext': 3 votes, English, without Wikipedia (GPT-2's data).") = None,
    min_votes: option(int | None, "Votes that a page needs; defaults to 3 with --links.") = None,
    language: option(str | None, "Keep only pages in this language, such as en.") = None,
    exclude_host: option(
        list[str] | None, "Drop the pages of this host, such as wikipedia.org; may be repeated."
    ) = None,
    keep_low_quality: flag("--keep-low-quality", "Skip the Gopher quality filters.") = False,
    keep_near_duplicates: flag("--keep-near-duplicates", "Keep pages that hardly differ from earlier ones.") = False,
    executor: option(str, "Where the tasks run: local, slurm or ray.") = "local",
    workers: option(int | None, "Tasks that run at the same time; defaults to one per core of this machine.") = None,
    sbatch: option(
        list[str] | None, "Option of the Slurm jobs, such as partition=cpu or time=24:00:00; may be repeated."
    ) = None,
) -> None:
    """Extract and filter the text of web pages. Run the same command again to resume."""
    from hornbook.data.web.build import build_web_corpus
    from hornbook.report.formatting import counted

    check_writable(out)
    options = {"links": links or (), "preset": preset, "min_votes": min_votes, "language": language}
    options |= {"exclude_hosts": exclude_host or (), "quality": not keep_low_quality}
    options |= {"keep_near_duplicates": keep_near_duplicates, "executor": executor, "workers": workers}
    options["sbatch"] = dict(named_values(sbatch, "--sbatch must be NAME=VALUE"))
    with web_display() as show:
        record = build_web_corpus(pages, out, **options, on_progress=show)
    if "submitted" in record:
        done, total = record["tasks"]
        state = "are in the queue" if record.get("is_running") else "are submitted"
        print_result(f"jobs {', '.join(record['submitted'])} {state}: {done:,} of {total:,} tasks are complete")
        log(f"  the last job writes {out}; run the same command again to see how far they are")
        print_json(record)
        return
    if record.get("already_built"):
        log(f"{out} is already built")
    num_read = max(1, record["filters"][0]["pages"])
    rows = []
    for step in record["filters"]:
        reasons = sorted(step["dropped"].items(), key=lambda item: -item[1])[:3]
        why = ", ".join(f"{reason.replace('_', ' ')} {count:,}" for reason, count in reasons)
        rows.append((_FILTERS[step["name"]], f"{step['pages']:,}", f"{step['pages'] / num_read:.1%}", why))
    table(rows, ("after", "pages", "share", "most dropped for"))
    log_problems(record["problems"])
    texts = record["texts"]
    log(f"  next: hornbook corpus build {out / 'texts'} --tokenizer ... --out ...")
    print_result(f"{out / 'texts'}: {counted(texts['documents'], 'document')}, {short(texts['characters'])} characters")
    print_json({"out": str(out), **record})


_FILTERS = {
    "pages": "pages read",
    "votes": "enough votes",
    "hosts": "not on an excluded host",
    "text": "text extracted",
    "language": "in the language",
    "repetition": "not repetitive",
    "quality": "quality",
    "near-duplicates": "near duplicates dropped",
}
