"""A training job so small that hundreds of steps take seconds: a tiny BERT on made-up token sequences."""

import dataclasses
from functools import cache
from pathlib import Path

import numpy as np
import torch

from hornbook.batch import Batch, pack
from hornbook.interop.folder import load_weights, read_weights, save_model
from hornbook.models.bert import Bert, BertConfig
from hornbook.objectives.masking import Masking, MaskingSettings
from hornbook.objectives.mlm import MlmObjective
from hornbook.train.job import Outcome, TrainingJob
from hornbook.train.loop import train
from hornbook.train.objective import TrainingModule
from hornbook.train.runtime import Runtime
from hornbook.train.settings import (
    BatchSettings,
    CheckpointSettings,
    LoopSettings,
    LossSpikeSettings,
    OptimizerSettings,
    RuntimeSettings,
    ScheduleSettings,
    ValidationSettings,
)
from hornbook.train.validation import validate

VOCABULARY, CLS, SEP, MASK = 64, 1, 2, 3
CPU = Runtime(torch.device("cpu"), torch.float32, False, 1, 0, "test")


def small_model(seed: int = 0, **overrides) -> Bert:
    settings = {"num_layers": 2, "width": 32, "num_heads": 2, "inner_width": 64, "max_positions": 48} | overrides
    model = Bert(BertConfig(vocab_size=VOCABULARY, **settings))
    model.initialize(torch.Generator().manual_seed(seed))
    return model


def small_objective(**overrides) -> MlmObjective:
    return MlmObjective(Masking(MaskingSettings(**overrides), VOCABULARY, MASK, [0, CLS, SEP, MASK]), sentence="nsp")


@cache
def small_batch(number: int, num_sequences: int = 8, max_length: int = 24) -> Batch:
    """Sequences that count up from a random token, with a second segment that continues the count or does not."""
    random = np.random.default_rng([5, number])
    sequences, segments, labels = [], [], []
    for _ in range(num_sequences):
        length = int(random.integers(6, max_length // 2 - 2))
        start, other = random.integers(0, 60, 2)
        label = int(random.integers(2))
        first = (start + np.arange(length)) % 60 + 4
        second = ((other if label else start + length) + np.arange(length)) % 60 + 4
        sequences.append(np.concatenate([[CLS], first, [SEP], second, [SEP]]))
        segments.append(np.repeat([0, 1], [length + 2, length + 1]))
        labels.append(label)
    order = np.argsort([len(sequence) for sequence in sequences], kind="stable")  # as samplers sort them
    sequences, segments = [sequences[i] for i in order], [segments[i] for i in order]
    return pack(sequences, segments, None, np.array(labels)[order], max_length, step_index=order)


def small_settings(**groups) -> LoopSettings:
    settings = LoopSettings(
        optimizer=OptimizerSettings(lr=1e-2),
        schedule=ScheduleSettings(steps=40, warmup_fraction=0.1),
        batch=BatchSettings(tokens=256, micro_tokens=4096),
        checkpoint=CheckpointSettings(every_steps=10, every_minutes=0),
        validation=ValidationSettings(every_steps=10),
        loss_spike=LossSpikeSettings(),
        runtime=RuntimeSettings(log_every_steps=1),
    )
    return dataclasses.replace(settings, **groups)


def small_job(model: Bert | None = None, make_batch=small_batch, objective=None, runtime: Runtime = CPU) -> TrainingJob:
    model = model or small_model(num_layers=1)

    def load(folder: Path) -> None:
        load_weights(model, read_weights(folder), folder)

    held_out = [small_batch(1_000_000 + i) for i in range(4)]
    module = TrainingModule(model, objective or small_objective())

    def check(micro_tokens: int) -> dict[str, float]:
        return validate(module, held_out, runtime, micro_tokens)

    return TrainingJob(module, make_batch, check, lambda folder: save_model(folder, model), load)


def run(folder: Path, settings=None, job=None, on_progress=lambda status: None) -> Outcome:
    return train(folder, job or small_job(), settings or small_settings(), CPU, on_progress)
