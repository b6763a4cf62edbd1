"""The training loop of pre-training, fine-tuning and distillation, which differ only in the objective.

A `TrainingJob` supplies batch k and functions to validate, save and load the model; the loop knows no task and no model
family. Its state is the step, the weights, the optimizer, the loss statistics of the spike detector, and the best
validation score.
"""

import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from hornbook.data.loader import batches
from hornbook.lifecycle.locking import run_lock
from hornbook.lifecycle.stopping import Signals
from hornbook.train.checkpoint import Checkpoints, read_checkpoint, read_state
from hornbook.train.ema import WEIGHTS, AveragedWeights
from hornbook.train.job import LoopState, OnProgress, Outcome, Stopped, TrainingJob, TrainingProgress
from hornbook.train.loss_spikes import LossProblem, LossSpikeDetector, SkippedBatches
from hornbook.train.metrics_log import MetricsLog
from hornbook.train.optimizer import load_optimizer_tensors, make_optimizer, optimizer_tensors
from hornbook.train.parallel.ranks import current_ranks, single_process
from hornbook.train.runtime import Runtime
from hornbook.train.settings import LoopSettings
from hornbook.train.step import StepInterrupted, StepResult, make_stepper


class Diverged(RuntimeError):
    """The loss or the gradient norm is not finite, and there is no checkpoint to roll back to, or rolling back and
    skipping the batch did not help."""


def train(folder: Path, job: TrainingJob, settings: LoopSettings, runtime: Runtime, on_progress: OnProgress) -> Outcome:
    """Starts or resumes the training in `folder`; at its end the model is the one that was saved. Raises `Stopped` if a
    signal or `on_progress` stopped it before its last step. All processes that torchrun started call it with the same
    arguments."""
    settings.check_run(current_ranks().size)
    with run_lock(folder):
        loop = _Loop(Path(folder), job, settings, runtime, on_progress)
        try:
            with Signals() as signals:
                return loop.run(signals)
        finally:
            loop.stepper.close()
            if loop.sharded is not None:
                job.module.to(runtime.device)


class _Loop:
    def __init__(
        self, folder: Path, job: TrainingJob, settings: LoopSettings, runtime: Runtime, on_progress: OnProgress
    ):
        self.folder, self.job, self.settings, self.runtime = folder, job, settings, runtime
        self.ranks = ranks = current_ranks()
        self.on_progress = ranks.only_main(on_progress)
        self.num_steps = settings.schedule.steps
        self.checkpoints = Checkpoints(folder, settings.checkpoint.keep)
        with ranks.main_first():  # before any rank is told which checkpoint to restore
            if ranks.is_main:
                self.checkpoints.drop_old()
        self._set_up()
        self.state = LoopState(micro_tokens=settings.batch.micro_tokens)
        self.spike_detector = LossSpikeDetector(settings.loss_spike)
        self.skips = ranks.from_main(lambda: SkippedBatches(folder / "skipped.json"))
        self.stop: str | None = None  # with several ranks, the signal that all of them know of
        self.pending: list[tuple[int, int, float, StepResult]] = []  # (step, batch number, lr, result) not yet read
        self.values: dict[str, float] = {}
        # Reading a loss makes the host wait for the device; on a CPU there is nothing to wait for.
        self.read_every = 1 if runtime.device.type == "cpu" else settings.runtime.log_every_steps

    def _set_up(self) -> None:
        """Moves the module of the job to the device, or its shards to the devices of the ranks, and makes what it is
        trained with. All ranks get the weights of the main one. `trained` has the parameters that are updated."""
        job, settings, runtime, ranks = self.job, self.settings, self.runtime, self.ranks
        is_sharded, ema_decay = settings.parallel.shard and ranks.size > 1, settings.optimizer.ema_decay
        module = job.module.to("cpu" if is_sharded else runtime.device)
        ranks.broadcast([*module.parameters(), *module.buffers()])
        self.sharded = None
        if is_sharded:
            from hornbook.train.parallel.sharding import ShardedModule  # FSDP2 takes a second to import

            self.sharded = ShardedModule(module, ranks, runtime.device)
            module = self.sharded.module
        self.trained = self.sharded or job.model
        self.optimizer = make_optimizer(self.trained, settings.optimizer, job.lr_multiplier_of)
        if is_sharded:
            self.optimizer.shards = self.sharded
        self.ema = AveragedWeights(job.model, ema_decay) if ema_decay else None
        self.stepper = make_stepper(module, self.optimizer, settings, runtime, ranks, self.sharded)

    def run(self, signals: Signals) -> Outcome:
        self.signals = signals
        self.stepper.should_stop = self._stops
        last = self.ranks.from_main(self.checkpoints.last)
        if last is None:
            if self.settings.checkpoint.at_start:
                self._save()
        else:
            self._restore(last)
            if self.ranks.is_main:
                self.checkpoints.link_to_root(last)
        self.log = self._open_log()
        self.started = time.monotonic()
        self.seconds_before = self.state.seconds
        self.saved_at = self.timed_at = self.started
        self.timed_tokens = self.state.tokens
        self.tokens_per_second = 0.0
        try:
            while not self._is_finished() and not self._stops():
                self._run_steps()
            if self._is_finished() and not self.state.ended_early:
                self._validate()
            self._save()
        finally:
            self.log.close()
        if not self._is_finished():
            raise Stopped(Outcome.from_state("stopped", vars(self.state), self.values))
        if self.ema is not None:
            self.ema.swap()  # the model is left as it was saved
        ended = "finished early" if self.state.ended_early else "finished"
        return Outcome.from_state(ended, vars(self.state), self.values)

    def _is_finished(self) -> bool:
        return self.state.step >= self.num_steps or self.state.ended_early

    def _stops(self) -> str | None:
        """The signal that stops the run, with several ranks one that all of them know of."""
        return self.signals.stop if self.ranks.size == 1 else self.stop

    def _open_log(self) -> MetricsLog:
        return MetricsLog(self.folder, self.state.step, self.settings.runtime.tensorboard)

    def _run_steps(self) -> None:
        """Runs steps until the end, a signal, or a rollback (after which the batch numbers change)."""
        batch_numbers = list(self.skips.numbers_from(self.state.step, self.num_steps))
        make_batch = self.ranks.own_part(self.job.make_batch)
        loader = batches(make_batch, batch_numbers, self.runtime.loader_workers, self.runtime.device)
        settings = self.settings
        for batch_number, batch in zip(batch_numbers, loader, strict=True):
            lr = settings.optimizer.lr * settings.schedule.lr_ratio(self.state.step)
            try:
                result = self.stepper.train_step(batch, batch_number, lr)
            except StepInterrupted:
                self.optimizer.zero_grad(set_to_none=True)
                break
            self._note_smaller_micro_batch()
            self.state.step += 1
            if self.ema is not None:
                self.ema.update(self.state.step)
            saves, num_tokens = self._agree_with_ranks(result.num_tokens)
            self.state.tokens += num_tokens
            self.pending.append((self.state.step, batch_number, lr, result))
            is_new_phase = self.state.step == self._new_phase_at
            if is_new_phase:
                self._begin_phase()
            keeps_weights = self.state.step in settings.checkpoint.keep_at
            validates = self._is_due(settings.validation.every_steps) or keeps_weights
            validates = validates and self.state.step < self.num_steps
            reads = self.state.step % self.read_every == 0 or validates or saves or keeps_weights or is_new_phase
            if (reads or self._stops()) and self._read_results():
                return
            if is_new_phase:
                self.spike_detector = LossSpikeDetector(settings.loss_spike)
            if keeps_weights:
                self._gather_full_weights()
                if self.ranks.is_main:
                    with self._with_ema_weights():
                        self.checkpoints.keep_weights(self.state.step, self.job.save_model)
                self._restart_timer()
            if validates:
                self._validate()
                self._stop_early_if_not_better()
            if saves:
                self._save()
            if self._stops() or self.state.ended_early:
                return
        self._read_results()

    def _agree_with_ranks(self, num_tokens: int) -> tuple[bool, int]:
        """(whether to save, the tokens of the whole batch) after a step. Ranks differ in their clocks and in the
        signals they have received, so the main one decides when to save, and a signal to any of them stops all."""
        saves = self.ranks.is_main and self._is_save_due()
        if self.ranks.size == 1:
            return saves, num_tokens
        num_saving, num_stopping, num_tokens = self.ranks.sum(saves, bool(self.signals.stop), num_tokens)
        if num_stopping:
            self.stop = self.signals.stop or "another rank"
        return num_saving > 0, num_tokens

    @property
    def _new_phase_at(self) -> int | None:
        """The step after which the new phase begins: earlier by the batches before it that are left out, but later than
        a step that the run was rolled back to, whose checkpoint has the old phase."""
        at = self.job.new_phase_at
        if at in (None, self.num_steps):
            return at
        earliest = max((step + 1 for step in self.skips.rolled_back_to if step < at), default=0)
        return max(earliest, at - sum(number < at for number in self.skips.skipped))

    def _begin_phase(self) -> None:
        if self.job.begin_phase is None:
            return
        if self.sharded is not None:
            self.sharded.update_whole(on_all_ranks=True)
        self.job.begin_phase()
        if self.ema is not None:
            with self.ema.in_place():
                self.job.begin_phase()
        if self.sharded is not None:
            self.sharded.load_full_weights()

    def _gather_full_weights(self) -> None:
        """With sharding, the weights that are saved and validated are brought up to date first."""
        if self.sharded is not None:
            self.sharded.update_whole()

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
            message = (
                f"out of memory: micro-batches of {self.stepper.micro_tokens:,} tokens from now on, with the same "
                "batch size"
            )
            self._log_event("micro_batch_halved", message, micro_tokens=self.stepper.micro_tokens)

    def _read_results(self) -> bool:
        """Reads, checks and logs the results of all pending steps. True if one of them caused a rollback."""
        pending, self.pending = self.pending, []
        if not pending:
            return False
        stacked = torch.stack([torch.stack([r.loss, r.grad_norm, *r.terms.values()]).float() for *_, r in pending])
        rows = self.ranks.from_main(stacked.tolist)  # all ranks judge the same numbers
        now = time.monotonic()
        for (step, batch_number, lr, result), (loss, norm, *terms) in zip(pending, rows, strict=True):
            problem = self.spike_detector.check(loss, norm)
            if problem and self._roll_back(step, batch_number, problem):
                return True
            if problem:
                self.spike_detector.update(loss)
            values = {"loss": loss, **dict(zip(result.terms, terms, strict=True)), "grad_norm": norm, "lr": lr}
            self.values |= values
            if step % self.settings.runtime.log_every_steps == 0 or step == self.num_steps:
                self._update_timer(now)
                self.log.write(
                    "train",
                    step,
                    **values,
                    tokens=self.state.tokens,
                    tokens_per_second=round(self.tokens_per_second, 1),
                    seconds=round(self.state.seconds, 3),
                )
        self._update_timer(now)
        self._report_progress()
        return False

    def _update_timer(self, now: float) -> None:
        self.state.seconds = self.seconds_before + now - self.started
        if now - self.timed_at > 0.5 or not self.tokens_per_second:
            elapsed = max(now - self.timed_at, 1e-9)
            self.tokens_per_second = (self.state.tokens - self.timed_tokens) / elapsed
            self.timed_at, self.timed_tokens = now, self.state.tokens

    def _report_progress(self, message: str | None = None) -> None:
        done = self.state.step
        seconds_per_step = self.state.seconds / done if done else 0.0
        left = seconds_per_step * (self.num_steps - done)
        speed = self.tokens_per_second
        progress = TrainingProgress(
            done, self.num_steps, dict(self.values), speed, left, message, self.job.metric_for_best
        )
        if self.on_progress(progress) is True:
            self.signals.stop = self.signals.stop or "on_progress"

    def _log_event(self, event: str, message: str, **values: object) -> None:
        self.log.write("event", self.state.step, event=event, message=message, **values)
        self._report_progress(message)

    def _with_ema_weights(self) -> AbstractContextManager[None]:
        """Context in which the model has the running average (EMA) of its weights, if there is one."""
        return nullcontext() if self.ema is None else self.ema.in_place()

    def _validate(self) -> None:
        job, state = self.job, self.state
        if job.validate is None:
            return
        with self._with_ema_weights():
            metrics, self.stepper.micro_tokens = self._validated()
            self._note_smaller_micro_batch()
            is_best = job.is_better(metrics, state)
            if is_best:
                state.best, state.best_step = metrics[job.metric_for_best], state.step
                state.loss_of_best = metrics["loss"]
                if self.ranks.is_main:
                    job.save_model(self.folder / "best")
        state.validations_since_best = 0 if is_best else state.validations_since_best + 1
        self.log.write("validation", state.step, **metrics, best=is_best)
        self._restart_timer()
        self.values |= {f"validation_{name}": value for name, value in metrics.items()}
        self._report_progress()

    def _validated(self) -> tuple[dict[str, float], int]:
        """The metrics of a validation and the largest number of tokens per micro-batch, both of the main rank. All
        ranks validate, except with sharding: only the main one has all weights."""
        self._gather_full_weights()

        def validate() -> tuple[dict[str, float], int]:
            metrics = self.stepper.retry_on_oom(1, lambda: self.job.validate(self.stepper.micro_tokens))
            return metrics, self.stepper.micro_tokens

        def validate_alone() -> tuple[dict[str, float], int]:
            self.job.module.to(self.runtime.device)
            with single_process():
                result = validate()
            self.job.module.cpu()
            return result

        if self.sharded is not None:
            return self.ranks.from_main(validate_alone)
        result = validate()
        return self.ranks.from_main(lambda: result)

    def _stop_early_if_not_better(self) -> None:
        patience = self.settings.validation.patience
        if patience and self.state.validations_since_best >= patience:
            self.state.ended_early = True
            if self._new_phase_at is not None and self.state.step < self._new_phase_at:
                self._begin_phase()  # as at the end of a run that has no other phase
            message = f"no improvement in {patience} validations: stopped early at step {self.state.step:,}"
            self._log_event("ended_early", f"{message}; the best was step {self.state.best_step:,}")

    def _save(self) -> None:
        self.state.loss_spike = self.spike_detector.state()
        saves_optimizer = self.settings.checkpoint.keep_optimizer or not self._is_finished()
        has_state = self.ranks.is_main or self.sharded is not None  # sharded state is gathered from all ranks
        tensors = optimizer_tensors(self.trained, self.optimizer) if saves_optimizer and has_state else {}
        if self.sharded is not None:
            tensors = self.sharded.whole_state(tensors)
        self._gather_full_weights()
        if self.ema is not None and tensors:
            tensors |= self.ema.tensors()
        if self.ranks.is_main:
            with self._with_ema_weights():
                self.checkpoints.save(self.state.step, self.job.save_model, tensors, {**vars(self.state)})
        self.saved_at = time.monotonic()
        self._restart_timer()

    def _restart_timer(self) -> None:
        """Excludes the time since the last reading, spent on validating or saving, from the tokens per second."""
        self.timed_at, self.timed_tokens = time.monotonic(), self.state.tokens

    def _restore(self, checkpoint: Path) -> None:
        tensors, state = read_checkpoint(checkpoint)
        self.job.load_model(checkpoint)
        if self.sharded is not None:
            self.sharded.load_full_weights()
            tensors = self.sharded.local_state(tensors)
        if self.ema is not None:
            self.ema.load(tensors)
            tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(WEIGHTS)}
        load_optimizer_tensors(self.trained, self.optimizer, tensors)
        self.state = LoopState(**state)
        self.spike_detector = LossSpikeDetector(self.settings.loss_spike, **self.state.loss_spike)
        self.stepper.micro_tokens = self.state.micro_tokens

    def _roll_back(self, step: int, batch_number: int, problem: LossProblem) -> bool:
        """Restores the last checkpoint and skips the bad batch from then on, once per checkpoint. False if the run
        continues without a rollback, which only a spike allows."""
        event = f"at step {step} {problem.description}"
        checkpoint = self.ranks.from_main(self.checkpoints.last)
        if checkpoint is None:
            if problem.kind == "spike":
                self._log_event("spike", f"{event}; continuing, as there is no checkpoint yet")
                return False
            raise Diverged(f"{event}, and there is no checkpoint to roll back to; lower optimizer.lr")
        back_to = read_state(checkpoint)["step"]
        if back_to in self.skips.rolled_back_to:
            if problem.kind == "spike":
                self._log_event("spike", f"{event}; continuing, as it was rolled back once already")
                return False
            raise Diverged(
                f"{event}, again after rolling back to step {back_to} and skipping the batch where it first happened; "
                "lower optimizer.lr or use a longer warmup and start a new run"
            )
        self.skips.add(batch_number, back_to)
        seconds = self.state.seconds
        self._restore(checkpoint)
        self.state.seconds = seconds
        self._restart_timer()
        self.log.close()
        self.log = self._open_log()
        message = f"{event}; rolled back to step {back_to}, skipping batch {batch_number}"
        self._log_event("rollback", message, at_step=step, skipped_batch=batch_number)
        return True
