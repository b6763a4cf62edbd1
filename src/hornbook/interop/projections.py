"""The projections of a distillation run on disk: beside the student's weights, for going on, and for a task on which
the student learns further; no other use needs them."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from hornbook.files import write_tensors
from hornbook.models.pair import DistillationPair

FILE = "projections.safetensors"


def save_projections(folder: Path, model: nn.Module) -> None:
    if isinstance(model, DistillationPair) and len(model.projections):
        state = {name: value.detach().cpu().contiguous() for name, value in model.projections.state_dict().items()}
        write_tensors(Path(folder) / FILE, state)


def load_projections(folder: Path, model: nn.Module) -> None:
    if isinstance(model, DistillationPair) and len(model.projections):
        model.projections.load_state_dict(load_file(Path(folder) / FILE))


def read_projections(folder: Path) -> dict[str, Tensor]:
    """Those that a student brought along from an earlier run; none where it did not learn from a teacher there."""
    path = Path(folder) / FILE
    try:
        return load_file(path) if path.exists() else {}
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be read ({error}): copy it anew, or remove it to begin without") from None
