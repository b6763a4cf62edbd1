"""Commands for semantic search: `embed`, `search`."""

from pathlib import Path
from typing import Annotated

import typer

from hornbook.cli.app import Device, Json, Overwrite, app, check_writable, log_problems, print_json
from hornbook.cli.overwriting import INDEX, overwriting
from hornbook.cli.reading import Reading, reads_data

IndexFolder = Annotated[Path, typer.Argument(help="Index folder that hornbook embed wrote.")]
MAX_CHARACTERS = 200  # of a text in the printed table


@app.command("embed", epilog="Example: hornbook embed texts.csv --text body --model runs/search --out index")
@reads_data("pair", "label")
def embed(
    file: Annotated[Path, typer.Argument(help=".txt with one text per line, or .csv, .tsv, .jsonl, .parquet, .xlsx.")],
    out: Annotated[Path, typer.Option(help="Index folder to write.")],
    model: Annotated[
        str | None,
        typer.Option(help="Model folder or Hugging Face name; defaults to sentence-transformers/all-MiniLM-L6-v2."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--id", help="Column of unique ids; inferred when omitted, 'none' numbers the rows.")
    ] = None,
    vectors: Annotated[
        str | None, typer.Option(help="float32 (default), or int8, which needs a quarter of the memory.")
    ] = None,
    append: Annotated[bool, typer.Option("--append", help="Add the texts to the index in --out.")] = False,
    reading: Reading = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Embed texts into an index for search. After Ctrl-C, the same command embeds the rest."""
    check_writable(out)
    from hornbook.retrieval.building import build_index
    from hornbook.terminal import counting_display, log, print_result

    if append and overwrite:
        raise ValueError("--append adds to the index and --overwrite replaces it: give only one of them")
    with overwriting(out, INDEX, overwrite), counting_display("reading") as show:
        built = build_index(
            file,
            out,
            model,
            key=key,
            vectors=vectors,
            append=append,
            **reading,
            device=device,
            log=log,
            progress=lambda done, total: show(f"embedded, of {total:,} texts", done),
        )
    log_problems({kind: each for kind, each in built.problems.as_dict().items() if kind != "kept_empty_text"})
    print_result(f"{out}: {built.rows:,} texts, {built.vectors} vectors of width {built.width}, by {built.model}")
    log(f'  hornbook search {out} "..."')
    names = ("rows", "added", "width", "vectors", "model")
    print_json(as_json, {"out": str(out)} | {name: getattr(built, name) for name in names})


@app.command("search", epilog='Example: hornbook search index "how do I reset my password" --top 5 --where lang=en')
def search_command(
    index: IndexFolder,
    queries: Annotated[list[str], typer.Argument(help="One or more queries.")],
    top: Annotated[int, typer.Option(help="Results per query.")] = 5,
    where: Annotated[
        list[str] | None, typer.Option(help="Search only rows with this value: column=value; may be repeated.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model that built the index, if it was moved.")] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Print the texts of an index that are most similar to a query. The search is exact."""
    from hornbook.retrieval.searching import search
    from hornbook.terminal import table

    found = search(index, queries, top, parse_filters(where), model, device)
    for query, hits in zip(queries, found, strict=True):
        rows = [(f"{hit.score:.4f}", hit.id, shortened(hit.text)) for hit in hits]
        table(rows, ("similarity", "id", "text"), title=query if len(queries) > 1 else None)
    answers = [{"query": query, "hits": list(map(vars, hits))} for query, hits in zip(queries, found, strict=True)]
    print_json(as_json, {"index": str(index), "results": answers})


def parse_filters(pairs: list[str] | None) -> dict[str, str]:
    """Parses --where."""
    for pair in pairs or []:
        if "=" not in pair:
            raise ValueError(f"--where takes column=value, such as --where lang=en, not '{pair}'")
    return {column.strip(): value for column, _, value in (pair.partition("=") for pair in pairs or [])}


def shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_CHARACTERS else f"{line[:MAX_CHARACTERS]}..."
