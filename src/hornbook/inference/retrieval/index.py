"""The index folder: vectors, ids, texts and other columns, with the model that embedded them.

index.json     written last: the model, its settings, the number of rows, the sources and how much of each is done
vectors.f32    float32 vectors, one after another, without a header
vectors.i8     in its place with int8: the numbers that are searched; scales.f32 has the scale of each vector, and
               residuals.i8 what rounding took away, of which only the rows of the best candidates are read
rows.arrow     id, text and the other columns as strings, in Arrow's stream format

The files are only ever appended to, and `index.json` records the committed size of each. So a kill at any moment leaves
the index as it was after the last committed block, and a reader never sees part of a block.

Shapes: N rows, B rows of a block, D width.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import hornbook
from hornbook.files import read_json, refusing_damage, write_json
from hornbook.inference.loaded_model import LoadedModel
from hornbook.interop.folder import weights_fingerprint
from hornbook.lifecycle.locking import check_folder

INDEX_FILE = "index.json"
ROWS = "rows.arrow"
SCALES, RESIDUALS = "scales.f32", "residuals.i8"
ID, TEXT = "id", "text"
VectorType = Literal["float32", "int8"]
VECTOR_FILES: dict[str, tuple[str, type]] = {"float32": ("vectors.f32", np.float32), "int8": ("vectors.i8", np.int8)}
LARGEST_INT8 = 127  # absolute value of an int8 number; -128 is unused
SMALLEST_SCALE = 1e-30  # of a vector of zeros


@dataclass(frozen=True)
class IndexSource:
    """Texts that were added: `file` (None if given in memory), a `fingerprint` of all rows, their number, and how many
    of them are in the index."""

    file: str | None
    fingerprint: str
    rows: int
    done: int = 0


@dataclass(frozen=True)
class Manifest:
    """The contents of `index.json`. `model` is the name or path of the model, `fingerprint` is that of its weights,
    tokenizer and embedding settings, `bytes` is the committed size of rows.arrow."""

    model: str
    fingerprint: str
    embedding: Mapping[str, Any]
    similarity: str
    width: int
    dtype: VectorType
    count: int
    bytes: int
    columns: tuple[str, ...]
    sources: tuple[IndexSource, ...] = field(default_factory=tuple)

    @property
    def is_finished(self) -> bool:
        return bool(self.sources) and all(each.done == each.rows for each in self.sources)

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        file = folder / INDEX_FILE
        if not file.is_file():
            raise ValueError(f"{folder} is not an index: it has no {INDEX_FILE}; build one with hornbook embed")
        record = read_json(file)
        with refusing_damage(file, "restore the file, or build the index again"):
            record.pop("hornbook", None)
            sources = tuple(IndexSource(**each) for each in record.pop("sources"))
            manifest = cls(**record | {"columns": tuple(record["columns"]), "sources": sources})
            VECTOR_FILES[manifest.dtype]
            for name, low in (("count", 0), ("bytes", 0), ("width", 1)):
                if getattr(manifest, name) < low:
                    raise ValueError(f"its {name} is {getattr(manifest, name)}")
        return manifest

    def write(self, folder: Path) -> None:
        write_json(folder / INDEX_FILE, {"hornbook": hornbook.__version__} | asdict(self))

    def refuse_other_model(self, model: LoadedModel, folder: Path) -> None:
        """Raises unless the model embeds as the one that built the index in `folder`."""
        width = model.model.config.width
        if width != self.width:
            raise ValueError(
                f"{model.folder} embeds texts in {width} numbers, but the index in {folder} has {self.width}: use its "
                f"model, {self.model}, or build the index again"
            )
        if model_fingerprint(model) != self.fingerprint:
            raise ValueError(
                f"the index in {folder} was built with another model than {model.folder} is now: use {self.model} as "
                "it was then, or build the index again"
            )

    def sizes(self) -> dict[str, int]:
        """The committed size of each file in bytes."""
        name, dtype = VECTOR_FILES[self.dtype]
        sizes = {name: self.count * self.width * np.dtype(dtype).itemsize, ROWS: self.bytes}
        return sizes | ({SCALES: 4 * self.count, RESIDUALS: sizes[name]} if self.dtype == "int8" else {})


def model_fingerprint(model: LoadedModel) -> str:
    """SHA-256 of everything that determines the vectors: weights, tokenizer and embedding settings."""
    settings = json.dumps(model.embedding.to_dict(), sort_keys=True)
    parts = (weights_fingerprint(Path(model.folder)), model.tokenizer.fingerprint, settings)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class Index:
    """An index opened for reading. Vectors and rows are memory-mapped, so opening costs no memory."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.manifest = Manifest.read(self.folder)
        if not self.manifest.count:
            raise ValueError(f"the index in {folder} has no rows yet: run the same hornbook embed command again")
        for name, size in self.manifest.sizes().items():
            if not (self.folder / name).is_file() or (self.folder / name).stat().st_size < size:
                raise ValueError(f"{self.folder / name} is missing or truncated: restore it, or build the index again")

    def __len__(self) -> int:
        return self.manifest.count

    @cached_property
    def vectors_ND(self) -> np.ndarray:
        """The vectors, float32 or int8, memory-mapped."""
        name, dtype = VECTOR_FILES[self.manifest.dtype]
        return self._mapped(name, dtype, (self.manifest.count, self.manifest.width))

    @cached_property
    def scales_N(self) -> np.ndarray | None:
        """What each int8 vector is multiplied by; None for float32 vectors."""
        return self._mapped(SCALES, np.float32, (self.manifest.count,)) if self.manifest.dtype == "int8" else None

    @cached_property
    def residuals_ND(self) -> np.ndarray | None:
        """The residuals of int8 vectors, in units of 1/254 of the scale; None for float32 vectors."""
        if self.manifest.dtype != "int8":
            return None
        return self._mapped(RESIDUALS, np.int8, (self.manifest.count, self.manifest.width))

    def vectors_of(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of some rows, B x D, float32."""
        if self.residuals_ND is None:
            return np.asarray(self.vectors_ND[rows])
        return dequantized(self.vectors_ND[rows], self.scales_N[rows], self.residuals_ND[rows])

    def _mapped(self, name: str, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
        # Copy-on-write, as torch warns about read-only arrays; nothing is written.
        return np.memmap(self.folder / name, dtype, "c", shape=shape)

    @cached_property
    def rows(self) -> pa.Table:
        """Ids, texts and the other columns, memory-mapped."""
        with pa.memory_map(str(self.folder / ROWS)) as file:
            committed = file.read_buffer(self.manifest.bytes)
        with refusing_damage(self.folder / ROWS, "restore it, or build the index again"):
            return pa.ipc.open_stream(pa.BufferReader(committed)).read_all()

    def row(self, index: int) -> dict[str, Any]:
        """The id, the text and the other columns of a row."""
        return self.rows.slice(index, 1).to_pylist()[0]

    def matching(self, where: Mapping[str, Any]) -> np.ndarray:
        """The indices of the rows in which every column of `where` has the given value or one of several, int64. An
        empty cell has the value ""."""
        mask = None
        for column, value in where.items():
            if column not in self.rows.column_names:
                names = ", ".join(self.rows.column_names)
                raise ValueError(f"the index has no column '{column}' to filter by (columns: {names})")
            values = value if isinstance(value, list | tuple | set) else [value]
            values = ["" if each is None else str(each) for each in values]
            cells = pc.fill_null(self.rows[column], "")
            matches = pc.is_in(cells, value_set=pa.array(values, cells.type))
            mask = matches if mask is None else pc.and_(mask, matches)
        if mask is None:
            return np.arange(len(self))
        return np.flatnonzero(mask.to_numpy())


class IndexWriter:
    """Appends blocks of rows to an index folder, whose lock the caller holds."""

    def __init__(self, folder: Path, manifest: Manifest):
        self.folder, self.manifest = folder, manifest
        names = dict.fromkeys((ID, TEXT, *manifest.columns))
        self.schema = pa.schema([(name, pa.string()) for name in names])
        self._cut_to_committed()

    def _cut_to_committed(self) -> None:
        """Removes what a killed process wrote but did not commit."""
        for name, size in self.manifest.sizes().items():
            path = self.folder / name
            if size and (not path.exists() or path.stat().st_size < size):
                raise ValueError(
                    f"{path} is missing or truncated: restore it, or remove the folder and build the index again"
                )
            path.touch()
            os.truncate(path, size)

    def add(
        self, vectors_BD: np.ndarray, ids: Sequence[str], texts: Sequence[str], columns: Mapping[str, list[str | None]]
    ) -> None:
        """Appends a block of rows of the last source and commits it. Columns that the index does not have are left
        out."""
        check_folder(self.folder)
        values = {name: columns.get(name) or [None] * len(ids) for name in self.manifest.columns}
        values |= {ID: list(ids), TEXT: list(texts)}
        block = pa.RecordBatch.from_pydict({name: values[name] for name in self.schema.names}, self.schema)
        data = block.serialize().to_pybytes()
        if not self.manifest.bytes:
            data = self.schema.serialize().to_pybytes() + data
        self._append(ROWS, data)
        name, _ = VECTOR_FILES[self.manifest.dtype]
        if self.manifest.dtype == "int8":
            vectors_BD, scales_B, residuals_BD = quantized(vectors_BD)
            self._append(SCALES, scales_B.tobytes())
            self._append(RESIDUALS, residuals_BD.tobytes())
        self._append(name, np.ascontiguousarray(vectors_BD).tobytes())
        *before, last = self.manifest.sources
        last = replace(last, done=last.done + len(ids))
        self.manifest = replace(
            self.manifest,
            count=self.manifest.count + len(ids),
            bytes=self.manifest.bytes + len(data),
            sources=(*before, last),
        )
        self.manifest.write(self.folder)

    def _append(self, name: str, data: bytes) -> None:
        with open(self.folder / name, "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def quantized(vectors_BD: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Symmetric quantisation of each vector: int8 numbers, B x D, scales, B, and int8 residuals, B x D, so that
    vector ~ scale x (numbers + residuals / 254). Without residuals, the error of a component is at most half a scale,
    1/254 of the largest component; with them, 1/254 of that.

    >>> numbers, scales, residuals = quantized(np.array([[1.27, -0.504], [0.0, 0.0]], np.float32))
    >>> numbers.tolist(), [round(float(scale), 4) for scale in scales], residuals.tolist()
    ([[127, -50], [0, 0]], [0.01, 0.0], [[0, -102], [0, 0]])
    """
    scales_B = (np.maximum(np.abs(vectors_BD).max(-1), SMALLEST_SCALE) / LARGEST_INT8).astype(np.float32)
    scaled_BD = vectors_BD / scales_B[:, None]
    numbers_BD = np.rint(scaled_BD)
    residuals_BD = np.rint((scaled_BD - numbers_BD) * (2 * LARGEST_INT8))
    return numbers_BD.astype(np.int8), scales_B, residuals_BD.astype(np.int8)


def dequantized(numbers_BD: np.ndarray, scales_B: np.ndarray, residuals_BD: np.ndarray) -> np.ndarray:
    """The vectors of `quantized`, float32."""
    whole_BD = numbers_BD.astype(np.float32) + residuals_BD.astype(np.float32) / (2 * LARGEST_INT8)
    return whole_BD * scales_B[:, None]
