"""Commands for labelled data: `finetune`, `evaluate`, `predict`, `features`."""

import itertools
import sys
from contextlib import nullcontext
from pathlib import Path

from hornbook.cli.app import (
    app,
    log_problems,
    print_json,
    recorded_settings,
    refuse_unused_options,
    report_interruption,
    show_settings,
)
from hornbook.cli.options import (
    MODEL,
    Device,
    OptionalSeed,
    Overrides,
    Overwrite,
    Reading,
    Resume,
    Show,
    argument,
    flag,
    option,
    parse_overrides,
    reads_data,
    split_model,
    with_optional_model,
)
from hornbook.cli.overwriting import RUN, check_writable, overwriting, refuse_existing_file
from hornbook.lifecycle.requests import as_overrides
from hornbook.terminal import TrainingDisplay, counting_display, log, print_result, table, wants_json
from hornbook.train.parallel.torchrun import as_restarted, refuse_command

TaskName = option(str, "Data set (mrpc, squad2, conll2003 ...) or task kind.", "--task")
TaskToLearn = option(str | None, "Data set (mrpc, squad2 ...) or task kind; defaults to classification.", "--task")
Data = option(str | None, "The folder of a known data set, or your own .csv, .tsv, .jsonl, .parquet, .xlsx.")
Graph = option(str | None, "New path of the run's knowledge graph, if it was moved.")
STANDARD = Path("-")  # input or output
MAX_ROWS = 50  # classes that are printed
Runs = argument(list[str], "Fine-tuned run or model folder; several form an ensemble.")


@app.command("finetune", epilog="Example: hornbook finetune --data reviews.csv --out runs/reviews")
@reads_data()
def finetune_command(
    model: argument(str | None, f"{MODEL} By default the built-in model for the language of the texts.") = None,
    task: TaskToLearn = None,
    data: Data = None,
    out: option(Path | None, "Run folder to write.") = None,
    epochs: option(float | None, "Passes over the training split.") = None,
    lr: option(float | None, "Peak learning rate.") = None,
    batch_size: option(int | None, "Examples per batch.") = None,
    seed: OptionalSeed = None,
    head: option(str | None, "Task head: linear (published), mlp, cnn, bilstm or attention.") = None,
    pair_encoding: option(
        str | None, "Encode a pair jointly (joint), separately (separate), or in both orders (both)."
    ) = None,
    reason: option(str | None, "kagnet: multiple choice also reads the paths of --graph to each answer.") = None,
    graph: option(Path | None, "Graph folder: for --reason, or the one whose entities an ERNIE reads.") = None,
    vectors: option(Path | None, "Folder that 'hornbook graph embed' wrote, for --reason.") = None,
    seeds: option(int, "Number of runs with different seeds; the best is kept.") = 1,
    lr_search: flag(
        "--lr-search", "Try the four published learning rates (higher for narrow models) and keep the best."
    ) = False,
    reading: Reading = None,
    override: Overrides = None,
    resume: Resume = False,
    show: Show = False,
    dry_run: flag("--dry-run", "Summarize the data and the expected training time, and exit.") = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Fine-tune a pre-trained model on a task. Ctrl-C saves a checkpoint; --resume resumes."""
    resume, overwrite = as_restarted(resume, overwrite)
    overrides = parse_overrides(override, device)
    overrides |= as_overrides(head=head, pair_encoding=pair_encoding) | _about_graph(reason, graph, vectors)
    named = {"epochs": epochs, "lr": lr, "batch_size": batch_size, "seed": seed}
    if show and (settings := recorded_settings(out, resume)) is not None:
        show_settings(settings)
        return
    if task == "text" or (task is None and resume and _is_text_run(out)):
        from hornbook.cli.prompting import finetune_as_text

        refuse_command("finetune --task text")
        given = {f"--{name}": value not in (None, False) for name, value in reading.items()}
        several = {"--seeds": seeds > 1, "--lr-search": lr_search}
        layers = {"--head": head is not None, "--pair-encoding": pair_encoding is not None, "--reason": bool(reason)}
        refuse_unused_options("with --task text", given | several | layers)
        if model is None and not resume:
            raise ValueError("--task text needs a GPT, and the built-in models are encoders: name a GPT first")
        overrides |= as_overrides(**named)
        finetune_as_text(model, data, out, overrides, resume, overwrite, show)
        return
    if show:
        _show(model, task or "classification", data, {**reading, **named, "overrides": overrides})
        return
    if dry_run:
        from hornbook.cli.checking import print_dry_run

        options = {**reading, **named, "overrides": overrides}
        print_dry_run(model, data, task, seeds, lr_search, **options)
        return
    if resume and data is None:
        from hornbook.runs.finetuning.api import recorded_request

        data = recorded_request(out).get("data")
    if data is None or out is None:
        raise ValueError(f"finetune needs --{'data' if data is None else 'out'}; see 'hornbook finetune --help'")
    from hornbook.runs.finetuning.api import finetune

    replaced = overwriting(out, RUN, overwrite, resume)
    with replaced, report_interruption(out), TrainingDisplay() as display:
        result = finetune(
            model,
            data,
            task,
            out,
            **reading,
            **named,
            seeds=seeds,
            lr_search=lr_search,
            overrides=overrides,
            resume=resume,
            on_progress=display,
            log=log,
        )
    report_result(result)
    print_json({"out": str(out), "scores": result.scores, "degenerate": result.degenerate})


def _about_graph(reason: str | None, graph: Path | None, vectors: Path | None) -> dict:
    if reason is graph is vectors is None:
        return {}
    from hornbook.runs.finetuning.api import graph_overrides

    return graph_overrides(reason, graph, vectors)


def _is_text_run(out: Path | None) -> bool:
    """Whether a folder holds a run of --task text, which may be resumed without giving the task again."""
    from hornbook.lifecycle.run_folder import recorded

    return recorded(out).get("command") == "finetune-text"


def _show(model: str | None, task: str, data: str | None, options: dict) -> None:
    from hornbook.runs.finetuning.api import resolve_settings
    from hornbook.runs.finetuning.record import FinetuneRequest

    show_settings(resolve_settings(FinetuneRequest.of(model, data, task, **options), data, log=log))


def report_result(result, advice: str = "--seeds 5, another --lr or more --epochs") -> None:
    from hornbook.files import read_json
    from hornbook.interop.sentence_transformers import MODULES
    from hornbook.report.run import read_stages
    from hornbook.report.wording import counted, duration

    trials = result.out / "trials.json"
    if trials.exists():
        found = read_json(trials)
        rows = [
            (each["name"], f"{each['lr']:g}", each["seed"], f"{each['score']:.4g}", each["degenerate"] or "")
            for each in found["trials"]
        ]
        table(rows, ("run", "learning rate", "seed", found["metric_for_best"], "degenerate"))
        print_result(f"best {found['best']}; median {found['median']:.4g}, standard deviation {found['spread']:.2g}")
    outcome, earlier = result.outcome, [stage.record for stage in read_stages(result.out)]
    steps = outcome.step + sum(record.step for record in earlier)
    seconds = outcome.seconds + sum(record.seconds for record in earlier)
    stages = f" in {len(earlier) + 1} stages" if earlier else ""
    print_result(f"{result.out}: {outcome.ended}, {counted(steps, 'step')}{stages}, {duration(seconds)}")
    print_scores(result.scores)
    if result.degenerate:
        log(f"note: this run is degenerate: {result.degenerate}; try {advice}")
    embeds = (result.out / MODULES).is_file()
    use = f"embed FILE --model {result.out} --out INDEX" if embeds else f'predict {result.out} "..."'
    log(f"  hornbook {use}      hornbook report {result.out}")


def print_scores(splits: dict) -> None:
    rows = [
        (split, name, f"{found['value']:.4g}", f"{found['low']:.4g} to {found['high']:.4g}")
        for split, scores in splits.items()
        for name, found in scores.items()
    ]
    table(rows, ("split", "metric", "score", "95% interval"))


def print_tables(tables: dict, split: str) -> None:
    """Prints the per-class scores and the confusion matrix of one split, from `Predictor.evaluate`."""
    if classes := tables.get("classes"):
        rows = [
            (
                name,
                *(f"{each[metric]:.3f}" for metric in ("precision", "recall", "f1")),
                each["gold"],
                each["predicted"],
            )
            for name, each in classes.items()
        ]
        table(rows[:MAX_ROWS], (split, "precision", "recall", "f1", "gold", "predicted"))
        if len(rows) > MAX_ROWS:
            log(f"and {len(rows) - MAX_ROWS} rarer classes (--json has all)")
    if matrix := tables.get("confusion"):
        rows = [(name, *counts) for name, counts in zip(matrix["labels"], matrix["counts"], strict=True)]
        table(rows, ("gold \\ predicted", *matrix["labels"]), f"confusion matrix of {split}, in {matrix['of']}")


@app.command("evaluate", epilog="Example: hornbook evaluate runs/mrpc --data glue/MRPC")
@reads_data()
def evaluate(
    runs: Runs,
    data: Data = None,
    split: option(str | None, "Score only this split, such as test or dev-mismatched.") = None,
    task: option(str | None, "similarity: score the vectors of a model that was not fine-tuned.") = None,
    reading: Reading = None,
    graph: Graph = None,
    device: Device = "auto",
) -> None:
    """Compute the task's standard metrics of a run on labelled data, with 95% intervals, the scores of each class and
    the confusion matrix. Several runs form an ensemble."""
    from hornbook.inference.predictor import load_predictor

    if data is None:
        raise ValueError("evaluate needs --data; see 'hornbook evaluate --help'")
    predictor = load_predictor(runs, device, graph, task)
    with counting_display("reading") as show:
        found = predictor.evaluate(
            data,
            **reading,
            split=split,
            on_progress=lambda done: show("examples scored", done),
        )
    for line in [*found["messages"], *(f"note: {each}" for each in found["notes"])]:
        log(line)
    log_problems(found["problems"])
    for name, count in found["unlabelled"].items():
        if count:
            log(f"{count:,} examples of {name} have no label and are not scored")
    for name, count in found["truncated_texts"].items():
        if count:
            log(f"{count:,} texts of {name} were truncated to {predictor.max_length} tokens")
    if found["unknown_labels"]:
        log(f"labels unknown to the model count as errors: {', '.join(found['unknown_labels'])}")
    print_scores(found["splits"])
    for name, tables in found["tables"].items():
        print_tables(tables, name)
    print_json(found)


@app.command("predict", epilog="Example: hornbook predict runs/mrpc --file pairs.tsv --out predictions.csv")
@reads_data("label")
def predict(
    arguments: argument(
        list[str], "Runs, then texts; 'A ||| B' is a pair, a question and its passage, or a context and its endings."
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
    overwrite: flag("--overwrite", "Replace the file --out.") = False,
    device: Device = "auto",
) -> None:
    """Predict labels with probabilities, numbers, answer spans or tags. Several runs form an ensemble."""
    from hornbook.inference.predictor import load_predictor
    from hornbook.tasks.prediction_files import format_of
    from hornbook.tasks.reading.standard_input import spooled

    runs = list(itertools.takewhile(_is_model, arguments)) or arguments[:1]
    texts = arguments[len(runs) :]
    if out is not None and out != STANDARD:
        refuse_existing_file(out, "--out", overwrite)
    predictor = load_predictor(runs, device, graph)
    if submission is not None:
        refuse_unused_options(
            "with --submission", {"a text": bool(texts), "--file": file is not None, "--out": out is not None}
        )
        _submit(predictor, data, submission)
        return
    if paths := [each for each in texts if each.strip() and Path(each).exists()]:
        hint = "is not a fine-tuned run" if Path(paths[0]).is_dir() else f"is a file: use --file {paths[0]}"
        raise ValueError(f"{paths[0]} {hint}")
    refuse_unused_options("with --file", {"a text": bool(texts) and file is not None})
    if data is not None:
        raise ValueError(f"--data needs --submission: to predict the rows of a file, use --file {data}")
    if not texts and file is None:
        raise ValueError("there is nothing to predict: give texts after the run, or --file FILE")
    if out == STANDARD and wants_json():
        raise ValueError("--out - and --json both write to standard output: omit one of them")
    if out is not None and out != STANDARD:
        format_of(out)
    read_from = spooled(sys.stdin.buffer, reading["text"]) if file == STANDARD else nullcontext(file)
    with read_from as path:
        if file == STANDARD:
            log(f"reading standard input as {path.suffix.removeprefix('.')}")
        _predict(predictor, texts, path, out, reading)


def _predict(
    predictor,
    texts: list[str],
    file: Path | None,
    out: Path | None,
    reading: dict,
) -> None:
    from hornbook.tasks.prediction_files import FORMATS, formatted, readable, renamed, with_columns, write_rows
    from hornbook.tasks.reading.inputs import input_rows, read_input_rows

    if file is not None:
        inputs = read_input_rows(file, predictor.spec, log=log, **reading)
    else:
        items = [tuple(part.strip() for part in each.split("|||")) if "|||" in each else each for each in texts]
        inputs = input_rows(items, predictor.spec.kind)
    with counting_display("predicting") as show:
        predictions = predictor.predict_rows(inputs, lambda done: show("predicted", done))
    if predictor.num_truncated:
        log(f"{predictor.num_truncated:,} texts were truncated to {predictor.max_length} tokens")
    if predictor.num_unlike:
        trained_on = "pairs ('A ||| B')" if predictor.spec.has_pairs else "single texts"
        log(f"note: the model was trained on {trained_on}, but {predictor.num_unlike:,} of these inputs are not")
    columns = [each.columns for each in inputs] if any(each.columns for each in inputs) else []
    rows = predictor.describe([each.example for each in inputs], predictions)
    rows = [row | ({"problem": each.problem} if each.problem else {}) for row, each in zip(rows, inputs, strict=True)]
    if num_empty := predictions.count(None):
        log(f"{num_empty:,} of {len(inputs):,} inputs have no prediction: see the column 'problem'")
    if out is not None and (names := renamed(rows, columns)):
        log(f"predictions are in the columns {', '.join(names)}, as the input already has the shorter names")
    if out == STANDARD:
        is_writable = file is not None and file.suffix.lower() in FORMATS
        sys.stdout.write(formatted(rows, file.suffix.lower() if is_writable else ".jsonl", columns))
    elif out is not None:
        write_rows(out, rows, columns)
        print_result(f"{out}: {len(rows):,} predictions")
    else:
        headings, cells = readable(rows)
        table(cells, headings)
    print_json({"predictions": with_columns(rows, columns)})


def _is_model(name: str) -> bool:
    return (Path(name) / "config.json").is_file()


def _submit(predictor, data: str | None, out: Path) -> None:
    from hornbook.tasks.submissions import missing_glue, write_submission

    if data is None:
        raise ValueError("--submission needs --data, the folder with the test split")
    spec, found = predictor.read(data)
    splits = {name: each for name, each in found.splits.items() if name.startswith("test")}
    splits = splits or {name: each for name, each in found.splits.items() if name != "train"}
    files = write_submission(
        out, spec, splits, {name: predictor.predict_examples(each) for name, each in splits.items()}
    )
    print_result(f"{out}: {', '.join(files)}")
    missing = missing_glue(out) if spec.name != "diagnostic" and files[0].endswith(".tsv") else []
    if missing:
        log(f"GLUE's grader needs all tasks; missing: {', '.join(missing)}")
    print_json({"out": str(out), "files": files, "missing": missing})


@app.command("features", epilog="Example: hornbook features texts.txt --out vectors.npy --layers last4")
@reads_data("label")
def features(
    arguments: with_optional_model("FILE", ".txt with one text per line, or .csv, .tsv, .jsonl, .parquet, .xlsx."),
    out: option(Path, ".npy file to write."),
    layers: option(str, "Layers to write: last, last4, mean-last4, all, embeddings, or numbers: 1,2,-1.") = "last4",
    pooling: option(str, "Pooling: cls (GPT: last token), mean, or none (every token).") = "cls",
    reading: Reading = None,
    overwrite: flag("--overwrite", "Replace the file --out.") = False,
    device: Device = "auto",
) -> None:
    """Write the hidden states of texts to a .npy file, as features for another model."""
    from hornbook.inference.features import extract_features

    model, file = split_model(arguments, "a file")
    check_writable(out.parent)
    refuse_existing_file(out, "--out", overwrite)
    with counting_display("reading") as show:
        found = extract_features(
            model,
            Path(file),
            out,
            layers=layers,
            pooling=pooling,
            **reading,
            device=device,
            on_progress=lambda done, total: show(f"of {total:,} texts", done),
        )
    for line in found.messages:
        log(line)
    log_problems(found.problems.to_dict())
    if found.num_truncated:
        log(f"{found.num_truncated:,} texts were truncated to the model's maximum length")
    print_result(f"{found.out}: {found.num_rows:,} x {found.width} from {found.num_texts:,} texts")
    print_json({"out": str(found.out), "texts": found.num_texts, "rows": found.num_rows, "width": found.width})
