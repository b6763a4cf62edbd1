"""The teacher of a distillation run, with a fingerprint of its weights."""

from dataclasses import dataclass
from pathlib import Path

from hornbook.interop.folder import load_folder, weights_fingerprint
from hornbook.interop.hub import model_folder
from hornbook.lifecycle.run_folder import RunFolder
from hornbook.models.transformer import Transformer, count_parameters
from hornbook.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Teacher:
    """A loaded teacher; `name` is the name or path that the user gave."""

    name: str
    folder: Path
    model: Transformer
    tokenizer: Tokenizer
    fingerprint: str

    def reads_as(self, tokenizer: Tokenizer) -> bool:
        """Whether the teacher has the same tokenizer."""
        return self.tokenizer.fingerprint == tokenizer.fingerprint

    def to_record(self) -> dict:
        return {
            "name": self.name,
            "folder": str(self.folder.resolve()),
            "family": self.model.model_type,
            "layers": self.model.config.num_layers,
            "width": self.model.config.width,
            "parameters": count_parameters(self.model),
            "fingerprint": self.fingerprint,
        }


def open_teacher(name: str) -> Teacher:
    folder = Path(model_folder(name))
    model, tokenizer = load_folder(folder)
    return Teacher(name, folder, model, tokenizer, weights_fingerprint(folder))


def refuse_other_teacher(folder: RunFolder, run: dict, teacher: Teacher) -> None:
    """Raises unless a resumed run has the teacher that it was started with."""
    before = run["inputs"]["teacher"]["fingerprint"]
    folder.refuse_other_input(f"the teacher in {teacher.folder}", before, teacher.fingerprint)


def refuse_other_vocabulary(teacher: Teacher, tokenizer: Tokenizer, whose: str) -> None:
    """Raises unless teacher and student have the same tokenizer, which matching token by token needs."""
    if not teacher.reads_as(tokenizer):
        raise ValueError(
            f"{whose} and the teacher {teacher.name} have different vocabularies, so nothing can be matched token "
            "by token. Instead, give the student the teacher's tokenizer (hornbook corpus build --tokenizer "
            f"{teacher.name}, then distill on that corpus); on a task of texts, pairs or choices, match only the "
            "teacher's logits, each model with its own tokenizer (recipe='minilm' or recipe='distilbert'); or "
            "fine-tune the student on texts that the teacher labelled (hornbook predict)"
        )
