"""Augmented copies stored in a run folder. They are made once; an interrupted run resumes making them.

RUN/augmented.json     what they were made from: hashes of the examples, of the model and of the vectors; settings
RUN/augmented.jsonl    one line per example: the changed fields of each of its copies
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hornbook.files import read_json, refusing_damage, sha256, write_json
from hornbook.inference.encoder import filler_folder
from hornbook.interop.folder import weights_fingerprint
from hornbook.lifecycle.resuming import changed_names
from hornbook.runs.augmentation.copies import CHUNK
from hornbook.runs.finetuning.settings import AugmentationSettings
from hornbook.tasks.records import Example

MADE_FROM, LINES = "augmented.json", "augmented.jsonl"
Changes = Callable[[Sequence[Example]], list[list[dict[str, Any]]]]


def made_from(examples: Sequence[Example], model: Path, settings: AugmentationSettings, seed: int) -> dict[str, Any]:
    """Everything that determines the copies."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(example).encode("utf-8", "surrogatepass"))
    return {
        "examples": digest.hexdigest(),
        "model": weights_fingerprint(filler_folder(model)),
        "vectors": None if settings.vectors is None else sha256(Path(settings.vectors)),
        "copies": settings.copies,
        "replace_probability": settings.replace_probability,
        "candidates": settings.candidates,
        "unmasked_segment": settings.unmasked_segment,
        "seed": seed,
    }


class KeptCopies:
    """The copies in a folder. Raises a `ValueError` if the folder holds copies made from other examples, another model
    or other settings."""

    def __init__(self, folder: Path, source: dict[str, Any], num_examples: int):
        self.folder, self.source, self.num_examples = folder, source, num_examples
        self.lines = folder / LINES
        before = read_json(folder / MADE_FROM) if (folder / MADE_FROM).exists() else source
        if changed := changed_names(before, source):
            raise ValueError(
                f"{self.lines} was made from other {', '.join(changed)}: remove it and {MADE_FROM} to make the copies "
                "again, or choose another folder"
            )

    def num_done(self) -> int:
        """Number of examples whose copies are stored. Truncates a partly written chunk: chunks are made as a whole."""
        if not self.lines.exists() or not (self.folder / MADE_FROM).exists():
            return 0
        ends = [0]
        with open(self.lines, "rb+") as file:
            for line in file:
                if line.endswith(b"\n"):
                    ends.append(ends[-1] + len(line))
            num_done = len(ends) - 1
            num_done = num_done if num_done >= self.num_examples else num_done // CHUNK * CHUNK
            file.truncate(ends[num_done])
        return num_done

    def make(self, examples: Sequence[Example], changes: Changes, show: Callable[[int], None]) -> None:
        """Makes the missing copies chunk by chunk; `show` receives the number of finished examples."""
        if not (self.folder / MADE_FROM).exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.lines.unlink(missing_ok=True)
            write_json(self.folder / MADE_FROM, self.source)
        for first in range(self.num_done(), len(examples), CHUNK):
            show(first)
            copies = changes(examples[first : first + CHUNK])
            with open(self.lines, "a", encoding="utf-8") as file:
                file.writelines(json.dumps(of_example, ensure_ascii=False) + "\n" for of_example in copies)
                file.flush()
                os.fsync(file.fileno())
        show(len(examples))

    def read(self, examples: Sequence[Example]) -> list[Example]:
        """The copies of all examples, in their order."""
        repair = f"remove it and {MADE_FROM} to make the copies again"
        with refusing_damage(self.lines, repair), open(self.lines, encoding="utf-8") as file:
            return [
                example.copy(changed)
                for example, line in zip(examples, file, strict=True)
                for changed in json.loads(line)
            ]
