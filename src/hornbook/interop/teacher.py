"""A model that another is to learn from: opened, with a fingerprint of its weights."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from hornbook.interop.folder import load_folder, weights_files
from hornbook.interop.hub import model_folder
from hornbook.models.transformer import Transformer
from hornbook.text.tokenizer import Tokenizer

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Teacher:
    """`name` is what a person called it."""

    name: str
    folder: Path
    model: Transformer
    tokenizer: Tokenizer
    fingerprint: str

    def reads_as(self, tokenizer: Tokenizer) -> bool:
        """Whether it reads the same tokens."""
        return self.tokenizer.fingerprint == tokenizer.fingerprint

    def knows_tokens_of(self, tokenizer: Tokenizer) -> bool:
        """Whether it reads the same tokens, whatever stands around a text: a GPT's folder puts nothing there, the
        tokenizer of its corpus may."""
        return self.tokenizer.without_special_tokens().fingerprint == tokenizer.without_special_tokens().fingerprint

    def about(self) -> dict:
        """As `run.json` keeps it."""
        return {
            "name": self.name,
            "folder": str(self.folder.resolve()),
            "family": self.model.family,
            "layers": self.model.config.num_layers,
            "width": self.model.config.width,
            "parameters": sum(each.numel() for each in self.model.parameters()),
            "fingerprint": self.fingerprint,
        }


def open_teacher(name: str) -> Teacher:
    folder = Path(model_folder(name))
    model, tokenizer = load_folder(folder)
    return Teacher(name, folder, model, tokenizer, weights_fingerprint(folder))


def weights_fingerprint(folder: Path) -> str:
    """Of the bytes of all files of weights."""
    digest = hashlib.sha256()
    for path in weights_files(folder):
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
    return digest.hexdigest()


def refuse_other_teacher(run: dict, teacher: Teacher) -> None:
    """A run goes on only with the teacher that it began with."""
    if run["teacher"]["fingerprint"] != teacher.fingerprint:
        raise ValueError(
            f"the weights in {teacher.folder} are not those of the teacher that this run began with: put them back, or "
            "start a new run in another --out"
        )


def refuse_other_vocabulary(teacher: Teacher, tokenizer: Tokenizer, whose: str) -> None:
    """Token by token, two models can only be compared where both read the same tokens."""
    if not teacher.reads_as(tokenizer):
        raise ValueError(
            f"{whose} and the teacher {teacher.name} have different vocabularies, so their tokens, and all that is "
            "matched at tokens, are not the same. What still works: a student with the teacher's tokenizer (hornbook "
            f"corpus build --tokenizer {teacher.name}, then distill on that corpus); on a task of texts, pairs or "
            "endings, the teacher's scores alone, each reading with its own tokenizer (--recipe minilm or distilbert); "
            "or labels of the teacher, written by hornbook predict for texts without any, to fine-tune the student on"
        )
