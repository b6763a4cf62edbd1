"""KagNet on a GPU: the outputs and gradients of a CPU, also of padded micro-batches, and a run from data to paths."""

import pytest
import torch
from reasoning.test_kagnet_head import encoded, make
from tool_questions import questions, write_graph

from hornbook.inference.explaining import explain
from hornbook.runs.finetuning.finetune import finetune
from hornbook.tasks.objective import TaskObjective
from hornbook.train.step import bucketed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]
__all__ = ["encoded"]


def test_outputs_and_gradients_are_those_of_a_cpu(encoded):
    found = []
    for device in ("cpu", "cuda"):
        model = make().to(device).train()  # cuDNN computes gradients of an LSTM in training mode only
        model.task.dropout.p = 0.0
        batch = encoded.packed(range(6)).to(torch.device(device))
        step_inputs = TaskObjective(model.head_config).prepare(batch, seed=0)
        step_inputs = bucketed(step_inputs) if device == "cuda" else step_inputs
        logits = model.outputs(step_inputs.batch)[:3]
        logits.square().sum().backward()
        gradients = {name: each.grad.cpu() for name, each in model.named_parameters() if each.grad is not None}
        found.append((logits.detach().cpu(), gradients))
    (on_cpu, expected), (on_gpu, gradients) = found
    assert torch.allclose(on_cpu, on_gpu, atol=1e-4) and expected.keys() == gradients.keys()
    assert all(torch.allclose(value, gradients[name], atol=1e-3) for name, value in expected.items())


def test_a_run_learns_which_tool_is_used(tmp_path, tiny_run):
    pytest.importorskip("ahocorasick_rs", reason="linking needs the extra `graph`")
    rows = questions("en")
    overrides = {"layers.frozen": -1, "reason.width": 32, "runtime.device": "cuda"}
    options = {"reason": "kagnet", "graph": write_graph(tmp_path, "en"), "epochs": 12, "batch_size": 8, "lr": 2e-3}
    run = finetune(
        tiny_run,
        {"train": rows[8:], "dev": rows[:8]},
        "choice",
        tmp_path / "run",
        overrides=overrides,
        log=lambda words: None,
        **options,
    )
    assert run.score >= 0.9
    found = explain(run.out, "With what?", ["trowel", "excavator"], "They dug the ground to build a house.")
    assert found.answer == "excavator"
    assert sum(each.weight for each in found.choices[1].paths) == pytest.approx(1, abs=1e-5)
