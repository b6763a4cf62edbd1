"""Checkpoints: everything a run needs to resume, each a folder that is written atomically.

RUN/checkpoints/step-00001000/   model files, optimizer.safetensors, state.json; a finished run may keep only state.json
RUN/model.safetensors ...        the model files of the last checkpoint, as links
RUN/kept/step-00000500/          model files of the steps in `checkpoint.keep_at`; kept when checkpoints are deleted
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from hornbook.files import hard_link_files, read_json, read_json_if_exists, replacing_folder, write_json, write_tensors
from hornbook.lifecycle.run_folder import is_task_run
from hornbook.lifecycle.temp_files import temporary_for

STATE_FILES = ("optimizer.safetensors", "state.json")


class Checkpoints:
    """The checkpoints of one run, the last `keep` of them."""

    def __init__(self, run_folder: Path, keep: int = 2):
        self.run_folder = Path(run_folder)
        self.folder = self.run_folder / "checkpoints"
        self.keep = keep

    def all(self) -> list[Path]:
        """The complete checkpoints, oldest first."""
        return sorted(path for path in self.folder.glob("step-*") if (path / "state.json").exists())

    def last(self) -> Path | None:
        return (self.all() or [None])[-1]

    def last_step(self) -> int | None:
        last = self.last()
        return None if last is None else int(last.name.removeprefix("step-"))

    def is_trained(self, num_steps: int) -> bool:
        """Whether the run or stage has taken all its steps or ended early, so that there is nothing to resume."""
        last = self.last()
        if last is None:
            return False
        state = read_state(last)
        return bool(state.get("ended_early")) or state["step"] >= num_steps

    def drop_old(self) -> None:
        """Removes all but the last `keep`, including those left by a run that was killed right after saving."""
        for old in self.all()[: -self.keep]:
            _remove(old)

    def save(self, step: int, save_model: Callable[[Path], None], optimizer: dict[str, Tensor], state: dict) -> Path:
        """Writes under a temporary name, renames, links the weights into the run's root, and drops old checkpoints.

        A step that is already saved is left as it is: steps are deterministic, so it would be the same.
        """
        final = self.folder / f"step-{step:08d}"
        if final.exists():
            return final
        with replacing_folder(final) as temporary:
            save_model(temporary)
            write_tensors(temporary / "optimizer.safetensors", optimizer)
            write_json(temporary / "state.json", state)
        self.link_to_root(final)
        self.drop_old()
        return final

    def keep_weights(self, step: int, save_model: Callable[[Path], None]) -> None:
        """Saves the weights of a step permanently in `kept/`. Existing ones are left as they are, as in `save`."""
        final = kept_folder(self.run_folder, step)
        if final.exists():
            return
        with replacing_folder(final) as temporary:
            save_model(temporary)

    def finished_files(self) -> list[Path]:
        """The files a finished run no longer needs: all but the last `state.json`, which records how it ended."""
        kept = [path / "state.json" for path in self.all()[-1:]]
        return [path for path in self.folder.rglob("*") if path.is_file() and path not in kept]

    def keep_only_state(self) -> None:
        """For a finished run: removes its checkpoints except for the last `state.json`."""
        *older, last = self.all() or [None]
        for old in older:
            _remove(old)
        for path in last.iterdir() if last else ():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "state.json":
                path.unlink()

    def link_to_root(self, checkpoint: Path) -> None:
        """Links the checkpoint's model files into the root of the run, without copying."""
        hard_link_files(checkpoint, self.run_folder, "**/*", excluded=STATE_FILES)


def unfinished_note(folder: Path) -> str | None:
    """A note that a folder holds a pre-training run that is not finished, whose weights are those of its last
    checkpoint; None for every other folder."""
    try:
        run, checkpoints = read_json_if_exists(folder / "run.json"), Checkpoints(folder)
        if is_task_run(run) or (step := checkpoints.last_step()) is None:
            return None
        steps = run["settings"]["schedule"]["steps"]
        if checkpoints.is_trained(steps):
            return None
    except (ValueError, TypeError, KeyError, AttributeError):  # the weights can be used if the records are damaged
        return None
    return f"note: {folder} is not finished: its weights are those of step {step:,} of {steps:,}"


def kept_folder(run_folder: Path, step: int) -> Path:
    """The folder with the weights of a step named in `checkpoint.keep_at`."""
    return Path(run_folder) / "kept" / f"step-{step:08d}"


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict]:
    """(optimizer tensors, state) of a checkpoint."""
    file = path / "optimizer.safetensors"
    try:
        tensors = load_file(file)
        return tensors, read_state(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(
            f"{file} is damaged ({error}): delete the folder {path} and resume from the checkpoint before it"
        ) from None


def read_state(path: Path) -> dict:
    state = read_json(path / "state.json")
    numbers = {name: state.get(name) for name in ("step", "tokens", "seconds")} | dict(state.get("loss_spike") or {})
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(
                f"{path / 'state.json'} has no number for {name}: delete the folder {path} and resume from the "
                "checkpoint before it"
            )
    return state


def _remove(path: Path) -> None:
    """Renames before deleting: a half-deleted checkpoint must not look complete."""
    temporary = temporary_for(path)
    os.replace(path, temporary)
    shutil.rmtree(temporary)
