"""A model as an ONNX file, for machines without Hornbook and torch; and such a file opened again.

The file takes padded rows and answers named tensors (`models/padded.py`), any number of rows of any length. In int8
every matrix and the token table are stored in 8 bits, a quarter of the file, and matrix products run on whole numbers;
what goes into a product is rounded as it comes (dynamic quantization), so that no texts are needed beforehand.
"""

import contextlib
import importlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.files import read_json, replacing
from hornbook.interop.folder import EXPORTED as FILE
from hornbook.interop.folder import WEIGHTS, load_folder
from hornbook.models import registry
from hornbook.models.outputs import Output, read_output
from hornbook.models.padded import PaddedModel, input_names, output_names, rows_together
from hornbook.models.transformer import Transformer, TransformerConfig
from hornbook.text.tokenizer import Tokenizer

LARGEST_BYTES = 2e9  # of one file; more would need a second one beside it


def is_exported(folder: Path) -> bool:
    """Whether a folder holds an ONNX file and no weights."""
    return (folder / FILE).is_file() and not (folder / WEIGHTS).exists()


def write_onnx(model: Transformer, file: Path) -> None:
    """In float32, as `model` computes it. The way through torch's exporter takes seconds, whatever the size."""
    num_bytes = 4 * sum(each.numel() for each in model.parameters())
    if num_bytes >= LARGEST_BYTES:
        raise ValueError(
            f"the model takes {num_bytes / 1e9:.1f} GB, and one ONNX file holds at most {LARGEST_BYTES / 1e9:.0f} GB: "
            "distil a smaller student from it first"
        )
    onnx, _ = needed("onnx"), needed("onnxscript")
    from torch.export import Dim

    padded = PaddedModel(model).eval()
    names, output = input_names(model.config), model.output
    # Small example rows; where a size would be 1, the exporter would take it for fixed.
    together = (3 if output.kind == "choice" else 2,) if rows_together(output) else ()
    shape = (2, *together, min(8, model.config.max_positions))
    sizes = {0: Dim("batch_size"), len(shape) - 1: Dim("sequence_length", max=model.config.max_positions)}
    if output is not None and output.kind == "choice":
        sizes[1] = Dim("num_choices")
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            padded,
            tuple(torch.full(shape, int(name == "attention_mask")) for name in names),
            input_names=list(names),
            output_names=list(output_names(output)),
            dynamic_shapes=dict.fromkeys(names, sizes),
            dynamo=True,
            verbose=False,
        )
    with replacing(file) as temporary:
        onnx.save(_bare(program.model_proto), temporary)


def _bare(proto):
    """Without what the exporter notes down for its developers: half of a small file, with paths of this machine; and
    without the shapes of what is in between, which are worked out again and would stop `write_int8`."""
    graph = proto.graph
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
    del graph.value_info[:]
    return proto


def write_int8(source: Path, file: Path) -> None:
    """The float file in int8: matrices by column, tables as a whole."""
    quantization = needed("onnxruntime.quantization")
    with _quiet(), replacing(file) as temporary:
        quantization.quantize_dynamic(
            source,
            temporary,
            op_types_to_quantize=["MatMul", "Gather"],
            per_channel=True,
            # 7 of the 8 bits: on processors without VNNI the sums of 8-bit products overflow. On MiniLM it costs
            # 0.001 of the cosine to the float vectors (0.992 for 0.993).
            reduce_range=True,
            weight_type=quantization.QuantType.QInt8,
        )


class OnnxModel(nn.Module):
    """An exported model that answers packed batches as the model that it was made of does. It holds no parameters."""

    def __init__(self, file: Path, config: TransformerConfig, output: Output | None, num_threads: int | None = None):
        super().__init__()
        self.file, self.config, self.output = Path(file), config, output
        self.session = session(file, num_threads)

    def with_threads(self, num_threads: int) -> "OnnxModel":
        return OnnxModel(self.file, self.config, self.output, num_threads)

    def forward(self, batch: Batch) -> Tensor:
        """The last hidden states, T x D, of a model without a task."""
        assert self.output is None
        (x_NSD,), is_there_NS = self._run(batch)
        return torch.from_numpy(x_NSD[is_there_NS])

    def outputs(self, batch: Batch) -> Tensor:
        """What the task wants of each sequence or token (`models/outputs.py` lists the shapes)."""
        found, is_there_NS = self._run(batch)
        if self.output.kind == "tokens":
            return torch.from_numpy(found[0][is_there_NS])
        if self.output.kind == "spans":
            scores_NS2 = np.stack(found[:2], -1)
            return torch.from_numpy(np.concatenate([scores_NS2, *(each[:, None] for each in found[2:])], 1))
        return torch.from_numpy(found[0])

    def _run(self, batch: Batch) -> tuple[list[np.ndarray], np.ndarray]:
        lengths_N = np.diff(batch.starts_host)
        is_there_NS = np.arange(lengths_N.max(initial=1)) < lengths_N[:, None]
        ids_NS, segments_NS = np.zeros((2, *is_there_NS.shape), np.int64)
        ids_NS[is_there_NS], segments_NS[is_there_NS] = batch.ids_T.numpy(), batch.segments_T.numpy()
        rows = {
            "input_ids": ids_NS,
            "attention_mask": is_there_NS.astype(np.int64),
            "token_type_ids": segments_NS,
        }
        shape = (-1, batch.group_size, ids_NS.shape[1]) if rows_together(self.output) else ids_NS.shape
        fed = {name: rows[name].reshape(shape) for name in input_names(self.config)}
        return self.session.run(list(output_names(self.output)), fed), is_there_NS


def session(file: Path, num_threads: int | None = None):
    """An open file, on so many cores of the processor; none: on all."""
    runtime = needed("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors only
    if num_threads is not None:
        options.intra_op_num_threads = num_threads
        options.inter_op_num_threads = 1
    try:
        return runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no class of their own
        reason = str(error).splitlines()[0]
        raise ValueError(f"{file} cannot be opened ({reason}): export the model again") from None


def open_onnx(folder: Path, num_threads: int | None = None) -> OnnxModel:
    """The model of a folder that `hornbook export` wrote."""
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} holds an {FILE} without the config.json that export writes: export the model again")
    outside = read_json(folder / "config.json")
    try:
        config = registry.family(outside.get("model_type")).config_from_outside(outside)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / 'config.json'} cannot be used: {error}") from None
    own = outside.get("hornbook_output")
    output = read_output(outside, None, own["num_labels"]) if own else None
    return OnnxModel(folder / FILE, config, output, num_threads)


def load_any(folder: Path) -> tuple[nn.Module, Tokenizer]:
    """Model and tokenizer of a model folder, or of an exported one."""
    return (open_onnx(folder), Tokenizer.load(folder)) if is_exported(folder) else load_folder(folder)


def needed(name: str) -> ModuleType:
    """A package of the extra `export`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = (error.name or name).partition(".")[0]
        raise ValueError(
            f'ONNX files need the package {missing}, which is not installed: pip install "hornbook[export]"'
        ) from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter and the quantizer say to their own developers."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
