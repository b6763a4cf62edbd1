"""Training on augmented copies in addition to the examples (`hornbook.runs.augmentation`); they are stored in the run
folder."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hornbook.files import read_json
from hornbook.inference.encoder import EncoderModel
from hornbook.interop.hub import model_folder
from hornbook.runs.augmentation.copies import Augmenter, open_filler
from hornbook.runs.augmentation.kept import KeptCopies, made_from
from hornbook.runs.distillation.teacher import Teacher
from hornbook.runs.finetuning.inputs import Inputs, Log
from hornbook.runs.finetuning.progress import preparation_progress
from hornbook.runs.finetuning.record import FinetuneRequest
from hornbook.train.job import Status
from hornbook.train.runtime import choose_runtime, configure_torch

OnProgress = Callable[[Status], None]


def with_copies(
    inputs: Inputs, request: FinetuneRequest, teacher: Teacher | None, out: Path, on_progress: OnProgress, log: Log
) -> Inputs:
    """The inputs with `augment.copies` copies per text, which are made in the folder `out` or read from it."""
    settings, seed = inputs.settings.augment, inputs.settings.runtime.seed
    if not settings.copies:
        return inputs
    model = _filler_folder(settings.model, request, teacher)
    num_examples = len(inputs.train)
    kept = KeptCopies(out, made_from(inputs.train, model, settings, seed), num_examples)
    if (num_done := kept.num_done()) < num_examples:
        log(f"making up to {settings.copies} copies per text of {num_examples:,} examples with {model}")
        runtime = choose_runtime(inputs.settings.runtime, 0.0)
        configure_torch(runtime)
        augmenter = Augmenter(_open_filler(model, str(runtime.device)), settings, seed, runtime.autocast)
        show = preparation_progress(on_progress, "augmenting: example", num_done)
        kept.make(inputs.train, augmenter.changes, lambda done: show(done, num_examples, augmenter.num_tokens))
    copies = kept.read(inputs.train)
    log(f"training on {len(copies):,} augmented copies in addition to {num_examples:,} examples")
    return replace(inputs, copies=copies)


def _filler_folder(named: str | None, request: FinetuneRequest, teacher: Teacher | None) -> Path:
    """The folder of the model that proposes words: the named one, or else the pre-trained model that this run or its
    teacher was fine-tuned from."""
    if named is not None:
        return model_folder(named)
    if teacher is None:
        return model_folder(request.model)
    record = teacher.folder / "run.json"
    base = read_json(record).get("model") if record.exists() else None
    if base is None:
        raise ValueError(
            f"the model that the teacher {teacher.name} was fine-tuned from is not known, and augmentation needs a "
            "masked-language model: name one by augment.model="
        )
    try:
        return model_folder(base)
    except ValueError as error:
        raise ValueError(
            f"the teacher {teacher.name} was fine-tuned from {base}, which augmentation uses by default, but {error}: "
            "name another model by augment.model="
        ) from None


def _open_filler(model: Path, device: str) -> EncoderModel:
    try:
        return open_filler(model, device)
    except ValueError as error:
        raise ValueError(f"{error}: name a masked-language model for augmentation by augment.model") from None
