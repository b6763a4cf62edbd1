"""The augmented copies of the training examples of a run: made once and stored in its folder. An interrupted run
resumes making them.

RUN/augmented.json     what they were made from: hashes of the examples, of the model and of the vectors; settings
RUN/augmented.jsonl    one line per example: the changed fields of each of its copies
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hornbook.files import read_json, refusing_damage, sha256, write_json
from hornbook.inference.encoder import masked_lm_folder
from hornbook.interop.folder import weights_fingerprint
from hornbook.interop.hub import model_folder
from hornbook.lifecycle.requests import refuse_other_source
from hornbook.lifecycle.run_folder import Log, recorded
from hornbook.runs.augmentation.copies import CHUNK, Augmenter, open_masked_lm
from hornbook.runs.distillation.teacher import Teacher
from hornbook.runs.finetuning.inputs import FinetuneInputs
from hornbook.runs.finetuning.record import AUGMENTED
from hornbook.runs.finetuning.settings import AugmentationSettings
from hornbook.tasks.records import Example
from hornbook.train.job import OnProgress, preparation_progress
from hornbook.train.runtime import choose_runtime, configure_torch

LINES = "augmented.jsonl"


def with_copies(inputs: FinetuneInputs, out: Path, on_progress: OnProgress, log: Log) -> FinetuneInputs:
    """The inputs with `augment.copies` copies per text, which are made in the folder `out` or read from it."""
    settings, seed = inputs.settings.augment, inputs.settings.runtime.seed
    if not settings.copies:
        return inputs
    if settings.model is None and inputs.teacher is not None:
        model = _base_of_teacher(inputs.teacher)
    else:
        model = model_folder(settings.model or inputs.request.model)
    num_examples = len(inputs.train)
    stored = StoredCopies(out, inputs.train, made_from(inputs.train, model, settings, seed))
    if (num_done := stored.num_done()) < num_examples:
        log(f"making up to {settings.copies} copies per text of {num_examples:,} examples with {model}")
        runtime = choose_runtime(inputs.settings.runtime, 0.0)
        configure_torch(runtime)
        try:
            encoder = open_masked_lm(model, str(runtime.device))
        except ValueError as error:
            raise ValueError(f"{error}: name a masked-language model for augmentation by augment.model") from None
        augmenter = Augmenter(encoder, settings, seed, runtime.autocast)
        show = preparation_progress(on_progress, "augmenting: example", num_done)
        stored.make(augmenter, lambda done: show(done, num_examples, augmenter.filling.num_tokens))
    copies = stored.read()
    log(f"training on {len(copies):,} augmented copies in addition to {num_examples:,} examples")
    return dataclasses.replace(inputs, copies=copies)


def _base_of_teacher(teacher: Teacher) -> Path:
    """The folder of the pre-trained model that the teacher was fine-tuned from."""
    base = recorded(teacher.folder).get("model")
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


def made_from(examples: Sequence[Example], model: Path, settings: AugmentationSettings, seed: int) -> dict[str, Any]:
    """Everything that determines the copies: the settings, with hashes instead of names."""
    return dataclasses.asdict(settings) | {
        "examples": hashlib.sha256("".join(map(repr, examples)).encode("utf-8", "surrogatepass")).hexdigest(),
        "model": weights_fingerprint(masked_lm_folder(model)),
        "vectors": None if settings.vectors is None else sha256(Path(settings.vectors)),
        "seed": seed,
    }


class StoredCopies:
    """The copies of `examples` in a folder. Raises a `ValueError` if they were not made from `source`."""

    def __init__(self, folder: Path, examples: Sequence[Example], source: dict[str, Any]):
        self.examples, self.source = examples, source
        self.lines, self.source_file = folder / LINES, folder / AUGMENTED
        if self.source_file.exists():
            fix = f"remove it and {AUGMENTED} to make the copies again"
            refuse_other_source(read_json(self.source_file), source, f"{self.lines} was made from", fix)

    def num_done(self) -> int:
        """Number of examples whose copies are stored. Truncates a partly written chunk: chunks are made as a whole."""
        if not self.lines.exists() or not self.source_file.exists():
            return 0
        ends = [0]
        with open(self.lines, "rb+") as file:
            for line in file:
                if line.endswith(b"\n"):
                    ends.append(ends[-1] + len(line))
            num_done = len(ends) - 1
            num_done = num_done if num_done >= len(self.examples) else num_done // CHUNK * CHUNK
            file.truncate(ends[num_done])
        return num_done

    def make(self, augmenter: Augmenter, show: Callable[[int], None]) -> None:
        """Makes the missing copies chunk by chunk; `show` receives the number of finished examples."""
        if not self.source_file.exists():
            self.source_file.parent.mkdir(parents=True, exist_ok=True)
            self.lines.unlink(missing_ok=True)
            write_json(self.source_file, self.source)
        for first in range(self.num_done(), len(self.examples), CHUNK):
            show(first)
            copies = augmenter.changes(self.examples[first : first + CHUNK])
            with open(self.lines, "a", encoding="utf-8") as file:
                file.writelines(json.dumps(of_example, ensure_ascii=False) + "\n" for of_example in copies)
                file.flush()
                os.fsync(file.fileno())
        show(len(self.examples))

    def read(self) -> list[Example]:
        """The copies of all examples, in their order."""
        repair = f"remove it and {AUGMENTED} to make the copies again"
        with refusing_damage(self.lines, repair), open(self.lines, encoding="utf-8") as file:
            return [
                example.copy(changed)
                for example, line in zip(self.examples, file, strict=True)
                for changed in json.loads(line)
            ]
