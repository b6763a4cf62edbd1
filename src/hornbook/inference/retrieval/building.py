"""`hornbook.build_index`: embeds texts into an index folder, in blocks that survive a kill.

hornbook.build_index("texts.csv", "index", model="runs/search", text="body")
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from hornbook.data.problems import Problems
from hornbook.devices import chosen_device
from hornbook.files import refuse_beyond_disk, temporary_file
from hornbook.inference.load import load
from hornbook.inference.loaded_model import LoadedModel, as_texts
from hornbook.inference.retrieval.index import (
    ID,
    INDEX_FILE,
    TEXT,
    VECTOR_FILES,
    Index,
    IndexSource,
    IndexWriter,
    Manifest,
    VectorType,
    model_fingerprint,
)
from hornbook.interop.hub import model_folder
from hornbook.lifecycle.locking import lock_output_folder
from hornbook.lifecycle.run_folder import ignore
from hornbook.lifecycle.stopping import interruptible
from hornbook.tasks.datasets import find_task
from hornbook.tasks.reading.cells import as_text
from hornbook.tasks.reading.inputs import inputs_of_table, stream_inputs
from hornbook.tasks.reading.reader import Reader, ReadingOptions
from hornbook.tasks.reading.rows import is_table

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
SECONDS_PER_BLOCK = 3.0  # per block of rows that are embedded, written and committed together
FIRST_ROWS, MAX_ROWS = 16, 16_384  # of a block
NUMBERED = "none"  # as `id_column`: rows get their number as id


@dataclass(frozen=True)
class TextRows:
    """The rows to embed, in order: ids, texts and other columns as strings, memory-mapped if they come from a file.
    `file` is None for texts in memory; `num_empty` rows without text are left out."""

    rows: pa.Table
    fingerprint: str  # SHA-256 of all rows: a build resumes only with the same rows
    file: str | None = None
    num_empty: int = 0
    id_column: str | None = None  # None: row numbers
    messages: tuple[str, ...] = ()
    problems: Problems = field(default_factory=Problems)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def other_columns(self) -> tuple[str, ...]:
        """All columns besides id and text."""
        return tuple(self.rows.column_names[2:])


@dataclass(frozen=True)
class BuiltIndex:
    """The index after a build: `num_added` rows are new, of `num_rows` in all."""

    out: Path
    num_rows: int
    num_added: int
    width: int
    dtype: VectorType
    model: str
    num_empty: int = 0
    problems: Problems = field(default_factory=Problems)


def read_texts(
    texts: str | Path | Sequence[str], spool: Path, id_column: str | None = None, **reading: Unpack[ReadingOptions]
) -> TextRows:
    """The rows of a file (`.txt` with one text per line, or a table) or of a list of texts. `text=` names the column of
    the text, `id_column` that of the ids (`none`: row numbers); both are inferred when omitted. The rows are written to
    `spool`, so that the memory needed does not depend on their number."""
    is_file = isinstance(texts, str | Path)
    if not is_file and not is_table(texts):
        return _read_list(texts, spool)
    name = str(texts) if is_file else "the table"
    reader = Reader.of(needs_labels=False, **reading)
    rows: _RowSpool | None = None
    registered = find_task("classification")
    pieces = stream_inputs(texts, registered, reader) if is_file else [inputs_of_table(texts, registered, reader)]
    for examples, columns in pieces:
        if rows is None:
            if any(each.pair is not None for each in examples[:1]):
                raise ValueError(f"{name} has two texts in each row: name the column to embed with text=")
            id_column = _id_column(id_column, columns[0], reader, name)
            roles = {id_column, *reader.roles.get("text", "").split(",")}
            rows = _RowSpool(spool, [each for each in columns[0] if each not in roles], name, id_column)
        rows.add([each.text for each in examples], columns)
    if rows is None or not rows.num_written:
        raise ValueError(f"{name} has no text that is not empty: name the right column with text=")
    names = ", ".join(
        f"{role} = '{column}'" for role, column in (("text", reader.roles.get("text")), ("id", id_column)) if column
    )
    messages = [each for each in reader.messages if not each.startswith("columns:")]
    messages += [f"columns: {names}"] if names else []
    if rows.left_out:
        left_out = ", ".join(f"'{each}'" for each in rows.left_out)
        messages.append(f"left out: the column {left_out}, as the index has its own of that name; rename it to keep it")
    return rows.finish(name if is_file else None, messages, reader.problems)


def _read_list(texts: Sequence[str], spool: Path) -> TextRows:
    texts = as_texts(texts)
    rows = _RowSpool(spool, (), "the list", None)
    rows.add(texts, [{} for _ in texts])
    if not rows.num_written:
        raise ValueError("there are no texts in the list: give at least one that is not empty")
    return rows.finish()


class _RowSpool:
    """Writes rows to an Arrow file, computes their fingerprint, and refuses duplicate ids."""

    def __init__(self, spool: Path, names: Sequence[str], file: str, id_column: str | None):
        self.spool, self.file, self.id_column = spool, file, id_column
        self.names = [name for name in names if name not in (ID, TEXT)]
        self.left_out = [name for name in names if name in (ID, TEXT)]
        self.schema = pa.schema([(name, pa.large_string()) for name in (ID, TEXT, *self.names)])
        self.writer = pa.ipc.new_stream(pa.OSFile(str(spool), "wb"), self.schema)
        self.digest = hashlib.sha256()
        self.num_read = self.num_written = 0

    def add(self, texts: Sequence[str], columns: Sequence[Mapping[str, Any]]) -> None:
        values: dict[str, list] = {name: [] for name in self.schema.names}
        for number, (text, row) in enumerate(zip(texts, columns, strict=True), self.num_read):
            if not text.strip():
                continue
            row_id = as_text(row.get(self.id_column)) if self.id_column else str(number)
            if not row_id:
                where = f"{self.file}: a row has no id in column '{self.id_column}'"
                raise ValueError(f"{where}; fill it in, or number the rows with id_column='none'")
            others = {name: _as_text(row.get(name)) for name in self.names}
            self.digest.update(json.dumps((row_id, text, others), ensure_ascii=True, sort_keys=True).encode())
            for name, value in ({ID: row_id, TEXT: text} | others).items():
                values[name].append(value)
        self.num_read += len(texts)
        self.num_written += len(values[ID])
        self.writer.write_batch(pa.RecordBatch.from_pydict(values, self.schema))

    def finish(
        self, file: str | None = None, messages: Sequence[str] = (), problems: Problems | None = None
    ) -> TextRows:
        self.writer.close()
        with pa.memory_map(str(self.spool)) as mapped:
            rows = pa.ipc.open_stream(mapped).read_all()
        if pc.count_distinct(rows[ID]).as_py() < len(rows):
            counts = pc.value_counts(rows[ID])
            repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))[0]
            raise ValueError(
                f"{self.file}: the id '{repeated}' occurs twice in column '{self.id_column}'; remove one of the rows, "
                "name a column of unique ids with id_column=, or use id_column='none' for row numbers"
            )
        fingerprint, num_empty = self.digest.hexdigest(), self.num_read - self.num_written
        return TextRows(rows, fingerprint, file, num_empty, self.id_column, tuple(messages), problems or Problems())


def _id_column(name: str | None, row: dict[str, Any], reader: Reader, file: str) -> str | None:
    if name == NUMBERED:
        return None
    if name is not None and name not in row:
        columns = ", ".join(row) or "none, as it is not a table"
        raise ValueError(
            f"{file} has no column '{name}' for the ids; name the right one with id_column= (columns: {columns})"
        )
    return name or reader.roles.get("key")


def _as_text(cell: Any) -> str | None:
    if isinstance(cell, list | dict):
        return json.dumps(cell, ensure_ascii=False)
    return as_text(cell) or None


@lock_output_folder
def build_index(
    texts: str | Path | Sequence[str],
    out: str | Path,
    model: str | Path | LoadedModel | None = None,
    *,
    text: str | None = None,
    id_column: str | None = None,
    dtype: VectorType | None = None,
    append: bool = False,
    delimiter: str | None = None,
    encoding: str | None = None,
    strict: bool = False,
    device: str = "auto",
    log: Callable[[str], None] = ignore,
    on_progress: Callable[[int, int], None] | None = None,
) -> BuiltIndex:
    """Embeds texts and writes them to an index folder. The same call finishes a build that was interrupted.

    Args:
        texts: A list, a data frame (pandas, polars, pyarrow, datasets), or a file: `.txt` with one text per line, or a
            table (CSV, TSV, JSON lines, Parquet, Excel).
        out: The index folder.
        model: A model folder, a Hugging Face name or a loaded model; defaults to that of the index with `append`, or to
            `sentence-transformers/all-MiniLM-L6-v2`.
        text: The column of the text; inferred by default.
        id_column: The column of the ids; inferred by default, `none` numbers the rows.
        dtype: `float32` (default), or `int8`, which needs a quarter of the memory.
        append: Add the texts to the index in `out`.
        delimiter, encoding: The format of the file; detected by default.
        strict: Raise a `ValueError` at the first bad row.
        device: `cpu`, `cuda`, `cuda:1`; defaults to a GPU if there is one.
        log: Receives messages about what was inferred.
        on_progress: Called with (texts done, number of texts).

    >>> import hornbook
    >>> built = hornbook.build_index(["the river", "silver bread"], "example-index", model="runs/first")
    >>> built.num_rows, hornbook.search("example-index", "the river", top_k=1)[0][0].text
    (2, 'the river')
    """
    out = Path(out)
    if dtype is not None and dtype not in VECTOR_FILES:
        raise ValueError(f"dtype must be {' or '.join(VECTOR_FILES)}, not '{dtype}'")
    with temporary_file(out / "texts") as spool:
        reading = {"text": text, "delimiter": delimiter, "encoding": encoding, "strict": strict}
        rows = read_texts(texts, spool, id_column, **reading)
        for message in rows.messages:
            log(message)
        if rows.num_empty:
            log(f"rows without text, left out: {rows.num_empty:,}")
        before = Manifest.read(out) if (out / INDEX_FILE).is_file() else None
        if before is None and out.exists() and any(not path.name.endswith(".tmp") for path in out.iterdir()):
            raise ValueError(f"{out} exists and is not an index: choose another folder, or empty it")
        source = IndexSource(rows.file and str(Path(rows.file).resolve()), rows.fingerprint, len(rows))
        is_built = before is not None and _is_built(before, source, append, out)
        if before is not None and dtype not in (None, before.dtype):
            raise ValueError(f"{out} has {before.dtype} vectors, not {dtype}: leave out dtype=, or remove the folder")
        if is_built:
            if model is not None:
                before.refuse_other_model(_load(model, device, log), out)
            log(f"{out} already has these texts")
            manifest = before
        else:
            name = model if model is not None else DEFAULT_MODEL if before is None else before.model
            loaded = _load(name, device, log)
            if before is None:
                manifest = _new_manifest(name, loaded, dtype or "float32", rows.other_columns, source)
            else:
                before.refuse_other_model(loaded, out)
                manifest = replace(before, sources=(*before.sources, source)) if before.is_finished else before
            first_id = _first_new_id(rows, manifest, out, log)
            num_bytes = len(rows) * manifest.width * (4 if manifest.dtype == "float32" else 2)
            refuse_beyond_disk(out, num_bytes, "the vectors need", "write elsewhere, or use dtype='int8'")
            if before != manifest:
                manifest.write(out)  # before any other file, so that a kill leaves a folder that is known as an index
            manifest = _embed_rows(out, manifest, loaded, rows, first_id, on_progress)
        num_added = manifest.count - (0 if before is None else before.count)
        info = (manifest.width, manifest.dtype, manifest.model)
        return BuiltIndex(out, manifest.count, num_added, *info, rows.num_empty, rows.problems)


def _load(name: str | Path | LoadedModel, device: str, log: Callable[[str], None]) -> LoadedModel:
    if name == DEFAULT_MODEL:
        try:
            model_folder(name)
        except ValueError as error:
            raise ValueError(f"{error} as model=, or use model='en' or model='ko', which need no download") from None
    loaded = name if isinstance(name, LoadedModel) else load(name, device=chosen_device(device))
    log(loaded.embedding.description)
    if loaded.embedding.is_default:
        log(
            f"note: {name} was not trained to compare texts, so the nearest texts may not be the most similar ones: "
            "train it with hornbook finetune --task similarity, or use a model of sentence-transformers"
        )
    return loaded


def _new_manifest(
    name: str | Path | LoadedModel, model: LoadedModel, dtype: VectorType, columns: tuple[str, ...], source: IndexSource
) -> Manifest:
    """The manifest of an index without rows."""
    return Manifest(
        model=_full_name(name),
        fingerprint=model_fingerprint(model),
        embedding=model.embedding.to_dict(),
        similarity=model.embedding.similarity,
        width=model.model.config.width,
        dtype=dtype,
        count=0,
        bytes=0,
        columns=columns,
        sources=(source,),
    )


def _full_name(name: str | Path | LoadedModel) -> str:
    """The name of a model, under which it is found from any folder."""
    name = name.folder if isinstance(name, LoadedModel) else name
    return str(Path(name).resolve()) if (Path(name) / "config.json").is_file() else str(name)


def _is_built(before: Manifest, source: IndexSource, append: bool, out: Path) -> bool:
    """Whether the index has all rows of the source. Raises if it holds others and does not `append`."""
    last = before.sources[-1]
    if not before.is_finished:
        if (last.fingerprint, last.rows) == (source.fingerprint, source.rows):
            return False
        name = last.file or "texts in memory"
        raise ValueError(
            f"{out} holds an unfinished index of {name}: run that command again to finish it, or remove the folder"
        )
    if any(each.fingerprint == source.fingerprint for each in before.sources):
        return True
    if not append:
        raise ValueError(
            f"{out} holds an index of other texts: add append=True to add these, remove the folder to "
            "replace it, or choose another folder"
        )
    return False


def _first_new_id(texts: TextRows, manifest: Manifest, out: Path, log: Callable[[str], None]) -> int | None:
    """The number of the first row, for rows without ids that are appended, as they continue the numbering; otherwise
    None. Raises if an id is in the index already."""
    num_before = manifest.count - manifest.sources[-1].done
    if extra := [name for name in texts.other_columns if name not in manifest.columns]:
        log(f"the index has no column {', '.join(extra)}: left out")
    if not num_before:
        return None
    existing = Index(out).rows[ID].slice(0, num_before)
    first = None
    if texts.id_column is None:
        ids = (each for chunk in existing.chunks for each in chunk.to_pylist())
        numeric_ids = (int(each) for each in ids if each.isdecimal())
        first = max(num_before, 1 + max(numeric_ids, default=-1))  # empty rows were numbered too
    new = texts.rows[ID] if first is None else pa.array(map(str, range(first, first + len(texts))))
    is_existing = pc.is_in(new.cast(pa.string()), value_set=existing)
    if pc.any(is_existing).as_py():
        repeated = new.filter(is_existing)[0].as_py()
        raise ValueError(
            f"{texts.file or 'texts'}: the id '{repeated}' is already in {out}; remove these rows, or name a column of "
            "new ids with id_column="
        )
    return first


def _embed_rows(
    out: Path,
    manifest: Manifest,
    model: LoadedModel,
    texts: TextRows,
    first_id: int | None,
    on_progress: Callable[[int, int], None] | None,
) -> Manifest:
    """Embeds the rows of the last source that are not in the index yet, and commits them block by block. A block takes
    about `SECONDS_PER_BLOCK`, so that Ctrl-C or a kill loses no more. Returns the manifest of the complete index."""
    writer, total, size = IndexWriter(out, manifest), len(texts), FIRST_ROWS
    first = manifest.sources[-1].done
    try:
        with interruptible():
            while first < total:
                columns = texts.rows.slice(first, size).to_pydict()
                ids, block = columns.pop(ID), columns.pop(TEXT)
                if first_id is not None:
                    ids = [str(first_id + first + i) for i in range(len(ids))]
                report = on_progress and (lambda done, first=first: on_progress(first + done, total))
                started = time.monotonic()
                writer.add(model.embed_for_similarity(block, "document", report), ids, block, columns)
                first += len(ids)
                size = next_size(size, time.monotonic() - started)
    except KeyboardInterrupt:
        done = writer.manifest.sources[-1].done
        raise KeyboardInterrupt(
            f"stopped; {done:,} of {total:,} texts are saved in {out}: run the same command again to embed the rest"
        ) from None
    return writer.manifest


def next_size(size: int, seconds: float) -> int:
    """The number of rows of the next block, from that of the last and the seconds it took: it at most doubles.

    >>> next_size(256, 0.1), next_size(2048, 12.0), next_size(1024, 3.0)
    (512, 512, 1024)
    """
    return int(min(max(size * min(SECONDS_PER_BLOCK / max(seconds, 1e-9), 2), 1), MAX_ROWS))
