"""The command `distill`."""

from pathlib import Path

from hornbook.cli.app import app, exit_if_stopped, or_recorded, print_json, report_interruption, show_recorded_settings
from hornbook.cli.options import (
    Device,
    OptionalSeed,
    Overrides,
    Overwrite,
    Reading,
    Resume,
    Show,
    argument,
    option,
    parse_overrides,
    reads_data,
)
from hornbook.cli.overwriting import RUN, overwriting
from hornbook.cli.pretraining import report_outcome, show_unmeasured
from hornbook.cli.tasks import Data, report_result
from hornbook.lifecycle.requests import as_overrides
from hornbook.terminal import TrainingDisplay, log
from hornbook.train.parallel.torchrun import as_restarted

TEACHER_HELP = "Teacher: a run folder, a transformers folder, or a Hugging Face name."
STUDENT_HELP = "A preset (tinybert-4, ...), with --task also a model; defaults to distilbert (GPT: distilgpt2)."
RECIPE_HELP = "distilbert, tinybert, patient, minilm, or your own .json; --show lists its settings."
CACHE_HELP = "Cache teacher outputs on disk: none, logits, or all"
ON_TEXT, ON_TASK = "with --corpus", "with --task"


@app.command(
    "distill",
    epilog="Example: hornbook distill runs/base --student distilbert --corpus wiki --out runs/small\n\n"
    "hornbook distill runs/sst-2 --student runs/small --task sst-2 --data glue/SST-2 --out runs/small-sst-2",
)
@reads_data()
def distill_command(
    teacher: argument(str | None, f"{TEACHER_HELP} With --resume it may be left out.") = None,
    student: option(str | None, STUDENT_HELP) = None,
    out: option(Path | None, "Run folder to write.") = None,
    corpus: option(list[str] | None, "Corpus folder; FOLDER:WEIGHT to mix several.") = None,
    task: option(
        str | None, "Instead of --corpus: the data set or task kind that the teacher was fine-tuned on."
    ) = None,
    data: Data = None,
    recipe: option(str | None, RECIPE_HELP) = None,
    augment: option(int | None, f"Augmented copies of each training text, {ON_TASK}.") = None,
    word_vectors: option(str | None, "For --augment: a text file of word vectors.") = None,
    augment_model: option(str | None, "For --augment: a model that fills in masks.") = None,
    cache_teacher: option(str | None, f"{CACHE_HELP}, {ON_TASK}.") = None,
    steps: option(int | None, f"Training steps, {ON_TEXT}.") = None,
    tokens: option(int | None, f"Training tokens, instead of --steps, {ON_TEXT}.") = None,
    minutes: option(float | None, f"Minutes of training, instead of --steps, {ON_TEXT}.") = None,
    batch_tokens: option(int | None, f"Tokens per batch, {ON_TEXT}.") = None,
    epochs: option(float | None, f"Passes over the training split, {ON_TASK}.") = None,
    lr: option(float | None, f"Peak learning rate, {ON_TASK}.") = None,
    batch_size: option(int | None, f"Examples per batch, {ON_TASK}.") = None,
    seed: OptionalSeed = None,
    reading: Reading = None,
    override: Overrides = None,
    resume: Resume = False,
    show: Show = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Distil a large model into a small one, on plain text or on a task. Ctrl-C saves; --resume resumes."""
    resume, overwrite = as_restarted(resume, overwrite)
    on_text = {"steps": steps, "tokens": tokens, "minutes": minutes, "batch_tokens": batch_tokens}
    on_task = {"epochs": epochs, "lr": lr, "batch_size": batch_size, **reading, "strict": reading["strict"] or None}
    flags = {"augment": augment, "word_vectors": word_vectors, "augment_model": augment_model}
    flags["cache_teacher"] = cache_teacher
    if corpus and task is not None:
        raise ValueError("give either --corpus, to distil on plain text, or --task and --data, to distil on a task")
    without_effect = on_text if task is not None else on_task | flags if corpus else {}
    if unused := [name for name, value in without_effect.items() if value is not None]:
        kind = ON_TEXT if task is not None else ON_TASK
        raise ValueError(f"--{unused[0].replace('_', '-')} has an effect only {kind}: omit it")
    options = {"corpora": corpus or [], "task": task, "data": data, "recipe": recipe, "seed": seed, "log": log}
    options |= {name: value for name, value in (on_text | on_task).items() if value is not None}
    options["overrides"] = parse_overrides(override, device) | as_overrides(**flags)
    if show and show_recorded_settings(out, resume):
        return
    teacher = or_recorded(teacher, "teacher", out, resume, "distill")
    if show:
        from hornbook.runs.distillation.distill import resolve_settings

        settings, new_model = resolve_settings(teacher, student, **options)
        show_unmeasured(settings, minutes, new_model)
        return
    if out is None or (not corpus and task is None and not (resume and (out / "run.json").exists())):
        missing = "--out" if out is None else "--corpus, or --task and --data"
        raise ValueError(f"distill needs {missing}; see 'hornbook distill --help'")
    if task is not None and data is None and not resume:
        raise ValueError("--task needs --data; see 'hornbook distill --help'")
    from hornbook.runs.distillation.distill import distill
    from hornbook.runs.finetuning.api import FinetuneResult

    replaced = overwriting(out, RUN, overwrite, resume)
    with replaced, report_interruption(out), TrainingDisplay() as display:
        result = distill(teacher, student, out, **options, resume=resume, on_progress=display)
    if isinstance(result, FinetuneResult):
        report_result(result, "another --lr or more --epochs")
        print_json({"out": str(out), "scores": result.scores, "degenerate": result.degenerate})
        return
    report_outcome(out, result, can_fill_masks="mlm" in result.last)
    print_json({"out": str(out), **vars(result)})
    exit_if_stopped(result)
