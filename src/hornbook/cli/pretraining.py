"""The commands `pretrain`, `distill` and `plan`."""

import shlex
from pathlib import Path

from hornbook.cli.app import (
    app,
    given_options,
    or_recorded,
    print_json,
    refuse_missing,
    refuse_unused_options,
    show_recorded_settings,
    show_settings,
    training,
)
from hornbook.cli.finetuning import Data, report_result
from hornbook.cli.options import (
    Device,
    OptionalSeed,
    Overrides,
    Overwrite,
    Reading,
    Resume,
    Show,
    argument,
    as_options,
    option,
    parse_overrides,
    with_reading_options,
)
from hornbook.cli.overwriting import refuse_both
from hornbook.lifecycle.requests import as_overrides
from hornbook.terminal import log, print_result, short, table
from hornbook.train.parallel.torchrun import as_restarted

PRESET_HELP = (
    "bert-tiny, -mini, -small, -medium, -base or -large; albert-base, -large, -xlarge or -xxlarge; "
    "roberta-base or -large; electra-small, -base or -large; gpt1-base; "
    "gpt2-tiny, -mini, -small, -medium, -large or -xl; gpt-bert-small or gpt-bert-base; "
    "gpt3-125m, -350m, -760m, -1.3b, -2.7b, -6.7b, -13b or -175b; "
    "tinybert-4 or -6; distilbert; distilgpt2; ernie-tiny, -small or -base."
)
TOKENS_HELP = "Training tokens, instead of --steps; each sequence counts at its length limit"
# Settings that follow from --minutes, the last ones in the budget recipe.
MEASURED = (
    *("schedule.steps", "schedule.warmup_steps", "batch.tokens", "validation.every_steps", "validation.tokens"),
    *("optimizer.lr", "optimizer.weight_decay", "data.length"),
)
MEASURED_NOTE = (
    "with --minutes, the steps, the batch, validation and with --recipe budget the learning rate, the weight decay and "
    "the length depend on the speed, which is measured"
)
TEACHER_HELP = "Teacher: a run folder, a transformers folder, or a Hugging Face name."
STUDENT_HELP = "A preset (tinybert-4, ...), with --task also a model; defaults to distilbert (GPT: distilgpt2)."
RECIPE_HELP = "distilbert, tinybert, patient, minilm, or your own .json; --show lists its settings."
CACHE_HELP = "Cache teacher outputs on disk: none, logits, or all"
ON_TEXT, ON_TASK = "with --corpus", "with --task"


@app.command(
    "pretrain", epilog="Example: hornbook pretrain bert-base --corpus wiki:3 --corpus law --out runs/law --minutes 60"
)
def pretrain_command(
    preset: argument(str | None, f"{PRESET_HELP} With --resume it may be left out.") = None,
    out: option(Path | None, "Run folder to write.") = None,
    corpus: option(list[str] | None, "Corpus folder; FOLDER:WEIGHT to mix several.") = None,
    init_from: option(str | None, "Initialise from this model, whose size overrides the preset's.", "--from") = None,
    steps: option(int | None, "Training steps.") = None,
    tokens: option(int | None, f"{TOKENS_HELP}.") = None,
    minutes: option(float | None, "Minutes of training, instead of --steps; converted to steps by measuring.") = None,
    batch_tokens: option(int | None, "Tokens per batch.") = None,
    seed: OptionalSeed = None,
    recipe: option(
        str | None, "published or budget; default: budget if the run has far fewer tokens than published."
    ) = None,
    graph: option(str | None, "ERNIE: the graph to which the corpora are linked.") = None,
    vectors: option(str | None, "ERNIE: its vectors, made by 'hornbook graph embed'.") = None,
    override: Overrides = None,
    resume: Resume = False,
    show: Show = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Pre-train a model on corpora. Ctrl-C saves a checkpoint; --resume continues, on a CPU bit for bit."""
    options = {"steps": steps, "tokens": tokens, "minutes": minutes, "batch_tokens": batch_tokens}
    options |= {"init_from": init_from, "seed": seed, "recipe": recipe, "graph": graph, "vectors": vectors}
    options["overrides"] = parse_overrides(override, device)
    refuse_both(overwrite, resume)
    if show and show_recorded_settings(out, resume):
        return
    if preset is None and init_from is not None and not resume:
        raise ValueError(
            "with --from, pretrain needs a preset, too: one of the family of the model, such as electra-small for a "
            "built-in one; the size is that of the model"
        )
    preset = or_recorded(preset, "preset", out, resume, "pretrain")
    if show:
        from hornbook.runs.pretraining.record import PretrainRequest
        from hornbook.runs.pretraining.resolve import resolve_settings

        show_unmeasured(resolve_settings(PretrainRequest(preset, corpus or [], **options)), minutes)
        return
    if out is None or (not corpus and not (resume and (out / "run.json").exists())):
        refuse_missing("--out" if out is None else "--corpus", "pretrain", out, resume)
    resume, overwrite = as_restarted(resume, overwrite)
    from hornbook.runs.pretraining.pretrain import pretrain

    with training(out, overwrite, resume) as display:
        outcome = pretrain(preset, corpus or [], out, **options, resume=resume, on_progress=display, log=log)
    report_outcome(out, outcome)
    print_json({"out": str(out), **vars(outcome)})


def show_unmeasured(settings, minutes: float | None, new_model=None) -> None:
    """Prints the settings, with --minutes without those that a run measures first."""
    if minutes is not None:
        log(MEASURED_NOTE)
    show_settings(settings, new_model, () if minutes is None else MEASURED)


def report_outcome(out: Path, outcome, can_fill_masks: bool = True) -> None:
    from hornbook.files import read_json
    from hornbook.report.formatting import counted, duration
    from hornbook.runs.pretraining.loss_notes import loss_notes

    if outcome.ended == "already finished":
        log(f"{out} is already finished")
        return
    progress = f"{counted(outcome.step, 'step')}, {short(outcome.tokens)} tokens, {duration(outcome.seconds)}"
    run = read_json(out / "run.json")
    terms = run.get("terms", {})
    formula = f" ({' + '.join(name if w == 1 else f'{w:g} x {name}' for name, w in terms.items())})" if terms else ""
    best = f", best validation loss {outcome.best:.3f}{formula}" if outcome.best is not None else ""
    print_result(f"{out}: finished, {progress}{best}")
    folder = shlex.quote(str(out))
    if "rtd" in terms:
        use = f'hornbook detect {folder} "..."'
    elif "clm" in terms:
        use = f'hornbook {"generate" if "clm" in run["heads"] else "score"} {folder} "..."'
    else:
        use = f'hornbook fill-mask {folder} "...[MASK]..."' if can_fill_masks else ""
    log(f"  hornbook report {folder}      {use}".rstrip())
    for note in loss_notes(out, outcome, run.get("unigram_baseline") or {}):
        log(f"  note: {note}")


@app.command(
    "distill",
    epilog="Example: hornbook distill runs/base --student distilbert --corpus wiki --out runs/small\n\n"
    "hornbook distill runs/sst-2 --student runs/small --task sst-2 --data glue/SST-2 --out runs/small-sst-2",
)
@with_reading_options()
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
    tokens: option(int | None, f"{TOKENS_HELP}, {ON_TEXT}.") = None,
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
    refuse_both(overwrite, resume)
    resume, overwrite = as_restarted(resume, overwrite)
    on_text = {"steps": steps, "tokens": tokens, "minutes": minutes, "batch_tokens": batch_tokens}
    on_task = {"epochs": epochs, "lr": lr, "batch_size": batch_size, **reading, "strict": reading["strict"] or None}
    augmentation = {"augment": augment, "word_vectors": word_vectors, "augment_model": augment_model}
    if corpus and task is not None:
        raise ValueError("give either --corpus, to distil on plain text, or --task and --data, to distil on a task")
    if task is not None:
        refuse_unused_options(ON_TASK, given_options(*on_text))
    elif corpus:
        refuse_unused_options(ON_TEXT, given_options(*on_task, *augmentation, "cache_teacher"))
    options = {"corpora": corpus or [], "task": task, "data": data, "recipe": recipe, "seed": seed, "log": log}
    options |= {name: value for name, value in (on_text | on_task).items() if value is not None}
    options["overrides"] = parse_overrides(override, device) | as_overrides(**augmentation, cache_teacher=cache_teacher)
    if show and show_recorded_settings(out, resume):
        return
    teacher = or_recorded(teacher, "teacher", out, resume, "distill")
    if show:
        from hornbook.runs.distillation.distill import resolve_settings

        settings, new_model = resolve_settings(teacher, student, **options)
        show_unmeasured(settings, minutes, new_model)
        return
    if out is None or (not corpus and task is None and not (resume and (out / "run.json").exists())):
        refuse_missing("--out" if out is None else "--corpus, or --task and --data", "distill", out, resume)
    if task is not None and data is None and not resume:
        raise ValueError("--task needs --data; see 'hornbook distill --help'")
    from hornbook.runs.distillation.distill import distill
    from hornbook.runs.finetuning.finetune import FinetuneResult

    with training(out, overwrite, resume) as display:
        result = distill(teacher, student, out, **options, resume=resume, on_progress=display)
    if isinstance(result, FinetuneResult):
        report_result(result, "another --lr or more --epochs")
        return
    report_outcome(out, result, can_fill_masks="mlm" in result.last)
    print_json({"out": str(out), **vars(result)})


@app.command("plan", epilog="Example: hornbook plan bert-large --devices 8 --device-memory 80")
def plan_command(
    preset: argument(str, PRESET_HELP),
    devices: option(int, "Number of devices.") = 1,
    device: Device = "auto",
    device_memory: option(float | None, "Memory per device in GiB; defaults to this machine's.") = None,
    device_tflops: option(
        float | None, "Peak TFLOP/s per device; defaults to this machine's, measured, or an H100's."
    ) = None,
    utilization: option(float, "Fraction of the peak that is reached.") = 0.4,
    tokens: option(int | None, "Training tokens; defaults to the published number.") = None,
    override: option(list[str] | None, "Override a setting: key=value, as for pretrain.", "--set") = None,
) -> None:
    """Estimate what pre-training takes: parameters, memory, FLOPs, days. Nothing is trained."""
    from dataclasses import asdict

    from hornbook.report.formatting import binary_size, duration
    from hornbook.runs.pretraining.plan import GIB, machine, plan
    from hornbook.runs.pretraining.presets import preset_settings

    overrides = parse_overrides(override)
    preset_settings(preset, overrides)  # errors are raised before the machine is measured
    target = machine(device, devices, device_memory, device_tflops)
    planned = plan(preset, devices, target.num_bytes, target.flops, utilization, tokens, overrides)
    time = f"{planned.days:,.0f} days" if planned.days >= 10 else duration(planned.days * 86_400)
    is_published = tokens is None and "schedule.steps" not in overrides
    weights = binary_size(4 * planned.parameters)
    flops = f"{planned.flops_per_token:.3g} forward and backward, with vocabulary logits of predicted tokens only"
    step = (
        f"on a GPU in bfloat16 about {binary_size(planned.step_bytes)}, with {planned.micro_tokens:,} tokens at once "
        "(batch.micro_tokens) and nothing sharded; float32, as on a CPU, takes up to twice as much"
    )
    rows = [
        ("recipe", f"{planned.recipe}, sequences of {planned.length} tokens"),
        ("parameters", f"{planned.parameters:,}, with a vocabulary of {planned.vocab_size:,} (model.vocab_size)"),
        ("FLOPs per token", flops),
        ("tokens", f"{planned.tokens:,}" + (", as published; --tokens for a shorter run" if is_published else "")),
        ("total FLOPs", f"{planned.flops:.3g}"),
        ("time", f"{time}, if each device reaches {utilization:.0%} of {as_options(target.speed)}"),
        ("weights", f"{weights} in float32; the same for gradients, twice that for the optimizer"),
        ("activations", f"about {planned.bytes_per_token / 2**20:.2f} MiB per token"),
        ("memory of a step", step),
        ("devices needed", _devices_needed(planned.devices_needed, target.num_bytes / GIB)),
    ]
    table(rows, title=f"{preset} on {target.where}")

    def fitting(num_tokens: int) -> str:
        is_enough = num_tokens >= planned.length
        return short(num_tokens) if is_enough else f"less than one sequence of {planned.length:,}: does not fit"

    table(
        [
            (
                each.shares,
                binary_size(each.state_bytes),
                fitting(each.max_tokens),
                fitting(each.most_recomputed),
            )
            for each in planned.sharding
        ],
        ("sharded over the devices", "memory per device", "tokens that fit besides", "with activations recomputed"),
    )
    if target.is_here:
        measure = f"'hornbook pretrain {preset} --corpus DIR --out DIR --minutes 10' measures the time of a step"
        fits = f"the model fits on this machine; {measure}"
        print_result(fits if planned.fits(planned.sharding[0]) else "the model does not fit on this machine")
    print_json(asdict(planned) | {"machine": asdict(target)})


def _devices_needed(num_devices: int | None, gibibytes: float) -> str:
    if num_devices is None:
        return f"none of {gibibytes:.0f} GiB hold the activations of one sequence"
    if num_devices == 1:
        return f"1 of {gibibytes:.0f} GiB"
    return f"{num_devices:,} of {gibibytes:.0f} GiB at least, with parallel.shard=true and activations recomputed"
