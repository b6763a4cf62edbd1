"""What a fine-tuning run starts from: the pre-trained model with its tokenizer, and the data as the task reads it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import nn

from hornbook.finetuning.record import Request
from hornbook.finetuning.settings import SPAN_LENGTH, FinetuneSettings, settings_for, width_factor
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import model_folder
from hornbook.tasks.datasets import KnownDataSet, known
from hornbook.tasks.reading.read import read
from hornbook.tasks.reading.split import hold_out
from hornbook.tasks.records import DataSet, Example, TextExample
from hornbook.tasks.saved import SavedTask, make_task, output_for
from hornbook.tasks.task import Features
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.randomness import seed_of

Say = Callable[[str], None]


@dataclass(frozen=True)
class Inputs:
    """Read once, for all the runs of a search. `threshold_part` is held out of train to choose a threshold on."""

    named: KnownDataSet
    data: DataSet
    trained: nn.Module
    tokenizer: Tokenizer
    settings: FinetuneSettings
    saved: SavedTask
    train: list[Example]
    threshold_part: list[Example]

    @property
    def longest(self) -> int:
        return longest_for(self.trained.config.max_positions, self.data.kind, self.settings.task.max_length)

    def encode(self, examples: list[Example]) -> Features:
        return self.saved.task.encode(examples, self.tokenizer, self.longest)

    @cached_property
    def train_features(self) -> Features:
        return self.encode(self.train)

    @cached_property
    def dev_features(self) -> Features:
        return self.encode(self.data.parts["dev"])


def longest_for(max_positions: int, kind: str, asked: int | None) -> int:
    return min(max_positions, asked or (SPAN_LENGTH if kind == "spans" else max_positions))


def open_inputs(request: Request, data: Any, say: Say) -> Inputs:
    """Reads data and model, decides all settings, and says what was guessed and what was wrong."""
    named = known(request.task)
    seed = int(request.all_changes().get("runtime.seed", 0))
    read_data = read(
        request.task, data, text=request.text, pair=request.pair, label=request.label, strict=request.strict, seed=seed
    )
    for words in read_data.said:
        say(words)
    if not read_data.parts.get("train"):
        raise ValueError("there is no training part in the data: give a train file beside the dev one")
    if not read_data.parts.get("dev"):
        raise ValueError("there is nothing to validate on: give a dev file, or more examples")
    trained, tokenizer = load_folder(model_folder(request.model))
    width = trained.config.width
    settings = settings_for(named, width, request.all_changes())
    if request.lr is None and "optimizer.lr" not in request.changes and width_factor(width) > 1:
        say(f"learning rate {settings.optimizer.lr:g}: higher than the published one, as the model is {width} wide")
    answerable = named.may_be_none and settings.task.no_answer == "classifier"
    output = output_for(read_data, settings.task.head, settings.task.pair_encoding, answerable)
    saved = make_task(named, read_data, output)
    train, threshold_part = _training_part(read_data, named, settings)
    return Inputs(named, read_data, trained, tokenizer, settings, saved, train, threshold_part)


def _training_part(
    data: DataSet, named: KnownDataSet, settings: FinetuneSettings
) -> tuple[list[Example], list[Example]]:
    train, held_out = data.parts["train"], []
    if named.may_be_none and settings.task.threshold_share > 0 and len(train) > 20:
        train, held_out, _ = hold_out(train, settings.task.threshold_share, settings.runtime.seed)
    if settings.examples is not None and settings.examples < len(train):
        generator = np.random.default_rng(seed_of(settings.runtime.seed, "examples"))
        train = [train[i] for i in sorted(generator.permutation(len(train))[: settings.examples])]
    if settings.task.swapped_pairs:
        if not isinstance(train[0], TextExample) or train[0].pair is None:
            raise ValueError("task.swapped_pairs is for pairs of texts, and these examples have none")
        train = [each for pair in train for each in (pair, replace(pair, text=pair.pair, pair=pair.text))]
    return train, held_out
