"""Warming up on a side stream, as far as it can be tested without a GPU, and evaluation mode."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from hornbook import devices


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
