import json
from dataclasses import FrozenInstanceError, asdict, dataclass, field
from typing import Literal

import numpy as np
import pytest
import torch

from hornbook.config import (
    ValidatedSettings,
    checked,
    from_dict,
    iter_settings,
    parsed,
    setting,
    with_overrides,
)


@dataclass(frozen=True)
class Inner:
    rate: float = setting(0.1, "how fast")
    steps: int = setting(10, "how often")
    kind: Literal["a", "b"] = setting("a", "which")

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"inner.steps must be at least 1, not {self.steps}")


@dataclass(frozen=True)
class Middle:
    inner: Inner = field(default_factory=Inner)
    name: str = setting("x", "a name")


@dataclass(frozen=True)
class Settings:
    inner: Inner = field(default_factory=Inner)
    middle: Middle = field(default_factory=Middle)
    on: bool = setting(True, "whether")
    most: int | None = setting(None, "at most")
    names: tuple[str, ...] = setting(("p", "q"), "some names")
    sizes: tuple[int, ...] = setting((1,), "some sizes")


def test_listed_names_every_setting_with_its_line():
    found = list(iter_settings(Settings()))
    names = ["inner.rate", "inner.steps", "inner.kind", "middle.inner.rate", "middle.inner.steps", "middle.inner.kind"]
    assert [each.name for each in found] == [*names, "middle.name", "on", "most", "names", "sizes"]
    assert found[0] == ("inner.rate", 0.1, "how fast") and all(each.doc for each in found)


def test_changed_gives_a_new_value():
    old = Settings()
    new = with_overrides(
        old, {"inner.rate": "3e-4", "middle.inner.steps": "1e6", "on": "no", "most": "5", "names": "a, b,c"}
    )
    assert new.inner == Inner(rate=3e-4) and new.middle.inner.steps == 1_000_000
    assert new.on is False and new.most == 5 and new.names == ("a", "b", "c")
    assert old == Settings()
    assert with_overrides(new, {"most": "none"}).most is None
    assert with_overrides(old, {"inner.steps": 7, "inner.rate": 1.0}).inner == Inner(1.0, 7)  # not text: taken as it is
    assert with_overrides(old, {}) == old
    with pytest.raises(FrozenInstanceError):
        new.on = True


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("inner.rat", "inner.rate"),
        ("inner.kinds", "inner.kind"),
        ("rate", "inner.rate"),  # the group was forgotten
        ("outer.steps", "inner.steps"),
        ("middle.innner.steps", "middle.inner.steps|inner.steps"),
        ("middle.nme", "middle.name"),
        ("sises", "sizes"),
        ("inner", "inner.rate|inner.kind"),  # a group is no setting
        ("on.off", "on"),
    ],
)
def test_an_unknown_name_is_met_with_the_nearest(name, nearest):
    with pytest.raises(ValueError, match=f"no setting '{name}'; did you mean '({nearest})'"):
        with_overrides(Settings(), {name: "1"})


def test_a_name_like_no_other():
    with pytest.raises(ValueError, match="there is no setting 'zzzzzz'; the groups are "):
        with_overrides(Settings(), {"zzzzzz": "1"})
    with pytest.raises(ValueError, match="there is no setting 'zzzzzz'; the settings are "):
        with_overrides(Settings().inner, {"zzzzzz": "1"})


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("-3", -3),
        (" +8 ", 8),
        ("1e6", 10**6),
        ("2.5e3", 2500),
        ("1_000", 1000),
        ("131,072", 131_072),
        ("4.0", 4),
        ("9007199254740993", 2**53 + 1),
    ],
)
def test_whole_numbers(text, number):
    found = parsed(text, int, "n")
    assert found == number and type(found) is int


@pytest.mark.parametrize("text", ["", "x", "1.5", "1e-3", "nan", "inf", "-inf", "1e999", "--1", "0x10", "²", "none"])
def test_what_is_no_whole_number(text):
    with pytest.raises(ValueError, match=r"^a\.b must be a whole number, not '"):
        parsed(text, int, "a.b")


def test_numbers():
    assert parsed("1e-4", float, "n") == 1e-4 and parsed("3", float, "n") == 3.0 and parsed("inf", float, "n") > 1e300
    for text in ("", "x", "1,5", "nan", "true"):
        with pytest.raises(ValueError, match=f"^a.b must be a number, not '{text}'"):
            parsed(text, float, "a.b")


def test_yes_and_no():
    assert all(parsed(text, bool, "n") is True for text in ("true", "True", "yes", "on", "1"))
    assert all(parsed(text, bool, "n") is False for text in ("false", "FALSE", "no", "off", "0"))
    with pytest.raises(ValueError, match="n must be true or false, not 'maybe'"):
        parsed("maybe", bool, "n")


def test_one_of_a_few():
    assert parsed("b", Literal["a", "b"], "n") == "b"
    with pytest.raises(ValueError, match="n must be one of a, b, not 'c'"):
        parsed("c", Literal["a", "b"], "n")


def test_none_and_more():
    assert [parsed(text, int | None, "n") for text in ("none", "None", "null", "", "3")] == [None] * 4 + [3]
    with pytest.raises(ValueError, match="whole number"):
        parsed("x", int | None, "n")
    assert parsed("none", str, "n") == "none"
    assert parsed("1, 2,3,", tuple[int, ...], "n") == (1, 2, 3) and parsed("", tuple[str, ...], "n") == ()
    with pytest.raises(ValueError, match="whole number"):
        parsed("1,x", tuple[int, ...], "n")


def test_a_bad_value_is_named_in_full():
    with pytest.raises(ValueError, match=r"^middle\.inner\.steps must be a whole number, not 'many'"):
        with_overrides(Settings(), {"middle.inner.steps": "many"})
    with pytest.raises(ValueError, match=r"inner\.steps must be at least 1, not 0"):
        with_overrides(Settings(), {"inner.steps": "0"})


@dataclass(frozen=True)
class Checked(ValidatedSettings, group="group"):
    share: float = setting(0.5, "a share", low=0, below=1)
    steps: int = setting(10, "how often", low=1, high=1000)
    on: bool = setting(True, "whether")
    sizes: tuple[int, ...] = setting((1,), "some sizes", low=1)
    most: int | None = setting(None, "at most", low=0)


@dataclass(frozen=True)
class Larger(Checked):
    steps: int = setting(20, "how often")  # the range is that of its base


@pytest.mark.parametrize("value", [1000, 1e3, np.int64(1000), np.float32(1000), np.array(1000), torch.tensor(1000)])
def test_whole_numbers_of_python(value):
    found = Checked(steps=value).steps
    assert found == 1000 and type(found) is int
    assert (
        with_overrides(Checked(), {"steps": value})
        == with_overrides(Checked(), {"steps": "1e3"})
        == Checked(steps=1000)
    )


def test_numpy_scalars_become_numbers_of_python():
    found = Checked(share=np.float64(0.25), on=np.bool_(False), sizes=[np.int32(3), 4.0], most=np.uint8(0))
    assert found == Checked(0.25, on=False, sizes=(3, 4), most=0)
    assert [type(value) for value in (found.share, found.on, *found.sizes)] == [float, bool, int, int]
    json.dumps(asdict(found))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("steps", 1e3 + 0.5, "group.steps must be a whole number, not 1000.5"),
        ("steps", True, "group.steps must be a whole number, not True"),
        ("steps", np.bool_(True), "group.steps must be a whole number, not True"),
        ("steps", None, "group.steps must be a whole number, not None"),
        ("steps", {}, "group.steps must be a whole number, not {}"),
        ("steps", float("inf"), "group.steps must be a whole number, not inf"),
        ("steps", 0, "group.steps must be at least 1, not 0"),
        ("steps", 1e18, "group.steps must be at least 1 and at most 1,000, not 1000000000000000000"),
        ("most", 2.5, "group.most must be a whole number, not 2.5"),
        ("most", -1, "group.most must be at least 0, not -1"),
        ("share", 1, "group.share must be at least 0 and below 1, not 1"),
        ("share", float("nan"), "group.share must be at least 0 and below 1, not nan"),
        ("share", -float("inf"), "group.share must be at least 0, not -inf"),
        ("share", 10**400, "group.share must be at least 0 and below 1, not inf"),
        ("on", 1, "group.on must be true or false, not 1"),
        ("sizes", (1, 0), "group.sizes must be at least 1, not 0"),
        ("sizes", 3, "group.sizes must be a list, not 3"),
    ],
)
def test_values_of_python_and_of_files_meet_the_checks_of_the_command_line(name, value, words):
    for make in (
        lambda: Checked(**{name: value}),
        lambda: Larger(**{name: value}),
        lambda: with_overrides(Checked(), {name: value}),
        lambda: from_dict(Checked, {name: value}),
    ):
        with pytest.raises(ValueError) as refused:
            make()
        assert str(refused.value) == words


def test_one_value_alone_is_checked():
    with pytest.raises(ValueError, match=r"^n must be a number, not 'x{59}\.\.\.$"):
        checked("x" * 1000, float, "n")
    assert checked(1e3, int, "n") == 1000 and checked(None, int | None, "n") is None
    with pytest.raises(ValueError, match=r"^top must be at least 1, not 0$"):
        checked(0, int, "top", low=1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"steps": 1e3 + 0.5}, "steps must be a whole number, not 1000.5"),
        ({"steps": True}, "steps must be a whole number, not True"),
        ({"steps": "many"}, "steps must be a whole number, not 'many'"),
        ({"minutes": float("nan")}, "minutes must be above 0"),
        ({"batch_tokens": [512]}, "batch_tokens must be a whole number"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"overrides": {"optimizer.lr": "fast"}}, "optimizer.lr must be a number"),
        ({"overrides": {"optimizer.lr": float("inf")}}, "optimizer.lr must be above 0 and at most 100, not inf"),
        ({"overrides": {"model.init_std": -1}}, "model.init_std must be above 0, not -1"),
    ],
)
def test_pretrain_checks_its_arguments_before_it_begins(tmp_path, tiny_corpus, arguments, words):
    from hornbook.runs.pretraining.pretrain import pretrain

    with pytest.raises(ValueError, match=f"^{words}"):
        pretrain("bert-tiny", tiny_corpus, tmp_path / "run", **arguments)
    assert not (tmp_path / "run").exists()


def test_pretrain_takes_a_whole_float_and_numbers_of_numpy(tmp_path, tiny_corpus):
    from tiny import TINY_MODEL

    from hornbook.files import read_json
    from hornbook.runs.pretraining.pretrain import pretrain

    sizes = {name: np.int64(value) if isinstance(value, int) else value for name, value in TINY_MODEL.items()}
    outcome = pretrain(
        "bert-tiny", tiny_corpus, tmp_path / "run", steps=2e0, seed=np.int64(3), batch_tokens=512.0, overrides=sizes
    )
    assert outcome.step == 2
    assert read_json(tmp_path / "run" / "run.json")["request"]["steps"] == 2


def test_settings_come_back_from_json():
    settings = with_overrides(
        Settings(), {"inner.kind": "b", "most": "3", "names": "z", "middle.name": "y", "sizes": "4,5"}
    )
    back = from_dict(Settings, json.loads(json.dumps(asdict(settings))))
    assert back == settings and isinstance(back.middle.inner, Inner) and back.names == ("z",)
    assert from_dict(Settings, {"on": False}) == Settings(on=False)  # what is not in the record has its default


@dataclass(frozen=True)
class Several:
    groups: tuple[Inner, ...] = setting((), "some groups")


def test_a_list_of_groups_is_read_and_checked():
    settings = Several((Inner(steps=3), Inner(kind="b")))
    assert from_dict(Several, json.loads(json.dumps(asdict(settings)))) == settings
    with pytest.raises(ValueError, match=r"'groups\[1\]\.step'; did you mean 'groups\[1\]\.steps'"):
        from_dict(Several, {"groups": [{}, {"step": 4}]})


def test_names_that_are_no_more_are_refused():
    with pytest.raises(ValueError, match="no setting 'onn'; did you mean 'on'"):
        from_dict(Settings, {"onn": True})
    with pytest.raises(ValueError, match=r"did you mean 'inner\.rate'"):
        from_dict(Settings, {"inner": {"rates": 1.0}})
    with pytest.raises(ValueError, match="at least 1"):
        from_dict(Settings, {"inner": {"steps": 0}})


def test_the_settings_of_a_run_survive_json():
    from hornbook.models.registry import model_class_of
    from hornbook.runs.pretraining.presets import PRESETS, preset_settings
    from hornbook.runs.pretraining.settings import settings_in

    overrides = {"data.held_out_fraction": "0.02", "schedule.steps": "1e3"}
    for preset in PRESETS:
        settings = preset_settings(preset, overrides)
        family = model_class_of(settings.model).naming.model_type
        assert settings_in(json.loads(json.dumps({"family": family, "settings": asdict(settings)}))) == settings
    assert all(each.doc for each in iter_settings(settings))
    with pytest.raises(ValueError, match=r"masking\.unit must be one of token, word, ngram, not 'words'"):
        preset_settings("bert-tiny", {"masking.unit": "words"})


@pytest.mark.parametrize(
    ("preset", "name", "value", "why"),
    [
        (
            "gpt2-small",
            "masking.probability",
            0.2,
            r"masking\.probability would have no effect: a left-to-right model predicts every next token",
        ),
        ("gpt1-base", "data.single_segment_probability", 0.2, "reads concatenated documents"),
        ("bert-tiny", "data.crosses_documents", True, r"would have no effect: it is for a GPT"),
        ("bert-tiny", "masking.max_ngram", 2, r"it is for masking\.unit=ngram"),
        ("roberta-base", "data.short_sequence_probability", 0.2, r"set data\.layout=pairs too"),
        ("roberta-base", "objective.sentence_weight", 2.0, "there is no sentence task"),
        ("gpt3-125m", "schedule.power", 2.0, r"exponent of schedule\.decay=polynomial"),
    ],
)
def test_what_an_objective_does_not_read_is_refused(preset, name, value, why):
    from hornbook.runs.pretraining.presets import preset_settings

    with pytest.raises(ValueError, match=why):
        preset_settings(preset, {name: value})
    with pytest.raises(ValueError, match="did you mean"):
        preset_settings(preset, {f"{name}s": value})


def test_two_settings_of_which_one_turns_off_the_other_are_refused():
    from hornbook.runs.pretraining.presets import preset_settings

    with pytest.raises(ValueError, match=r"loss_spike\.min_increase would have no effect: loss_spike\.deviations=0"):
        preset_settings("bert-tiny", {"loss_spike.deviations": 0, "loss_spike.min_increase": 2})
    assert preset_settings("bert-tiny", {"masking.unit": "ngram", "masking.max_ngram": 2}).masking.max_ngram == 2


@pytest.mark.parametrize(
    ("name", "known"),
    [("learning_rate", "optimizer.lr"), ("hidden_size", "model.width"), ("max_steps", "schedule.steps")],
)
def test_names_of_other_libraries_lead_to_ours_without_a_group(name, known):
    from hornbook.runs.pretraining.presets import preset_settings

    with pytest.raises(ValueError, match=f"did you mean '{known}'"):
        preset_settings("bert-tiny", {name: 1})


def test_commas_separate_thousands_only():
    from hornbook.runs.pretraining.presets import preset_settings

    assert preset_settings("bert-tiny", {"schedule.steps": "1,500,000"}).schedule.steps == 1_500_000
    for text in ("1,5", "1,5000", ",500"):
        with pytest.raises(ValueError, match=r"schedule\.steps must be a whole number"):
            preset_settings("bert-tiny", {"schedule.steps": text})


@pytest.mark.parametrize(
    ("name", "words"),
    [("schedule.steps", "epochs"), ("batch.tokens", "batch_size"), ("validation.tokens", "whole dev")],
)
def test_fine_tuning_refuses_what_only_pretraining_reads(name, words):
    from hornbook.runs.finetuning.published import settings_for
    from hornbook.tasks.datasets import find_task

    with pytest.raises(ValueError, match=f"{name} would have no effect: .*{words}"):
        settings_for(find_task("mrpc"), None, {name: 100})
