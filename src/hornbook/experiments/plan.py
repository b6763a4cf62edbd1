"""The pieces of an experiment, in the order in which they are run, and where each leaves what it found.

OUT/pieces/KEY.json            a finished piece: it is never run again
OUT/pretrained/ARM-SEED/       the run of a pre-training, with the weights of each checkpoint under kept/
OUT/running/KEY/               a piece that is not finished; gone when it is

An arm is pre-trained, its sentence head is tried, and its checkpoints are fine-tuned, the last weights first, before
the next arm begins: where a machine is lent for a while, what it finished needs no weights any more.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hornbook.data.examples import LABELLED
from hornbook.experiments.resolved import ResolvedExperiment
from hornbook.files import read_json
from hornbook.train.checkpoint import kept_folder

Kind = Literal["overlap", "pretrain", "crossed", "finetune"]


@dataclass(frozen=True)
class Piece:
    """What one piece is about; what a kind does not have is left at its default."""

    kind: Kind
    arm: str = ""
    seed: int = 0  # of pre-training
    share: float = 1.0  # of the FLOPs, where the checkpoint was taken
    task: str = ""
    task_seed: int = 0

    @property
    def key(self) -> str:
        """Its name on disk."""
        if self.kind == "finetune":
            return f"finetune-{self.arm}-{self.seed}-at-{self.share:g}-{self.task}-{self.task_seed}"
        return self.kind if self.kind == "overlap" else f"{self.kind}-{self.arm}-{self.seed}"

    @property
    def words(self) -> str:
        """For a person."""
        if self.kind == "overlap":
            return "how far word overlap goes on sentence pairs"
        seed = f", seed {self.seed}" if self.seed else ""
        if self.kind == "pretrain":
            return f"pre-training {self.arm}{seed}"
        if self.kind == "crossed":
            return f"both sentence tasks for {self.arm}{seed}"
        return f"{self.task}, seed {self.task_seed}, on {self.arm}{seed} at {self.share:.4g} of the FLOPs"

    @property
    def alike(self) -> tuple[str, str]:
        """Pieces that take about as long."""
        return self.kind, self.task if self.kind == "finetune" else self.arm

    def file(self, out: Path) -> Path:
        return Path(out) / "pieces" / f"{self.key}.json"

    def is_done(self, out: Path) -> bool:
        return self.file(out).exists()

    def found(self, out: Path) -> dict | None:
        """What it left, if it is done."""
        return read_json(self.file(out)) if self.is_done(out) else None

    def run_folder(self, out: Path) -> Path:
        """Of the pre-training that it belongs to."""
        return Path(out) / "pretrained" / f"{self.arm}-{self.seed}"

    def weights(self, out: Path, decided: ResolvedExperiment) -> Path:
        """The checkpoint that it measures."""
        return kept_folder(self.run_folder(out), decided.arms[self.arm].step_at(self.share))


def tasks_of(out: Path, decided: ResolvedExperiment, with_data: list[str]) -> list[str]:
    """Those whose data is there, and those that have finished pieces: what was found stays, with data or without."""
    done = {file.stem for file in (Path(out) / "pieces").glob("finetune-*.json")}
    every = [task.name for task in decided.experiment.tasks]
    has_pieces = {piece.task for piece in pieces_of(decided, every) if piece.key in done}
    return [task for task in every if task in with_data or task in has_pieces]


def pieces_of(decided: ResolvedExperiment, tasks: list[str]) -> list[Piece]:
    """All of them, in order, for those tasks."""
    experiment = decided.experiment
    plans = [task for task in experiment.tasks if task.name in tasks]
    has_sentences = experiment.sentences.pairs > 0
    pieces = [Piece("overlap")] if has_sentences else []

    def finetunings(arm: str, seed: int, share: float) -> list[Piece]:
        num_seeds = max((len(task.seeds) for task in plans), default=0)
        places = [(number, task) for number in range(num_seeds) for task in plans if number < len(task.seeds)]
        return [Piece("finetune", arm, seed, share, task.name, task.seeds[number]) for number, task in places]

    for seed in experiment.equal.seeds:
        for arm in experiment.arms:
            pieces.append(Piece("pretrain", arm.name, seed))
            if has_sentences and experiment.settings_of(arm).layout in LABELLED:
                pieces.append(Piece("crossed", arm.name, seed))
            for share in reversed(experiment.equal.checkpoints):
                pieces += finetunings(arm.name, seed, share)
    return pieces
