"""Pre-training: puts a preset, corpora, an objective and the loop together into one run folder.

RUN/run.json              everything that was decided, resolved: settings, corpora, device
RUN/config.json, model.safetensors, tokenizer.json, tokenizer_config.json     the last weights
RUN/best/                 the weights with the best validation loss
RUN/checkpoints/          what a resumed run goes on from
RUN/metrics.jsonl, tensorboard/, samples.json
"""

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

import hornbook
from hornbook import config as configuration
from hornbook.batch import Batch
from hornbook.config import setting
from hornbook.data.corpus import Corpus
from hornbook.data.examples import DataSettings, Examples
from hornbook.files import read_json, write_json
from hornbook.infer.samples import write_samples
from hornbook.interop.folder import load_folder, load_weights, read_weights, save_model
from hornbook.interop.hub import model_folder
from hornbook.interop.vocabulary import grown
from hornbook.models import registry
from hornbook.models.bert import BertConfig
from hornbook.objectives.baseline import frequency_baseline
from hornbook.objectives.masking import Masking, MaskingSettings
from hornbook.objectives.pretraining import Pretraining
from hornbook.train.checkpoint import Checkpoints
from hornbook.train.device import Runtime, decide, prepare
from hornbook.train.loop import Job, LoopSettings, Outcome, Status, train
from hornbook.train.pace import seconds_a_step
from hornbook.train.randomness import seed_of
from hornbook.train.settings import (
    BatchSettings,
    CheckpointSettings,
    GuardSettings,
    OptimizerSettings,
    RuntimeSettings,
    ScheduleSettings,
    ValidationSettings,
)


@dataclass(frozen=True)
class ObjectiveSettings:
    nsp: bool = setting(True, "also predict whether the second segment follows the first; without it, text is packed")
    nsp_weight: float = setting(1.0, "how much that loss counts beside the masked tokens'")


@dataclass(frozen=True)
class PretrainSettings:
    """All settings of a pre-training run. A variant changes a field."""

    model: BertConfig = field(default_factory=BertConfig)
    data: DataSettings = field(default_factory=DataSettings)
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    masking: MaskingSettings = field(default_factory=MaskingSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    batch: BatchSettings = field(default_factory=BatchSettings)
    validation: ValidationSettings = field(default_factory=ValidationSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    guard: GuardSettings = field(default_factory=GuardSettings)
    runtime: RuntimeSettings = field(default_factory=RuntimeSettings)

    def __post_init__(self) -> None:
        if self.data.length > self.model.max_positions:
            raise ValueError(
                f"data.length={self.data.length} is more than model.max_positions={self.model.max_positions}; "
                f"set data.length={self.model.max_positions} or raise model.max_positions"
            )
        if self.batch.tokens < max(self.data.length, self.data.short_length):
            raise ValueError(
                f"batch.tokens={self.batch.tokens} is less than one sequence of {self.data.length}; "
                "raise --batch-tokens or lower data.length"
            )

    def loop(self) -> LoopSettings:
        return LoopSettings(
            self.optimizer, self.schedule, self.batch, self.checkpoint, self.validation, self.guard, self.runtime
        )

    def planned_flops(self, minutes: float | None = None) -> float:
        """Useful FLOPs of the whole run; of a run in minutes, what a GPU would do in that time."""
        if minutes is not None:
            return minutes * 60 * 2e14
        tokens = self.schedule.steps * self.batch.tokens
        flops = registry.FAMILIES["bert"].flops_per_token
        share = self.data.short_share
        short = flops(self.model, self.data.short_length, self.masking.rate)
        return tokens * (share * short + (1 - share) * flops(self.model, self.data.length, self.masking.rate))


def preset_settings(preset: str, changes: dict | None = None) -> PretrainSettings:
    """The published settings of a preset, with changes by dotted name."""
    found = registry.preset(preset)
    settings = PretrainSettings(
        model=found.model,
        optimizer=OptimizerSettings(lr=found.lr),
        schedule=ScheduleSettings(steps=found.steps, warmup_fraction=found.warmup_fraction),
        batch=BatchSettings(tokens=found.batch_tokens),
    )
    return configuration.changed(settings, changes or {})


def pretrain(
    preset: str,
    corpora: list[str | Path],
    out: str | Path,
    *,
    base: str | Path | None = None,
    steps: int | None = None,
    tokens: int | None = None,
    minutes: float | None = None,
    batch_tokens: int | None = None,
    seed: int | None = None,
    changes: dict | None = None,
    resume: bool = False,
    watch: Callable[[Status], None] | None = None,
    say: Callable[[str], None] = print,
) -> Outcome:
    """Trains a preset on corpora (`folder` or `folder:weight`) into the run folder `out`, as the verb does."""
    out = Path(out)
    wanted = _wanted_changes(steps, batch_tokens, seed, changes)
    if (out / "run.json").exists():
        if not resume:
            raise ValueError(f"{out} already holds a run: add --resume to go on with it, or choose another --out")
        run = _read_run(out)
        _refuse_other_request(run, preset, corpora, base, wanted, tokens, minutes)
        prepared = _reopened(out, run, say)
    else:
        if out.exists() and any(out.iterdir()):
            raise ValueError(f"{out} exists and is not a run: choose another --out, or empty it")
        prepared = _begun(out, preset, corpora, base, wanted, tokens, minutes, say)
    for warning in _repetition_warnings(prepared.opened, prepared.settings):
        say(warning)
    watch = watch or (lambda status: None)
    outcome = train(out, prepared.job, prepared.settings.loop(), prepared.runtime, watch)
    if outcome.ended == "finished":
        write_samples(out, prepared.job.model, prepared.opened[0][0])
    return outcome


@dataclass(frozen=True)
class _Prepared:
    settings: PretrainSettings
    opened: list[tuple[Corpus, float]]
    runtime: Runtime
    job: Job


def _begun(
    out: Path,
    preset: str,
    corpora: list[str | Path],
    base: str | Path | None,
    wanted: dict,
    tokens: int | None,
    minutes: float | None,
    say: Callable[[str], None],
) -> _Prepared:
    """A new run: everything decided and written down in `run.json`."""
    began = time.monotonic()
    settings = _with_steps_for(tokens, preset_settings(preset, wanted))
    opened = _open_corpora(corpora, settings)
    runtime = decide(settings.runtime, settings.planned_flops(minutes))
    prepare(runtime)
    settings, model = _model_to_train(settings, opened, base, say)
    say(f"{sum(p.numel() for p in model.parameters()):,} parameters; {runtime.reason}")
    job = _job(settings, opened, model, runtime)
    if minutes is not None:
        settings = _with_steps_in(minutes, settings, job, runtime, began, say)
        job = dataclasses.replace(job, make_batch=_BatchMaker(settings, opened))
    settings = _with_validation_steps(settings)
    request = {"steps_from_tokens": tokens, "minutes": minutes}
    _write_run(out, preset, base, request, settings, opened, runtime, job)
    return _Prepared(settings, opened, runtime, job)


def _reopened(out: Path, run: dict, say: Callable[[str], None]) -> _Prepared:
    """The run as it was decided, from `run.json`; its weights come from the last checkpoint, if there is one yet."""
    settings = configuration.from_dict(PretrainSettings, run["settings"])
    opened = [(Corpus(entry["folder"], settings.data.held_out_share), entry["weight"]) for entry in run["corpora"]]
    _check_fingerprints(run, opened)
    runtime = decide(settings.runtime, run["planned_flops"], run["runtime"]["threads"])
    prepare(runtime)
    last = Checkpoints(out, settings.checkpoint.keep).last()
    if last is None:  # killed before the first one: the first weights are drawn, or read, once more
        _, model = _model_to_train(settings, opened, run["from"], lambda words: None)
    else:
        model = registry.MODELS["bert"](settings.model, tuple(run["heads"]))
    step = int(last.name.removeprefix("step-")) if last else 0
    say(f"going on with {out} at step {step:,} of {settings.schedule.steps:,}; {runtime.reason}")
    return _Prepared(settings, opened, runtime, _job(settings, opened, model, runtime))


def is_finished(out: str | Path) -> bool:
    """Whether the run in a folder has done its last step."""
    out = Path(out)
    if not (out / "run.json").exists():
        return False
    last = Checkpoints(out, 1).last()
    steps = _read_run(out)["settings"]["schedule"]["steps"]
    return last is not None and int(last.name.removeprefix("step-")) >= steps


def _wanted_changes(steps: int | None, batch_tokens: int | None, seed: int | None, changes: dict | None) -> dict:
    named = {"schedule.steps": steps, "batch.tokens": batch_tokens, "runtime.seed": seed}
    return (changes or {}) | {name: value for name, value in named.items() if value is not None}


def _with_steps_for(tokens: int | None, settings: PretrainSettings) -> PretrainSettings:
    if tokens is None:
        return settings
    return configuration.changed(settings, {"schedule.steps": max(1, math.ceil(tokens / settings.batch.tokens))})


def _with_steps_in(
    minutes: float, settings: PretrainSettings, job: Job, runtime: Runtime, began: float, say: Callable[[str], None]
) -> PretrainSettings:
    """Measures a few steps of each length and fixes how many fit in the time that is left of the minutes."""
    if minutes <= 0:
        raise ValueError(f"--minutes must be above 0, not {minutes:g}")
    data, loop = settings.data, settings.loop()
    num_timed = 6 if runtime.device.type == "cpu" else 12
    switch = round(data.short_share * settings.schedule.steps)
    short = long = 0.0
    if data.short_share > 0:
        short = seconds_a_step(job, loop, runtime, [job.make_batch(i) for i in range(num_timed)])
    if data.short_share < 1:
        long = seconds_a_step(job, loop, runtime, [job.make_batch(switch + i) for i in range(num_timed)])
    mean = data.short_share * short + (1 - data.short_share) * long
    left = minutes * 60 - (time.monotonic() - began)
    # About 3% goes to validation and checkpoints.
    steps = max(1, int(0.97 * left / mean))
    say(f"a step takes {mean:.3g} s, so {minutes:g} minutes are {steps:,} steps")
    return configuration.changed(settings, {"schedule.steps": steps})


def _with_validation_steps(settings: PretrainSettings) -> PretrainSettings:
    if settings.validation.every_steps is not None:
        return settings
    return configuration.changed(settings, {"validation.every_steps": max(1, min(1000, settings.schedule.steps // 20))})


def _open_corpora(corpora: list[str | Path], settings: PretrainSettings) -> list[tuple[Corpus, float]]:
    if not corpora:
        raise ValueError("no corpus was given: add --corpus DIR, as made by 'hornbook corpus build'")
    opened = []
    for each in corpora:
        folder, weight = _folder_and_weight(str(each))
        opened.append((Corpus(folder, settings.data.held_out_share), weight))
    first = opened[0][0]
    for corpus, _ in opened[1:]:
        if corpus.tokenizer.fingerprint != first.tokenizer.fingerprint:
            raise ValueError(
                f"{corpus.folder} and {first.folder} were built with different tokenizers: build both with the same one"
            )
    tokenizer = first.tokenizer
    for name in ("cls_id", "sep_id", "mask_id"):
        if getattr(tokenizer, name) is None:
            raise ValueError(
                f"the tokenizer in {first.folder} has no {name.removesuffix('_id')} token, which BERT needs"
            )
    return opened


def _folder_and_weight(text: str) -> tuple[str, float]:
    """`wiki:3` is the folder wiki with weight 3, unless there is a folder of that whole name."""
    folder, _, weight = text.rpartition(":")
    try:
        return (text, 1.0) if Path(text).exists() or not folder else (folder, float(weight))
    except ValueError:
        return text, 1.0


def _model_to_train(
    settings: PretrainSettings, opened: list, base: str | Path | None, say: Callable[[str], None]
) -> tuple[PretrainSettings, nn.Module]:
    heads = ("pooler", "mlm", "nsp") if settings.objective.nsp else ("mlm",)
    tokenizer = opened[0][0].tokenizer
    if base is None:
        settings = configuration.changed(settings, {"model.vocab_size": tokenizer.vocab_size})
        return settings, _new_model(settings, heads)
    trained, old_tokenizer = load_folder(model_folder(base))
    if tokenizer.fingerprint != old_tokenizer.fingerprint:
        num_new = tokenizer.vocab_size - old_tokenizer.vocab_size
        trained = grown(trained, old_tokenizer, tokenizer)
        say(f"{num_new:,} new words start from the mean of their old pieces")
    changes = {f"model.{each.name}": each.value for each in configuration.listed(trained.config)}
    longest = trained.config.max_positions
    changes |= {"data.length": min(settings.data.length, longest)}
    changes |= {"data.short_length": min(settings.data.short_length, longest)}
    settings = configuration.changed(settings, changes)
    model = _new_model(settings, heads)
    missing, _ = model.load_state_dict(trained.state_dict(), strict=False)
    new = sorted({name.partition(".")[0] for name in missing})
    say(f"goes on from {base}: {trained.config.num_layers} layers, {trained.config.width} wide")
    if new:
        say(f"it has no {', '.join(new)} head, so that starts anew")
    return settings, model


def _new_model(settings: PretrainSettings, heads: tuple[str, ...]) -> nn.Module:
    model = registry.MODELS["bert"](settings.model, heads)
    model.initialise(torch.Generator().manual_seed(seed_of(settings.runtime.seed, "weights")))
    return model


def _job(settings: PretrainSettings, opened: list[tuple[Corpus, float]], model: nn.Module, runtime: Runtime) -> Job:
    tokenizer = opened[0][0].tokenizer
    masking = Masking(settings.masking, tokenizer.vocab_size, tokenizer.mask_id, tokenizer.special_ids)
    objective = Pretraining(masking, settings.objective.nsp, settings.objective.nsp_weight)
    if runtime.compiles:
        model.compile_parts()
        objective.compile()

    def save(folder: Path) -> None:
        tokenizer.save(folder, settings.model.max_positions)
        save_model(folder, model)

    def load(folder: Path) -> None:
        load_weights(model, read_weights(folder), folder)

    held_out = _held_out_batches(settings, opened)
    return Job(model, objective, _BatchMaker(settings, opened), held_out, save, load)


class _BatchMaker:
    """Batch k of the run: short sequences first, then long ones."""

    def __init__(self, settings: PretrainSettings, opened: list[tuple[Corpus, float]]):
        self.data = settings.data
        self.batch_tokens = settings.batch.tokens
        self.num_steps = settings.schedule.steps
        shares = {self.data.short_length: self.data.short_share, self.data.length: 1 - self.data.short_share}
        self.examples = {
            length: Examples(opened, length, settings.runtime.seed, settings.objective.nsp, self.data.shorter_chance)
            for length, share in shares.items()
            if share > 0
        }

    def __call__(self, number: int) -> Batch:
        length, within = self.data.length_at(number, self.num_steps)
        return self.examples[length].batch(within, max(1, self.batch_tokens // length))


def _held_out_batches(settings: PretrainSettings, opened: list[tuple[Corpus, float]]) -> list[Batch]:
    """Fixed batches of documents that are never trained on; the same in every run on these corpora."""
    data = settings.data
    if data.held_out_share <= 0:
        return []
    length = data.short_length if data.short_share > 0 else data.length
    examples = Examples(opened, length, 0, settings.objective.nsp, 0.0, held_out=True)
    num_sequences = max(1, min(settings.batch.micro_tokens, settings.batch.tokens) // length)
    available = sum(chunks.total for chunks in examples.chunks)
    wanted = min(available, max(1, settings.validation.tokens // length))
    num_sequences = min(num_sequences, wanted)
    return [examples.batch(i, num_sequences) for i in range(max(1, wanted // num_sequences))]


def _write_run(
    out: Path,
    preset: str,
    base: str | Path | None,
    request: dict,
    settings: PretrainSettings,
    opened: list[tuple[Corpus, float]],
    runtime: Runtime,
    job: Job,
) -> None:
    model = job.model
    counts = sum(corpus.token_counts * weight for corpus, weight in opened)
    baseline = frequency_baseline(job.objective, job.validation_batches, counts) if job.validation_batches else {}
    write_json(
        out / "run.json",
        {
            "hornbook": hornbook.__version__,
            "torch": torch.__version__,
            "verb": "pretrain",
            "preset": preset,
            "from": None if base is None else str(base),
            "request": request,
            "parameters": sum(p.numel() for p in model.parameters()),
            "heads": list(model.heads),
            "corpora": [
                {
                    "folder": str(corpus.folder.resolve()),
                    "weight": weight,
                    "fingerprint": corpus.fingerprint,
                    "documents": corpus.num_documents,
                    "tokens": corpus.num_tokens,
                }
                for corpus, weight in opened
            ],
            "frequency_baseline": baseline,
            "planned_flops": settings.planned_flops(),
            "runtime": {"device": str(runtime.device), "threads": runtime.threads, "reason": runtime.reason},
            "settings": configuration.to_dict(settings),
        },
    )


def _read_run(out: Path) -> dict:
    run = read_json(out / "run.json")
    missing = {"preset", "settings", "corpora", "runtime", "heads"} - run.keys()
    if missing:
        raise ValueError(f"{out / 'run.json'} lacks {sorted(missing)[0]}: it is not one that a run wrote; restore it")
    return run


def _refuse_other_request(
    run: dict,
    preset: str,
    corpora: list[str | Path],
    base: str | Path | None,
    wanted: dict,
    tokens: int | None,
    minutes: float | None,
) -> None:
    """The same command may resume a run; one that asks for something else is told what the run has."""
    stored = configuration.from_dict(PretrainSettings, run["settings"])
    values = {each.name: each.value for each in configuration.listed(stored)}
    asked = {each.name: each.value for each in configuration.listed(configuration.changed(stored, wanted))}
    differences = [f"{name}={values[name]}, not {asked[name]}" for name in wanted if asked[name] != values[name]]
    if preset != run["preset"]:
        differences.append(f"preset {run['preset']}, not {preset}")
    if base is not None and str(base) != run["from"]:
        differences.append(f"--from {run['from']}, not {base}")
    for flag, value, before in (
        ("--tokens", tokens, run["request"]["steps_from_tokens"]),
        ("--minutes", minutes, run["request"]["minutes"]),
    ):
        if value is not None and value != before:
            differences.append(f"{flag} {before}, not {value}")
    folders = [(entry["folder"], entry["weight"]) for entry in run["corpora"]]
    named = [_folder_and_weight(str(each)) for each in corpora]
    if corpora and [(str(Path(folder).resolve()), weight) for folder, weight in named] != folders:
        differences.append("other corpora: " + ", ".join(f"{folder}:{weight:g}" for folder, weight in folders))
    if differences:
        raise ValueError(
            f"this run was begun with {'; '.join(differences)}: resume it as it is, or start a new run in another --out"
        )


def _check_fingerprints(run: dict, opened: list[tuple[Corpus, float]]) -> None:
    for (corpus, _), entry in zip(opened, run["corpora"], strict=True):
        if corpus.fingerprint != entry["fingerprint"]:
            raise ValueError(
                f"{corpus.folder} is not the corpus that this run began with: put that one back, or start a new run"
            )


def _repetition_warnings(opened: list[tuple[Corpus, float]], settings: PretrainSettings) -> list[str]:
    total = settings.schedule.steps * settings.batch.tokens
    weight_sum = sum(weight for _, weight in opened)
    out = []
    for corpus, weight in opened:
        epochs = total * weight / weight_sum / max(1, corpus.num_tokens)
        if epochs > 100:
            out.append(f"note: the run reads {corpus.folder} {epochs:,.0f} times over; more text would serve it better")
    return out
