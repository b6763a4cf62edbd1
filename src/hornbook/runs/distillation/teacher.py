"""The teacher of a distillation run, with a fingerprint of its weights, and whether a student can learn from it."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from hornbook import config as configuration
from hornbook.interop.folder import load_folder, weights_fingerprint
from hornbook.interop.hub import model_folder
from hornbook.lifecycle.run_folder import RunFolder
from hornbook.models import registry
from hornbook.models.gpt import Gpt
from hornbook.models.transformer import Transformer
from hornbook.runs.pretraining.settings import PretrainSettings
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
        """The record of the teacher in `run.json`."""
        return {
            "name": self.name,
            "folder": str(self.folder.resolve()),
            "family": self.model.family,
            "layers": self.model.config.num_layers,
            "width": self.model.config.width,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
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


def fitted_to_teacher(settings: PretrainSettings, tokenizer: Tokenizer | None, teacher: Teacher) -> PretrainSettings:
    """The settings of a student on plain text with the teacher's vocabulary size; raises a `ValueError` if the student
    cannot learn from the teacher. `tokenizer`: that of the corpora, if they are known."""
    _refuse_other_objective(settings, teacher)  # before the vocabularies, which differ for the same reason
    tokenizer = tokenizer or teacher.tokenizer
    # Without special tokens, as a GPT's folder adds none and the tokenizer of its corpus may.
    if len({each.without_special_tokens().fingerprint for each in (tokenizer, teacher.tokenizer)}) > 1:
        refuse_other_vocabulary(teacher, tokenizer, "the corpus")
    positions = teacher.model.config.max_positions
    if max(settings.lengths) > positions:
        raise ValueError(f"the teacher reads at most {positions} tokens: set data.length={positions}")
    # The teacher's vocabulary may be larger than its tokenizer's; both models need a logit for each of its tokens.
    settings = configuration.with_overrides(settings, {"model.vocab_size": teacher.model.config.vocab_size})
    config = registry.family_of(settings.model).for_tokenizer(settings.model, tokenizer.pad_id, tokenizer.eos_id)
    return dataclasses.replace(settings, model=config)


def _refuse_other_objective(settings: PretrainSettings, teacher: Teacher) -> None:
    """Raises a ValueError if one of student and teacher predicts next tokens and the other masked ones."""
    direction, is_gpt = teacher.model.config.direction, isinstance(teacher.model, Gpt)
    if settings.reads_documents != is_gpt:
        student = registry.family_of(settings.model)
        fix = "distilgpt2 or another GPT as the student" if is_gpt else "an encoder as the student"
        raise ValueError(
            f"on plain text a GPT predicts next tokens and an encoder masked ones, so {student.described()} cannot "
            f"learn from {teacher.model.described()}: use {fix}, or distill on a task (by task and data)"
        )
    if settings.model.direction != direction:
        raise ValueError(
            f"the teacher has direction={direction} and the student {settings.model.direction}, so one predicts next "
            f"tokens and the other masked ones: set model.direction={direction} (with a BERT or RoBERTa preset as the "
            "student)"
        )
