"""Multi-label tasks of many labels: a new head starts from their frequencies, and eps is smaller."""

import math

import numpy as np
import pytest
import torch
from finetuned import encoder, finetuned
from safetensors.torch import load_file

from hornbook.batch import pack
from hornbook.inference.predictor import load_predictor
from hornbook.models.bert import Bert, BertConfig
from hornbook.models.gpt import Gpt2, Gpt2Config
from hornbook.models.head_config import HeadConfig
from hornbook.runs.finetuning.inputs import open_inputs
from hornbook.runs.finetuning.layers import start_at_frequencies, start_at_mean, with_head
from hornbook.runs.finetuning.record import FinetuneRequest

OUTPUT = HeadConfig("sequence", 3, ("a", "b", "c"), "multi_label_classification")
LABELS_NL = np.array([[1, 0, 0]] * 3 + [[1, 1, 0]] * 5, np.float32)
SIZES = {"num_layers": 2, "width": 16, "num_heads": 2, "inner_width": 32, "max_positions": 16}
ROWS = [{"text": f"the river of {i}", "labels": "b" if i % 8 else "a|b"} for i in range(40)]


def test_frequencies_by_hand():
    """A label of no example and one of all have half an example more or less."""
    model = Bert(BertConfig(70, **SIZES, dropout=0.0), ("pooler",))
    model.initialize(torch.Generator().manual_seed(0))
    model, _ = with_head(model, OUTPUT, 0)
    start_at_frequencies(model, LABELS_NL)
    expected = [math.log(p / (1 - p)) for p in (8.5 / 9, 5.5 / 9, 0.5 / 9)]
    assert model.task.out.bias.tolist() == pytest.approx(expected)
    outputs = model.eval().outputs(pack([np.arange(2, 9), np.arange(5, 8)]))
    # The weights are small at the start, so every text has about these probabilities.
    assert torch.sigmoid(outputs).detach().numpy() == pytest.approx(np.array([[8.5, 5.5, 0.5]] * 2) / 9, abs=0.05)


def test_a_head_without_a_bias_is_left_as_it_is():
    model = Gpt2(Gpt2Config(70, **SIZES), (), OUTPUT)
    model.initialize(torch.Generator().manual_seed(0))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    start_at_frequencies(model, LABELS_NL)
    assert model.task.out.bias is None
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_head_without_a_bias_is_noted_where_numbers_are_far_from_0():
    """It starts at 0, thousands of steps from the mean."""
    said: list[str] = []
    model = Gpt2(Gpt2Config(70, **SIZES), (), HeadConfig("sequence", 1, ("score",), "regression", scale=32))
    start_at_mean(model, np.array([1000, 1040], np.float32), said.append)
    assert "starts at 0, far from the labels, whose mean is 1020" in said.pop()
    start_at_mean(model, np.array([-20, 40], np.float32), said.append)
    assert not said


def test_eps_is_smaller_with_more_labels(tmp_path, tiny_tokenizer):
    """The loss is a mean over labels."""
    model, logged = encoder(tmp_path / "encoder", tiny_tokenizer), []
    rows = {"train": [{"text": f"the river of {i}", "labels": f"{i}|many"} for i in range(40)], "dev": ROWS[:4]}

    def eps(task: str, data: dict, **overrides: float) -> float:
        request = FinetuneRequest(str(model), task, None, overrides=overrides)
        return open_inputs(request, data, logged.append).settings.optimizer.eps

    assert eps("multi-label", rows) == pytest.approx(1e-6 / 41, rel=0.01)
    assert any(line.startswith("optimizer.eps=2.44e-08") and "41 labels" in line for line in logged)
    assert eps("multi-label", rows, **{"optimizer.eps": 1e-7}) == 1e-7
    plain = [{"text": row["text"], "label": "ab"[i % 2]} for i, row in enumerate(ROWS)]
    assert eps("classification", {"train": plain, "dev": plain}) == 1e-6


def test_a_run_starts_there_and_keeps_a_learned_head(tmp_path, tiny_tokenizer):
    data = {"train": ROWS, "dev": ROWS[:10]}
    frozen = {"layers.frozen": -1, "layers.head_lr_ratio": 1e-9}
    first = finetuned(tmp_path / "first", encoder(tmp_path / "encoder", tiny_tokenizer), "multi-label", data, **frozen)
    chances = load_predictor(first).predict([ROWS[0]["text"]])[0].probabilities
    assert chances["a"] == pytest.approx(5.5 / 41, abs=0.05) and chances["b"] == pytest.approx(40.5 / 41, abs=0.05)
    other = {"train": [{"text": row["text"], "labels": "a|b" if i % 2 else "a"} for i, row in enumerate(ROWS)]}
    second = finetuned(tmp_path / "second", first, "multi-label", other | {"dev": ROWS[:10]}, **frozen)
    one, two = (load_file(run / "model.safetensors")["classifier.bias"] for run in (first, second))
    assert two.tolist() == pytest.approx(one.tolist(), abs=1e-6)
