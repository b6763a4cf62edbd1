"""`--overwrite`: replacing what hornbook wrote to a folder before, and nothing else."""

import fnmatch
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hornbook.terminal import log
from hornbook.train.parallel.torchrun import rank

RUN = {"run", "fine-tuned run", "several runs", "baseline", "probe"}
# The pictures that reports write.
PLOTS = (
    *("curves.png", "confusion.png", "scatter.png", "thresholds.png", "trials.png", "curve.png", "score-by-flops.png"),
    *("score-by-shots.png", "comparison.png"),
)
# Everything that hornbook writes at the top level of any kind of folder, besides these.
OWN_NAMES = """
    run.json metrics.jsonl samples.json tensorboard checkpoints best kept generator stages config.json
    model.safetensors tokenizer.json tokenizer_config.json projections.safetensors task.json scores.json
    predictions-*.jsonl training_texts.npy attention.json illustrations.json teacher augmented.json* README.md
    report.html explanation.html trials trials.json sweep.json curve.json jobs predictions comparison.json model.onnx
    export.json tagger.safetensors words.npy results.json skipped.json pretrained running RESULTS-*.md .job_locks
    modules.json 1_Pooling sentence_bert_config.json config_sentence_transformers.json index.json vectors.f32 vectors.i8
    scales.f32 residuals.i8 rows.arrow graph.faiss
    manifest.json sources.ndjson progress* chunks shard-*.npy token_counts.npy excluded.npy .*.tmp entities.txt
    relations.tsv names.tsv vectors.safetensors heads.npy kinds.npy tails.npy weights.npy splits.npy pair*.npy
    edge_offsets.npy
"""


@contextmanager
def overwriting(out: Path, kinds: set[str], overwrite: bool, resume: bool = False) -> Iterator[None]:
    """With `--overwrite`, moves the folder `out` aside while the command writes a new one, then removes the old one. If
    the command fails before it writes anything, the old folder is restored; if it is killed, the next command on `out`
    does either. A folder of another kind than `kinds`, or with files that hornbook did not write, is refused, as is
    one that cannot be written."""
    from hornbook.lifecycle.locking import is_locked, run_lock

    check_writable(out)
    refuse_both(overwrite, resume)
    folder = out.resolve()
    old = folder.with_name(f".{folder.name}.old")
    if old.is_dir() and rank() == 0 and not is_locked(old):
        _refuse_foreign_files(old)
        if not _remove_or_restore(old, folder):
            log(f"{out} is back: the command that was to overwrite it was killed before it wrote anything")
    if not overwrite or _is_empty(out):
        yield
        return
    refuse_foreign(out, kinds)
    os.replace(folder, old)
    with run_lock(old):  # a signal during an import, too, restores it
        try:
            yield
        finally:
            _remove_or_restore(old, folder)


def _remove_or_restore(old: Path, folder: Path) -> bool:
    """Removes the old folder if the command has written a new one, and otherwise restores it; returns whether it was
    removed."""
    if _is_empty(folder):
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(old, folder)
        return False
    shutil.rmtree(old)
    return True


def _is_empty(folder: Path) -> bool:
    return not folder.exists() or not any(folder.iterdir())


def refuse_both(overwrite: bool, resume: bool) -> None:
    if overwrite and resume:
        raise ValueError("--overwrite starts from scratch and --resume continues: give only one of them")


def check_writable(out: Path) -> None:
    """Raises, before any work is done, if the folder cannot be written."""
    nearest = next(path for path in (out, *out.parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise ValueError(f"{out} cannot be written, as {nearest} is not a writable folder: choose another --out")


def refuse_foreign(out: Path, kinds: set[str]) -> None:
    """Raises if `--overwrite` would remove files that hornbook did not write, or another kind of folder."""
    from hornbook.lifecycle.locking import run_lock
    from hornbook.report.info import describe

    if not out.is_dir():
        raise ValueError(f"{out} is a file: --overwrite replaces only folders that hornbook wrote")
    _refuse_foreign_files(out)
    kind = describe(out)["kind"]
    if kind not in kinds:
        raise ValueError(f"{out} holds a {kind}, which this command does not write: choose another --out")
    with run_lock(out):  # raises if a process is writing to it
        pass


def _refuse_foreign_files(folder: Path) -> None:
    own_names = (*OWN_NAMES.split(), *PLOTS)
    foreign = [path.name for path in folder.iterdir() if not any(fnmatch.fnmatch(path.name, own) for own in own_names)]
    if foreign:
        raise ValueError(
            f"{folder} holds {min(foreign)}, which hornbook did not write: move it, or choose another --out"
        )


def refuse_existing(out: Path, file: str, contents: str) -> None:
    if (out / file).exists():
        raise ValueError(f"{out} already holds {contents}: add --overwrite to replace it, or choose another --out")


def refuse_existing_file(path: Path, overwrite: bool) -> None:
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give --out the name of a file")
    if path.exists() and not overwrite:
        from hornbook.lifecycle.locking import file_lock
        from hornbook.lifecycle.temp_files import remove_stale_files_of

        with suppress(OSError), file_lock(path):  # raises if a process is writing to it
            remove_stale_files_of(path)
        raise ValueError(f"{path} already exists: add --overwrite to replace it, or choose another --out")
