"""Builds a corpus: text files to token shards, streamed, on all cores, resumable after any interruption.

The main process reads documents and groups them into batches; workers clean, split and encode them; the main process
drops duplicates and writes shards in input order. A shard ends only at the end of a batch, so a build that is resumed
after a complete shard makes the same batches, and the same bytes, as an uninterrupted one.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hornbook import __version__
from hornbook.config import checked
from hornbook.data.build_state import (
    BUILD_AGAIN,
    SOURCES,
    BuildState,
    already_built,
    make_manifest,
    prepare_folder,
    remove_progress,
)
from hornbook.data.cleaning import Cleaner
from hornbook.data.contamination import EXCLUDED, ExcludedTexts
from hornbook.data.duplicates import counted_lines
from hornbook.data.problems import Problem, Problems
from hornbook.data.readers import Document, DocumentBoundary, FileReader, no_documents
from hornbook.data.shards import (
    FORMAT_VERSION,
    LARGEST_SHARD_TOKENS,
    MANIFEST,
    SHARD_TOKENS,
    ShardWriter,
    parts_of,
    token_dtype,
    write_array,
)
from hornbook.data.sources import Source, find_sources, read_sources, summary_of
from hornbook.data.tokenizing import EncodedDocuments, EncodingPool, EntityLinkerProtocol, clean_text
from hornbook.data.worker_pool import explaining_interruptions
from hornbook.files import num_cores, write_json
from hornbook.lifecycle.locking import run_lock
from hornbook.lifecycle.stopping import interruptible

if TYPE_CHECKING:
    from hornbook.text.tokenizer import Tokenizer

BATCH_CHARACTERS = 500_000
PROGRESS_SECONDS = 0.2
MANY_UNKNOWN = 0.01  # of the tokens
MAX_WORKERS = 12


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """Bytes read (of the files as stored), documents and tokens kept; seconds include earlier interrupted builds."""

    bytes_read: int
    bytes_total: int
    documents: int
    tokens: int
    seconds: float


@dataclass(slots=True)
class DocumentBatch:
    """Consecutive documents, the problems found among them, and the reading position after them."""

    documents: list[Document] = field(default_factory=list)
    problems: Problems = field(default_factory=Problems)
    file_index: int = 0
    items_taken: int = 0
    bytes_read: int = 0


def build_corpus(
    paths: Sequence[str | Path] | str | Path,
    tokenizer_folder: str | Path,
    out: str | Path,
    *,
    workers: int | None = None,
    documents: DocumentBoundary = "blank-line",
    text_column: str | None = None,
    clean: str | None = None,
    deduplicate: bool = True,
    near_duplicates: bool = False,
    exclude: Sequence[str | Path | Sequence[str]] = (),
    shard_tokens: int = SHARD_TOKENS,
    linker: EntityLinkerProtocol | None = None,
    on_progress: Callable[[BuildProgress], None] | None = None,
) -> dict:
    """Builds the corpus folder `out` and returns its manifest; the same call resumes an interrupted build.

    >>> import hornbook
    >>> hornbook.build_corpus("texts.txt", "vocabulary", "another-corpus", workers=0)["totals"]["documents"]
    200

    The bytes of the corpus do not depend on `workers` (None: one per core, at most 12; 0: everything in this process).
    With `near_duplicates`, documents that hardly differ from an earlier one are dropped too (MinHash; 112 bytes of disk
    per document during the build). Documents that share 13 consecutive words with `exclude` (evaluation sets: files,
    folders or lists of texts) are dropped. With a `linker` (`hornbook.graph.linking.EntityLinker`), the corpus also
    holds the entities that its texts mention. A finished corpus is not built again: its manifest is returned at once,
    with `already_built` set.
    """
    from hornbook.text.tokenizer import Tokenizer

    checked(documents, DocumentBoundary, "documents")
    checked(clean, Cleaner | None, "clean")
    if near_duplicates and not deduplicate:
        raise ValueError("near_duplicates= drops equal documents, too: leave it out to keep duplicates")
    shard_tokens = checked(shard_tokens, int, "shard_tokens", low=1, high=LARGEST_SHARD_TOKENS)
    # Each worker takes about 160 MB, of which known words take 40 MB; all of them together stay under 2 GB.
    workers = min(num_cores(), MAX_WORKERS) if workers is None else workers
    workers = checked(workers, int, "workers", low=0, high=256)
    out = Path(out)
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    problems = Problems()
    sources = summary_of(find_sources(paths, problems))
    tokenizer = Tokenizer.load(Path(tokenizer_folder))
    excluded = ExcludedTexts.from_sets([exclude] if isinstance(exclude, str | Path) else exclude) if exclude else None
    settings = {
        "documents": documents,
        "text_column": text_column,
        "clean": clean,
        "deduplicate": deduplicate,
        "near_duplicates": near_duplicates,
        "exclude": None if excluded is None else excluded.fingerprint,
        "shard_tokens": shard_tokens,
        "graph": None if linker is None else linker.fingerprint,
    }
    request = {  # two builds with the same request give the same corpus
        "format_version": FORMAT_VERSION,
        "hornbook_version": __version__,
        "tokenizer_fingerprint": tokenizer.fingerprint,
        "settings": settings,
        "sources": sources,
    }
    with run_lock(out):
        if manifest := already_built(out, request, paths):
            return {**manifest, "already_built": True}
        state = prepare_folder(out, request, tokenizer, paths, problems)
        if excluded is not None:
            write_array(out / EXCLUDED, excluded.hashes)
        return _build(out, state, tokenizer, workers, on_progress, linker)


def _build(
    out: Path,
    state: BuildState,
    tokenizer: "Tokenizer",
    workers: int,
    on_progress: Callable[[BuildProgress], None] | None,
    linker: EntityLinkerProtocol | None,
) -> dict:
    """Reads, encodes and writes everything after the position of `state`, and returns the manifest."""
    settings = state.request["settings"]
    state.seen.folder = out
    writer = _CorpusWriter(out, state, tokenizer, on_progress)
    options = {"clean": settings["clean"], "near_duplicates": settings["near_duplicates"], "linker": linker}
    with explaining_interruptions(lambda: f" ({len(state.shards)} shards are complete)"), interruptible():
        with EncodingPool(out, tokenizer, workers, **options) as pool:
            batch_characters = min(BATCH_CHARACTERS, 4 * settings["shard_tokens"])
            batches = read_batches(read_sources(out / SOURCES), state, batch_characters)
            for batch, encoded in _encode_in_order(batches, pool):
                writer.accept(batch, encoded)
        return writer.finish()


def read_batches(sources: Iterable[Source], state: BuildState, batch_characters: int) -> Iterator[DocumentBatch]:
    """Yields all documents after the position of `state`, in batches; the last batch may hold only problems."""
    settings = state.request["settings"]
    options = {name: settings[name] for name in ("text_column", "documents")}
    bytes_before, num_files, batch, num_characters = 0, 0, DocumentBatch(), 0
    for index, source in enumerate(sources):
        num_files += 1
        if index < state.file_index:
            bytes_before += source.bytes
            continue
        _check_unchanged(source)
        reader = FileReader(source.path, **options, linked=settings.get("graph") is not None)
        skipped = state.items_taken if index == state.file_index else 0
        for taken, item in enumerate(islice(reader, skipped, None), skipped + 1):
            if isinstance(item, Problem):
                batch.problems.add(item)
                continue
            if item.mentions is not None and settings["clean"]:
                raise ValueError(
                    f"{source.path} has character positions of entities, which clean= would shift: leave out clean="
                )
            batch.documents.append(item)
            num_characters += len(item.text)
            if num_characters >= batch_characters:
                batch.file_index, batch.items_taken = index, taken
                batch.bytes_read = bytes_before + reader.bytes_read
                yield batch
                batch, num_characters = DocumentBatch(), 0
        _check_unchanged(source)
        bytes_before += source.bytes
    batch.file_index, batch.bytes_read = num_files, bytes_before
    yield batch


def _check_unchanged(source: Source) -> None:
    if not os.path.isfile(source.path) or Source.from_path(source.path) != source:
        raise ValueError(f"{source.path} changed while the corpus was built: when it no longer changes, {BUILD_AGAIN}")


def _encode_in_order(
    batches: Iterator[DocumentBatch], pool: EncodingPool
) -> Iterator[tuple[DocumentBatch, EncodedDocuments]]:
    waiting = deque()
    for batch in batches:
        texts, mentions = ([getattr(each, name) for each in batch.documents] for name in ("text", "mentions"))
        waiting.append((batch, pool.submit(texts, mentions)))
        if len(waiting) >= pool.max_in_flight:
            batch, future = waiting.popleft()
            yield batch, future.result()
    while waiting:
        batch, future = waiting.popleft()
        yield batch, future.result()


class _CorpusWriter:
    """Accepts encoded batches in order: drops duplicates, counts, and writes a shard whenever it is full."""

    def __init__(
        self,
        folder: Path,
        state: BuildState,
        tokenizer: "Tokenizer",
        on_progress: Callable[[BuildProgress], None] | None,
    ):
        self._folder, self._state = folder, state
        self._vocab_size = tokenizer.vocab_size
        self._unk_id = None if tokenizer.unk_id == tokenizer.eos_id else tokenizer.unk_id  # equal in GPT-2
        self._settings = state.request["settings"]
        self._bytes_total = state.request["sources"]["bytes"]
        self._progress = on_progress
        parts = parts_of(self._settings)
        self._writer = ShardWriter(folder, token_dtype(self._vocab_size), next_index=len(state.shards), parts=parts)
        self._started = time.perf_counter() - state.seconds
        self._reported = 0.0

    def accept(self, batch: DocumentBatch, encoded: EncodedDocuments) -> None:
        state = self._state
        state.problems.merge(batch.problems)
        for kind, count in encoded.cleaned.items():
            state.cleaned[kind] = state.cleaned.get(kind, 0) + count
        if batch.documents:
            is_kept = self._select(batch, encoded)
            self._count_lines(batch, encoded, is_kept)
            self._write(batch, encoded, is_kept)
        state.file_index, state.items_taken = batch.file_index, batch.items_taken
        state.bytes_read = batch.bytes_read
        if self._writer.num_tokens >= self._settings["shard_tokens"]:
            self._close_shard()
        self._report()

    def finish(self) -> dict:
        state = self._state
        if self._writer.num_tokens:
            self._close_shard()
        if not state.shards:
            remove_progress(self._folder)
            raise ValueError(no_documents(state.problems))
        self._report(last=True)
        self._note_unknown_tokens()
        write_array(self._folder / "token_counts.npy", state.token_counts)
        manifest = make_manifest(state, self._vocab_size)
        write_json(self._folder / MANIFEST, manifest)
        remove_progress(self._folder)
        return manifest

    def _note_unknown_tokens(self) -> None:
        state = self._state
        count = 0 if self._unk_id is None else int(state.token_counts[self._unk_id])
        if count > MANY_UNKNOWN * state.totals["tokens"]:
            share = f"{count / state.totals['tokens']:.0%} of the tokens; use a tokenizer trained on such text"
            state.problems.add(Problem("unknown_token", "", detail=share, count=count))

    def _select(self, batch: DocumentBatch, encoded: EncodedDocuments) -> np.ndarray:
        """A boolean per document: whether it goes into the corpus."""
        is_kept = np.ones(len(batch.documents), bool)

        def keep(is_good: np.ndarray, reason: str) -> None:
            """Drops those of the documents kept so far that are not good."""
            for index in np.flatnonzero(is_kept)[~is_good]:
                document = batch.documents[index]
                self._state.problems.add(Problem(reason, document.file, document.place))
            is_kept[is_kept] = is_good

        keep(encoded.num_sentences > 0, "no_tokens")
        keep(~encoded.documents["is_excluded"][is_kept], "evaluation_text")
        if self._settings["deduplicate"]:
            keep(self._add_hashes(encoded.documents["hash"][is_kept]), "duplicate_document")
        if self._settings["near_duplicates"]:
            keep(self._add_hashes(encoded.bands[is_kept]).all(1), "near_duplicate")
        return is_kept

    def _add_hashes(self, hashes: np.ndarray) -> np.ndarray:
        """Whether each hash is new."""
        is_new = self._state.seen.add(hashes.ravel()).reshape(hashes.shape)
        self._state.new_hashes.append(hashes[is_new])
        return is_new

    def _count_lines(self, batch: DocumentBatch, encoded: EncodedDocuments, is_kept: np.ndarray) -> None:
        num_lines = encoded.documents["lines"]
        document_of = np.repeat(np.arange(len(is_kept)), num_lines)
        lines = np.flatnonzero(is_kept[document_of])
        first_line = np.cumsum(num_lines) - num_lines

        def text_of(index: int) -> str:
            line = lines[index]
            document = document_of[line]
            text = clean_text(batch.documents[document].text, self._settings["clean"])[0]
            return counted_lines(text)[line - first_line[document]]

        self._state.lines.add(encoded.line_hashes[lines], text_of)

    def _write(self, batch: DocumentBatch, encoded: EncodedDocuments, is_kept: np.ndarray) -> None:
        state = self._state
        tokens, word_starts, lengths = encoded.tokens, encoded.word_starts, encoded.sentence_lengths
        entity_tokens, entity_ids = encoded.entity_tokens, encoded.entity_ids
        if not is_kept.all():
            keeps_sentence = np.repeat(is_kept, encoded.num_sentences)
            keeps_token = np.repeat(keeps_sentence, lengths)
            tokens, word_starts, lengths = tokens[keeps_token], word_starts[keeps_token], lengths[keeps_sentence]
            keeps_entity = keeps_token[entity_tokens]
            entity_tokens = (np.cumsum(keeps_token) - 1)[entity_tokens[keeps_entity]]
            entity_ids = entity_ids[keeps_entity]
        starts, num_sentences = [], 0
        for document, keeps, num in zip(batch.documents, is_kept.tolist(), encoded.num_sentences.tolist(), strict=True):
            if keeps:
                # A part continues its document only if the previous part was kept and is in the same shard.
                continues = document.part > 0 and state.previous_kept
                if continues and not (num_sentences or self._writer.num_sentences):
                    state.problems.add(Problem("divided_document", document.file, document.place))
                    continues = False
                if not continues:
                    starts.append(num_sentences)
                num_sentences += num
            state.previous_kept = keeps
        if not num_sentences:
            return
        self._writer.add(tokens, word_starts, lengths, np.array(starts, np.int64), entity_tokens, entity_ids)
        state.token_counts += np.bincount(tokens, minlength=self._vocab_size)
        totals = state.totals
        totals["documents"] += len(starts)
        totals["sentences"] += num_sentences
        totals["tokens"] += len(tokens)
        totals["words"] += int(word_starts.sum())
        if self._settings["graph"] is not None:
            totals["mentions"] = totals.get("mentions", 0) + len(entity_ids)
        totals["text_words"] += int(encoded.documents["words"][is_kept].sum())
        totals["text_bytes"] += int(encoded.documents["bytes"][is_kept].sum())

    def _close_shard(self) -> None:
        self._state.shards.append(self._writer.close_shard())
        self._state.seconds = time.perf_counter() - self._started
        self._state.save(self._folder)

    def _report(self, last: bool = False) -> None:
        now = time.perf_counter()
        if self._progress and (last or now - self._reported >= PROGRESS_SECONDS):
            self._reported = now
            totals, seconds = self._state.totals, now - self._started
            num_bytes = self._state.bytes_read, self._bytes_total
            self._progress(BuildProgress(*num_bytes, totals["documents"], totals["tokens"], seconds))
