"""Writes models to ONNX files, which need neither Hornbook nor torch, and opens such files.

A file takes padded rows, any number of any length, and returns named tensors (`models/padded.py`). In int8 every matrix
and the token embedding are stored in 8 bits, a quarter of the file size, and matrix products use integer arithmetic;
activations are quantised at run time (dynamic quantization), so no calibration data are needed.
"""

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.extras import import_extra
from hornbook.files import read_json, replacing
from hornbook.interop.files import ONNX_FILE, WEIGHTS
from hornbook.interop.folder import load_folder
from hornbook.models import registry
from hornbook.models.head_config import HeadConfig, read_head_config
from hornbook.models.heads import HEADS
from hornbook.models.padded import PaddedModel, input_names, output_names, rows_together
from hornbook.models.transformer import Transformer, TransformerConfig
from hornbook.text.tokenizer import Tokenizer

LARGEST_BYTES = 2e9  # of one file; a larger model would need external data files


def is_exported(folder: Path) -> bool:
    """Whether a folder holds an ONNX file and no safetensors."""
    return (folder / ONNX_FILE).is_file() and not (folder / WEIGHTS).exists()


def write_onnx(model: Transformer, file: Path) -> None:
    """Writes `model` in float32 with torch's exporter, which takes seconds for any size."""
    num_bytes = 4 * sum(each.numel() for each in model.parameters())
    if num_bytes >= LARGEST_BYTES:
        raise ValueError(
            f"the model has {num_bytes / 1e9:.1f} GB, and one ONNX file holds at most {LARGEST_BYTES / 1e9:.0f} GB: "
            "distil it into a smaller student first"
        )
    onnx, _ = import_onnx("onnx"), import_onnx("onnxscript")
    from torch.export import Dim

    padded = PaddedModel(model).eval()
    names, head_config = input_names(model.config), model.head_config
    # Small example rows; the exporter would treat a size of 1 as fixed.
    group = (3 if head_config.output_type.is_grouped else 2,) if rows_together(head_config) else ()
    shape = (2, *group, min(8, model.config.max_positions))
    sizes = {0: Dim("batch_size"), len(shape) - 1: Dim("sequence_length", max=model.config.max_positions)}
    if head_config is not None and head_config.output_type.is_grouped:
        sizes[1] = Dim("num_choices")
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            padded,
            tuple(torch.full(shape, int(name == "attention_mask")) for name in names),
            input_names=list(names),
            output_names=list(output_names(head_config)),
            dynamic_shapes=dict.fromkeys(names, sizes),
            dynamo=True,
            verbose=False,
        )
    with replacing(file) as temporary:
        onnx.save(_strip_metadata(program.model_proto), temporary)


def _strip_metadata(proto):
    """Removes the exporter's debug metadata (half of a small file, with paths of this machine) and the shapes of
    intermediate values, which are inferred again and would make `write_int8` fail."""
    graph = proto.graph
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
    del graph.value_info[:]
    return proto


def write_int8(source: Path, file: Path) -> None:
    """Quantises a float file to int8: matrices per column, embedding tables per tensor."""
    onnx, quantization = import_onnx("onnx"), import_onnx("onnxruntime.quantization")
    with _quiet(), replacing(file) as temporary:
        quantization.quantize_dynamic(
            _transpose_matrices(onnx.load(source), onnx.numpy_helper),
            temporary,
            op_types_to_quantize=["MatMul", "Gather"],
            per_channel=True,
            # 7 of the 8 bits: on processors without VNNI the sums of 8-bit products overflow. On MiniLM it lowers the
            # cosine to the float vectors by 0.001 (0.992 instead of 0.993).
            reduce_range=True,
            weight_type=quantization.QuantType.QInt8,
        )


def _transpose_matrices(proto, numpy_helper: ModuleType):
    """Stores the matrices of linear layers as input x output. The quantizer needs them so, and would transpose one that
    layers share once for each of them."""
    transposed = [
        (node.input[1], attribute)
        for node in proto.graph.node
        for attribute in node.attribute
        if node.op_type == "Gemm" and attribute.name == "transB" and attribute.i
    ]
    names = {name for name, _ in transposed}
    for weight in proto.graph.initializer:
        if weight.name in names:
            weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).T, weight.name))
    for _, attribute in transposed:
        attribute.i = 0
    return proto


class OnnxModel(nn.Module):
    """An exported model that takes packed batches, as the original does. It has no parameters. It runs on the CPU, on
    `num_threads` threads (None: all cores)."""

    def __init__(
        self, file: Path, config: TransformerConfig, head_config: HeadConfig | None, num_threads: int | None = None
    ):
        super().__init__()
        self.file, self.config, self.head_config = Path(file), config, head_config
        runtime = import_onnx("onnxruntime")
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # errors only
        if num_threads is not None:
            options.intra_op_num_threads = num_threads
            options.inter_op_num_threads = 1
        try:
            self.session = runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has no public error class
            reason = str(error).splitlines()[0]
            raise ValueError(f"{file} cannot be opened ({reason}): export the model again") from None

    def with_threads(self, num_threads: int) -> "OnnxModel":
        return OnnxModel(self.file, self.config, self.head_config, num_threads)

    def forward(self, batch: Batch) -> Tensor:
        """Returns the last hidden states, T x D, of a model without a task head."""
        assert self.head_config is None
        (x_NSD,), mask_NS = self._run(batch)
        return torch.from_numpy(x_NSD[mask_NS])

    def outputs(self, batch: Batch) -> Tensor:
        """Returns the task outputs per sequence or token (`models/head_config.py` lists the shapes)."""
        outputs, mask_NS = self._run(batch)
        return torch.from_numpy(HEADS[self.head_config.output].from_padded_outputs(outputs, mask_NS))

    def _run(self, batch: Batch) -> tuple[list[np.ndarray], np.ndarray]:
        lengths_N = np.diff(batch.offsets_host)
        mask_NS = np.arange(lengths_N.max(initial=1)) < lengths_N[:, None]
        ids_NS, segments_NS = np.zeros((2, *mask_NS.shape), np.int64)
        ids_NS[mask_NS], segments_NS[mask_NS] = batch.ids_T.numpy(), batch.segments_T.numpy()
        rows = {"input_ids": ids_NS, "attention_mask": mask_NS.astype(np.int64), "token_type_ids": segments_NS}
        shape = (-1, batch.group_size, ids_NS.shape[1]) if rows_together(self.head_config) else ids_NS.shape
        inputs = {name: rows[name].reshape(shape) for name in input_names(self.config)}
        return self.session.run(list(output_names(self.head_config)), inputs), mask_NS


def open_onnx(folder: Path) -> OnnxModel:
    """Opens the model of a folder that `hornbook export` wrote."""
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} has an {ONNX_FILE} but no config.json: export the model again")
    hf_config = read_json(folder / "config.json")
    try:
        config = registry.model_class(hf_config.get("model_type")).config_from_hf(hf_config)
        head = hf_config.get("hornbook_head")
        head_config = read_head_config(hf_config, None, head["num_labels"]) if head else None
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(f"{folder / 'config.json'} cannot be used ({error}): export the model again") from None
    return OnnxModel(folder / ONNX_FILE, config, head_config)


def load_model_and_tokenizer(folder: Path) -> tuple[nn.Module, Tokenizer]:
    """Returns the model and the tokenizer of a model folder or an exported folder."""
    return (open_onnx(folder), Tokenizer.load(folder)) if is_exported(folder) else load_folder(folder)


def import_onnx(name: str) -> ModuleType:
    """Imports a package of the extra `export`."""
    return import_extra(name, "export", "ONNX files need")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences warnings and log messages of the exporter and the quantizer."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
