"""A run leaves torch's settings of the process as it found them, also when it fails."""

import pytest
import torch
from tiny import TINY_MODEL

from hornbook.runs.finetuning.checking import check
from hornbook.runs.finetuning.finetune import finetune
from hornbook.runs.pretraining.pretrain import pretrain
from hornbook.train.runtime import torch_settings_restored

QUIET = {"log": lambda words: None}
ROWS = [{"text": f"the river {i}", "label": "ab"[i % 2]} for i in range(12)]


def settings_now() -> tuple:
    return (
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )


@pytest.fixture(params=[False, True], ids=["usual", "deterministic"])
def before(request) -> tuple:
    torch.use_deterministic_algorithms(request.param, warn_only=request.param)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.set_num_threads(2)
    return settings_now()


def test_pretraining_restores_them(before, tmp_path, tiny_corpus):
    seen = []
    pretrain(
        "bert-tiny",
        tiny_corpus,
        tmp_path / "run",
        steps=1,
        batch_tokens=512,
        overrides=TINY_MODEL,
        on_progress=lambda status: seen.append(settings_now()),
        **QUIET,
    )
    assert seen[-1] == (1, before[1], True, False, False)  # within the run, exact on a CPU
    assert settings_now() == before


def test_a_run_that_fails_restores_them(before, tmp_path, tiny_corpus):
    def fails(status):
        raise KeyError("the caller's display")

    with pytest.raises(KeyError):
        pretrain("bert-tiny", tiny_corpus, tmp_path / "run", steps=1, overrides=TINY_MODEL, on_progress=fails, **QUIET)
    assert settings_now() == before


def test_fine_tuning_restores_them(before, tmp_path, tiny_run):
    finetune(tiny_run, ROWS, out=tmp_path / "run", epochs=1, overrides={"runtime.threads": 1}, **QUIET)
    assert settings_now() == before


def test_measuring_the_time_of_a_fine_tuning_restores_them(before, tiny_run):
    assert check(ROWS, model=tiny_run, overrides={"runtime.threads": 1})["training"]["steps"] > 0
    assert settings_now() == before


def test_ctrl_c_while_torch_imports_its_compiler_is_no_other_error(monkeypatch):
    """`use_deterministic_algorithms` imports the compiler. If Ctrl-C interrupts that, a second call would fail."""
    calls = []

    def interrupted(*arguments, **options):
        calls.append(arguments)
        raise KeyboardInterrupt if len(calls) == 1 else AttributeError("partially initialized module")

    monkeypatch.setattr(torch, "use_deterministic_algorithms", interrupted)
    with pytest.raises(KeyboardInterrupt), torch_settings_restored():
        torch.use_deterministic_algorithms(True)
