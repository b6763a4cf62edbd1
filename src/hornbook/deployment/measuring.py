"""Any kind of model, opened for measurements (a run, a folder that `transformers` wrote, or an exported folder), and
its timing: every model runs once per round, so that noise affects all of them equally."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.config import checked
from hornbook.files import read_json
from hornbook.inference.predictor import Predictor
from hornbook.inference.task_model import build_task_model, read_finished_record
from hornbook.interop.files import weights_files
from hornbook.interop.hub import model_folder
from hornbook.interop.onnx import ONNX_FILE, OnnxModel, is_exported, load_model_and_tokenizer
from hornbook.models.flops import forward_flops, shape_of
from hornbook.models.head_config import HeadConfig
from hornbook.models.transformer import Transformer, count_parameters
from hornbook.report.measured import EXPORT_FILE
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.records import Example
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.runtime import torch_settings_restored

LARGEST_VALUES = {"length": 2**20, "rounds": 1_000_000, "threads": 1024, "batch_size": 1_000_000, "batch_threads": 1024}
WARM_UP_ROUNDS = 5  # not counted: caches fill, kernels are chosen
TimedCall = Callable[[int], object]  # runs input i to completion; timed


@dataclass(frozen=True)
class MeasuredModel:
    """A model with its size; `predictor` is None for a model without a task head."""

    name: str
    folder: Path
    model: nn.Module
    tokenizer: Tokenizer
    predictor: Predictor | None
    parameters: int
    num_bytes: int

    @property
    def kind(self) -> Literal["torch", "onnx", "onnx-int8"]:
        is_onnx = isinstance(self.model, OnnxModel)
        return read_json(self.folder / EXPORT_FILE)["request"]["format"] if is_onnx else "torch"

    @property
    def head_config(self) -> HeadConfig | None:
        return self.model.head_config

    @property
    def group_size(self) -> int:
        """Sequences per input."""
        return 1 if self.predictor is None else self.predictor.task.group_size

    def with_threads(self, num_threads: int) -> "MeasuredModel":
        """The model on this number of CPU threads, which only an ONNX session fixes."""
        if not isinstance(self.model, OnnxModel):
            return self
        return replace(self, model=self.model.with_threads(num_threads))

    @torch.no_grad()
    def outputs(self, batch: Batch) -> Tensor:
        return self.model(batch) if self.head_config is None else self.model.outputs(batch)

    def flops(self, num_tokens: float) -> float:
        """FLOPs of the forward pass of one sequence of `num_tokens` tokens."""
        return forward_flops(shape_of(self.model.config, num_tokens, 0.0, head="none"))

    def random_inputs(self, random: np.random.Generator, lengths: Sequence[int]) -> EncodedExamples:
        """Returns inputs of random tokens with these lengths."""
        if max(lengths) > self.model.config.max_positions:
            raise ValueError(
                f"{self.name} takes at most {self.model.config.max_positions} tokens, not {max(lengths)}: "
                f"set length to {self.model.config.max_positions} or less"
            )
        group_size = self.group_size
        ids = [random.integers(self.tokenizer.vocab_size, size=length) for length in np.repeat(lengths, group_size)]
        example_ids = np.repeat(np.arange(len(lengths)), group_size)
        return EncodedExamples(
            ids, [np.zeros_like(each) for each in ids], example_ids, len(lengths), group_size=group_size
        )

    def encode(self, examples: Sequence[Example]) -> EncodedExamples:
        """Encodes examples of the task that can be batched with the first one (`batchable`)."""
        task = self.predictor.task.for_example(examples[0])
        return task.encode(examples, self.tokenizer, self.predictor.max_length)

    def batchable(self, examples: Sequence[Example]) -> list[Example]:
        """The examples that can be batched with the first one: multiple choice needs equally many choices."""
        task = self.predictor.task
        return [each for each in examples if task.for_example(each) == task.for_example(examples[0])]


def open_measured_model(name: str | Path) -> MeasuredModel:
    """Opens a run folder, a folder that `transformers` wrote, a Hugging Face name, or an exported folder."""
    folder = model_folder(name)
    run = read_finished_record(folder)
    if is_exported(folder) and not (folder / EXPORT_FILE).is_file():
        raise ValueError(f"{folder} holds an {ONNX_FILE} but no {EXPORT_FILE}: export the model again")
    model, tokenizer = load_model_and_tokenizer(folder)
    if model.head_config is not None and model.head_config.graph is not None:
        raise ValueError(f"{name} reads a knowledge graph, so it can be neither exported nor compared: use evaluate")
    predictor = None if model.head_config is None else Predictor([build_task_model(folder, model, tokenizer, run)])
    if is_exported(folder):
        parameters, files = read_json(folder / EXPORT_FILE)["parameters"], [folder / ONNX_FILE]
    else:
        parameters, files = used_parameters(model), weights_files(folder)
    num_bytes = sum(file.stat().st_size for file in files)
    return MeasuredModel(str(name), folder, model, tokenizer, predictor, parameters, num_bytes)


def used_parameters(model: Transformer) -> int:
    """Counts the parameters used for the output, without pre-training heads that the task does not use."""
    used = () if model.head_config is None else model.heads_for(model.head_config)
    unused = [name for name in model.heads if name not in used]
    return count_parameters(model, lambda name, _: name.partition(".")[0] not in unused)


# ---- timing


def check_timing(settings: dict[str, int]) -> dict[str, int]:
    """Checks that the options of a measurement are in range, and returns them."""
    return {name: checked(value, int, name, low=1, high=LARGEST_VALUES[name]) for name, value in settings.items()}


def percentiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile in milliseconds."""
    return {f"p{percent}": 1000 * float(np.percentile(seconds, percent)) for percent in (50, 99)}


def time_interleaved(
    answers: Sequence[TimedCall],
    num_rounds: int,
    on_progress: Callable[[int], None] | None = None,
    num_warm_up: int = WARM_UP_ROUNDS,
) -> list[list[float]]:
    """Returns the seconds of every round for each. In round i all run input i; the one that runs first rotates."""
    seconds: list[list[float]] = [[] for _ in answers]
    for i in range(-num_warm_up, num_rounds):
        for turn in range(len(answers)):
            model = (i + turn) % len(answers)
            before = time.perf_counter()
            answers[model](max(i, 0))
            if i >= 0:
                seconds[model].append(time.perf_counter() - before)
        if on_progress and i >= 0:
            on_progress(i + 1)
    return seconds


def seconds_on_cpu(
    models: Sequence[MeasuredModel],
    batches: Sequence[Sequence[Batch]],
    num_threads: int,
    num_rounds: int,
    on_progress: Callable[[int], None],
    num_warm_up: int = WARM_UP_ROUNDS,
) -> list[list[float]]:
    """The seconds of every round for each model, with its own batches in turn, on this number of CPU threads."""
    threaded = [model.with_threads(num_threads) for model in models]
    answers = [
        lambda i, model=model, of_model=of_model: model.outputs(of_model[i % len(of_model)])
        for model, of_model in zip(threaded, batches, strict=True)
    ]
    with torch_settings_restored():
        torch.set_num_threads(num_threads)
        return time_interleaved(answers, num_rounds, on_progress, num_warm_up)
