"""The files of what a run trains: a single model; ELECTRA's discriminator, with its generator in a subfolder; or a
student. The projections of a student to its teacher are in a file next to its weights. They are needed to resume the
run and to distil the student further on a task, not to use the student."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from hornbook.files import write_tensors
from hornbook.interop.folder import load_weights, read_weights, save_model
from hornbook.models.distillation_pair import DistillationPair
from hornbook.models.electra import GENERATOR, ElectraPair
from hornbook.models.transformer import Transformer
from hornbook.text.tokenizer import Tokenizer

PROJECTIONS_FILE = "projections.safetensors"


def saved_models(network: nn.Module) -> dict[str, Transformer]:
    """The models to save, by their subfolder of the run; the one in the run folder itself ("") is used afterwards."""
    if isinstance(network, DistillationPair):
        return {"": network.student}
    if isinstance(network, ElectraPair):
        return {"": network.discriminator, GENERATOR: network.generator}
    return {"": network}


def save_models(folder: Path, network: nn.Module, tokenizer: Tokenizer) -> None:
    """Saves every model of the run with its tokenizer, the one that is used afterwards last."""
    if isinstance(network, DistillationPair) and len(network.projections):
        state = {name: value.detach().cpu().contiguous() for name, value in network.projections.state_dict().items()}
        write_tensors(Path(folder) / PROJECTIONS_FILE, state)
    for name, model in reversed(saved_models(network).items()):
        tokenizer.save(Path(folder) / name, model.config.max_positions, model.config.num_segments)
        save_model(Path(folder) / name, model)


def load_models(folder: Path, network: nn.Module) -> None:
    """Loads the weights that `save_models` wrote."""
    for name, model in reversed(saved_models(network).items()):
        load_weights(model, read_weights(Path(folder) / name), Path(folder) / name)
    if isinstance(network, DistillationPair) and len(network.projections):
        path = Path(folder) / PROJECTIONS_FILE
        try:
            network.projections.load_state_dict(load_file(path))
        except (SafetensorError, OSError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"{path} is damaged ({reason}): delete the folder {folder} and resume from the checkpoint before it"
            ) from None


def read_projections(folder: Path) -> dict[str, Tensor]:
    """The projections of a student's earlier run; {} if the folder has none."""
    path = Path(folder) / PROJECTIONS_FILE
    try:
        return load_file(path) if path.exists() else {}
    except SafetensorError as error:
        raise ValueError(
            f"{path} cannot be read ({error}): copy it again, or remove it to start with new projections"
        ) from None
