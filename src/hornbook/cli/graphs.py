"""Commands on knowledge graphs: `graph build`, `graph paths`, `graph link`, `graph embed`."""

import time
from pathlib import Path

import typer

from hornbook.cli.app import app, log_problems, print_json
from hornbook.cli.corpora import FILES_HELP, TextColumn
from hornbook.cli.options import (
    Device,
    Overwrite,
    OverwriteFile,
    argument,
    comma_separated,
    flag,
    option,
    parse_overrides,
)
from hornbook.cli.overwriting import overwriting, refuse_existing_file
from hornbook.terminal import TrainingDisplay, counting_display, log, print_result, table, wants_json

graph_app = typer.Typer(
    help="Build a knowledge graph, find paths in it, link texts to it, train vectors.", no_args_is_help=True
)
app.add_typer(graph_app, name="graph")

Folder = argument(Path, "Folder that 'hornbook graph build' wrote.")


@graph_app.command("build", epilog="Example: hornbook graph build assertions.tsv --out graph")
def graph_build(
    sources: argument(
        list[Path], "Triples (.tsv, .csv, .txt, .jsonl, also .gz, .xz, .zst), names (.json), WordNet, folders."
    ),
    out: option(Path, "Folder to write the graph to."),
    columns: option(str | None, "Order of the columns if there is no header row, such as relation,head,tail.") = None,
    language: option(str, "Language of ConceptNet 5 edges to keep; empty for all.") = "en",
    overwrite: Overwrite = False,
) -> None:
    """Build a graph folder from triples, names of entities, or WordNet."""
    from hornbook.graph.build import build_graph
    from hornbook.report.formatting import counted

    with overwriting(out, {"graph"}, overwrite), counting_display("reading") as show:
        manifest = build_graph(sources, out, columns=comma_separated(columns), language=language, on_progress=show)
    if manifest.get("already_built"):
        log(f"{out} is already built")
    totals = manifest["totals"]
    print_result(
        f"{out}: {totals['entities']:,} entities, {counted(totals['relations'], 'relation')}, "
        f"{counted(totals['edges'], 'edge')}, {counted(totals['names'], 'name')}, {manifest['seconds']:.1f} s"
    )
    for name in ("entities_without_name", "isolated_entities"):
        if totals[name]:
            log(f"  note: {name.replace('_', ' ')}: {totals[name]:,}")
    if totals["edges"] >= 100 and totals["relations"] > totals["entities"] / 5:
        log(
            f"  note: {totals['relations']:,} relations in {totals['edges']:,} edges: if the second column is not the "
            "relation, name the columns in their order, as in --columns relation,head,tail"
        )
    log_problems(manifest["problems"])
    hidden = ("sources", "sha256")
    print_json({"out": str(out), **{key: value for key, value in manifest.items() if key not in hidden}})


@graph_app.command("paths", epilog='Example: hornbook graph paths graph "plant" "trowel" --hops 3')
def graph_paths(
    graph: Folder,
    head: argument(str, "Name or identifier of an entity."),
    tail: argument(str, "Name or identifier of another entity."),
    hops: option(int, "Largest number of edges of a path, 1 to 4.") = 2,
    limit: option(int, "Largest number of paths.") = 20,
) -> None:
    """Print the paths between two entities: short ones first, then those through rarely connected entities."""
    from hornbook.graph.graph import Graph

    paths, is_cut = Graph(graph).search(head, tail, hops, limit)
    for path in paths:
        print_result(str(path))
    if is_cut:
        log("note: some paths through entities with many neighbours were left out; use fewer --hops to see all")
    if not paths:
        log(f"there is no path of at most {hops} edges between '{head}' and '{tail}'")
    elif len(paths) == limit:
        log(f"note: there may be more than {limit} paths; --limit raises the number")
    print_json({"head": head, "tail": tail, "complete": not is_cut, "paths": [path.to_dict() for path in paths]})


@graph_app.command("link", epilog="Example: hornbook graph link graph texts.txt --out linked.jsonl")
def graph_link(
    graph: Folder,
    texts: argument(list[Path] | None, FILES_HELP.replace(".txt", ".txt (one text per line)")) = None,
    text: option(str | None, "A text to link, instead of files.") = None,
    out: option(Path | None, "Write texts and mentions to this .jsonl file.") = None,
    text_column: TextColumn = None,
    overwrite: OverwriteFile = False,
) -> None:
    """Find the entities that texts mention, with position, entity and score."""
    from hornbook.data.problems import Problems
    from hornbook.files import write_json_lines
    from hornbook.graph.graph import Graph
    from hornbook.graph.linked_texts import LinkCounts, PlacedText, link_entities_in_files

    if (text is None) == (not texts):
        raise ValueError("give either files of texts or --text 'a text'")
    if out is not None:
        refuse_existing_file(out, overwrite)
    opened = Graph(graph)
    problems, counts, rows, began = Problems(), LinkCounts(), [], time.monotonic()
    with counting_display("reading names") as show:
        if text is not None:
            linked = [PlacedText("", "", opened.link(text), False)]
        else:
            linked = link_entities_in_files(opened, texts, text_column=text_column, problems=problems)
        linked = counts.count(linked, on_progress=show)
        if out is not None:
            write_json_lines(out, (row.to_dict() for row in linked))
        elif wants_json():
            rows = [row.to_dict() for row in linked]
        else:
            for row in linked:
                print_result(row.linked.text)
                for mention in row.linked.mentions:
                    print_result(f"  {_describe_mention(mention)}")
    log_problems(problems.to_dict())
    seconds = time.monotonic() - began
    if out is not None:
        print_result(f"{out}: {counts.mentions:,} mentions in {counts.texts:,} texts, {seconds:.1f} s")
    results = {"results": rows} if out is None else {"out": str(out)}
    print_json({**vars(counts), "seconds": round(seconds, 3), "problems": problems.to_dict(), **results})


def _describe_mention(mention) -> str:
    entity = mention.entity if mention.entity == mention.label else f"{mention.label} ({mention.entity})"
    return f"{f'{mention.start}-{mention.end}':>9}  {mention.text}  ->  {entity}  {mention.score:.2f}"


@graph_app.command("embed", epilog="Example: hornbook graph embed graph --out vectors --model rotate --minutes 30")
def graph_embed(
    graph: Folder,
    out: option(Path, "Folder to write the vectors to."),
    model: option(str | None, "transe, distmult or rotate; defaults to rotate.") = None,
    width: option(int | None, "Embedding dimension; defaults to 200.") = None,
    epochs: option(int | None, "Passes over the training triples; defaults to 100.") = None,
    minutes: option(float | None, "End training after this time.") = None,
    batch_size: option(int | None, "Triples per step; defaults to 1024.") = None,
    lr: option(float | None, "Learning rate of Adagrad; defaults to 0.1.") = None,
    held_out: option(
        float | None,
        "Share of the edges for validation, and for the test, if the graph has no splits; defaults to 0.02.",
    ) = None,
    seed: option(int | None, "Random seed; defaults to 0.") = None,
    setting: option(list[str] | None, "Another setting, such as margin=6; see docs/knowledge.md.", "--set") = None,
    resume: flag("--resume", "Resume a stopped run.") = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Train vectors of the entities and relations; print filtered MRR and Hits@1, 3 and 10."""
    from hornbook.graph.embedding.training import embed_graph

    options = {"model": model, "width": width, "epochs": epochs, "batch_size": batch_size, "lr": lr, "seed": seed}
    options = {name: value for name, value in options.items() if value is not None}
    options |= {"minutes": minutes, "held_out": held_out, "device": device, "overrides": parse_overrides(setting)}
    with overwriting(out, {"graph vectors"}, overwrite, resume), TrainingDisplay() as display:
        result = embed_graph(graph, out, **options, resume=resume, on_progress=display)
    if result["ended"] == "stopped":
        log(f"stopped at step {result['step']:,}: rerun with --resume")
        print_json(result)
        raise typer.Exit(130)
    print_result(f"{out}: {result['model']}, width {result['width']}, {result['epochs']:g} epochs")
    if missing := result["entities_without_vector"]:
        log(f"note: {missing:,} of {result['entities']:,} entities have no training edge, so their vector is 0")
    if test := result["test"]:
        names = ("mrr", "hits@1", "hits@3", "hits@10", "mean_rank")
        table([(*(f"{test[name]:.4g}" for name in names), f"{test['triples']:,}")], (*names, "test triples"))
    else:
        log("note: no edges are held out for a test, so the vectors have no scores; a larger --held-out holds out some")
    print_json(result)
