"""Which recipe a run takes, and what the budget recipe sets and leaves alone."""

from types import SimpleNamespace

import pytest
from tiny import TINY_MODEL

from hornbook.config import with_overrides
from hornbook.data.corpus import Corpus
from hornbook.files import read_json
from hornbook.runs.pretraining.presets import PRESETS, preset
from hornbook.runs.pretraining.pretrain import pretrain
from hornbook.runs.pretraining.recipes import (
    choose_recipe,
    takes_a_minute,
    with_budget_batch,
    with_repeated_weight_decay,
)
from hornbook.runs.pretraining.record import PretrainRequest
from hornbook.runs.pretraining.resolve import resolve_settings
from hornbook.runs.pretraining.settings import settings_in
from hornbook.train.job import Stopped
from hornbook.train.runtime import compiling_pays


def resolved(name="bert-base", **options):
    return resolve_settings(PretrainRequest(name, **options))


@pytest.mark.parametrize(
    ("options", "recipe"),
    [
        ({"steps": 1000}, "budget"),
        ({"tokens": 10**9}, "budget"),
        ({"minutes": 15.0}, "budget"),
        ({"steps": 99_999}, "budget"),
        ({"steps": 100_001}, "published"),
        ({}, "published"),
        ({"tokens": 10**11}, "published"),
        ({"steps": 1000, "recipe": "published"}, "published"),
        ({"recipe": "budget"}, "budget"),
        ({"steps": 1000, "init_from": "some-model"}, "published"),
        ({"steps": 1000, "teacher": "some-model"}, "published"),
    ],
)
def test_far_shorter_runs_take_the_budget_recipe(options, recipe):
    request = PretrainRequest("bert-base", **options)
    settings = preset("bert-base") if "steps" not in options else resolved(steps=options["steps"], recipe="published")
    assert choose_recipe(request, settings) == recipe


def test_a_teacher_has_no_budget_recipe():
    with pytest.raises(ValueError, match="without a teacher"):
        choose_recipe(PretrainRequest("bert-base", teacher="t", recipe="budget"), preset("bert-base"))
    with pytest.raises(ValueError, match="recipe"):
        PretrainRequest("bert-base", recipe="quick")


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_has_a_budget_recipe(name):
    settings = resolved(name, tokens=10**7)
    assert settings.optimizer.name == "muon" and settings.model.dropout == 0
    assert 9.9e6 < settings.schedule.steps * settings.batch.tokens < 10.1e6
    assert settings.data.length <= settings.batch.tokens


def test_published_settings_are_unchanged():
    published = resolved("roberta-base", tokens=10**7, recipe="published")
    assert published.optimizer == preset("roberta-base").optimizer
    assert published.batch == preset("roberta-base").batch and published.model == preset("roberta-base").model


def test_what_it_sets_for_bert_and_electra():
    bert, electra, gpt = (resolved(name, tokens=50_000_000) for name in ("bert-base", "electra-small", "gpt2-small"))
    assert (bert.objective.sentence, bert.data.short_length, bert.data.uses(512)) == ("none", 128, False)
    assert bert.data.repeat_positions and not gpt.data.repeat_positions
    assert bert.schedule.warmup_fraction == 0.05 and bert.schedule.warmup_steps is None
    assert (electra.objective.correction, electra.objective.weight) == (1, 5) and electra.optimizer.bias_correction
    assert gpt.schedule.min_lr_ratio == 0 and gpt.data.length == 1024
    assert resolved("bert-base", tokens=2 * 10**9).data.uses(512)  # long enough to train all positions
    tiny = resolved("bert-tiny", tokens=10**6).data
    assert (tiny.short_length, tiny.uses(64), tiny.uses(512)) == (64, True, False)


def test_a_model_that_reads_its_text_many_times_is_regularised(tiny_corpus):
    num_tokens = Corpus(tiny_corpus).num_tokens
    text = {"corpora": [str(tiny_corpus)], "overrides": {"data.held_out_fraction": 0.0}}

    def chosen(name: str, epochs: float, **options) -> tuple[float, float, bool]:
        settings = resolved(name, tokens=int(epochs * num_tokens), **(text | options))
        return settings.model.dropout, settings.optimizer.weight_decay, settings.data.shift_chunks

    assert chosen("gpt2-tiny", 10) == (0.2, 2.0, True)
    assert chosen("gpt2-tiny", 3) == (0.0, 0.1, False)
    assert chosen("bert-tiny", 10) == (0.0, 0.01, False)  # masks differ in each epoch
    assert chosen("bert-tiny", 20) == chosen("electra-small", 20) == (0.0, 1.0, False)
    assert chosen("bert-tiny", 20, overrides=text["overrides"] | {"optimizer.lr": 1e-3})[1] == 0.01
    assert chosen("gpt2-tiny", 10, recipe="published")[0] == 0.1
    given = text["overrides"] | {"model.dropout": 0.3, "optimizer.weight_decay": 0.2, "data.shift_chunks": False}
    assert chosen("gpt2-tiny", 10, overrides=given) == (0.3, 0.2, False)
    small = {"model.num_layers": 1, "model.width": 16, "model.num_heads": 1, "model.max_positions": 64}
    small |= text["overrides"] | {"model.inner_width": 32, "data.length": 64}
    assert chosen("gpt2-tiny", 10, overrides=small)[0] == 0.0  # it cannot memorise it


def test_weight_decay_of_repeated_text_is_that_of_its_epochs():
    """bert-small with 21 million tokens: 0.1 was best for 27,442 steps; with a tenth of the text, 1.0 for 3,052."""

    def chosen(name: str, num_tokens: int, steps: int) -> float:
        request = PretrainRequest(name, steps=steps)
        corpus = SimpleNamespace(num_tokens=num_tokens, tokenizer=SimpleNamespace(vocab_size=30_522))
        settings = with_repeated_weight_decay(resolved(name, steps=steps), request, "budget", [(corpus, 1.0)])
        return settings.optimizer.weight_decay

    assert chosen("bert-small", 21_000_000, 27_442) == chosen("bert-small", 21_000_000, 79_342) == 0.11
    assert chosen("bert-small", 2_100_000, 3052) == 1.0
    assert chosen("bert-small", 21_000_000, 10_000) == 0.01  # 16 epochs
    assert chosen("electra-small", 21_000_000, 31_000) == 0.056  # 1.6 tokens per parameter, batches of 16,384
    assert chosen("bert-small", 100_000_000, 79_342) == 0.01  # 3.5 tokens per parameter
    assert chosen("gpt2-small", 42_000_000, 5000) == chosen("gpt2-small", 42_000_000, 14_000) == 0.98  # 8 and 22 epochs
    assert chosen("gpt2-small", 2_100_000, 1000) == 2.0
    assert chosen("gpt2-small", 170_000_000, 80_000) == 0.1  # 1.6 tokens per parameter
    assert chosen("gpt2-small", 42_000_000, 4000) == 0.1  # 6 epochs


def test_weight_decay_follows_the_steps_that_fit_in_the_minutes(tiny_corpus, tmp_path, monkeypatch):
    class EnoughError(Exception):
        pass

    def train(*arguments):
        raise EnoughError

    monkeypatch.setattr("hornbook.runs.pretraining.pretrain.train", train)

    def chosen(name: str, changes: dict[str, int]) -> float:
        def with_steps_in(minutes, run, *others):
            return with_overrides(run.settings, changes)

        monkeypatch.setattr("hornbook.runs.pretraining.pretrain.with_steps_in", with_steps_in)
        options = {"recipe": "budget", "minutes": 0.01, "overrides": {"runtime.device": "cpu"}}
        with pytest.raises(EnoughError):
            pretrain("bert-tiny", tiny_corpus, tmp_path / name, **options, log=lambda message: None)
        return settings_in(read_json(tmp_path / name / "run.json")).optimizer.weight_decay

    assert chosen("few", {"schedule.steps": 1}) == 0.01
    assert chosen("many", {"schedule.steps": 30_000}) == 1.0


def test_a_run_of_many_flops_takes_a_minute():
    assert takes_a_minute(resolved("bert-base", steps=500, overrides={"runtime.device": "cpu"}))
    assert not takes_a_minute(resolved("bert-tiny", steps=5, batch_tokens=2048, overrides={"runtime.device": "cpu"}))


def test_a_setting_of_the_objective_keeps_the_rest_of_the_recipe():
    def objective(preset_name, **given):
        overrides = {f"objective.{name}": value for name, value in given.items()}
        return resolved(preset_name, tokens=50_000_000, overrides=overrides).objective

    assert objective("bert-base", sentence_weight=0.5).sentence == "nsp"
    temperature = objective("electra-small", temperature=1.5)
    assert (temperature.correction, temperature.weight, temperature.temperature) == (1, 5, 1.5)
    assert (objective("electra-small", weight=20).correction, objective("electra-small", weight=20).weight) == (1, 20)
    without = objective("electra-small", correction=0)
    assert without.correction == 0 and without.weights["rtd"] == 50
    assert objective("electra-small", discriminator_task="replace-mlm").weights["replace_mlm"] == 1


def test_compiling_pays_sooner_for_narrow_models():
    assert compiling_pays(3e16, 256) and not compiling_pays(3e16, 768)
    assert compiling_pays(4e16, 768) and compiling_pays(4e16, 1024) and not compiling_pays(1.2e16, 256)


def test_settings_of_the_user_are_kept():
    given = {"optimizer.lr": 3e-4, "model.dropout": 0.1, "objective.sentence": "nsp", "data.length": 256}
    settings = resolved(tokens=50_000_000, overrides=given | {"schedule.warmup_steps": 7})
    assert (settings.optimizer.name, settings.optimizer.lr) == ("adamw", 3e-4)
    assert settings.model.dropout == settings.model.attention_dropout == 0.1
    assert settings.objective.sentence == "nsp" and settings.data.length == 256
    assert settings.schedule.warmup_steps == 7
    one = resolved("bert-mini", steps=2000, overrides={"optimizer.ema_decay": 0.999, "optimizer.max_grad_norm": 0.5})
    assert (one.optimizer.name, one.optimizer.lr, one.optimizer.max_grad_norm) == ("muon", 2e-3, 0.5)
    assert resolved(steps=500, batch_tokens=4096).batch.tokens == 4096
    assert resolved(steps=500).batch.tokens == 32_768 < preset("bert-base").batch.tokens


def test_the_recipe_is_for_the_width_of_the_model_to_initialise_from(tiny_run):
    settings = resolved("bert-base", steps=1000, init_from=str(tiny_run), recipe="budget")
    assert (settings.model.width, settings.optimizer.lr) == (32, 4e-3)
    assert settings.model.dropout == 0 and settings.model.init_by_width


@pytest.mark.parametrize(
    ("tokens", "batch", "lr"),
    [(1e6, 2048, 2e-3), (40e6, 16_384, 2e-3), (80e6, 32_768, 2e-3), (1e10, 32_768, 2e-3)],
)
def test_batch_and_learning_rate_by_tokens(tokens, batch, lr):
    settings = with_budget_batch(resolved("bert-small", tokens=1000), tokens, {})
    assert (settings.batch.tokens, settings.optimizer.lr) == (batch, lr)
    assert with_budget_batch(resolved("bert-base", tokens=1000), tokens, {}).optimizer.lr == 1e-3
    assert with_budget_batch(resolved("bert-tiny", tokens=1000), tokens, {}).optimizer.lr == 4e-3


def test_a_run_logs_and_records_its_recipe(tmp_path, tiny_corpus):
    logged = []
    overrides = TINY_MODEL | {"checkpoint.every_steps": 1}
    options = {"steps": 3, "batch_tokens": 512, "overrides": overrides, "log": logged.append}
    with pytest.raises(Stopped):
        pretrain("bert-tiny", tiny_corpus, tmp_path / "run", **options, on_progress=lambda status: status.step >= 1)
    (line,) = [each for each in logged if each.startswith("recipe budget, as this run is far shorter")]
    assert "no dropout" in line and "no sentence task" in line and "recipe='published'" in line
    assert read_json(tmp_path / "run" / "run.json")["recipe"] == "budget"
    with pytest.raises(ValueError, match="recipe is budget, not published"):
        pretrain("bert-tiny", tiny_corpus, tmp_path / "run", **options, recipe="published", resume=True)
    outcome = pretrain("bert-tiny", tiny_corpus, tmp_path / "run", **options, recipe="budget", resume=True)
    assert outcome.step == 3
