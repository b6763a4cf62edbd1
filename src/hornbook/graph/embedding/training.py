"""Trains the vectors of a graph: the run folder, the steps, validation, checkpoints and the final scores.

Step k is a function of (graph, settings, seed, k) alone: the order of the triples is a keyed permutation for each
epoch, and negatives are drawn with a generator seeded by the step. So a run that was stopped resumes exactly on a CPU.
Shapes: B triples of a step, K negatives, D width, E edges, N entities.
"""

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from hornbook.config import checked, with_overrides
from hornbook.data.corpus import shuffled
from hornbook.files import hard_link_files, write_json, write_tensors
from hornbook.graph.embedding.models import MODELS, DistanceModel, EmbeddingModel
from hornbook.graph.embedding.ranking import KnownTails, filtered_ranks, ranking_metrics, with_inverses
from hornbook.graph.embedding.settings import GraphEmbeddingSettings
from hornbook.graph.embedding.vectors import VECTORS_FILE
from hornbook.graph.graph import Graph
from hornbook.graph.triples import SPLITS
from hornbook.lifecycle.locking import lock_output_folder
from hornbook.lifecycle.requests import changed_values
from hornbook.lifecycle.run_folder import SCORES, RunFolder, ignore
from hornbook.lifecycle.stopping import Signals
from hornbook.train.checkpoint import Checkpoints, read_checkpoint
from hornbook.train.job import LoopState, OnProgress, TrainingProgress
from hornbook.train.metrics_log import MetricsLog
from hornbook.train.randomness import seed_of
from hornbook.train.runtime import Runtime, choose_runtime, configure_torch, torch_settings_restored
from hornbook.train.settings import RuntimeSettings

COMMAND = "graph embed"
SAVE_EVERY_SECONDS = 300.0
MAX_VALIDATED = 500  # triples of a validation during training; the final scores use all of the test split
MAX_HELD_OUT = 5000
HELD_OUT = 0.02
MAX_LOGITS = 1 << 26  # of a chunk of a step with loss=all, which bounds the memory


@torch_settings_restored()
@lock_output_folder
def embed_graph(
    graph: str | Path,
    out: str | Path,
    *,
    minutes: float | None = None,
    held_out: float | None = None,
    resume: bool = False,
    device: str = "auto",
    overrides: dict[str, Any] | None = None,
    on_progress: OnProgress = ignore,
    **settings: Any,
) -> dict[str, Any]:
    """Trains vectors for the entities and relations of a graph in the folder `out`, and returns the scores.

    >>> import hornbook
    >>> scores = hornbook.embed_graph("graph", "vectors", epochs=2, width=4, held_out=0)
    >>> scores["ended"], scores["entities_without_vector"]
    ('finished', 1)

    `settings` are the fields of `GraphEmbeddingSettings`. Validation and test triples are those of the graph's source,
    or a random fraction `held_out` of the edges each (default 0.02; 0: none). With `minutes` training ends after that
    time, whatever `epochs`. A resumed run takes the values that are left out from its record; it may be given more
    `epochs`.
    """
    opened, out = Graph(graph), Path(out)
    minutes = None if minutes is None else checked(minutes, float, "minutes=", above=0, high=1e6)
    folder = RunFolder(out, COMMAND, what="vectors of a graph")
    recorded, recorded_runtime, recorded_fraction = GraphEmbeddingSettings(), None, HELD_OUT
    is_started = folder.is_started(resume)
    if is_started:
        record = folder.read_record(lambda record: GraphEmbeddingSettings(**record["settings"]))
        folder.refuse_other_input(f"the graph {graph}", record["inputs"]["graph"], opened.fingerprint)
        recorded, recorded_runtime = GraphEmbeddingSettings(**record["settings"]), record["runtime"]
        recorded_fraction = record["request"]["held_out"]
    chosen = with_overrides(dataclasses.replace(recorded, **settings), overrides or {})
    held_out = checked(recorded_fraction if held_out is None else held_out, float, "held_out=", low=0, high=0.4)
    request = {"graph": str(graph), "held_out": held_out}
    if is_started:
        before = dataclasses.asdict(recorded) | {"held_out": recorded_fraction, "epochs": chosen.epochs}
        folder.refuse(changed_values(before, dataclasses.asdict(chosen) | {"held_out": held_out}))
    computing = RuntimeSettings(device=device, precision="float32", seed=chosen.seed)
    runtime = choose_runtime(computing, 0.0, recorded_runtime)
    if not folder.has_record:
        folder.write_record(request, {"graph": opened.fingerprint}, chosen, runtime.to_record())
    configure_torch(runtime)
    training = _Training(opened, folder, chosen, held_out, runtime, on_progress)
    # The check is turned off explicitly, as leaving it at its default prints a warning.
    with Signals() as signals, torch.sparse.check_sparse_tensor_invariants(False):
        return training.run(signals, minutes)


class _Training:
    def __init__(
        self,
        graph: Graph,
        folder: RunFolder,
        settings: GraphEmbeddingSettings,
        held_out: float,
        runtime: Runtime,
        on_progress: OnProgress,
    ):
        self.graph, self.folder, self.settings, self.on_progress = graph, folder, settings, on_progress
        self.device = runtime.device
        self.splits = split_triples(graph, held_out, settings.seed)
        self.train = self.splits["train"]
        self.known = KnownTails(np.concatenate(list(self.splits.values())), graph.num_relations)
        self.has_vector = np.zeros(graph.num_entities, bool)
        self.has_vector[self.train[:, [0, 2]].ravel()] = True
        self.trained = torch.from_numpy(np.flatnonzero(self.has_vector))
        torch.manual_seed(seed_of(settings.seed, "initial vectors"))
        model = MODELS[settings.model](graph.num_entities, graph.num_relations, settings.width)
        self.model: EmbeddingModel = model.to(self.device)
        is_fused = self.device.type == "cuda" and isinstance(model, DistanceModel)
        self.compare = torch.compile(model.compare_at_once) if is_fused else model.compare
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=settings.lr)
        self.steps_per_epoch = math.ceil(len(self.train) / settings.batch_size)
        self.num_steps = self.steps_per_epoch * settings.epochs
        self.checkpoints = Checkpoints(folder.path, keep=1)
        self.state = LoopState()  # `tokens` counts triples
        self.values: dict[str, float] = {}

    def run(self, signals: Signals, minutes: float | None) -> dict[str, Any]:
        if (last := self.checkpoints.last()) is not None:
            self._restore(last)
        else:
            self._zero_untrained()
        self.log = MetricsLog(self.folder.path, self.state.step, tensorboard=False)
        began, before = time.monotonic(), self.state.seconds
        saved_at, is_over = began, False
        self.model.train()
        try:
            while self.state.step < self.num_steps and not signals.stop and not is_over:
                loss = self._take_step()
                now = time.monotonic()
                self.state.seconds = before + now - began
                is_over = minutes is not None and self.state.seconds >= 60 * minutes
                self._after_step(loss, signals, is_last=is_over or self.state.step == self.num_steps)
                if now - saved_at > SAVE_EVERY_SECONDS:
                    self._save()
                    saved_at = time.monotonic()
            self._save()
            is_finished = is_over or self.state.step >= self.num_steps
            return self._finish() if is_finished else self._outcome("stopped", {})
        finally:
            self.log.close()

    def _take_step(self) -> float:
        step, size = self.state.step, len(self.train)
        epoch, batch = divmod(step, self.steps_per_epoch)
        first = batch * self.settings.batch_size
        positions = np.arange(first, min(first + self.settings.batch_size, size))
        rows = shuffled(positions, size, seed_of(self.settings.seed, epoch, "order"))
        triples = torch.from_numpy(with_inverses(self.train[rows], self.graph.num_relations)).to(self.device)
        head_B, relation_B, tail_B = triples.unbind(1)
        self.optimizer.zero_grad(set_to_none=True)
        if self.settings.uses_all:
            loss = self._backward_all(head_B, relation_B, tail_B)
        else:
            loss = self._backward_sampled(head_B, relation_B, tail_B)
        self.optimizer.step()
        self.state.step += 1
        self.state.tokens += len(rows)
        if not math.isfinite(loss):
            raise ValueError(
                f"the loss of step {step + 1:,} is not finite: use a smaller lr= than {self.settings.lr:g}"
            )
        return loss

    def _backward_all(self, head_B: Tensor, relation_B: Tensor, tail_B: Tensor) -> float:
        """Back-propagates the mean cross-entropy over all entities, a chunk of the triples at a time."""
        total, size = 0.0, max(1, MAX_LOGITS // self.graph.num_entities)
        for head, relation, tail in zip(head_B.split(size), relation_B.split(size), tail_B.split(size), strict=True):
            loss = functional.cross_entropy(self.model.score_all(head, relation), tail, reduction="sum")
            if self.settings.n3_weight:
                used = (self.model.vectors(head), self.model.relations[relation], self.model.vectors(tail))
                loss = loss + self.settings.n3_weight * sum(each.abs().pow(3).sum() for each in used)
            loss = loss / len(head_B)
            loss.backward()
            total += loss.item()
        return total

    def _backward_sampled(self, head_B: Tensor, relation_B: Tensor, tail_B: Tensor) -> float:
        """Back-propagates equation 6 of the RotatE paper; the negatives of a step are shared by its triples."""
        settings, model = self.settings, self.model
        generator = torch.Generator().manual_seed(seed_of(settings.seed, self.state.step, "negatives"))
        negative_K = self.trained[torch.randint(len(self.trained), (settings.num_negatives,), generator=generator)]
        vectors = model.vectors(torch.cat([head_B, tail_B, negative_K.to(self.device)]), sparse=True)
        head_BD, tail_BD, negative_KD = vectors.split([len(head_B), len(tail_B), settings.num_negatives])
        query_BD = model.query(head_BD, relation_B)
        margin = settings.margin if isinstance(model, DistanceModel) else 0.0
        positive_B = functional.logsigmoid(margin + model.compare_each(query_BD, tail_BD))
        scores_BK = self.compare(query_BD, negative_KD)
        weights_BK = torch.softmax(settings.temperature * scores_BK.detach(), 1)
        negative_B = (weights_BK * functional.logsigmoid(-margin - scores_BK)).sum(1)
        loss = -(positive_B + negative_B).mean() / 2
        loss.backward()
        return loss.item()

    def _after_step(self, loss: float, signals: Signals, is_last: bool) -> None:
        """Logs at the end of an epoch, validates after some epochs and the last step, and reports progress."""
        step, settings = self.state.step, self.settings
        epoch, is_end = step // self.steps_per_epoch, step % self.steps_per_epoch == 0
        self.values["loss"] = loss
        if is_end:
            self.log.write("train", step, epoch=epoch, loss=loss, seconds=round(self.state.seconds, 3))
        is_due = is_last or (is_end and epoch % settings.validate_every == 0)
        if is_due and len(self.splits["valid"]):
            self._validate()
        left = self.state.seconds / step * (self.num_steps - step)
        progress = TrainingProgress(step, self.num_steps, dict(self.values), 0.0, left, None, "mrr")
        if self.on_progress(progress) is True:
            signals.stop = signals.stop or "on_progress"

    def _validate(self) -> None:
        self._zero_untrained()
        scores = self._scores(self.splits["valid"][:MAX_VALIDATED])
        is_best = self.state.best is None or scores["mrr"] > self.state.best
        if is_best:
            self.state.best, self.state.best_step = scores["mrr"], self.state.step
            self._write(self.folder.path / "best")
        self.log.write("validation", self.state.step, **scores, best=is_best)
        self.values |= {f"validation_{name}": value for name, value in scores.items()}

    def _scores(self, triples_E3: np.ndarray) -> dict[str, float]:
        return ranking_metrics(filtered_ranks(self.model, triples_E3, self.known, self.graph.num_relations))

    def _zero_untrained(self) -> None:
        """Entities without a training triple have the vector 0; loss=all moves it, so it is set again."""
        with torch.no_grad():
            self.model.entities[torch.from_numpy(~self.has_vector).to(self.device)] = 0

    def _write(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.model.named_parameters()}
        write_tensors(folder / VECTORS_FILE, tensors | {"has_vector": torch.from_numpy(self.has_vector)})

    def _save(self) -> None:
        sums = {
            name: self.optimizer.state[value]["sum"].cpu().contiguous() for name, value in self.model.named_parameters()
        }
        self.checkpoints.save(self.state.step, self._write, sums, vars(self.state))

    def _restore(self, checkpoint: Path) -> None:
        sums, state = read_checkpoint(checkpoint)
        self.state = LoopState(**state)
        self._load(checkpoint)
        for name, value in self.model.named_parameters():
            self.optimizer.state[value]["sum"].copy_(sums[name])

    def _load(self, folder: Path) -> None:
        tensors = load_file(folder / VECTORS_FILE)
        with torch.no_grad():
            for name, value in self.model.named_parameters():
                value.copy_(tensors[name])

    def _finish(self) -> dict[str, Any]:
        """Scores the best vectors on the test split, links them to the root of the run and writes scores.json."""
        if self.state.best is not None:
            self._load(self.folder.path / "best")
            hard_link_files(self.folder.path / "best", self.folder.path)
        else:
            self._zero_untrained()
            self._write(self.folder.path)
        test = self.splits["test"]
        scores = {}
        if len(test):
            is_unseen = ~self.has_vector[test[:, [0, 2]]].all(1)
            scores = self._scores(test) | {"triples": len(test), "triples_without_vector": int(is_unseen.sum())}
        outcome = self._outcome("finished", scores)
        write_json(self.folder.path / SCORES, outcome)
        return outcome

    def _outcome(self, ended: str, test: dict[str, Any]) -> dict[str, Any]:
        state = self.state
        return {
            "out": str(self.folder.path),
            "ended": ended,
            "model": self.settings.model,
            "width": self.settings.width,
            "step": state.step,
            "epochs": round(state.step / self.steps_per_epoch, 2),
            "seconds": round(state.seconds, 1),
            "validation_mrr": state.best,
            "best_epoch": round(state.best_step / self.steps_per_epoch, 2),
            "test": test,
            "entities": self.graph.num_entities,
            "entities_without_vector": int((~self.has_vector).sum()),
            "splits": {name: len(triples) for name, triples in self.splits.items()},
        }


def split_triples(graph: Graph, held_out: float, seed: int) -> dict[str, np.ndarray]:
    """The triples of each split, E x 3: as the graph's source divides them, or a random fraction `held_out` for
    validation and as many for the test."""
    triples = np.stack([graph.heads, graph.relation_ids, graph.tails], 1).astype(np.int64)
    if graph.splits is not None:
        splits = {name: triples[graph.splits == index] for index, name in enumerate(SPLITS)}
        if not len(splits["train"]):
            raise ValueError(f"{graph.folder} has no training edges: build it with a file of triples named train")
    else:
        order = shuffled(np.arange(len(triples)), len(triples), seed_of(seed, "held out"))
        size = min(int(held_out * len(triples)), MAX_HELD_OUT)
        parts = np.split(triples[order], [size, 2 * size])
        splits = dict(zip(("valid", "test", "train"), parts, strict=True))
    if len(valid := splits["valid"]):  # a validation takes the first few triples, which are sorted by head otherwise
        splits["valid"] = valid[shuffled(np.arange(len(valid)), len(valid), seed_of(seed, "validated"))]
    return splits
