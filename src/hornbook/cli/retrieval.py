"""Commands for semantic search: `embed`, `search`, `evaluate-retrieval`."""

import shlex
from pathlib import Path

from hornbook.cli.app import app, log_problems, print_json
from hornbook.cli.options import (
    Device,
    Model,
    Overwrite,
    Reading,
    argument,
    flag,
    named_values,
    option,
    with_reading_options,
)
from hornbook.cli.overwriting import overwriting
from hornbook.metrics.formatting import one_line
from hornbook.terminal import counting_display, log, print_result, table

IndexFolder = argument(Path, "Index folder that hornbook embed wrote.")
MAX_CHARACTERS = 200  # of a text in the printed table


@app.command("embed", epilog="Example: hornbook embed texts.csv --text body --model runs/search --out index")
@with_reading_options("pair", "label")
def embed(
    file: argument(Path, ".txt with one text per line, or .csv, .tsv, .jsonl, .parquet, .xlsx."),
    out: option(Path, "Index folder to write."),
    model: option(
        str | None, "Model folder or Hugging Face name; defaults to sentence-transformers/all-MiniLM-L6-v2."
    ) = None,
    id_column: option(
        str | None, "Column of unique ids; inferred when omitted, 'none' numbers the rows.", "--id"
    ) = None,
    dtype: option(str | None, "float32 (default), or int8, which needs a quarter of the memory.") = None,
    append: flag("--append", "Add the texts to the index in --out.") = False,
    reading: Reading = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Embed texts into an index for search. After Ctrl-C, the same command embeds the rest."""
    from hornbook.inference.retrieval.building import build_index

    if append and overwrite:
        raise ValueError("--append adds to the index and --overwrite replaces it: give only one of them")
    options = {"id_column": id_column, "dtype": dtype, "append": append, **reading, "device": device}
    replaced = overwriting(out, {"index", "unfinished index"}, overwrite)
    with replaced, counting_display("embedding", "texts") as show:
        built = build_index(file, out, model, **options, log=log, on_progress=show)
    log_problems({kind: each for kind, each in built.problems.to_dict().items() if kind != "kept_empty_text"})
    print_result(f"{out}: {built.num_rows:,} texts, {built.dtype} vectors of width {built.width}, by {built.model}")
    log(f'  hornbook search {shlex.quote(str(out))} "..."')
    sizes = {"rows": built.num_rows, "added": built.num_added, "width": built.width}
    print_json({"out": str(out), **sizes, "dtype": built.dtype, "model": built.model})


@app.command("search", epilog='Example: hornbook search index "how do I reset my password" --top-k 5 --where lang=en')
def search_command(
    index: IndexFolder,
    queries: argument(list[str], "One or more queries."),
    top_k: option(int, "Results per query.") = 5,
    where: option(
        list[str] | None, "Search only rows with this value: column=value; repeat for other columns or values."
    ) = None,
    model: option(str | None, "The model that built the index, if it was moved.") = None,
    approximate: flag("--approximate", "Search a graph of neighbours, built on first use; may miss a result.") = False,
    device: Device = "auto",
) -> None:
    """Print the texts of an index that are most similar to a query. The search is exact unless --approximate."""
    from hornbook.inference.retrieval.searching import SearchIndex

    opened = SearchIndex(index, model, device, approximate, log)
    if not opened.index.manifest.is_finished:
        log("note: this index is not finished: only the texts embedded so far are searched; run hornbook embed again")
    results = []
    for query, hits in zip(queries, opened.search(queries, top_k, parse_filters(where)), strict=True):
        rows = [(f"{hit.score:.4f}", hit.id, one_line(hit.text, MAX_CHARACTERS)) for hit in hits]
        table(rows, ("similarity", "id", "text"), title=query if len(queries) > 1 else None)
        results.append({"query": query, "hits": list(map(vars, hits))})
    print_json({"index": str(index), "results": results})


def parse_filters(pairs: list[str] | None) -> dict[str, list[str]]:
    """Parses --where: the values that each column may have."""
    filters: dict[str, list[str]] = {}
    for column, value in named_values(pairs, "--where takes column=value, such as --where lang=en"):
        filters.setdefault(column, []).append(value)
    return filters


@app.command("evaluate-retrieval", epilog="Example: hornbook evaluate-retrieval runs/search --data beir/scifact")
def evaluate_retrieval_command(
    model: Model,
    data: option(Path, "Folder in BEIR's layout: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv."),
    split: option(str, "Judgements to use, such as test or dev.") = "test",
    num_errors: option(int, "Number of nearest wrong results to print.") = 5,
    device: Device = "auto",
) -> None:
    """Score how well a model finds relevant documents: nDCG@10, MRR@10, recall, and the nearest wrong results."""
    from hornbook.inference.retrieval.evaluation import evaluate_retrieval, read_retrieval

    if num_errors < 0:
        raise ValueError(f"--num-errors must be at least 0, not {num_errors}")
    judged = read_retrieval(data, split)
    with counting_display("embedding", "documents") as show:
        result = evaluate_retrieval(model, judged, device=device, on_progress=show)
    log(result["embedding"])
    log(f"{result['queries']:,} queries of {split}, {result['documents']:,} documents")
    if result["unknown_documents"]:
        log(f"note: {result['unknown_documents']:,} judged documents are not in corpus.jsonl and count as not found")
    rows = [
        (metric, f"{score['value']:.4f}", f"{score['low']:.4f} to {score['high']:.4f}")
        for metric, score in result["scores"].items()
    ]
    table(rows, ("metric", "score", "95% interval"))
    rows = []
    for error in result["wrong"][:num_errors]:
        texts = (one_line(error[name] or "", MAX_CHARACTERS) for name in ("text", "wrong_text", "right_text"))
        rows.append((*texts, "beyond 100" if error["right_rank"] is None else error["right_rank"]))
    if rows:
        title = f"nearest wrong results, of {len(result['wrong']):,} queries whose first result is not relevant"
        table(rows, ("query", "first result", "relevant document", "its rank"), title=title)
    print_json(result)
