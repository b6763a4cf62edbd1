"""Distillation on plain text: settings that the student inherits from its teacher, and checks that the two match."""

import dataclasses

from hornbook import config as configuration
from hornbook.models import registry
from hornbook.models.gpt import Gpt
from hornbook.runs.distillation.teacher import Teacher
from hornbook.runs.pretraining.settings import PretrainSettings
from hornbook.text.tokenizer import Tokenizer


def fitted_to_teacher(settings: PretrainSettings, tokenizer: Tokenizer, teacher: Teacher) -> PretrainSettings:
    """The settings with the teacher's vocabulary size; raises a `ValueError` if this student cannot learn from the
    teacher on plain text."""
    refuse_other_objective(settings, teacher)
    positions = teacher.model.config.max_positions
    for length in (settings.data.length, settings.data.short_length):
        if length > positions and settings.data.uses(length):
            raise ValueError(f"the teacher reads at most {positions} tokens: set data.length={positions}")
    # The teacher's vocabulary may be larger than its tokenizer's; both models need a logit for each of its tokens.
    settings = configuration.with_overrides(settings, {"model.vocab_size": teacher.model.config.vocab_size})
    config = registry.family_of(settings.model).for_tokenizer(settings.model, tokenizer.pad_id, tokenizer.eos_id)
    return dataclasses.replace(settings, model=config)


def refuse_other_objective(settings: PretrainSettings, teacher: Teacher) -> None:
    """Raises a ValueError if one of student and teacher predicts next tokens and the other masked ones."""
    teacher_config, is_gpt = teacher.model.config, isinstance(teacher.model, Gpt)
    if settings.reads_documents != is_gpt:
        student = registry.family_of(settings.model)
        fix = "distilgpt2 or another GPT as the student" if is_gpt else "an encoder as the student"
        raise ValueError(
            f"on plain text a GPT predicts next tokens and an encoder masked ones, so {student.in_words()} cannot "
            f"learn from {teacher.model.in_words()}: use {fix}, or distill on a task (by task and data)"
        )
    if settings.model.direction != teacher_config.direction:
        raise ValueError(
            f"the teacher has direction={teacher_config.direction} and the student {settings.model.direction}, so one "
            "predicts next tokens and the other masked ones: set "
            f"model.direction={teacher_config.direction} (with a BERT or RoBERTa preset as the student)"
        )
