"""Commands that compare methods: `baseline`, `probe`, `label-curve`, `glue`, `reproduce`."""

from pathlib import Path

import typer

from hornbook.cli.app import app, print_json, training
from hornbook.cli.finetuning import TaskName, print_scores
from hornbook.cli.options import (
    Device,
    Join,
    Model,
    Overwrite,
    Reading,
    Seed,
    argument,
    comma_separated,
    flag,
    option,
    parse_overrides,
    with_reading_options,
)
from hornbook.cli.overwriting import overwriting
from hornbook.terminal import TrainingDisplay, log, print_result, table

NeededData = option(str, "The folder of a known data set, or your own table.", "--data")
Out = option(Path, "Run folder to write.")
RERUN = "rerun the command to resume"


@app.command("baseline", epilog="Example: hornbook baseline tfidf --task sst-2 --data glue/SST-2 --out runs/tfidf")
@with_reading_options()
def baseline_command(
    name: argument(str, "majority, tfidf, vectors (averaged), or from-scratch (random weights)."),
    data: NeededData,
    out: Out,
    task: TaskName = "classification",
    model: option(str | None, "Model whose embeddings (vectors) or shape (from-scratch) is used.") = None,
    word_vectors: option(Path | None, "Text file of word vectors: a word and its numbers per line.") = None,
    seed: Seed = 0,
    reading: Reading = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Train and score a baseline without pre-training."""
    from hornbook.evaluation.baselines.baseline import baseline

    options = {"model": model, "word_vectors": word_vectors, "seed": seed, "device": device}
    with training(out, overwrite, to_resume=RERUN) as display:
        result = baseline(name, data, task, out, **options, **reading, on_progress=display, log=log)
    _report_scored(result, out)


@app.command("probe", epilog="Example: hornbook probe runs/first --task conll2003 --data conll2003 --out runs/probe")
@with_reading_options()
def probe_command(
    model: Model,
    data: NeededData,
    out: Out,
    task: TaskName = "classification",
    method: option(str, "logistic (regression); for tags also bilstm, as in BERT's paper.") = "logistic",
    layers: option(str, "Layers to read: last, last4, mean-last4, all, embeddings, or numbers.") = "last4",
    pooling: option(str | None, "Pooling of texts: mean (default), cls, or lasttoken (of a causal model).") = None,
    seed: Seed = 0,
    reading: Reading = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Train a classifier on the frozen hidden states of a pre-trained model, and score it."""
    from hornbook.evaluation.baselines.probe import probe

    options = {"method": method, "layers": layers, "pooling": pooling, "seed": seed}
    options["device"] = device
    with training(out, overwrite, to_resume=RERUN) as display:
        result = probe(model, data, task, out, **options, **reading, on_progress=display, log=log)
    _report_scored(result, out)


def _report_scored(result, out: Path) -> None:
    print_scores(result.scores)
    if result.degenerate:
        log(f"note: {result.degenerate}")
    print_json({"out": str(out), "scores": result.scores, "degenerate": result.degenerate})


@app.command("label-curve", epilog="Example: hornbook label-curve runs/first --data reviews.csv --out runs/curve")
@with_reading_options()
def label_curve_command(
    model: Model,
    data: NeededData,
    out: Out,
    task: TaskName = "classification",
    sizes: option(str | None, "Training-set sizes: 32,128,all; defaults to 32, 128, 512 ...") = None,
    methods: option(str, "Some of from-scratch, features, finetune, tfidf, vectors, majority.") = (
        "from-scratch,features,finetune,tfidf"
    ),
    seeds: option(int, "Runs with different seeds per point, for the interval.") = 3,
    reading: Reading = None,
    join: Join = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Score by number of training labels: from scratch, on frozen features, fine-tuned. Run it again to resume."""
    from hornbook.evaluation.label_curve import label_curve
    from hornbook.lifecycle.job_locks import JobLocks
    from hornbook.report.trials import curve_table, draw, read_curve

    options = {"sizes": comma_separated(sizes), "methods": comma_separated(methods), "seeds": seeds, "join": join}
    options["device"] = device
    with training(out, overwrite, resume=join, to_resume=RERUN) as display:
        curve = label_curve(model, data, task, out, **options, **reading, on_progress=display, log=log)
    scored = read_curve(out)
    headings, rows = curve_table(scored)
    table(rows, headings)
    with JobLocks(out, is_shared=join).wait_for("results"):
        draw(out, scored)
    log(f"{out / 'curve.png'}")
    print_json({"out": str(out), **curve})


@app.command("glue", epilog="Example: hornbook glue runs/cola runs/mrpc runs/rte")
def glue(runs: argument(list[Path], "Finished runs of GLUE's tasks.")) -> None:
    """Print the validation scores of runs on GLUE's tasks, and their average."""
    from hornbook.metrics.glue import OFFICIAL, glue_average, read_glue_scores
    from hornbook.report.formatting import counted

    scores = read_glue_scores(runs)
    average, tasks = glue_average(scores)
    rows = [(task, name, f"{100 * scores[task][name]:.1f}") for task in tasks for name in OFFICIAL[task]]
    table(rows, ("task", "metric", "dev"))
    missing = [task for task in OFFICIAL if task not in tasks]
    without = f"; without {', '.join(missing)}" if missing else ""
    print_result(f"average over {counted(len(tasks), 'task')}: {100 * average:.1f}{without}")
    print_json({"average": average, "tasks": list(tasks), "missing": missing})


@app.command(
    "reproduce",
    epilog="Example: hornbook reproduce equal-compute --corpus wiki --data tasks --out runs/equal --minutes-each 10",
)
def reproduce_command(
    experiment: argument(str, "A shipped experiment: equal-compute, babylm; or a .toml file."),
    corpus: option(list[str], "Corpus folder; FOLDER:WEIGHT to mix several."),
    data: option(Path, "Folder that holds the task folders, such as glue for glue/CoLA."),
    out: option(Path, "Folder to write the experiment to."),
    arms: option(str | None, "Run only these arms, and judge the claims about them: bert-mlm,electra.") = None,
    flops: option(float | None, "Training FLOPs per arm, overriding the file's: 4.8e16.") = None,
    seeds: option(int | None, "Number of pre-training seeds per arm: the file's first, then further ones.") = None,
    override: option(list[str] | None, "Override a pre-training setting of every arm: key=value.", "--set") = None,
    minutes_each: option(float | None, "Minutes per arm; the FLOPs that fit are measured once.") = None,
    stop_after: option(float | None, "Stop and save after this many minutes; --resume resumes.") = None,
    processes: option(int, "Fine-tuning runs in parallel, sharing the device.") = 1,
    resume: flag("--resume", "Resume the experiment in --out, or start it.") = False,
    join: Join = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Run an experiment: pre-train arms at equal FLOPs, fine-tune, compare, and report verdicts. Ctrl-C saves."""
    from hornbook.evaluation.experiments.runner import reproduce
    from hornbook.report.experiment import final_scores

    options = {"arms": comma_separated(arms), "flops": flops, "seeds": seeds, "overrides": parse_overrides(override)}
    options |= {"minutes_each": minutes_each, "stop_after": stop_after, "processes": processes}
    options |= {"resume": resume, "join": join, "device": device}
    with overwriting(out, {"experiment"}, overwrite, resume or join), TrainingDisplay() as display:
        outcome = reproduce(experiment, corpus, data, out, **options, on_progress=display, log=log)
        display.pending = None  # the score of each job is logged instead of its last step
    claims, results = outcome.results["claims"], outcome.results
    if results["scores"]:
        headings, rows = final_scores(results)
        table(rows, headings)
    for claim in claims:
        print_result(f"{claim['verdict']}: {claim['description']}")
        print_result(f"  {claim['reason']}")
        if claim["would_decide"]:
            print_result(f"  to decide it: {claim['would_decide']}")
    print_result(f"{outcome.num_done} of {outcome.num_jobs} jobs done; {out / 'report.html'}")
    if outcome.ended == "stopped":
        log("stopped and saved; rerun with --resume")
    elif outcome.failures:
        log(f"{len(outcome.failures)} runs failed; rerun with --resume to retry them")
    verdicts = {claim["name"]: claim["verdict"] for claim in claims}
    progress = {"ended": outcome.ended, "done": outcome.num_done, "jobs": outcome.num_jobs}
    print_json({"out": str(out), **progress, "verdicts": verdicts, "failures": outcome.failures})
    if outcome.ended != "finished":
        raise typer.Exit(130 if outcome.ended == "stopped" else 1)
