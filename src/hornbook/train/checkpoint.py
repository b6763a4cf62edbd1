"""Checkpoints: all that a run needs to go on, each a folder that appears whole or not at all.

RUN/checkpoints/step-00001000/   model files, optimizer.safetensors, state.json; of a finished run perhaps only the last
RUN/model.safetensors ...        the same model files, linked from the last checkpoint
RUN/kept/step-00000500/          model files of steps that were asked for by name; they stay when checkpoints go
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from hornbook.files import link, read_json, replacing, replacing_folder, write_json, write_tensors
from hornbook.lifecycle.leftovers import temporary_for

OWN_FILES = ("optimizer.safetensors", "state.json")


class Checkpoints:
    """The checkpoints of one run, the last `keep` of them."""

    def __init__(self, run: Path, keep: int = 2):
        self.run = Path(run)
        self.folder = self.run / "checkpoints"
        self.keep = keep

    def all(self) -> list[Path]:
        """Whole checkpoints, the newest last."""
        return sorted(path for path in self.folder.glob("step-*") if (path / "state.json").exists())

    def last(self) -> Path | None:
        return (self.all() or [None])[-1]

    def last_step(self) -> int | None:
        last = self.last()
        return None if last is None else int(last.name.removeprefix("step-"))

    def drop_old(self) -> None:
        """Removes all but the last `keep`: also those that a run which was killed right after saving did not."""
        for old in self.all()[: -self.keep]:
            _remove(old)

    def save(self, step: int, save_model: Callable[[Path], None], optimizer: dict[str, Tensor], state: dict) -> Path:
        """Writes under a temporary name, renames, publishes the weights at the run's root, drops the oldest.

        A step that is saved already stays as it is: steps are pure, so it holds the same.
        """
        final = self.folder / f"step-{step:08d}"
        if final.exists():
            return final
        with replacing_folder(final) as temporary:
            save_model(temporary)
            write_tensors(temporary / "optimizer.safetensors", optimizer)
            write_json(temporary / "state.json", state)
        self.publish(final)
        self.drop_old()
        return final

    def keep_weights(self, step: int, save_model: Callable[[Path], None]) -> None:
        """The weights of a step, under its own name for good. Those that are there stay, as in `save`."""
        final = kept_folder(self.run, step)
        if final.exists():
            return
        with replacing_folder(final) as temporary:
            save_model(temporary)

    def finished_files(self) -> list[Path]:
        """What a finished run no longer needs: all files but the last `state.json`, which says how it ended."""
        found = self.all()
        return [path for path in self.folder.rglob("*") if path.is_file() and path.parent not in found[-1:]] + [
            path for last in found[-1:] for path in last.iterdir() if path.is_file() and path.name != "state.json"
        ]

    def keep_only_state(self) -> None:
        """For a finished run: removes its checkpoints, but for the last `state.json`."""
        *older, last = self.all() or [None]
        for old in older:
            _remove(old)
        for path in last.iterdir() if last else ():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "state.json":
                path.unlink()

    def publish(self, checkpoint: Path) -> None:
        """Links the checkpoint's model files to the root of the run: the same bytes, no copy."""
        for file in checkpoint.rglob("*"):
            if file.is_file() and file.name not in OWN_FILES:
                place = self.run / file.relative_to(checkpoint)
                place.parent.mkdir(exist_ok=True)
                with replacing(place) as temporary:
                    link(file, temporary)


def kept_folder(run: Path, step: int) -> Path:
    """Where a run keeps the weights of a step that `checkpoint.keep_at` names."""
    return Path(run) / "kept" / f"step-{step:08d}"


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict]:
    """(optimizer tensors, state) of a checkpoint."""
    file = path / "optimizer.safetensors"
    try:
        tensors = load_file(file)
        # The first version called the head that judges sentences after its one task.
        return {name.replace("/nsp.", "/sentence."): value for name, value in tensors.items()}, read_state(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{file} is damaged ({error}): delete the folder {path} and resume; the run goes on from the one before"
        ) from None


def read_state(path: Path) -> dict:
    """The state of a checkpoint; those of the first version called the best validation `best_loss`."""
    state = read_json(path / "state.json")
    numbers = {name: state.get(name) for name in ("step", "tokens", "seconds")} | dict(state.get("guard") or {})
    if wrong := [
        name for name, value in numbers.items() if isinstance(value, bool) or not isinstance(value, int | float)
    ]:
        raise ValueError(
            f"{path / 'state.json'} has no number for {wrong[0]}: delete the folder {path} and resume, from the "
            "checkpoint before it"
        )
    return {"best" if name == "best_loss" else name: value for name, value in state.items()}


def _remove(path: Path) -> None:
    """Renames first: a checkpoint that is half deleted must not look whole."""
    if path.exists():
        doomed = temporary_for(path)
        os.replace(path, doomed)
        shutil.rmtree(doomed)
