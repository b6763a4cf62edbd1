"""Saves and loads the projections of a distillation run, in a file next to the student's weights. They are needed to
resume the run and to distil the student further on a task, not to use the student."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from hornbook.files import write_tensors
from hornbook.models.distillation_pair import DistillationPair

PROJECTIONS_FILE = "projections.safetensors"


def save_projections(folder: Path, model: nn.Module) -> None:
    if isinstance(model, DistillationPair) and len(model.projections):
        state = {name: value.detach().cpu().contiguous() for name, value in model.projections.state_dict().items()}
        write_tensors(Path(folder) / PROJECTIONS_FILE, state)


def load_projections(folder: Path, model: nn.Module) -> None:
    if isinstance(model, DistillationPair) and len(model.projections):
        path = Path(folder) / PROJECTIONS_FILE
        try:
            model.projections.load_state_dict(load_file(path))
        except (SafetensorError, OSError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"{path} is damaged ({reason}): delete the folder {folder} and resume from the checkpoint before it"
            ) from None


def read_projections(folder: Path) -> dict[str, Tensor]:
    """Returns the projections of a student's earlier run; {} if the folder has none."""
    path = Path(folder) / PROJECTIONS_FILE
    try:
        return load_file(path) if path.exists() else {}
    except SafetensorError as error:
        raise ValueError(
            f"{path} cannot be read ({error}): copy it again, or remove it to start with new projections"
        ) from None
