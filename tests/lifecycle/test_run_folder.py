"""The folder of a run: started, resumed or refused, with one record and one form of refusal."""

from dataclasses import dataclass, field

import pytest

from hornbook.config import ValidatedSettings, iter_settings, setting
from hornbook.files import hard_link_files, read_json
from hornbook.lifecycle.requests import SETTING_OF, RunRequest, as_overrides, changed_values, request_differences
from hornbook.lifecycle.run_folder import RunFolder, recorded


@dataclass(frozen=True)
class Schedule(ValidatedSettings, group="schedule"):
    steps: int = setting(5, "steps", low=1, high=100)


@dataclass(frozen=True)
class Settings(ValidatedSettings, group=""):
    schedule: Schedule = field(default_factory=Schedule)
    stages: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Asked(RunRequest):
    model: str
    init_from: str | None = None
    steps: int | None = setting(None, "steps", low=1, high=100)


def test_a_folder_is_started_resumed_or_refused(tmp_path):
    folder = RunFolder(tmp_path / "run", "pretrain")
    assert not folder.is_started(resume=False)
    folder.write_record({"a": 1}, {}, Settings(), preset="tiny")
    assert folder.is_started(resume=True) and folder.read_record()["settings"] == {
        "schedule": {"steps": 5},
        "stages": {},
    }
    keys = {"hornbook", "torch", "command", "preset", "request", "inputs", "runtime", "settings", "unused"}
    assert read_json(folder.record).keys() == keys and recorded(folder.path)["command"] == "pretrain"
    with pytest.raises(ValueError, match="already holds a run: add resume=True"):
        folder.is_started(resume=False)
    with pytest.raises(ValueError, match=r"holds a run of 'pretrain', not of 'prompt': resume it with that command"):
        RunFolder(folder.path, "prompt").read_record()
    with pytest.raises(ValueError, match=r"run\.json is damaged \(it lacks 'heads'\)"):
        folder.read_record(lambda record: record["heads"])
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="exists and is not an experiment: choose another folder"):
        RunFolder(tmp_path, "reproduce", what="an experiment").is_started(resume=True)
    assert recorded(tmp_path) == recorded(None) == {}


def test_what_differs_is_listed_in_one_form(tmp_path):
    folder, settings = RunFolder(tmp_path, "pretrain"), Settings(stages={"1.epochs": 3.0})
    before = Asked("m", steps=5, overrides={"stages.1.epochs": "3"}).to_dict()
    same = (
        Asked("m"),
        Asked("m", steps=5),
        Asked("m", overrides={"schedule.steps": "5", "stages.1.epochs": 3}),
    )
    for request in same:
        folder.refuse(request_differences(before, request, settings))
    other = Asked("n", "b", 6, overrides={"stages.1.epochs": "4"})
    with pytest.raises(ValueError) as error:
        folder.refuse(request_differences(before, other, settings))
    assert str(error.value) == (
        f"{tmp_path} was started with other settings: model is m, not n; init_from= is not set, not b; "
        "stages.1.epochs is 3.0, not 4; schedule.steps is 5, not 6; leave these options out to resume, or choose "
        "another folder"
    )
    assert [each.name for each in request_differences(before, other)] == [
        *("model", "init_from=", "stages.1.epochs", "schedule.steps")
    ]
    with pytest.raises(ValueError, match=r"the data in x is not what .* was started with: restore it"):
        folder.refuse_other_input("the data in x", "abc", "abd")


def test_values_that_are_left_out_count_where_nothing_is_taken_from_the_record(tmp_path):
    differences = changed_values(
        {"way": "a", "some": {"x": 1, "y": 2}, "sizes": [1]}, {"some": {"x": 1}, "sizes": (1,)}
    )
    assert differences == [("some.y", 2, None)]
    with pytest.raises(ValueError, match=r"some\.y is 2 and is now left out; "):
        RunFolder(tmp_path, "probe").refuse(differences)


def test_every_option_names_a_setting():
    from hornbook.runs.finetuning.settings import TaskDistillationSettings
    from hornbook.runs.pretraining.settings import PretrainSettings

    kinds = (PretrainSettings(), TaskDistillationSettings())
    assert set(SETTING_OF.values()) <= {each.name for kind in kinds for each in iter_settings(kind)}
    assert as_overrides(steps=3, lr=None, seed=0) == {"schedule.steps": 3, "runtime.seed": 0}


def test_files_are_linked_with_and_without_subfolders(tmp_path):
    checkpoint, run = tmp_path / "run" / "checkpoints" / "step-1", tmp_path / "run"
    (checkpoint / "1_Pooling").mkdir(parents=True)
    for name in ("config.json", "state.json", "1_Pooling/config.json"):
        (checkpoint / name).write_text(name)
    (run / "config.json").write_text("older")

    hard_link_files(checkpoint, run, excluded=("state.json",))
    assert (run / "config.json").samefile(checkpoint / "config.json")
    assert sorted(path.name for path in run.iterdir()) == ["checkpoints", "config.json"]

    hard_link_files(checkpoint, run, "**/*", excluded=("state.json",))
    assert (run / "1_Pooling" / "config.json").read_text() == "1_Pooling/config.json"
    assert not (run / "state.json").exists()
