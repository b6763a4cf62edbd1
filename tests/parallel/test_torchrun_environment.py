"""What torchrun's environment means to the command line, and the commands of docs/scaling.md."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hornbook.batch import part_bounds
from hornbook.cli import app
from hornbook.runs.pretraining import pretrain as run
from hornbook.runs.pretraining.presets import preset_settings
from hornbook.train.parallel import torchrun
from hornbook.train.parallel.ranks import Ranks

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"


@pytest.fixture
def second_of_two(monkeypatch):
    for name, value in {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)


def test_one_process_without_torchrun(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")  # as other launchers leave it
    assert (torchrun.num_processes(), torchrun.rank(), torchrun.as_restarted(False, True)) == (1, 0, (False, True))


def test_only_some_commands_run_in_several_processes(second_of_two):
    found = CliRunner().invoke(app, ["evaluate", "runs/a", "--data", "b.csv"])
    assert str(found.exception) == "torchrun is for pretrain, finetune, distill: run hornbook evaluate without it"
    found = CliRunner().invoke(app, ["finetune", "gpt", "--task", "text", "--data", "b.toml", "--out", "c"])
    assert "run hornbook finetune --task text without it" in str(found.exception)


def test_a_run_that_was_started_again_resumes(second_of_two, monkeypatch):
    assert torchrun.as_restarted(resume=False, overwrite=True) == (False, False)  # the main rank overwrites
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert torchrun.as_restarted(resume=False, overwrite=True) == (True, False)


def test_parts_are_the_whole():
    for num in (0, 1, 3, 8, 33):
        for count in (1, 2, 5, 40):
            parts = [part_bounds(num, (index, count)) for index in range(count)]
            assert [example for first, last in parts for example in range(first, last)] == list(range(num))
            assert max(last - first for first, last in parts) <= num // count + 1


def commands() -> list[list[str]]:
    """The words after `-m hornbook` of every command of the page; those of the YAML file are lines of a list."""
    text = re.sub(r"^ +- +", "", PAGE.read_text(encoding="utf-8").replace("\\\n", " "), flags=re.MULTILINE)
    text = re.sub(r"\n(?=-m\n|hornbook\n|pretrain\n|bert-base\n|--\w)", " ", text)
    lines = [line.partition("#")[0].removesuffix("&\n") for line in text.splitlines() if "-m hornbook pretrain" in line]
    return [shlex.split(line.partition("-m hornbook")[2].replace("&", "")) for line in lines]


def test_the_commands_of_the_page_are_valid(tmp_path):
    assert len(commands()) == 6
    for words in commands():
        words = [word for word in words if word != "--resume" and "corpus" not in word and "/shared" not in word]
        words = [word for word in words if word != "--out" and not word.startswith("runs/")]
        found = CliRunner().invoke(app, [*words, "--show", "--json"])
        assert found.exit_code == 0, (words, found.exception)


def test_a_sharded_model_needs_the_memory_of_its_part(monkeypatch):
    settings = preset_settings("gpt3-1.3b", {"parallel.shard": True})
    monkeypatch.setattr("hornbook.devices.memory_of", lambda device: 16 * 2**30)
    with pytest.raises(ValueError, match=r"need 19\.. GiB, but cpu has 16.0 GiB: choose a smaller preset"):
        run._refuse_too_large(settings)
    monkeypatch.setattr(run, "current_ranks", lambda: Ranks(size=8))
    run._refuse_too_large(settings)
    with pytest.raises(ValueError, match="or spread it over several GPUs"):
        run._refuse_too_large(preset_settings("gpt3-1.3b", {}))
