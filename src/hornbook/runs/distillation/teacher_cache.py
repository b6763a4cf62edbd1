"""A teacher's outputs cached on disk: computed once before the first epoch, read in every epoch.

RUN/teacher/groups.npy, tokens.npy     one row per group and per token (`objectives.distillation.task`), float32
RUN/teacher/cache.json                what the outputs depend on, and the number of finished batches
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hornbook.batch import to_offsets
from hornbook.config import checked
from hornbook.data.shards import load_array
from hornbook.files import read_json, refusing_damage, write_json
from hornbook.lifecycle.requests import refuse_other_source
from hornbook.lifecycle.run_folder import Log
from hornbook.models.transformer import Transformer
from hornbook.objectives.distillation.task import (
    TASK_LOGITS,
    TaskDistillation,
    TeacherColumns,
    columns_for,
    compute_rows,
    needed_columns,
)
from hornbook.report.formatting import size
from hornbook.runs.finetuning.inputs import FinetuneInputs
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.objective import TaskObjective
from hornbook.train.job import OnProgress, preparation_progress
from hornbook.train.runtime import Runtime

FOLDER, STATE = "teacher", "cache.json"
BATCHES_BETWEEN_SAVES = 20


class TeacherCache:
    """Teacher outputs in two files of rows. Raises a `ValueError` if the folder holds the outputs of another teacher,
    other data or other settings."""

    def __init__(self, folder: Path, columns: TeacherColumns, encoded: EncodedExamples, follows_from: dict[str, Any]):
        self.folder, self.columns, self.encoded = folder, columns, encoded
        self.lengths = np.array([len(ids) for ids in encoded.ids], np.int64)
        self.offsets = to_offsets(self.lengths)
        sizes = {"groups": (encoded.num_groups, columns.groups), "tokens": (int(self.offsets[-1]), columns.tokens)}
        self.sizes = {name: (rows, sum(widths.values())) for name, (rows, widths) in sizes.items() if widths}
        self.follows_from = follows_from
        if (folder / STATE).exists():
            what = f"the teacher outputs in {folder} were computed with"
            fix = "remove that folder to compute them again"
            refuse_other_source(read_json(folder / STATE)["follows_from"], follows_from, what, fix)
        self.files: dict[str, np.memmap] = {}

    def open(self) -> int:
        """Opens or creates the files; returns the number of finished batches."""
        if not (self.folder / STATE).exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            for name, size in self.sizes.items():
                np.lib.format.open_memmap(self._file(name), "w+", np.float32, size).flush()
            self.save(0)
        with refusing_damage(self.folder, "remove that folder to compute the teacher outputs again"):
            self.files = {name: load_array(self._file(name), mmap_mode="r+") for name in self.sizes}
            return checked(read_json(self.folder / STATE)["done_batches"], int, "done_batches", low=0)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.npy"

    def save(self, done_batches: int) -> None:
        """Flushes the rows, then records the number of finished batches."""
        for file in self.files.values():
            file.flush()
        write_json(self.folder / STATE, {"follows_from": self.follows_from, "done_batches": done_batches})

    @torch.no_grad()
    def fill(
        self, teacher: Transformer, runtime: Runtime, micro_tokens: int, on_progress: OnProgress, log: Log
    ) -> None:
        """Computes the missing outputs, short sequences first, in batches that depend only on the data."""
        batches = list(self.encoded.length_batches(micro_tokens))
        first = self.open()
        if first == len(batches):
            return
        log(f"caching the teacher's outputs: {size(_num_bytes(self.encoded, self.columns))} in {self.folder}")
        teacher = teacher.to(runtime.device).eval()
        show, num_tokens = preparation_progress(on_progress, "caching teacher outputs: batch", first), 0
        for num_done, groups in enumerate(batches[first:], first + 1):
            sequences = self.encoded.sequences_of(groups)
            batch = self.encoded.packed(sequences).to(runtime.device)
            with runtime.autocast():
                rows_of_groups, rows_of_tokens = compute_rows(teacher, self.columns, batch)
            if rows_of_groups is not None:
                self.files["groups"][groups] = rows_of_groups.cpu().numpy()
            if rows_of_tokens is not None:
                self.files["tokens"][self._token_rows(sequences)] = rows_of_tokens.cpu().numpy()
            num_tokens += batch.num_tokens
            if num_done % BATCHES_BETWEEN_SAVES == 0 or num_done == len(batches):
                self.save(num_done)
            show(num_done, len(batches), num_tokens)

    def groups(self, groups: np.ndarray, columns: TeacherColumns) -> np.ndarray:
        """The rows of groups, with the given columns."""
        return _select(self.files["groups"][groups], self.columns.groups, columns.groups)

    def tokens(self, sequences: np.ndarray, columns: TeacherColumns) -> np.ndarray:
        """The rows of all tokens of some sequences, with the given columns."""
        return _select(self.files["tokens"][self._token_rows(sequences)], self.columns.tokens, columns.tokens)

    def _token_rows(self, sequences: Sequence[int] | np.ndarray) -> np.ndarray:
        starts, lengths = self.offsets[sequences], self.lengths[sequences]
        return np.repeat(starts - to_offsets(lengths)[:-1], lengths) + np.arange(lengths.sum())


def _select(rows: np.ndarray, stored: Mapping[str, int], requested: Mapping[str, int]) -> np.ndarray:
    """The requested columns of rows, in stored order. Columns are given as a width by name."""
    mask = np.repeat([name in requested for name in stored], list(stored.values()))
    return np.ascontiguousarray(rows if mask.all() else rows[:, mask])


def cache_plan(inputs: FinetuneInputs) -> tuple[EncodedExamples, TeacherColumns] | None:
    """The training examples in the teacher's tokens, and the teacher outputs that `objective.cache` stores; None if it
    stores none. Raises a `ValueError` if they would take more than `objective.cache_gigabytes`."""
    names = _names(inputs)
    if not names:
        return None
    encoded, teacher, settings = inputs.encoded_train, inputs.teacher, inputs.settings.objective
    if not teacher.reads_as(inputs.tokenizer):
        encoded = inputs.encoded_train_for(teacher.tokenizer, teacher.model.config.max_positions)
    columns = columns_for(names, inputs.spec.task.head_config, teacher.model.config, encoded.group_size)
    if (num_bytes := _num_bytes(encoded, columns)) > settings.cache_gigabytes * 1e9:
        raise ValueError(
            f"the cached teacher outputs would take {num_bytes / 1e9:.3g} GB on disk: raise objective.cache_gigabytes "
            f"({settings.cache_gigabytes:g}), or use objective.cache logits or none"
        )
    return encoded, columns


def _num_bytes(encoded: EncodedExamples, columns: TeacherColumns) -> int:
    return columns.num_bytes(encoded.num_groups, sum(map(len, encoded.ids)))


def open_teacher_cache(
    inputs: FinetuneInputs, runtime: Runtime, folder: Path, on_progress: OnProgress, log: Log
) -> TeacherCache | None:
    """The cache of teacher outputs that `objective.cache` requests, or None; missing outputs are computed."""
    plan = cache_plan(inputs)
    if plan is None:
        return None
    encoded, columns = plan
    micro_tokens = inputs.settings.batch.micro_tokens
    follows_from = {
        "teacher": inputs.teacher.fingerprint,
        "data": _fingerprint(encoded),
        "columns": {"groups": columns.groups, "tokens": columns.tokens},
        "precision": str(runtime.precision),
        "micro_tokens": micro_tokens,
    }
    cache = TeacherCache(folder / FOLDER, columns, encoded, follows_from)
    cache.fill(inputs.teacher.model, runtime, micro_tokens, on_progress, log)
    return cache


def _names(inputs: FinetuneInputs) -> set[str]:
    """Names of the columns to cache for all stages. A stage that needs more than `objective.cache` allows runs the
    teacher instead. The logits of a teacher with another vocabulary, which cannot run on the student's batches, are
    always cached."""
    settings, head_config, teacher = inputs.settings.objective, inputs.spec.task.head_config, inputs.teacher
    requested = settings.cache
    if requested == "none" and not teacher.reads_as(inputs.tokenizer):
        requested = "logits"
    columns: set[str] = set()
    for recipe in settings.stages(is_task=True) if requested != "none" else ():
        objective = TaskDistillation(
            TaskObjective(head_config), head_config, recipe, inputs.pretrained.config, teacher.model.config
        )
        names = needed_columns(objective.matches, objective.layers)
        columns |= names if requested == "all" or names <= {TASK_LOGITS} else set()
    return columns


def _fingerprint(encoded: EncodedExamples) -> str:
    """A hash of the sequences of token ids, their segments and how many of them form a group."""
    digest = hashlib.sha256(str(encoded.group_size).encode())
    for ids, segments in zip(encoded.ids, encoded.segments, strict=True):
        digest.update(len(ids).to_bytes(8, "little") + ids.tobytes() + segments.tobytes())
    return digest.hexdigest()
