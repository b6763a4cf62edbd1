"""The experiment file: its keys, and a one-sentence error for everything that is invalid."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from smallest import SMALLEST, write_smallest

from hornbook.evaluation.experiments.definition import SHIPPED, Experiment, read_experiment
from hornbook.models import registry
from hornbook.runs.finetuning.published import settings_for


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("flops =", "flop =", "there is no setting 'equal.flop'; did you mean 'equal.flops'"),
        ('preset = "bert-tiny"', 'presets = "bert-tiny"', r"'arms\[0\]\.presets'; did you mean 'arms\[0\]\.preset'"),
        ('preset = "bert-tiny"', 'preset = "bert-tony"', "there is no preset 'bert-tony'; did you mean bert-tiny"),
        ("model.width = 32", "model.widht = 32", "'model.widht'; did you mean 'model.width'"),
        ("epochs = 1.0", "epoch = 1.0", "'epoch'; did you mean 'epochs'"),
        ("min = 0.0", "mim = 0.0", "'mim'|conditions.*mim"),
        ("min = 0.0", "", "has no bound: set min, max, or both"),
        ("flops = 1.2e8", 'flops = "much"', "flops of equal must be a number, not 'much'"),
        ("seeds = [0, 1]", 'seeds = ["a", "b"]', "seeds of reviews must be a whole number, not 'a'"),
        ("seeds = [0, 1]", "seeds = [0]", "needs 2 or more distinct seeds"),
        ("checkpoints = [0.5, 1.0]", "checkpoints = [1.0, 0.5]", "must ascend from above 0 to 1"),
        ("checkpoints = [0.5, 1.0]", "checkpoints = [0.5]", "must ascend from above 0 to 1"),
        ('minus = "nsp"', 'minus = "nps"', "names an unknown arm 'nps': use detecting, nsp"),
        ('minus = "nsp"', "", "has metric score-difference: set arm and minus"),
        ('name = "detecting"', 'name = "nsp"', "name 'nsp' twice"),
        ('name = "detecting"', 'name = "a/b"', "'a/b' in arms is not a valid name"),
        ('task = "classification"', 'task = "clasification"', "did you mean classification"),
        ("optimizer.lr = 1e-3", "schedule.steps = 5", r"cannot set schedule\.steps"),
        ("min = 0.0", 'min = 0.0\nmetric = "speed"', "has metric|one of score"),
        ("[equal]", "[equal", "not valid TOML"),
        ('metric = "accuracy"', 'split = "by article"', "has no articles"),
        ('metric = "accuracy"', 'metric = "acuracy"', "has no metric 'acuracy': use one of accuracy, macro_f1"),
    ],
)
def test_errors_name_the_file(tmp_path, old, new, said):
    file = write_smallest(tmp_path, old, new)
    with pytest.raises(ValueError, match=said) as error:
        read_experiment(file)
    assert str(error.value).startswith(str(file)) and "\n" not in str(error.value)


def test_a_missing_sentence_head_is_not_evaluated(tmp_path):
    condition = 'metric = "sentence-head"\narm = "detecting"\nmin = 0.0\n'
    text = SMALLEST.replace('arm = "detecting"\nminus = "nsp"\nmin = 0.0\n', condition)
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(ValueError, match="needs a sentence head, but detecting has none"):
        read_experiment(tmp_path / "own.toml")
    (tmp_path / "own.toml").write_text(text.replace("pairs = 64", "").replace("detecting", "nsp", 1))
    with pytest.raises(ValueError):
        read_experiment(tmp_path / "own.toml")


def test_an_unknown_name_is_answered_with_those_there_are(tmp_path):
    with pytest.raises(ValueError, match=r"did you mean equal-compute"):
        read_experiment("equal-compote")


def test_the_shipped_one_fine_tunes_every_family_alike():
    experiment = read_experiment("equal-compute")
    for task in experiment.tasks:
        found = []
        for arm in experiment.arms:
            config = experiment.settings_of(arm).model
            with torch.device("meta"):
                model = registry.model_class_of(config)(config, ())
            settings = settings_for(task.registered, model, experiment.equal.finetuning | task.settings)
            assert settings.layers.lr_decay == 1.0  # so it does not matter from where the rate decays
            found.append(replace(settings, layers=replace(settings.layers, lr_decay_from="block")))
        assert all(each == found[0] for each in found), task.name


def test_the_shipped_one_varies_one_thing_at_a_time():
    experiment = read_experiment("equal-compute")
    assert isinstance(experiment, Experiment) and len(experiment.arms) == 8 and len(experiment.claims) == 5
    settings = {arm.name: experiment.settings_of(arm) for arm in experiment.arms}
    for name, found in settings.items():
        model = found.model
        assert (model.width, model.num_layers, model.num_heads, model.inner_width) == (256, 12, 4, 1024), name
        assert (model.dropout, model.attention_dropout, model.head_dropout, model.activation) == (0.0, 0.0, 0.0, "gelu")
        assert found.masking == settings["bert-mlm"].masking or name == "electra"
        assert found.batch.tokens == 128 * 128 and found.data == settings["bert-mlm"].data
        assert found.data.single_segment_probability == 0.0
        assert found.optimizer == settings["bert-mlm"].optimizer
        schedule = found.schedule
        assert (schedule.warmup_fraction, schedule.warmup_steps, schedule.decay_in_warmup) == (0.05, None, False)
        assert model.embedding_width == (128 if name.startswith("albert") else 256)
    assert {name: found.layout for name, found in settings.items()} == {
        "bert-mlm": "pairs",
        "electra": "pairs",
        "bert-nsp": "nsp",
        **{name: "sop" for name in ("bert-sop", "albert-none", "albert-all", "albert-attention", "albert-ffn")},
    }
    assert [task.name for task in experiment.tasks] == ["cola", "mrpc", "sts-b", "rte", "squad"]
    assert all(len(task.seeds) >= 3 for task in experiment.tasks)
    assert experiment.equal.checkpoints == (0.25, 0.5, 1.0)


def test_seeds_of_the_file_come_first():
    experiment = read_experiment("equal-compute")
    own = replace(experiment, equal=replace(experiment.equal, seeds=(7, 1)))
    assert [own.with_seeds(number).equal.seeds for number in (1, 2, 4)] == [(7,), (7, 1), (7, 1, 0, 2)]


def test_its_document_names_every_key():
    text = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")
    keys = set(re.findall(r"^([a-z_]+) =", (SHIPPED / "equal-compute.toml").read_text(encoding="utf-8"), re.M))
    of_finetuning = {"batch_size"}
    assert not {key for key in keys - of_finetuning if f"`{key}`" not in text}


def test_the_example_of_the_documents_is_complete(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")
    (tmp_path / "masking.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.S)[1], encoding="utf-8")
    experiment = read_experiment(tmp_path / "masking.toml")
    settings = [experiment.settings_of(arm) for arm in experiment.arms]
    assert [each.masking.unit for each in settings] == ["token", "word"]
    assert experiment.tasks[0].paths == ("reviews.csv",) and experiment.claims[0].arms == {"tokens", "whole-words"}
