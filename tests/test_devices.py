"""Warming up on a side stream and the current GPU, as far as they can be tested without one, and evaluation mode."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from hornbook import devices
from hornbook.deployment import comparison
from hornbook.inference import decoding_state
from hornbook.models.gpt import Gpt2, Gpt2Config
from train.small import small_batch
from train.test_step import stepper


class Stream:
    def __init__(self, device: int | None = None):
        self.device, self.waited_for = device, []

    def wait_stream(self, other: "Stream") -> None:
        self.waited_for.append(other)


def test_all_captures_are_tried_on_one_stream(monkeypatch):
    """Each side waits for the other; another stream each time would have cuBLAS keep a workspace for each."""
    main, made, ran_on = Stream(), [], []

    def new(device: int) -> Stream:
        made.append(Stream(device))
        return made[-1]

    def on(stream: Stream) -> nullcontext:
        ran_on.append(stream)
        return nullcontext()

    for name, value in {
        "Stream": new,
        "stream": on,
        "current_stream": lambda: main,
        "current_device": lambda: 3,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    devices._side_stream.cache_clear()
    try:
        for _ in range(2):
            with devices.warm_up_on_side_stream():
                assert made[0].waited_for[-1] is main
            assert main.waited_for[-1] is made[0]
        assert len(made) == 1 and made[0].device == 3 and ran_on == made * 2
    finally:
        devices._side_stream.cache_clear()


@pytest.mark.parametrize("was_training", [True, False])
def test_a_module_returns_to_its_mode_after_evaluation(was_training):
    module = nn.Sequential(nn.Dropout()).train(was_training)
    with pytest.raises(RuntimeError, match="out of memory"), devices.evaluation_mode(module):
        assert not module.training and not module[0].training
        raise RuntimeError("out of memory")
    assert module.training is module[0].training is was_training


def test_a_gpu_beyond_those_of_the_machine_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [devices.chosen_device(name) for name in ("auto", "cuda", "cuda:1")] == ["cuda", "cuda", "cuda:1"]
    with pytest.raises(ValueError, match="device cuda:2 was requested, but the last GPU here is cuda:1: use a lower"):
        devices.chosen_device("cuda:2")


@pytest.fixture
def current(monkeypatch) -> list[torch.device]:
    """The GPUs that are current, the innermost last."""
    current = []

    @contextmanager
    def device(gpu: torch.device) -> Iterator[None]:
        current.append(gpu)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device", device)
    return current


SECOND_GPU = torch.device("cuda", 1)


def test_a_training_step_runs_with_its_gpu_as_the_current_one(current, monkeypatch):
    """Triton launches kernels, and torch captures CUDA graphs, on the current GPU: the first one by default."""
    one = stepper(4096)
    monkeypatch.setattr(one, "_train_step", lambda *_: list(current))
    assert one.train_step(small_batch(0), 0, 1e-3) == []
    one.runtime = replace(one.runtime, device=SECOND_GPU)
    assert one.train_step(small_batch(0), 0, 1e-3) == [SECOND_GPU]


def test_a_decoding_step_is_captured_with_its_gpu_as_the_current_one(current, monkeypatch):
    config = Gpt2Config(vocab_size=9, num_layers=1, width=8, num_heads=1, inner_width=8, max_positions=4)
    state = decoding_state.DecodingState(Gpt2(config), 2, 4)
    state.device, captured_on = SECOND_GPU, []
    monkeypatch.setattr(state, "_capture", lambda: captured_on.extend(current))
    with pytest.raises(AttributeError):  # there is nothing to replay
        state.step(torch.zeros(2, dtype=torch.int64))
    assert captured_on == [SECOND_GPU]


def test_the_comparison_waits_for_the_gpu_that_it_times(monkeypatch):
    waited_for, batch, model = [], Mock(), Mock()
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *device: waited_for.extend(device))
    comparison._answer_on_gpu(model, batch, "cuda:1", 0)
    model.outputs.assert_called_once_with(batch.to("cuda:1"))
    assert waited_for == ["cuda:1"]
