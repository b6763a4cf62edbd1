"""Training on changed copies of the examples beside them (`hornbook.augmentation`), which lie in the run folder."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hornbook.augmentation.copies import Augmenter, open_filler
from hornbook.augmentation.kept import KeptCopies, made_from
from hornbook.files import read_json
from hornbook.finetuning.inputs import Inputs, Log
from hornbook.finetuning.record import Request
from hornbook.infer.encoder import EncoderModel
from hornbook.interop.hub import model_folder
from hornbook.interop.teacher import Teacher
from hornbook.train.device import decide, prepare
from hornbook.train.loop import Status

OnProgress = Callable[[Status], None]


def with_copies(
    inputs: Inputs, request: Request, teacher: Teacher | None, out: Path, on_progress: OnProgress, log: Log
) -> Inputs:
    """The inputs with the copies that `augment.copies` asks for, made or found in the folder `out`."""
    settings, seed = inputs.settings.augment, inputs.settings.runtime.seed
    if not settings.copies:
        return inputs
    model = _filler_folder(settings.model, request, teacher)
    kept = KeptCopies(out, made_from(inputs.train, model, settings, seed), len(inputs.train))
    if kept.num_done() < len(inputs.train):
        log(f"up to {settings.copies} copies of each text of {len(inputs.train):,} examples, words by {model}")
        runtime = decide(inputs.settings.runtime, 0.0)
        prepare(runtime)
        augmenter = Augmenter(_opened(model, teacher, str(runtime.device)), settings, seed, runtime.autocast)
        kept.make(inputs.train, augmenter.changes, _shown_by(on_progress, len(inputs.train), augmenter))
    copies = kept.read(inputs.train)
    log(f"{len(copies):,} changed copies are trained on beside {len(inputs.train):,} examples")
    return replace(inputs, copies=copies)


def _filler_folder(named: str | None, request: Request, teacher: Teacher | None) -> Path:
    """Of the model that fills in words: the one that is named or, before its fine-tuning, that which is fine-tuned."""
    if named is not None:
        return model_folder(named)
    if teacher is None:
        return model_folder(request.model)
    record = teacher.folder / "run.json"
    base = read_json(record).get("model") if record.exists() else None
    if base is None:
        raise ValueError(
            f"what the teacher {teacher.name} was fine-tuned from is not known, and a model that fills in masks is "
            "needed for copies: name one by --augment-model"
        )
    try:
        return model_folder(base)
    except ValueError as error:
        raise ValueError(
            f"the teacher {teacher.name} was fine-tuned from {base}, which should fill in words for copies, but "
            f"{error}: name another by --augment-model"
        ) from None


def _opened(model: Path, teacher: Teacher | None, device: str) -> EncoderModel:
    try:
        return open_filler(model, device)
    except ValueError as error:
        flag = "--augment-model" if teacher is not None else "--set augment.model=MODEL"
        raise ValueError(f"{error}: name a masked-language model by {flag} for the copies") from None


def _shown_by(on_progress: OnProgress, num_examples: int, augmenter: Augmenter) -> Callable[[int], None]:
    """Tells how far it is, as of a run's steps."""
    started, first = time.monotonic(), None

    def show(num_done: int) -> None:
        nonlocal first
        first = num_done if first is None else first
        seconds = max(time.monotonic() - started, 1e-9)
        left = (num_examples - num_done) * seconds / (num_done - first) if num_done > first else math.inf
        speed = augmenter.num_tokens / seconds
        on_progress(Status(num_done, num_examples, {}, speed, left, counted="copies of example"))

    return show
