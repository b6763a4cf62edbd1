"""Pre-training, from a request to a finished run folder.

RUN/run.json              the request and everything resolved from it: settings, corpora, device
RUN/config.json, model.safetensors, tokenizer.json, tokenizer_config.json     the last weights
RUN/best/                 the weights with the best validation loss
RUN/checkpoints/          weights and training state, from which a run is resumed
RUN/kept/                 the weights at the steps in checkpoint.keep_at
RUN/metrics.jsonl, tensorboard/, samples.json
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from hornbook import config as configuration
from hornbook.data.corpus import Corpus
from hornbook.devices import chosen_device, refuse_beyond_memory
from hornbook.inference.samples import write_samples
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import model_folder
from hornbook.interop.vocabulary import grown
from hornbook.lifecycle.locking import run_lock
from hornbook.models import registry
from hornbook.models.pair import initialise_from_teacher
from hornbook.objectives.baseline import frequency_baseline
from hornbook.runs.distillation.students import fitted_to_teacher, refuse_other_objective
from hornbook.runs.distillation.teacher import Teacher, refuse_other_teacher, refuse_other_vocabulary
from hornbook.runs.pretraining.assembly import (
    generator_size_in,
    initialise_from,
    load_trained,
    lr_multiplier,
    mask_filler,
    new_network,
    objective_of,
    save_trained,
)
from hornbook.runs.pretraining.batches import BatchMaker, Corpora, held_out_batches, names_of, open_corpora
from hornbook.runs.pretraining.minutes import (
    MEASURED_SHARE,
    log_expected_time,
    mean_seconds_per_step,
    num_validations,
    steps_between,
    with_batch_that_fits,
    with_steps_in,
)
from hornbook.runs.pretraining.record import Request, read_run, refuse_other_corpora, refuse_other_request, write_run
from hornbook.runs.pretraining.settings import PretrainSettings, preset_settings, settings_in
from hornbook.runs.pretraining.warnings import warnings_of
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.checkpoint import Checkpoints, read_state
from hornbook.train.device import Runtime, decide, prepare, torch_settings_restored
from hornbook.train.loop import Job, OnProgress, Outcome, train
from hornbook.train.objective import TrainingModule
from hornbook.train.pace import FORWARD_SHARE
from hornbook.train.randomness import seed_of
from hornbook.train.validation import validate

Log = Callable[[str], None]
# Model settings that may differ from the model that --from names; all others must match it.
OVERRIDABLE_WITH_BASE = {
    *("model.dropout", "model.attention_dropout", "model.embedding_dropout", "model.head_dropout"),
    *("model.init_std", "model.init_by_width"),
}
WEIGHT_BYTES, STATE_BYTES = 4, 16  # per parameter: the weight alone; with gradient and Adam's two moments
BATCH_BYTES = 32  # per token: id, segment, position and label
MAX_WARMUP = 0.1  # largest share of the steps that a published warmup in steps may take


@torch_settings_restored()
def pretrain(
    preset: str,
    corpora: Sequence[str | Path] | str | Path,
    out: str | Path,
    *,
    base: str | Path | None = None,
    steps: int | None = None,
    tokens: int | None = None,
    minutes: float | None = None,
    batch_tokens: int | None = None,
    seed: int | None = None,
    overrides: dict | None = None,
    resume: bool = False,
    teacher: Teacher | None = None,
    on_progress: OnProgress | None = None,
    log: Log = print,
) -> Outcome:
    """Pre-trains a preset on one or several corpora (`folder` or `folder:weight`) into the run folder `out`. With a
    `teacher` the model is distilled from it; `hornbook.runs.distillation` opens the teacher and calls this.

    >>> import hornbook
    >>> size = {"model.num_layers": 1, "model.width": 32, "model.num_heads": 2, "model.inner_width": 64}
    >>> options = {"steps": 2, "batch_tokens": 512, "overrides": size, "progress": False, "log": lambda message: None}
    >>> hornbook.pretrain("bert-tiny", "corpus", "runs/two-steps", **options).step
    2
    """
    out = Path(out)
    base = None if base is None else str(base)
    names = names_of(corpora)
    teacher_name = None if teacher is None else teacher.name
    request = Request(preset, names, base, steps, tokens, minutes, batch_tokens, seed, teacher_name, overrides or {})
    with run_lock(out):
        return _pretrain_in(out, request, resume, teacher, on_progress or (lambda status: None), log)


def _pretrain_in(
    out: Path, request: Request, resume: bool, teacher: Teacher | None, on_progress: OnProgress, log: Log
) -> Outcome:
    if (out / "run.json").exists():
        if not resume:
            raise ValueError(f"{out} already holds a run: add --resume to resume it, or choose another --out")
        run = read_run(out, is_distilled=teacher is not None)
        refuse_other_request(out, run, request)
        prepared = _reopen(out, run, request, teacher, log)
        if _steps_done(out) >= prepared.settings.schedule.steps:
            return _already_finished(out, prepared)
    else:
        if out.exists() and any(path for path in out.iterdir() if not path.name.endswith(".tmp")):
            raise ValueError(f"{out} exists and is not a run: choose another --out, or empty it")
        prepared = _start(out, request, teacher, log)
    for warning in warnings_of(prepared.settings, prepared.opened, prepared.job.make_batch):
        log(warning)
    outcome = train(out, prepared.job, prepared.settings.loop(), prepared.runtime, on_progress)
    if outcome.ended == "finished":
        _write_samples(out, prepared)
    return outcome


@dataclass(frozen=True)
class _Prepared:
    settings: PretrainSettings
    opened: Corpora
    runtime: Runtime
    job: Job


def _start(out: Path, request: Request, teacher: Teacher | None, log: Log) -> _Prepared:
    """Prepares a new run: resolves all settings and writes `run.json`."""
    began = time.monotonic()
    settings = _requested_settings(request, teacher is not None)
    opened = open_corpora(request.named_corpora(), settings)
    runtime = decide(settings.runtime, settings.planned_flops(request.minutes))
    prepare(runtime)
    settings, model = _model_to_train(settings, opened, request, teacher, log)
    log(f"{sum(p.numel() for p in model.parameters()):,} parameters; {runtime.reason}")
    job = _job(settings, opened, model, runtime, teacher)
    if request.minutes is not None:
        settings = with_batch_that_fits(request.minutes, settings, job, runtime, opened, request.all_overrides(), log)
        job = _with_batches(job, settings, opened, runtime)
        settings = with_steps_in(request.minutes, settings, job, runtime, began, opened, log)
        job = _with_batches(job, settings, opened, runtime)
    elif teacher is not None:
        log_expected_time(settings, job, runtime, opened, log)
    settings = _with_warmup_that_fits(settings, request, log)
    held_out = [batch.to(runtime.device) for batch in held_out_batches(settings, opened)]
    if settings.validation.every_steps is None:
        steps, validation_seconds = settings.schedule.steps, sum(batch.num_tokens for batch in held_out) * FORWARD_SHARE
        every = steps_between(steps, num_validations(steps * settings.batch.mean_tokens, validation_seconds))
        settings = configuration.with_overrides(settings, {"validation.every_steps": every})
    counts = sum(corpus.token_counts * weight for corpus, weight in opened)
    baseline = frequency_baseline(job.objective, held_out, counts) if held_out else {}
    write_run(out, request, settings, opened, runtime, job, baseline, teacher)
    return _Prepared(settings, opened, runtime, job)


def _requested_settings(request: Request, has_teacher: bool) -> PretrainSettings:
    """The published settings with the overrides of the request, before the corpora and the teacher are known."""
    settings = preset_settings(request.preset, request.all_overrides(), has_teacher)
    if request.tokens is None:
        return settings
    steps = max(1, math.ceil(request.tokens / settings.batch.mean_tokens))
    return configuration.with_overrides(settings, {"schedule.steps": steps})


def settings_with_teacher(request: Request, teacher: Teacher) -> PretrainSettings:
    """The settings of a distillation on plain text, except for those that depend on its corpora."""
    settings = fitted_to_teacher(_requested_settings(request, True), teacher.tokenizer, teacher)
    return _with_warmup_that_fits(settings, request, lambda message: None)


def _reopen(out: Path, run: dict, request: Request, teacher: Teacher | None, log: Log) -> _Prepared:
    """Prepares a run to be resumed, with the settings in `run.json`. The training loop loads the last checkpoint, if
    there is one. `request` may name other paths of the same corpora."""
    settings = settings_in(run)
    folders = request.named_corpora() or [(entry["folder"], entry["weight"]) for entry in run["corpora"]]
    opened = [(Corpus(folder, settings.data.held_out_fraction), weight) for folder, weight in folders]
    refuse_other_corpora(run, opened)
    if teacher is not None:
        refuse_other_teacher(run, teacher)
    runtime = decide(settings.runtime, run["planned_flops"], run["runtime"]["threads"], run["runtime"]["compiles"])
    prepare(runtime)
    if Checkpoints(out).last() is None:  # killed before the first checkpoint: initialise again
        _, model = _model_to_train(settings, opened, Request(**run["request"]), teacher, lambda message: None)
    else:
        model = new_network(settings, teacher and teacher.model)
    log(f"resuming {out} at step {_steps_done(out):,} of {settings.schedule.steps:,}; {runtime.reason}")
    return _Prepared(settings, opened, runtime, _job(settings, opened, model, runtime, teacher))


def _already_finished(out: Path, prepared: _Prepared) -> Outcome:
    """The outcome of a finished run; completes the final files if the run was killed while writing them."""
    checkpoints = Checkpoints(out, prepared.settings.checkpoint.keep)
    last = checkpoints.last()
    checkpoints.publish(last)
    checkpoints.drop_old()
    if not (out / "samples.json").exists():
        prepared.job.load_model(out)
        _write_samples(out, prepared)
    state = read_state(last)
    return Outcome("already finished", state["step"], state["tokens"], state["seconds"], {}, state["best"])


def _write_samples(out: Path, prepared: _Prepared) -> None:
    if (filler := mask_filler(prepared.job.model)) is not None:
        write_samples(out, filler, prepared.opened[0][0])


def _steps_done(out: Path) -> int:
    return Checkpoints(out).last_step() or 0


@torch_settings_restored()
def measured_pace(preset: str, corpora: list[str | Path], minutes: float, overrides: dict) -> tuple[float, Runtime]:
    """(seconds per step, runtime) of a run of `minutes` on this machine; nothing is written."""
    request = Request(preset, [str(each) for each in corpora], overrides=overrides)
    settings = preset_settings(preset, overrides)
    opened = open_corpora(request.named_corpora(), settings)
    runtime = decide(settings.runtime, settings.planned_flops(minutes))
    prepare(runtime)
    settings, model = _model_to_train(settings, opened, request, None, lambda message: None)
    torch.compiler.reset()  # measure without what an earlier run compiled
    job = _job(settings, opened, model, runtime)
    return mean_seconds_per_step(settings, job, runtime, MEASURED_SHARE * minutes * 60), runtime


def _with_warmup_that_fits(settings: PretrainSettings, request: Request, log: Log) -> PretrainSettings:
    """Limits a published warmup in steps to a tenth of this run, which may be much shorter than the published one."""
    published, limit = settings.schedule.warmup_steps, round(MAX_WARMUP * settings.schedule.steps)
    if published is None or published <= limit or "schedule.warmup_steps" in request.overrides:
        return settings
    log(f"the published warmup of {published:,} steps is reduced to {limit:,}, a tenth of this run")
    return configuration.with_overrides(settings, {"schedule.warmup_steps": limit})


def _model_to_train(
    settings: PretrainSettings, opened: Corpora, request: Request, teacher: Teacher | None, log: Log
) -> tuple[PretrainSettings, nn.Module]:
    """The resolved settings and the model with its initial weights: random, those of --from, or teacher layers."""
    tokenizer = opened[0][0].tokenizer
    if teacher is not None:
        return _student_to_train(settings, tokenizer, teacher, log)
    if request.base is None:
        settings = configuration.with_overrides(settings, {"model.vocab_size": tokenizer.vocab_size})
        config = registry.family_of(settings.model).for_tokenizer(settings.model, tokenizer.pad_id, tokenizer.end_id)
        settings = dataclasses.replace(settings, model=config)
        return settings, _new_model(settings)
    folder = model_folder(request.base)
    trained, old_tokenizer = load_folder(folder)
    if type(trained) is not registry.family_of(settings.model):
        raise ValueError(
            f"{request.base} is a model of the family {trained.family}, but {request.preset} is not: "
            f"choose a preset of that family, such as {next(iter(registry.presets_of(trained.family)))}"
        )
    if tokenizer.fingerprint != old_tokenizer.fingerprint:
        num_new = tokenizer.vocab_size - old_tokenizer.vocab_size
        trained = grown(trained, old_tokenizer, tokenizer)
        if num_new:
            log(f"{num_new:,} new words are initialised with the mean of their old tokens")
    settings = _with_shape_of(trained, settings, request)
    settings = configuration.with_overrides(settings, generator_size_in(folder, settings, request.overrides))
    model = _new_model(settings)
    log(f"initialised from {request.base}: {trained.config.num_layers} layers, width {trained.config.width}")
    if newly_initialised := initialise_from(model, folder, tokenizer):
        log(f"newly initialised, because {request.base} lacks them: {', '.join(newly_initialised)}")
    return settings, model


def _student_to_train(
    settings: PretrainSettings, tokenizer: Tokenizer, teacher: Teacher, log: Log
) -> tuple[PretrainSettings, nn.Module]:
    refuse_other_objective(settings, teacher)  # before the vocabularies, which differ for the same reason
    if not teacher.knows_tokens_of(tokenizer):
        refuse_other_vocabulary(teacher, tokenizer, "the corpus")
    settings = fitted_to_teacher(settings, tokenizer, teacher)
    pair = _new_model(settings, teacher)
    if settings.objective.start == "teacher":
        log(f"the student {initialise_from_teacher(pair.student, teacher.model)}")
    return settings, pair


def _with_shape_of(trained: nn.Module, settings: PretrainSettings, request: Request) -> PretrainSettings:
    """The settings with the shape of a trained model. Overriding its shape is an error; dropouts may differ."""
    shape = {f"model.{each.name}": each.value for each in configuration.iter_settings(trained.config)}
    requested = configuration.with_overrides(settings, {})
    for name in request.overrides:
        if name in OVERRIDABLE_WITH_BASE:
            shape.pop(name, None)
        elif name in shape and getattr(requested.model, name.removeprefix("model.")) != shape[name]:
            raise ValueError(
                f"{name} is {shape[name]} in the model given by --from and cannot be overridden: leave it out"
            )
    positions = trained.config.max_positions
    shorter = {f"data.{name}": min(getattr(settings.data, name), positions) for name in ("length", "short_length")}
    return configuration.with_overrides(settings, shape | shorter)


def _new_model(settings: PretrainSettings, teacher: Teacher | None = None) -> nn.Module:
    _refuse_too_large(settings)
    model = new_network(settings, teacher and teacher.model)
    model.initialise(torch.Generator().manual_seed(seed_of(settings.runtime.seed, "weights")))
    return model


def _refuse_too_large(settings: PretrainSettings) -> None:
    """Raises a ValueError before anything is allocated if the model's state or a batch exceeds the memory."""
    device, num = chosen_device(settings.runtime.device), settings.model.num_matrix_parameters
    for where, num_bytes in ((device, STATE_BYTES), ("cpu", WEIGHT_BYTES)):
        refuse_beyond_memory(
            float(num_bytes * num),
            where,
            f"the {num:,} parameters of this model need",
            "choose a smaller preset, or lower model.num_layers, model.width or model.vocab_size",
        )
    refuse_beyond_memory(
        float(BATCH_BYTES * settings.batch.tokens),
        "cpu",
        f"the {settings.batch.tokens:,} tokens of a batch need",
        "lower batch.tokens (--batch-tokens)",
    )


def _job(
    settings: PretrainSettings, opened: Corpora, model: nn.Module, runtime: Runtime, teacher: Teacher | None = None
) -> Job:
    tokenizer = opened[0][0].tokenizer
    objective = objective_of(settings, tokenizer, teacher and teacher.model)
    if runtime.compiles:
        model.compile_parts()
        objective.compile()

    def save(folder: Path) -> None:
        save_trained(folder, model, tokenizer)

    def load(folder: Path) -> None:
        load_trained(folder, model)

    module = TrainingModule(model, objective)
    job = Job(module, BatchMaker(settings, opened), None, save, load, rate_of=lr_multiplier(settings))
    return _with_batches(job, settings, opened, runtime)


def _with_batches(job: Job, settings: PretrainSettings, opened: Corpora, runtime: Runtime) -> Job:
    """The job with the training and validation batches of these settings."""
    held_out = held_out_batches(settings, opened)

    def check(micro_tokens: int) -> dict[str, float]:
        return validate(job.module, held_out, runtime, micro_tokens)

    make_batch = BatchMaker(settings, opened)
    return dataclasses.replace(job, make_batch=make_batch, validate=check if held_out else None)
