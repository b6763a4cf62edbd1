"""Commands that apply fine-tuned models to data: `evaluate`, `predict`, `explain`; and `features` of any model."""

import itertools
import os
import sys
from pathlib import Path

from hornbook.cli.app import (
    app,
    given_options,
    log_problems,
    print_json,
    refuse_unused_options,
)
from hornbook.cli.finetuning import MAX_ROWS, Data, print_scores
from hornbook.cli.options import (
    Device,
    OverwriteFile,
    Reading,
    argument,
    option,
    split_model,
    with_optional_model,
    with_reading_options,
)
from hornbook.cli.overwriting import check_writable, refuse_existing_file
from hornbook.terminal import counting_display, log, print_result, table, wants_json

Graph = option(str | None, "New path of the run's knowledge graph, if it was moved.")
Runs = argument(list[str], "Fine-tuned run or model folder; several form an ensemble.")
STANDARD = Path("-")  # input or output
EXPLANATION_PAGE = "explanation.html"


@app.command("evaluate", epilog="Example: hornbook evaluate runs/mrpc --data glue/MRPC")
@with_reading_options()
def evaluate(
    runs: Runs,
    data: Data = None,
    split: option(str | None, "Score only this split, such as test or dev-mismatched.") = None,
    task: option(str | None, "similarity: score the vectors of a model that was not fine-tuned.") = None,
    reading: Reading = None,
    graph: Graph = None,
    device: Device = "auto",
) -> None:
    """Score a run on labelled data: standard metrics of the task with 95% intervals, classes, confusion matrix."""
    from hornbook.inference.predictor import load_predictor
    from hornbook.report.formatting import split_label

    if data is None:
        raise ValueError("evaluate needs --data; see 'hornbook evaluate --help'")
    predictor = load_predictor(runs, device, graph, task)
    with counting_display("reading") as show:
        result = predictor.evaluate(
            data, **reading, split=split, on_progress=lambda done: show("examples scored", done)
        )
    for line in [*result["messages"], *(f"note: {note}" for note in result["notes"])]:
        log(line)
    log_problems(result["problems"])
    shown = {name: split_label(name, data) for name in result["examples"]}
    for name, count in result["unlabelled"].items():
        if count:
            log(f"{count:,} examples of {shown[name]} have no label or no text and are not scored")
    for name, count in result["truncated_texts"].items():
        if count:
            log(f"{count:,} texts of {shown[name]} were truncated to {predictor.max_length} tokens")
    if result["unknown_labels"]:
        log(f"labels unknown to the model count as errors: {', '.join(result['unknown_labels'])}")
    print_scores({shown[name]: scores for name, scores in result["splits"].items()})
    for name, tables in result["tables"].items():
        print_tables(tables, shown[name])
    print_json(result)


def print_tables(tables: dict, split: str) -> None:
    """Prints the per-class scores and the confusion matrix of one split, from `Predictor.evaluate`."""
    if classes := tables.get("classes"):
        metrics, counts = ("precision", "recall", "f1"), ("gold", "predicted")
        rows = [
            (name, *(f"{scores[metric]:.3f}" for metric in metrics), *(scores[count] for count in counts))
            for name, scores in classes.items()
        ]
        table(rows[:MAX_ROWS], (split, *metrics, *counts))
        if len(rows) > MAX_ROWS:
            log(f"and {len(rows) - MAX_ROWS} rarer classes (--json has all)")
    if matrix := tables.get("confusion"):
        rows = [(name, *counts) for name, counts in zip(matrix["labels"], matrix["counts"], strict=True)]
        table(rows, ("gold \\ predicted", *matrix["labels"]), f"confusion matrix of {split}, in {matrix['of']}")


@app.command("predict", epilog="Example: hornbook predict runs/mrpc --file pairs.tsv --out predictions.csv")
@with_reading_options("label")
def predict(
    arguments: argument(
        list[str], "Runs, then texts; 'A ||| B' is a pair, a question and its passage, or a context and its choices."
    ),
    file: option(
        Path | None, "File of inputs: .txt, .csv, .tsv, .jsonl, .parquet, .xlsx, column file; - for stdin."
    ) = None,
    out: option(
        Path | None, "Write all input columns and the predictions to this .csv, .tsv, .jsonl or .json; - for stdout."
    ) = None,
    submission: option(
        Path | None, "Write predictions of --data's test split in its grader's format, to this folder or .zip."
    ) = None,
    data: Data = None,
    reading: Reading = None,
    graph: Graph = None,
    overwrite: OverwriteFile = False,
    device: Device = "auto",
) -> None:
    """Predict labels with probabilities, numbers, answer spans or tags. Several runs form an ensemble."""
    from hornbook.inference.predictor import load_predictor
    from hornbook.tasks.prediction_files import format_of
    from hornbook.tasks.reading.inputs import spooled

    runs = list(itertools.takewhile(_is_model, arguments)) or arguments[:1]
    texts = arguments[len(runs) :]
    if is_file := out is not None and out != STANDARD:
        refuse_existing_file(out, overwrite)
    predictor = load_predictor(runs, device, graph)
    if submission is not None:
        refuse_unused_options("with --submission", ["a text"] * bool(texts) + given_options("file", "out"))
        _submit(predictor, data, submission, reading)
        return
    if path := next((text for text in texts if text.strip() and os.path.exists(text)), None):
        hint = "is not a fine-tuned run" if os.path.isdir(path) else f"is a file: use --file {path}"
        raise ValueError(f"{path} {hint}")
    if file is not None:
        refuse_unused_options("with --file", ["a text"] * bool(texts))
    elif texts:
        refuse_unused_options("without --file", given_options(*reading))
    if data is not None:
        raise ValueError(f"--data needs --submission: to predict the rows of a file, use --file {data}")
    if not texts and file is None:
        raise ValueError("there is nothing to predict: give texts after the run, or --file FILE")
    if out == STANDARD and wants_json():
        raise ValueError("--out - and --json both write to standard output: leave out one of them")
    if is_file:
        format_of(out)
    if file != STANDARD:
        _predict(predictor, texts, file, out, reading)
        return
    columns = [column for role, column in (predictor.spec.roles or {}).items() if role in ("text", "pair")]
    with spooled(sys.stdin.buffer, reading["text"], columns) as path:
        log(f"reading standard input as {path.suffix.removeprefix('.')}")
        _predict(predictor, texts, path, out, reading)


def _is_model(argument: str) -> bool:
    return os.path.isfile(os.path.join(argument, "config.json"))


def _predict(predictor, texts: list[str], file: Path | None, out: Path | None, reading: dict) -> None:
    from hornbook.tasks.prediction_files import (
        OUTPUT_SUFFIXES,
        formatted,
        prefixed_columns,
        readable,
        with_columns,
        write_rows,
    )
    from hornbook.tasks.reading.inputs import input_rows, read_input_rows

    if file is not None:
        inputs = read_input_rows(file, predictor.spec, log=log, **reading)
    else:
        items = [tuple(part.strip() for part in text.split("|||")) if "|||" in text else text for text in texts]
        inputs = input_rows(items, predictor.task.kind)
    with counting_display("predicting") as show:
        predictions, num_truncated = predictor.predict_rows(inputs, lambda done: show("predicted", done))
    if num_truncated:
        log(f"{num_truncated:,} texts were truncated to {predictor.max_length} tokens")
    if num_mismatched := predictor.num_mismatched([row.example for row in inputs if row.is_usable]):
        trained_on = "pairs ('A ||| B')" if predictor.spec.has_pairs else "single texts"
        log(f"note: the model was trained on {trained_on}, but {num_mismatched:,} of these inputs are not")
    columns = [row.columns for row in inputs] if any(row.columns for row in inputs) else []
    rows = predictor.describe([row.example for row in inputs], predictions)
    problems = ({"problem": row.problem} if row.problem else {} for row in inputs)
    rows = [row | problem for row, problem in zip(rows, problems, strict=True)]
    if num_empty := predictions.count(None):
        log(f"{num_empty:,} of {len(inputs):,} inputs have no prediction: see the column 'problem'")
    if out is not None and (names := prefixed_columns(rows, columns)):
        log(f"predictions are in the columns {', '.join(names)}, as the input already has the shorter names")
    if out == STANDARD:
        is_writable = file is not None and file.suffix.lower() in OUTPUT_SUFFIXES
        sys.stdout.write(formatted(rows, file.suffix.lower() if is_writable else ".jsonl", columns))
    elif out is not None:
        write_rows(out, rows, columns)
        print_result(f"{out}: {len(rows):,} predictions")
    else:
        headings, cells = readable(rows)
        table(cells, headings)
    print_json({"predictions": with_columns(rows, columns)})


def _submit(predictor, data: str | None, out: Path, reading: dict) -> None:
    from hornbook.tasks.prediction_files import missing_glue, write_submission

    if data is None:
        raise ValueError("--submission needs --data, the folder with the test split")
    spec, dataset = predictor.read(data, **reading)
    splits = {name: examples for name, examples in dataset.splits.items() if name.startswith("test")}
    splits = splits or {name: examples for name, examples in dataset.splits.items() if name != "train"}
    predictions = {name: predictor.predict_examples(examples).predictions for name, examples in splits.items()}
    files = write_submission(out, spec, splits, predictions)
    print_result(f"{out}: {', '.join(files)}")
    missing = missing_glue(out) if spec.name != "diagnostic" and files[0].endswith(".tsv") else []
    if missing:
        log(f"GLUE's grader needs all tasks; missing: {', '.join(missing)}")
    print_json({"out": str(out), "files": files, "missing": missing})


@app.command(
    "explain",
    epilog="Example: hornbook explain runs/tools 'What do I dig with to plant flowers?' --choices 'trowel,excavator'",
)
def explain_command(
    run: argument(str, "Run that was fine-tuned with --graph GRAPH --reason kagnet."),
    question: argument(str, "The question."),
    choices: option(
        str | None, "The possible answers, comma-separated (or separated by |||, if they contain commas)."
    ) = None,
    context: option(str | None, "A text that goes before the question.") = None,
    out: option(Path | None, f"Page to write; defaults to {EXPLANATION_PAGE} in the run folder.") = None,
    top_k: option(int, "Paths to print for each answer.") = 5,
    device: Device = "auto",
) -> None:
    """Answer a question and show the paths of the graph that were weighed, as text and as a page with pictures."""
    import hornbook
    from hornbook.report.explained import write_explanation

    if choices is None:
        raise ValueError(
            "explain shows the paths of a knowledge graph between a question and its possible answers: give those by "
            "--choices; for what another model attends to, use hornbook show attention"
        )
    if top_k < 1:
        raise ValueError(f"--top-k must be at least 1, not {top_k}")
    explanation = hornbook.explain(run, question, choices.split("|||" if "|||" in choices else ","), context, device)
    rows = [
        (choice.text, f"{choice.probability:.1%}", f"{choice.without_paths:.1%}", len(choice.paths))
        for choice in explanation.choices
    ]
    table(rows, ("answer", "probability", "without paths", "paths"))
    for choice in sorted(explanation.choices, key=lambda choice: -choice.probability):
        print_result(f"\n{choice.text}" + ("" if choice.paths else ": no path"))
        for path in choice.paths[:top_k]:
            print_result(f"  {path.weight:6.1%}  {path.path}")
    folder = Path(run) if Path(run).is_dir() else Path()  # a run on the Hub is in a cache
    page = write_explanation(out or folder / EXPLANATION_PAGE, explanation.to_dict(), run)
    print_result(f"\n{explanation.answer}; pictures are in {page}")
    print_json({**explanation.to_dict(), "page": str(page)})


@app.command("features", epilog="Example: hornbook features texts.txt --out vectors.npy --layers last4")
@with_reading_options("label")
def features(
    arguments: with_optional_model("FILE", ".txt with one text per line, or .csv, .tsv, .jsonl, .parquet, .xlsx."),
    out: option(Path, ".npy file to write."),
    layers: option(str, "Layers to write: last, last4, mean-last4, all, embeddings, or numbers: 1,2,-1.") = "last4",
    pooling: option(
        str | None, "cls (first token, default), lasttoken (default for GPT), mean, or none: every token."
    ) = None,
    reading: Reading = None,
    overwrite: OverwriteFile = False,
    device: Device = "auto",
) -> None:
    """Write the hidden states of texts to a .npy file, as features for another model."""
    from hornbook.inference.features import extract_features

    model, file = split_model(arguments, "a file")
    check_writable(out.parent)
    refuse_existing_file(out, overwrite)
    options = {"layers": layers, "pooling": pooling, **reading, "device": device}
    with counting_display("reading", "texts") as show:
        written = extract_features(model, Path(file), out, **options, on_progress=show)
    for line in written.messages:
        log(line)
    log_problems(written.problems.to_dict())
    if written.num_truncated:
        log(f"{written.num_truncated:,} texts were truncated to the model's maximum length")
    print_result(f"{written.out}: {written.num_rows:,} x {written.width} from {written.num_texts:,} texts")
    print_json({"out": str(written.out), "texts": written.num_texts, "rows": written.num_rows, "width": written.width})
