"""`hornbook.build_index`: embeds texts into an index folder, in blocks that survive a kill.

hornbook.build_index("texts.csv", "index", model="runs/search", text="body")
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hornbook.data.problems import Problems
from hornbook.devices import chosen_device
from hornbook.inference.loaded import LoadedModel
from hornbook.inference.opening import load
from hornbook.interop.folder import weights_fingerprint
from hornbook.lifecycle.locking import locks_out
from hornbook.lifecycle.stopping import interruptible
from hornbook.retrieval.index import FILE, ID, TEXT, VECTOR_FILES, Index, IndexWriter, Manifest, Source, VectorType
from hornbook.tasks.datasets import known
from hornbook.tasks.reading.inputs import inputs_in, original_columns
from hornbook.tasks.reading.notes import Format, Notes, RequestedColumns
from hornbook.tasks.reading.texts import plain

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
ROWS_AT_ONCE = 2_048  # embedded, written and committed together
NUMBERED = "none"  # as `key`: rows get their number as id


@dataclass(frozen=True)
class Texts:
    """The rows to embed, in order. `file` is None for texts in memory; `num_empty` rows without text are left out."""

    ids: list[str]
    texts: list[str]
    columns: list[dict[str, str | None]]
    file: str | None = None
    num_empty: int = 0
    key: str | None = None  # the column of the ids, None: row numbers
    messages: tuple[str, ...] = ()
    problems: Problems = field(default_factory=Problems)

    @property
    def names(self) -> tuple[str, ...]:
        """All columns besides id and text."""
        names = dict.fromkeys(name for row in self.columns[:1] for name in row)
        return tuple(name for name in names if name not in (ID, TEXT))

    def fingerprint(self) -> str:
        """SHA-256 of all rows: a build resumes only with the same rows."""
        digest = hashlib.sha256()
        for row in zip(self.ids, self.texts, self.columns, strict=True):
            digest.update(json.dumps(row, ensure_ascii=True, sort_keys=True).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Built:
    """The index after a build: `added` rows are new, `rows` is their total number."""

    out: Path
    rows: int
    added: int
    width: int
    vectors: VectorType
    model: str
    num_empty: int = 0
    problems: Problems = field(default_factory=Problems)


def read_texts(
    texts: str | Path | Sequence[str],
    text: str | None = None,
    key: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    strict: bool = False,
) -> Texts:
    """The rows of a file (`.txt` with one text per line, or a table) or of a list of texts. `text` names the column of
    the text, `key` that of the ids (`none`: row numbers); both are inferred when omitted."""
    if not isinstance(texts, str | Path):
        found = [str(each) for each in texts]
        kept = [number for number, each in enumerate(found) if each.strip()]
        if not kept:
            raise ValueError("there are no texts in the list: give at least one that is not empty")
        ids, num_empty = [str(number) for number in kept], len(found) - len(kept)
        return Texts(ids, [found[number] for number in kept], [{}] * len(kept), num_empty=num_empty)
    notes = Notes(strict, needs_labels=False, format=Format(delimiter, encoding), requested=RequestedColumns(text))
    examples = inputs_in(texts, known("classification"), notes)
    if any(each.pair is not None for each in examples[:1]):
        raise ValueError(f"{texts} has two texts in each row: name the column to embed with --text")
    rows = original_columns(examples, notes) or [{}] * len(examples)
    key, roles = _key_column(key, rows[0], notes, str(texts)), set(notes.roles.get("text", "").split(","))
    kept = [number for number, each in enumerate(examples) if each.text.strip()]
    if not kept:
        raise ValueError(f"{texts} has no text that is not empty: name the right column with --text")
    ids = [plain(rows[number][key]) if key else str(number) for number in kept]
    _refuse_duplicates(ids, str(texts), key)
    columns = [{name: _as_text(rows[number][name]) for name in rows[0] if name not in {key, *roles}} for number in kept]
    found = [examples[number].text for number in kept]
    num_empty = len(examples) - len(kept)
    names = ", ".join(f"{role} = '{name}'" for role, name in (("text", notes.roles.get("text")), ("id", key)) if name)
    messages = [each for each in notes.messages if not each.startswith("columns:")]
    messages += [f"columns: {names}"] if names else []
    return Texts(ids, found, columns, str(texts), num_empty, key, tuple(messages), notes.problems)


def _key_column(key: str | None, row: dict[str, Any], notes: Notes, file: str) -> str | None:
    if key == NUMBERED:
        return None
    if key is not None and key not in row:
        columns = ", ".join(row) or "none, as it is not a table"
        raise ValueError(f"{file} has no column '{key}' for the ids; name the right one with --id (columns: {columns})")
    return key or notes.roles.get("key")


def _as_text(cell: Any) -> str | None:
    if isinstance(cell, list | dict):
        return json.dumps(cell, ensure_ascii=False)
    return plain(cell) or None


def _refuse_duplicates(ids: Sequence[str], file: str, key: str | None) -> None:
    seen: set[str] = set()
    for each in ids:
        if not each:
            raise ValueError(
                f"{file}: a row has no id in column '{key}'; fill it in, or number the rows with --id none"
            )
        if each in seen:
            raise ValueError(
                f"{file}: the id '{each}' occurs twice in column '{key}'; remove one of the rows, name a column of "
                "unique ids with --id, or use --id none for row numbers"
            )
        seen.add(each)


def model_fingerprint(model: LoadedModel) -> str:
    """SHA-256 of everything that determines the vectors: weights, tokenizer and embedding settings."""
    settings = json.dumps(model.embedding.to_dict(), sort_keys=True)
    parts = (weights_fingerprint(Path(model.folder)), model.tokenizer.fingerprint, settings)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@locks_out
def build_index(
    texts: str | Path | Sequence[str],
    out: str | Path,
    model: str | Path | LoadedModel | None = None,
    *,
    text: str | None = None,
    key: str | None = None,
    vectors: VectorType | None = None,
    append: bool = False,
    delimiter: str | None = None,
    encoding: str | None = None,
    strict: bool = False,
    device: str = "auto",
    log: Callable[[str], None] = lambda message: None,
    progress: Callable[[int, int], None] | None = None,
) -> Built:
    """Embeds texts and writes them to an index folder. The same call finishes a build that was interrupted.

    Args:
        texts: A list, or a file: `.txt` with one text per line, or a table (CSV, TSV, JSON lines, Parquet, Excel).
        out: The index folder.
        model: A model folder, a Hugging Face name or a loaded model; defaults to that of the index with `append`, or to
            `sentence-transformers/all-MiniLM-L6-v2`.
        text: The column of the text; inferred by default.
        key: The column of the ids; inferred by default, `none` numbers the rows.
        vectors: `float32` (default), or `int8`, which needs a quarter of the memory.
        append: Add the texts to the index in `out`.
        delimiter, encoding: The format of the file; detected by default.
        strict: Raise a `ValueError` at the first bad row.
        device: `cpu`, `cuda`, `cuda:1`; defaults to a GPU if there is one.
        log: Receives messages about what was inferred.
        progress: Called with (texts done, number of texts).

    >>> import hornbook
    >>> built = hornbook.build_index(["the river", "silver bread"], "example-index", model="runs/first")
    >>> built.rows, hornbook.search("example-index", "the river", top=1)[0][0].text
    (2, 'the river')
    """
    out = Path(out)
    if vectors is not None and vectors not in VECTOR_FILES:
        raise ValueError(f"vectors must be {' or '.join(VECTOR_FILES)}, not '{vectors}'")
    found = read_texts(texts, text, key, delimiter, encoding, strict)
    for message in found.messages:
        log(message)
    if found.num_empty:
        log(f"{found.num_empty:,} rows have no text and are left out")
    before = Manifest.read(out) if (out / FILE).is_file() else None
    if before is None and out.exists() and any(not path.name.endswith(".tmp") for path in out.iterdir()):
        raise ValueError(f"{out} exists and is not an index: choose another --out, or empty it")
    name = model if model is not None else before.model if before is not None else DEFAULT_MODEL
    source = Source(found.file and str(Path(found.file).resolve()), found.fingerprint(), len(found.ids))
    is_built = before is not None and _is_built(before, source, append, out)
    if is_built and model is None:
        return _already_built(out, before, vectors, found, log)
    loaded = name if isinstance(name, LoadedModel) else load(name, device=chosen_device(device))
    log(loaded.embedding.in_words)
    if is_built:
        refuse_other_model(before, loaded, model_fingerprint(loaded), out)
        return _already_built(out, before, vectors, found, log)
    manifest = _manifest(before, loaded, _full_name(name), source, found, vectors, out)
    found = _with_new_ids(found, manifest, out, log)
    _check_disk_space(out, manifest, len(found.ids))
    return _fill(out, manifest, loaded, found, progress, before)


def _full_name(name: str | Path | LoadedModel) -> str:
    """The name of a model, under which it is found from any folder."""
    name = name.folder if isinstance(name, LoadedModel) else name
    return str(Path(name).resolve()) if Path(name).is_dir() else str(name)


def _is_built(before: Manifest, source: Source, append: bool, out: Path) -> bool:
    """Whether the index has all rows of the source. Raises if it holds others and nothing was said of adding to it."""
    last = before.sources[-1]
    if not before.is_finished:
        if (last.fingerprint, last.rows) == (source.fingerprint, source.rows):
            return False
        name = last.file or "texts in memory"
        raise ValueError(
            f"{out} holds an unfinished index of {name}: run that command again to finish it, or add --overwrite"
        )
    if any(each.fingerprint == source.fingerprint for each in before.sources):
        return True
    if not append:
        raise ValueError(
            f"{out} holds an index of other texts: add --append to add these, --overwrite to replace it, or choose "
            "another --out"
        )
    return False


def _manifest(
    before: Manifest | None,
    model: LoadedModel,
    name: str,
    source: Source,
    found: Texts,
    vectors: VectorType | None,
    out: Path,
) -> Manifest:
    """The manifest to fill: of a new index, or of the one in `out` with the source added."""
    fingerprint = model_fingerprint(model)
    if before is None:
        settings = model.embedding
        return Manifest(
            name,
            fingerprint,
            settings.to_dict(),
            settings.similarity,
            model.model.config.width,
            vectors or "float32",
            0,
            0,
            found.names,
            (source,),
        )
    refuse_other_model(before, model, fingerprint, out)
    _refuse_other_vectors(before, vectors, out)
    is_resumed = not before.is_finished
    return before if is_resumed else replace(before, sources=(*before.sources, source))


def _already_built(
    out: Path, manifest: Manifest, vectors: VectorType | None, found: Texts, log: Callable[[str], None]
) -> Built:
    _refuse_other_vectors(manifest, vectors, out)
    log(f"{out} already has these texts")
    return _built(out, manifest, 0, found)


def _refuse_other_vectors(manifest: Manifest, vectors: VectorType | None, out: Path) -> None:
    if vectors is not None and vectors != manifest.vectors:
        raise ValueError(
            f"{out} has {manifest.vectors} vectors, not {vectors}: leave out --vectors, or add --overwrite"
        )


def refuse_other_model(manifest: Manifest, model: LoadedModel, fingerprint: str, folder: Path) -> None:
    """Raises unless the model embeds as the one that built the index."""
    width = model.model.config.width
    if width != manifest.width:
        raise ValueError(
            f"{model.folder} embeds texts in {width} numbers, but the index in {folder} has {manifest.width}: use its "
            f"model, {manifest.model}, or build the index again"
        )
    if fingerprint != manifest.fingerprint:
        raise ValueError(
            f"the index in {folder} was built with another model than {model.folder} is now: use {manifest.model} as "
            "it was then, or build the index again"
        )


def _with_new_ids(found: Texts, manifest: Manifest, out: Path, log: Callable[[str], None]) -> Texts:
    """The rows with ids that do not occur in the index yet; numbered rows are numbered on."""
    num_before = manifest.count - manifest.sources[-1].done
    if extra := [name for name in found.names if name not in manifest.columns]:
        log(f"the index has no column {', '.join(extra)}: left out")
    if not num_before:
        return found
    if found.key is None:
        found = replace(found, ids=[str(num_before + number) for number in range(len(found.ids))])
    there = set(Index(out).rows[ID].slice(0, num_before).to_pylist())
    if repeated := next((each for each in found.ids if each in there), None):
        raise ValueError(
            f"{found.file or 'texts'}: the id '{repeated}' is already in {out}; remove these rows, or name a column of "
            "new ids with --id"
        )
    return found


def _check_disk_space(out: Path, manifest: Manifest, num_rows: int) -> None:
    itemsize = 4 if manifest.vectors == "float32" else 2
    num_bytes, free = num_rows * manifest.width * itemsize, shutil.disk_usage(out).free
    if num_bytes > free:
        raise ValueError(
            f"the vectors need {num_bytes / 1e9:,.1f} GB, but {out} has {free / 1e9:,.1f} GB free: write elsewhere, or "
            "use --vectors int8"
        )


def _fill(
    out: Path,
    manifest: Manifest,
    model: LoadedModel,
    found: Texts,
    progress: Callable[[int, int], None] | None,
    before: Manifest | None,
) -> Built:
    """Embeds the rows of the last source that are not in the index yet, and commits them block by block."""
    if before != manifest:
        manifest.write(out)  # before any other file, so that a kill leaves a folder that is known as an index
    writer, total = IndexWriter(out, manifest), len(found.ids)
    normalize = manifest.similarity == "cosine" or None
    try:
        with interruptible():
            for first in range(manifest.sources[-1].done, total, ROWS_AT_ONCE):
                block = slice(first, first + ROWS_AT_ONCE)

                def report(done: int, first: int = first) -> None:
                    if progress:
                        progress(first + done, total)

                found_BD = model.embed(found.texts[block], normalize=normalize, prompt="document", progress=report)
                writer.add(found_BD, found.ids[block], found.texts[block], found.columns[block])
    except KeyboardInterrupt:
        done = writer.manifest.sources[-1].done
        raise KeyboardInterrupt(
            f"stopped; {done:,} of {total:,} texts are saved in {out}: run the same command again to embed the rest"
        ) from None
    return _built(out, writer.manifest, writer.manifest.count - manifest.count, found)


def _built(out: Path, manifest: Manifest, added: int, found: Texts) -> Built:
    sizes = (manifest.count, added, manifest.width)
    return Built(out, *sizes, manifest.vectors, manifest.model, found.num_empty, found.problems)
