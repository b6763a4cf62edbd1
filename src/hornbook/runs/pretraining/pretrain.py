"""Pre-training, from a request to a finished run folder, whose files docs/pretraining.md lists."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from hornbook.data.corpus import Corpus
from hornbook.data.remote import is_url
from hornbook.devices import chosen_device, refuse_beyond_memory
from hornbook.graph.embedding.vectors import GraphVectors
from hornbook.graph.graph import Graph
from hornbook.interop.files import checked_config_file
from hornbook.interop.hub import model_folder
from hornbook.lifecycle.locking import lock_output_folder
from hornbook.lifecycle.requests import with_device
from hornbook.lifecycle.run_folder import Log, RunFolder, ignore
from hornbook.models.distillation_pair import initialize_from_teacher
from hornbook.models.transformer import count_parameters
from hornbook.runs.distillation.teacher import Teacher
from hornbook.runs.pretraining.assembly import (
    PreparedRun,
    initialize_from,
    masked_lm_of,
    new_network,
)
from hornbook.runs.pretraining.batches import (
    Corpora,
    corpus_names,
    open_corpora,
    warnings_of,
)
from hornbook.runs.pretraining.minutes import (
    MEASURED_FRACTION,
    log_expected_time,
    mean_seconds_per_step,
    with_batch_that_fits,
    with_steps_in,
)
from hornbook.runs.pretraining.recipes import Recipe, description, takes_a_minute
from hornbook.runs.pretraining.record import (
    PretrainRequest,
    check_record,
    refuse_other_inputs,
    refuse_other_request,
    vectors_fingerprint,
    write_run,
)
from hornbook.runs.pretraining.resolve import (
    check_corpora_linked,
    final_settings,
    requested_settings,
    settings_for_model,
)
from hornbook.runs.pretraining.samples import write_samples
from hornbook.runs.pretraining.settings import PretrainSettings, settings_in
from hornbook.train.checkpoint import Checkpoints, read_state
from hornbook.train.job import OnProgress, Outcome
from hornbook.train.loop import train
from hornbook.train.parallel.ranks import connects_ranks, current_ranks
from hornbook.train.randomness import seed_of
from hornbook.train.runtime import Runtime, choose_runtime, configure_torch, torch_settings_restored

WEIGHT_BYTES, STATE_BYTES = 4, 16  # per parameter: the weight alone; with gradient and Adam's two moments
BATCH_BYTES = 32  # per token: id, segment, position and label


@connects_ranks
@lock_output_folder
@torch_settings_restored()
def pretrain(
    preset: str,
    corpora: Sequence[str | Path] | str | Path,
    out: str | Path,
    *,
    init_from: str | Path | None = None,
    steps: int | None = None,
    tokens: int | None = None,
    minutes: float | None = None,
    batch_tokens: int | None = None,
    seed: int | None = None,
    recipe: Recipe | None = None,
    graph: str | Path | None = None,
    vectors: str | Path | None = None,
    overrides: dict | None = None,
    device: str = "auto",
    resume: bool = False,
    teacher: Teacher | None = None,
    on_progress: OnProgress | None = None,
    log: Log = print,
) -> Outcome:
    """Pre-trains a preset on one or several corpora (`folder` or `folder:weight`) into the run folder `out`.
    `init_from` is a model to initialise from, whose size overrides the preset's. With a `teacher` the model is
    distilled from it; `hornbook.runs.distillation` opens the teacher and calls this. `recipe` is `published` or
    `budget`, which is for runs far shorter than published and the default for them. ERNIE reads the `vectors` of the
    entities of a `graph`, to which the corpora must be linked. `device` is `cpu`, `cuda` or `cuda:1` and defaults to a
    GPU if there is one.

    Returns how the run ended. Raises `Stopped` if Ctrl-C, another signal or `on_progress` stopped it after saving it.

    >>> import hornbook
    >>> size = {"model.num_layers": 1, "model.width": 32, "model.num_heads": 2, "model.inner_width": 64}
    >>> options = {"steps": 2, "batch_tokens": 512, "overrides": size, "progress": False, "log": lambda message: None}
    >>> hornbook.pretrain("bert-tiny", "corpus", "runs/two-steps", **options).step
    2
    """
    out = Path(out)
    size = {"steps": steps, "tokens": tokens, "minutes": minutes, "batch_tokens": batch_tokens}
    request = PretrainRequest(
        preset,
        corpus_names(corpora),
        init_from,
        **size,
        seed=seed,
        teacher=teacher and teacher.name,
        recipe=recipe,
        graph=graph,
        vectors=vectors,
        overrides=with_device(overrides, device),
    )
    folder, on_progress = RunFolder(out, "distill" if teacher else "pretrain"), on_progress or ignore
    log = current_ranks().only_main(log)
    _check_request(request, resume)
    if current_ranks().from_main(lambda: folder.is_started(resume)):
        record = folder.read_record(check_record)
        refuse_other_request(folder, record, request)
        prepared = _reopen(folder, record, request, teacher, log)
        if current_ranks().from_main(lambda: Checkpoints(out).is_trained(prepared.settings.schedule.steps)):
            return _already_finished(out, prepared)
    else:
        prepared = _start(folder, request, teacher, log)
    for warning in warnings_of(prepared.settings, prepared.corpora, prepared.job.make_batch):
        log(warning)
    outcome = train(out, prepared.job, prepared.settings, prepared.runtime, on_progress)
    if current_ranks().is_main:
        _write_samples(out, prepared)
    return outcome


def _check_request(request: PretrainRequest, resume: bool) -> None:
    """Raises a `ValueError` for an unknown preset, setting or device, or if there is no folder of the model to
    initialise from, before anything else is looked at."""
    settings, _ = requested_settings(request)
    chosen_device(settings.runtime.device)
    if request.init_from is not None and not resume:
        checked_config_file(model_folder(request.init_from))


def _start(folder: RunFolder, request: PretrainRequest, teacher: Teacher | None, log: Log) -> PreparedRun:
    """Prepares a new run: resolves all settings and writes `run.json`."""
    began = time.monotonic()
    settings, recipe = requested_settings(request)
    corpora = open_corpora(request.corpora, settings)
    settings = settings_for_model(settings, recipe, corpora, request, teacher, log)
    for corpus, _ in corpora:
        if is_url(corpus.origin):
            log(f"{corpus.origin}: copied to {corpus.folder} in the background")
    runtime = choose_runtime(settings.runtime, settings.planned_flops(request.minutes), width=settings.model.width)
    configure_torch(runtime)
    if request.minutes is not None and settings.parallel.shard:
        raise ValueError(
            "minutes times steps of the unsharded model, so it cannot be combined with parallel.shard=true: give "
            "steps or tokens"
        )
    model = _model_to_train(settings, corpora, request, teacher, log)
    log(f"{count_parameters(model):,} parameters; {runtime.description}")
    prepared = PreparedRun.build(settings, corpora, model, runtime, teacher and teacher.model)
    if request.minutes is not None:
        prepared, token_seconds = with_batch_that_fits(prepared, request, recipe, log)
        settings = with_steps_in(request.minutes, prepared, began, log, token_seconds)
        settings = current_ranks().from_main(lambda: settings)  # the steps that the main rank measured
        prepared = prepared.with_settings(settings)
    elif teacher is not None or request.has_default_duration or takes_a_minute(settings):
        log_expected_time(prepared, request.has_default_duration, log)
    settings = final_settings(prepared.settings, recipe, corpora, request, prepared.num_held_out_tokens, log)
    if recipe == "budget":
        log(description(settings, request))
    settings.check_run(current_ranks().size)
    prepared = dataclasses.replace(prepared, settings=settings)
    write_run(folder, request, prepared, recipe, teacher)
    return prepared


def _reopen(
    folder: RunFolder, record: dict, request: PretrainRequest, teacher: Teacher | None, log: Log
) -> PreparedRun:
    """Prepares a run to be resumed, with the settings in `run.json`. The training loop loads the last checkpoint, if
    there is one. `request` may name other paths of the same corpora."""
    settings = settings_in(record)
    entries = record["inputs"]["corpora"]
    named = request.named_corpora() or [(entry["folder"], entry["weight"]) for entry in entries]
    corpora = [(Corpus(path, settings.data.held_out_fraction), weight) for path, weight in named]
    refuse_other_inputs(folder, record, corpora, teacher)
    runtime = choose_runtime(settings.runtime, record["planned_flops"], record["runtime"])
    configure_torch(runtime)
    last_step = Checkpoints(folder.path).last_step()
    if last_step is None:  # killed before the first checkpoint: initialise again
        before = PretrainRequest(**record["request"])
        if before.vectors is not None:
            folder.refuse_other_input(f"{before.vectors}", record["inputs"]["vectors"], vectors_fingerprint(before))
        model = _model_to_train(settings, corpora, before, teacher, ignore)
    else:
        model = new_network(settings, teacher and teacher.model)
    log(f"resuming {folder.path} at step {last_step or 0:,} of {settings.schedule.steps:,}; {runtime.description}")
    return PreparedRun.build(settings, corpora, model, runtime, teacher and teacher.model)


def _already_finished(out: Path, prepared: PreparedRun) -> Outcome:
    """The outcome of a finished run; completes the final files if the run was killed while writing them."""
    checkpoints = Checkpoints(out, prepared.settings.checkpoint.keep)
    last = checkpoints.last()
    with current_ranks().main_first():
        if current_ranks().is_main:
            checkpoints.link_to_root(last)
            checkpoints.drop_old()
            if not (out / "samples.json").exists():
                prepared.job.load_model(out)
                _write_samples(out, prepared)
    return Outcome.from_state("already finished", read_state(last))


def _write_samples(out: Path, prepared: PreparedRun) -> None:
    if (masked_lm := masked_lm_of(prepared.job.model)) is not None:
        write_samples(out, masked_lm, prepared.corpora[0][0])


@torch_settings_restored()
def measured_pace(preset: str, folders: list[str | Path], minutes: float, overrides: dict) -> tuple[float, Runtime]:
    """(seconds per step, runtime) of a run of `minutes` on this machine; nothing is written."""
    request = PretrainRequest(preset, corpus_names(folders), recipe="published", overrides=overrides)
    settings, recipe = requested_settings(request)
    corpora = open_corpora(request.corpora, settings)
    runtime = choose_runtime(settings.runtime, settings.planned_flops(minutes), width=settings.model.width)
    configure_torch(runtime)
    settings = settings_for_model(settings, recipe, corpora, request, None, ignore)
    model = _model_to_train(settings, corpora, request, None, ignore)
    torch.compiler.reset()  # measure without what an earlier run compiled
    prepared = PreparedRun.build(settings, corpora, model, runtime)
    return mean_seconds_per_step(prepared, MEASURED_FRACTION * minutes * 60), runtime


def _model_to_train(
    settings: PretrainSettings, corpora: Corpora, request: PretrainRequest, teacher: Teacher | None, log: Log
) -> nn.Module:
    """The model with its initial weights: random, those of `init_from`, or teacher layers."""
    check_corpora_linked(settings, corpora)
    _refuse_too_large(settings)
    model = new_network(settings, teacher and teacher.model)
    model.initialize(torch.Generator().manual_seed(seed_of(settings.runtime.seed, "weights")))
    if settings.reads_entities and request.vectors is not None:
        model.set_entity_vectors(GraphVectors(request.vectors, Graph(request.graph)).entities)
    if teacher is not None:
        if settings.objective.student_init == "teacher":
            log(f"the student {initialize_from_teacher(model.student, teacher.model)}")
    elif request.init_from is not None:
        log(f"initialised from {request.init_from}: {settings.model.num_layers} layers, width {settings.model.width}")
        if newly_initialized := initialize_from(model, model_folder(request.init_from), corpora[0][0].tokenizer):
            log(f"newly initialised, because {request.init_from} lacks them: {', '.join(newly_initialized)}")
    return model


def _refuse_too_large(settings: PretrainSettings) -> None:
    """Raises a ValueError before anything is allocated if the model's state or a batch exceeds the memory."""
    num_parameters, num_tokens = settings.model.num_matrix_parameters, settings.batch.tokens
    num_shards = current_ranks().size if settings.parallel.shard else 1
    advice = "choose a smaller preset, or lower model.num_layers, model.width or model.vocab_size"
    if not settings.parallel.shard:
        advice += ", or spread it over several GPUs (parallel.shard=true with torchrun)"
    for device, bytes_per_parameter in (
        (chosen_device(settings.runtime.device), STATE_BYTES / num_shards),
        ("cpu", WEIGHT_BYTES),
    ):
        subject = f"the {num_parameters:,} parameters of this model need"
        refuse_beyond_memory(bytes_per_parameter * num_parameters, device, subject, advice)
    subject = f"the {num_tokens:,} tokens of a batch need"
    refuse_beyond_memory(float(BATCH_BYTES * num_tokens), "cpu", subject, "lower batch.tokens")
