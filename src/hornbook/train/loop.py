"""The one loop. Pre-training, fine-tuning and distillation all run through `train`; what differs is the objective.

The loop is handed how to make batch k, how to validate, save and load the model; it knows no task and no family. Its
state is: the step, the weights, the optimizer, a few numbers of the guard, and the best validation.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from hornbook.batch import Batch
from hornbook.data.loader import batches
from hornbook.files import read_json, write_json
from hornbook.lifecycle.locking import run_lock
from hornbook.train.checkpoint import Checkpoints, read_checkpoint
from hornbook.train.device import Runtime
from hornbook.train.guard import Guard, Trouble
from hornbook.train.metrics import MetricsLog
from hornbook.train.objective import Objective
from hornbook.train.optimizer import load_optimizer_tensors, make_optimizer, optimizer_tensors
from hornbook.train.settings import (
    BatchSettings,
    CheckpointSettings,
    GuardSettings,
    OptimizerSettings,
    RuntimeSettings,
    ScheduleSettings,
    ValidationSettings,
)
from hornbook.train.signals import Signals
from hornbook.train.step import Stepper, StepResult


@dataclass(frozen=True)
class LoopSettings:
    """The groups of settings that the loop reads."""

    optimizer: OptimizerSettings
    schedule: ScheduleSettings
    batch: BatchSettings
    checkpoint: CheckpointSettings
    validation: ValidationSettings
    guard: GuardSettings
    runtime: RuntimeSettings

    def __post_init__(self) -> None:
        if beyond := [step for step in self.checkpoint.keep_at if step > self.schedule.steps]:
            raise ValueError(
                f"checkpoint.keep_at names step {beyond[0]:,}, but schedule.steps={self.schedule.steps:,}: name steps "
                "that the run comes to"
            )


@dataclass(frozen=True)
class Job:
    """What is trained: how to make batch k, how it is validated, how the model is saved and loaded.

    `validate` takes the most tokens that may go through the model at once and answers numbers by name. The best
    validation is the one with the lowest `loss` or, where `decided_by` names another, the highest of that; of several
    with the same score, the one with the lowest loss.
    """

    model: nn.Module
    objective: Objective
    make_batch: Callable[[int], Batch]
    validate: Callable[[int], dict[str, float]] | None
    save_model: Callable[[Path], None]
    load_model: Callable[[Path], None]
    decided_by: str = "loss"
    rate_of: Callable[[str], float] | None = None  # share of the learning rate that a parameter gets, by its name

    def is_better(self, found: dict[str, float], than: "State") -> bool:
        value = found[self.decided_by]
        if than.best is None:
            return True
        if self.decided_by == "loss":
            return value < than.best
        is_tie = value == than.best and than.loss_of_best is not None
        return value > than.best or (is_tie and found["loss"] < than.loss_of_best)


@dataclass
class Status:
    """What a display shows while the loop runs."""

    step: int
    num_steps: int
    values: dict[str, float]
    tokens_per_second: float
    seconds_left: float
    message: str | None = None
    decided_by: str = "loss"  # the value of a validation that counts
    counted: str = "step"  # what is counted here


@dataclass
class State:
    step: int = 0  # updates done
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None  # the best validation, by what the job is decided by
    best_step: int = 0
    loss_of_best: float | None = None  # at that validation
    num_not_better: int = 0  # validations since then
    ended_early: bool = False
    micro_tokens: int = 0
    guard: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: `finished`, `finished early` (nothing got better any more), or `stopped` by a signal with
    everything saved."""

    ended: str
    step: int
    tokens: int
    seconds: float
    last: dict[str, float]
    best: float | None
    best_step: int = 0


class Diverged(RuntimeError):
    """The loss is no number even after going back and leaving out the batches where it happened."""


OnProgress = Callable[[Status], bool | None]  # shown to a person; True asks the run to stop, with everything saved


def train(run: Path, job: Job, settings: LoopSettings, runtime: Runtime, on_progress: OnProgress) -> Outcome:
    """Runs, or goes on with, the training in the folder `run` until its last step, a signal, or `watch` says so."""
    with run_lock(run):
        loop = _Loop(Path(run), job, settings, runtime, on_progress)
        try:
            with Signals() as signals:
                return loop.run(signals)
        finally:
            loop.stepper.captured = None  # it holds the stepper and what lies on the device


class _Loop:
    def __init__(self, run: Path, job: Job, settings: LoopSettings, runtime: Runtime, on_progress: OnProgress):
        self.run_folder = run
        self.job = job
        self.settings = settings
        self.runtime = runtime
        self.on_progress = on_progress
        self.num_steps = settings.schedule.steps
        self.checkpoints = Checkpoints(run, settings.checkpoint.keep)
        self.checkpoints.drop_old()
        job.model.to(runtime.device)
        self.optimizer = make_optimizer(job.model, settings.optimizer, job.rate_of)
        self.stepper = Stepper(
            job.model,
            job.objective,
            self.optimizer,
            runtime,
            settings.runtime.seed,
            settings.optimizer.clip,
            settings.batch.micro_tokens,
        )
        self.state = State(micro_tokens=settings.batch.micro_tokens)
        self.guard = Guard(settings.guard)
        self.skips = _Skips(run / "skipped.json")
        self.pending: list[tuple[int, int, float, StepResult]] = []  # steps whose numbers the host has not read yet
        self.values: dict[str, float] = {}
        # Reading a loss makes the host wait for the device; a CPU has nothing to wait for.
        self.read_every = 1 if runtime.device.type == "cpu" else settings.runtime.log_every_steps

    def run(self, signals: Signals) -> Outcome:
        self.signals = signals
        last = self.checkpoints.last()
        if last is None:
            if self.settings.checkpoint.at_start:
                self._save()
        else:
            self._restore(last)
            self.checkpoints.publish(last)
        self.log = MetricsLog(self.run_folder, self.state.step, self.settings.runtime.tensorboard)
        self.started = time.monotonic()
        self.seconds_before = self.state.seconds
        self.saved_at = self.timed_at = self.started
        self.timed_tokens = self.state.tokens
        self.stretch_tokens_per_second = 0.0
        try:
            while not self._is_finished() and not signals.stop:
                self._stretch(signals)
            if self._is_finished() and not self.state.ended_early:
                self._validate()
            self._save()
        finally:
            self.log.close()
        ended = "stopped" if not self._is_finished() else "finished early" if self.state.ended_early else "finished"
        state = self.state
        return Outcome(ended, state.step, state.tokens, state.seconds, self.values, state.best, state.best_step)

    def _is_finished(self) -> bool:
        return self.state.step >= self.num_steps or self.state.ended_early

    def _stretch(self, signals: Signals) -> None:
        """Steps until the end, a signal, or a rollback (after which batches are numbered anew)."""
        numbers = list(self.skips.numbers_from(self.state.step, self.num_steps))
        made = batches(self.job.make_batch, numbers, self.runtime.loader_workers, self.runtime.device)
        settings = self.settings
        for number, batch in zip(numbers, made, strict=True):
            step = self.state.step
            lr = settings.optimizer.lr * settings.schedule.rate(step)
            result = self.stepper.take(batch, number, lr)
            self._note_smaller_micro_batch()
            self.state.step += 1
            self.state.tokens += result.num_tokens
            self.pending.append((self.state.step, number, lr, result))
            due_keep = self.state.step in settings.checkpoint.keep_at
            due_check = self._is_due(settings.validation.every_steps) or due_keep
            due_check = due_check and self.state.step < self.num_steps
            due_save = self._is_save_due()
            due_read = self.state.step % self.read_every == 0 or due_check or due_save or due_keep or signals.stop
            if due_read and self._rolled_back_on_reading():
                return
            if due_keep:
                self.checkpoints.keep_weights(self.state.step, self.job.save_model)
                self._leave_out_of_speed()
            if due_check:
                self._validate()
                self._consider_ending()
            if due_save:
                self._save()
            if signals.stop or self.state.ended_early:
                return
        self._rolled_back_on_reading()

    def _is_due(self, every_steps: int | None) -> bool:
        return bool(every_steps) and self.state.step % every_steps == 0

    def _is_save_due(self) -> bool:
        minutes = self.settings.checkpoint.every_minutes
        is_time = minutes > 0 and time.monotonic() - self.saved_at > 60 * minutes
        # The last step is saved after its validation.
        return self.state.step < self.num_steps and (self._is_due(self.settings.checkpoint.every_steps) or is_time)

    def _note_smaller_micro_batch(self) -> None:
        if self.stepper.micro_tokens != self.state.micro_tokens:
            self.state.micro_tokens = self.stepper.micro_tokens
            words = (
                f"out of memory: parts of {self.stepper.micro_tokens:,} tokens from here on; the batch stays the same"
            )
            self._log_event("smaller_parts", words, micro_tokens=self.stepper.micro_tokens)

    def _rolled_back_on_reading(self) -> bool:
        """Reads and judges the numbers of all steps not read yet. True when one of them made the run go back."""
        pending, self.pending = self.pending, []
        if not pending:
            return False
        stacked = torch.stack([torch.stack([r.loss, r.grad_norm, *r.terms.values()]).float() for *_, r in pending])
        now = time.monotonic()
        for (step, number, lr, result), (loss, norm, *terms) in zip(pending, stacked.tolist(), strict=True):
            trouble = self.guard.judge(loss, norm)
            if trouble and self._roll_back(step, number, trouble):
                return True
            if trouble:
                self.guard.admit(loss)
            now_seen = {"loss": loss, **dict(zip(result.terms, terms, strict=True)), "grad_norm": norm, "lr": lr}
            self.values |= now_seen
            if step % self.settings.runtime.log_every_steps == 0 or step == self.num_steps:
                self._time(now)
                self.log.write(
                    "train",
                    step,
                    **now_seen,
                    tokens=self.state.tokens,
                    tokens_per_second=round(self.stretch_tokens_per_second, 1),
                    seconds=round(self.state.seconds, 3),
                )
        self._time(now)
        self._show()
        return False

    def _time(self, now: float) -> None:
        self.state.seconds = self.seconds_before + now - self.started
        if now - self.timed_at > 0.5 or not self.stretch_tokens_per_second:
            elapsed = max(now - self.timed_at, 1e-9)
            self.stretch_tokens_per_second = (self.state.tokens - self.timed_tokens) / elapsed
            self.timed_at, self.timed_tokens = now, self.state.tokens

    def _show(self, message: str | None = None) -> None:
        done = self.state.step
        seconds_per_step = self.state.seconds / done if done else 0.0
        left = seconds_per_step * (self.num_steps - done)
        speed = self.stretch_tokens_per_second
        status = Status(done, self.num_steps, dict(self.values), speed, left, message, self.job.decided_by)
        if self.on_progress(status) is True:
            self.signals.stop = self.signals.stop or "asked"

    def _log_event(self, event: str, words: str, **values: object) -> None:
        self.log.write("event", self.state.step, event=event, words=words, **values)
        self._show(words)

    def _validate(self) -> None:
        job = self.job
        if job.validate is None:
            return
        found = self.stepper.retry_on_oom(1, lambda: job.validate(self.stepper.micro_tokens))
        self._note_smaller_micro_batch()
        value = found[job.decided_by]
        is_best = job.is_better(found, self.state)
        if is_best:
            self.state.best, self.state.best_step, self.state.loss_of_best = value, self.state.step, found["loss"]
            job.save_model(self.run_folder / "best")
        self.state.num_not_better = 0 if is_best else self.state.num_not_better + 1
        self.log.write("validation", self.state.step, **found, best=is_best)
        self._leave_out_of_speed()
        self.values |= {f"validation_{name}": value for name, value in found.items()}
        self._show()

    def _consider_ending(self) -> None:
        patience = self.settings.validation.patience
        if patience and self.state.num_not_better >= patience:
            self.state.ended_early = True
            words = f"nothing better in {patience} validations: ended at step {self.state.step:,}"
            self._log_event("ended_early", f"{words}, the best was at {self.state.best_step:,}")

    def _save(self) -> None:
        self.state.guard = self.guard.state()
        is_over = self._is_finished() and not self.settings.checkpoint.keep_optimizer
        tensors = {} if is_over else optimizer_tensors(self.job.model, self.optimizer)
        self.checkpoints.save(self.state.step, self.job.save_model, tensors, {**vars(self.state)})
        self.saved_at = time.monotonic()
        self._leave_out_of_speed()

    def _leave_out_of_speed(self) -> None:
        """Tokens a second are those of training: what validating and saving take is left out."""
        self.timed_at, self.timed_tokens = time.monotonic(), self.state.tokens

    def _restore(self, checkpoint: Path) -> None:
        tensors, state = read_checkpoint(checkpoint)
        self.job.load_model(checkpoint)
        load_optimizer_tensors(self.job.model, self.optimizer, tensors)
        self.state = State(**state)
        self.guard = Guard(self.settings.guard, **self.state.guard)
        self.stepper.micro_tokens = self.state.micro_tokens

    def _roll_back(self, step: int, number: int, trouble: Trouble) -> bool:
        """Back to the last checkpoint, to go on without the bad batch. True when it did; once from each checkpoint."""
        wrong = trouble.words
        checkpoint = self.checkpoints.last()
        if checkpoint is None:
            if trouble.kind == "spike":
                self._log_event("spike", f"at step {step} {wrong}; there is nothing to go back to, so it goes on")
                return False
            raise Diverged(f"at step {step} {wrong}, and no checkpoint is there to go back to; lower optimizer.lr")
        back_to = read_json(checkpoint / "state.json")["step"]
        if back_to in self.skips.rolled_back_to:
            if trouble.kind == "spike":
                self._log_event("spike", f"at step {step} {wrong}; it was rolled back once already, so it goes on")
                return False
            raise Diverged(
                f"at step {step} {wrong}, again after going back to step {back_to} and leaving out the batch where it "
                f"first happened; lower optimizer.lr or make the warm-up longer and start a new run"
            )
        self.skips.add(number, back_to)
        seconds = self.state.seconds
        self._restore(checkpoint)
        self.state.seconds = seconds
        self._leave_out_of_speed()
        self.log.close()
        self.log = MetricsLog(self.run_folder, self.state.step, self.settings.runtime.tensorboard)
        words = f"at step {step} {wrong}; went back to step {back_to} and left out batch {number}"
        self._log_event("rollback", words, at_step=step, skipped_batch=number)
        return True


class _Skips:
    """Batches left out after a rollback, and which checkpoints were rolled back to; survives a kill."""

    def __init__(self, path: Path):
        self.path = path
        kept = read_json(path) if path.exists() else {}
        self.skipped: set[int] = set(kept.get("skipped", []))
        self.rolled_back_to: list[int] = kept.get("rolled_back_to", [])

    def add(self, number: int, back_to: int) -> None:
        self.skipped.add(number)
        self.rolled_back_to.append(back_to)
        write_json(self.path, {"skipped": sorted(self.skipped), "rolled_back_to": self.rolled_back_to})

    def numbers_from(self, step: int, num_steps: int) -> Iterator[int]:
        """The batch numbers of the steps from `step` on."""
        kept = (number for number in itertools.count() if number not in self.skipped)
        return itertools.islice(kept, step, num_steps)
