"""GPTs on tasks with GPT-1's fine-tuning: start, delimiter and extract tokens, the output at the last token, similarity
pairs in both orders, the auxiliary language-modeling loss; the folder opens in `transformers` with the same outputs."""

import json
import random as chance
import signal
from pathlib import Path

import numpy as np
import pytest
import rules
import torch
import transformers
from forked import status_of
from test_finetune_run import KILLED, same_weights

import hornbook
from hornbook.batch import pack
from hornbook.files import read_json
from hornbook.inference.predictor import load_predictor
from hornbook.interop.folder import load_folder
from hornbook.models.gpt import Gpt1, Gpt2
from hornbook.models.head_config import HeadConfig
from hornbook.report.finetuned import ReportedTaskRun, transformers_code
from hornbook.runs.finetuning.finetune import finetune
from hornbook.runs.finetuning.published import settings_for
from hornbook.runs.pretraining.presets import PRESETS
from hornbook.tasks.datasets import find_task
from hornbook.tasks.kinds.classification import Classification
from hornbook.tasks.records import TextExample
from hornbook.text.task_tokens import DELIMITER, EXTRACT, GPT1_TOKENS, START

QUIET = {"log": lambda words: None}
FAST = {"runtime.threads": 1, "validation.every_steps": 10_000}
BOTH = {"task.pair_encoding": "both"}
GPT1 = {"task.format": "gpt1", "task.lm_weight": 0.5}
LEARNED = 0.95


@pytest.fixture(scope="module", params=["openai-gpt", "gpt2"])
def gpt(request, tmp_path_factory) -> Path:
    return rules.random_gpt(tmp_path_factory.mktemp("random") / request.param, request.param)


@pytest.fixture(scope="module")
def gpt1(tmp_path_factory) -> Path:
    return rules.random_gpt(tmp_path_factory.mktemp("random") / "gpt1", dropout=0.1)


def data_of(folder: Path, rule, number: int, num_dev: int = 100, seed: int = 1) -> Path:
    draw = chance.Random(seed)
    return rules.write_rows(folder / "data", [rule(draw) for _ in range(number + num_dev)], num_dev)


def run(folder: Path, model: Path, task: str, rule, number: int, epochs: float, **overrides):
    data = data_of(folder, rule, number)
    settings = FAST | GPT1 | {name.replace("__", "."): value for name, value in overrides.items()}
    return finetune(model, data, task, folder / "run", epochs=epochs, lr=3e-3, overrides=settings, **QUIET)


def dev_score(result, name: str = "accuracy") -> float:
    return result.scores["dev"][name]["value"]


# --- Learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "task", "rule", "number", "epochs", "metric"),
    [
        ("openai-gpt", "classification", rules.keyword_pair, 500, 5, "accuracy"),
        ("gpt2", "classification", rules.keyword_pair, 500, 5, "accuracy"),
        ("gpt2", "classification", rules.named_word, 1000, 5, "accuracy"),
        ("openai-gpt", "regression", rules.count_of_lamps, 500, 3, "pearson"),
        ("gpt2", "choice", rules.choice_with_the_thing, 400, 2.4, "accuracy"),
    ],
    ids=["text of gpt1", "text of gpt2", "pair", "number", "choice"],
)
def test_a_gpt_learns_a_rule(tmp_path, family, task, rule, number, epochs, metric):
    """Heads know of no family: texts in both, the rest in one. A GPT-1 reads pairs in the test of both orders."""
    smaller = {"inner_width": 128} if family == "gpt2" else {}
    result = run(tmp_path, rules.random_gpt(tmp_path / "gpt", family, **smaller), task, rule, number, epochs)
    assert dev_score(result, metric) >= LEARNED and result.degenerate is None


def test_a_gpt_learns_from_both_orders(tmp_path):
    gpt = rules.random_gpt(tmp_path / "gpt")
    result = run(tmp_path, gpt, "classification", rules.named_word, 1000, 5, task__pair_encoding="both")
    assert dev_score(result) >= LEARNED


def test_tags_and_spans_are_found_from_the_left(tmp_path):
    """The deciding word is on the left in both rules."""
    gpt = rules.random_gpt(tmp_path / "gpt")
    for task, rule, number, epochs, metric in (
        ("tagging", rules.titled_names, 500, 6, "entity_f1"),
        ("spans-or-none", rules.place_if_told, 500, 12, "exact"),
    ):
        result = run(tmp_path / task, gpt, task, rule, number, epochs, task__no_answer="classifier")
        assert dev_score(result, metric) >= 0.9


# --- What the model reads ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judged(tmp_path_factory, gpt1):
    """A run on pairs in both orders, and one in one order."""
    folder = tmp_path_factory.mktemp("judged")
    found = {}
    for name in ("both", "joint"):
        data = data_of(folder / name, rules.named_word, 60, 40)
        overrides = FAST | {"task.pair_encoding": name}
        found[name] = finetune(
            gpt1, data, "classification", folder / name / "run", epochs=3, lr=1e-3, overrides=overrides, **QUIET
        )
    return found


PAIRS = [("what has that lamp ?", "the lamp old apple"), ("what has that stone ?", "green"), ("two", "river " * 60)]


def hidden_at_extract(model, tokenizer, one: str, two: str) -> torch.Tensor:
    """Cut by hand where it is too long."""
    ids = tokenizer.encode(one, two).ids
    if len(ids) > 48:
        ids = [*ids[:47], ids[-1]]
    assert (ids[0], ids[-1], ids.count(tokenizer.id(DELIMITER))) == (tokenizer.id(START), tokenizer.id(EXTRACT), 1)
    return model(pack([np.array(ids)]))[-1]


@torch.no_grad()
def test_both_orders_are_summed_before_the_layer(judged):
    model, tokenizer = load_folder(judged["both"].out)
    predictor = load_predictor(judged["both"].out)
    for one, two in PAIRS[:2]:
        summed = hidden_at_extract(model, tokenizer, one, two) + hidden_at_extract(model, tokenizer, two, one)
        expected = (model.task.out.weight @ summed).softmax(0)
        (found,) = predictor.predict([(one, two)])
        assert list(found.probabilities.values()) == pytest.approx(expected.tolist(), abs=1e-5)


def test_both_orders_give_the_same_for_swapped_texts(judged):
    for name, is_same in (("both", True), ("joint", False)):
        predictor = load_predictor(judged[name].out)
        one = [next(iter(each.probabilities.values())) for each in predictor.predict(PAIRS)]
        other = [next(iter(each.probabilities.values())) for each in predictor.predict([pair[::-1] for pair in PAIRS])]
        assert np.allclose(one, other, atol=1e-6) == is_same


@torch.no_grad()
def test_one_order_is_read_at_the_extract_token(judged):
    model, tokenizer = load_folder(judged["joint"].out)
    expected = [(model.task.out.weight @ hidden_at_extract(model, tokenizer, *pair)).softmax(0) for pair in PAIRS]
    found = load_predictor(judged["joint"].out).predict(PAIRS)
    assert np.allclose([list(each.probabilities.values()) for each in found], torch.stack(expected), atol=1e-5)


def test_the_new_tokens_are_new_and_learn(judged, gpt1):
    before, plain = load_folder(gpt1)
    after, tokenizer = load_folder(judged["joint"].out)
    num = plain.vocab_size
    assert [tokenizer.id(token) for token in GPT1_TOKENS] == [num, num + 1, num + 2]
    assert after.config.vocab_size == num + 3 == before.config.vocab_size + 3
    assert after.config.pad_id == tokenizer.pad_id is not None
    rows = after.embeddings.tokens.weight[num : num + 3]
    assert (rows.std(1) > 0.1).all() and not torch.allclose(rows[0], rows[1])


def test_a_second_task_keeps_the_tokens_of_the_first(tmp_path, judged):
    result = finetune(
        judged["joint"].out, data_of(tmp_path, rules.keyword_pair, 60, 40), out=tmp_path / "run", lr=1e-9,
        overrides=FAST, **QUIET,
    )  # fmt: skip
    (one, first), (two, second) = load_folder(judged["joint"].out), load_folder(result.out)
    assert first.vocab_size == second.vocab_size
    assert torch.allclose(one.embeddings.tokens.weight, two.embeddings.tokens.weight, atol=1e-5)


# --- The run ----------------------------------------------------------------------------------------------------------


def test_both_losses_are_logged(judged):
    lines = [json.loads(line) for line in (judged["both"].out / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if line["kind"] == "train":
            assert line["loss"] == pytest.approx(line["task"] + 0.5 * line["clm"], rel=1e-4)


def test_resumes_after_a_kill_with_the_same_bits(tmp_path, gpt1):
    data = data_of(tmp_path, rules.keyword_pair, 120, 40)
    overrides = {"runtime.threads": 1, "checkpoint.every_steps": 2, "runtime.log_every_steps": 1}
    whole = finetune(gpt1, data, out=tmp_path / "whole", epochs=2, lr=3e-3, overrides=overrides, **QUIET)
    for stop in (1, 5):
        assert status_of(KILLED, gpt1, data, tmp_path / "killed", stop) == -signal.SIGKILL
    last = finetune(gpt1, data, out=tmp_path / "killed", epochs=2, lr=3e-3, overrides=overrides, resume=True, **QUIET)
    assert same_weights(whole.out, last.out) and last.scores == whole.scores


def test_the_folder_predicts_evaluates_and_continues_a_text(judged, tmp_path):
    result = judged["both"]
    predictor = load_predictor(result.out)
    found = predictor.evaluate(data_of(tmp_path, rules.named_word, 60, 40), split="dev")
    assert found["splits"]["dev"]["accuracy"]["value"] == pytest.approx(dev_score(result))
    with pytest.raises(ValueError, match=r"task.pair_encoding='both' is for pairs of texts"):
        predictor.predict(["one text alone"])
    assert hornbook.load(result.out).generate("the old", 5, temperature=0)[0].text


@pytest.mark.parametrize("family", ["openai-gpt", "gpt2"])
def test_published_settings(family):
    with torch.device("meta"):
        model = {"openai-gpt": Gpt1, "gpt2": Gpt2}[family](
            PRESETS["gpt1-base" if family == "openai-gpt" else "gpt2-small"].model
        )
    found = {
        name: settings_for(find_task(name), model, {}) for name in ("mnli", "mrpc", "qqp", "sts-b", "swag", "squad2")
    }
    if family == "gpt2":
        assert all(each.task.format == "tokenizer" and not each.task.lm_weight for each in found.values())
        changed = settings_for(find_task("rte"), model, GPT1)
        assert (changed.task.format, changed.task.lm_weight) == ("gpt1", 0.5)
        return
    for name, each in found.items():
        assert (each.task.format, each.task.lm_weight, each.epochs, each.batch_size) == ("gpt1", 0.5, 3, 32)
        assert (each.optimizer.lr, each.schedule.warmup_fraction, each.schedule.power) == (6.25e-5, 0.002, 1)
        assert (each.task.pair_encoding == "both") == (name in ("mrpc", "qqp", "sts-b"))
    assert model.config.head_dropout == 0.1
    taught = settings_for(
        find_task("mrpc"), model, {}, has_teacher=True
    )  # who learns from a teacher, and not beside it
    assert (taught.task.format, taught.task.lm_weight) == ("gpt1", 0.0)
    with pytest.raises(ValueError, match=r"task\.lm_weight would have no effect: a student"):
        settings_for(find_task("mrpc"), model, {"task.lm_weight": 0.5}, has_teacher=True)


def test_refusals(tmp_path, gpt1):
    encoder = rules.random_encoder(tmp_path / "encoder")
    data = data_of(tmp_path, rules.keyword_pair, 60, 40)
    for overrides, words in (
        ({"task.format": "gpt1"}, "task.format is for GPTs, and the model is a bert"),
        ({"task.lm_weight": 0.5}, "task.lm_weight is for GPTs"),
        ({"task.lm_weight": -1.0}, "at least 0"),
        (BOTH, "for pairs of texts"),
        (BOTH | {"task.swapped_pairs": True}, "already encodes both orders"),
        (BOTH | {"task.head": "mlp"}, "both pairs need the linear head"),
    ):
        with pytest.raises(ValueError, match=words):
            finetune(encoder, data, out=tmp_path / "run", overrides=overrides, **QUIET)


# --- In `transformers` ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["gpt1", "tokenizer"])
def test_transformers_gives_the_same_classes_to_a_batch(tmp_path, gpt, format):
    """From text to probabilities with its own tokenizer and padding, without manual settings."""
    result = run(tmp_path, gpt, "classification", rules.keyword_pair, 60, 1, task__format=format)
    texts = ["the lamp", "quiet apple near two old lamp", "some"]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(result.out).eval()
    assert type(model).__name__ == read_json(result.out / "config.json")["architectures"][0]
    tokenizer = transformers.AutoTokenizer.from_pretrained(result.out)
    with torch.no_grad():
        expected = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits.softmax(-1)
    found = load_predictor(result.out).predict(texts)
    assert np.allclose([list(each.probabilities.values()) for each in found], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "kind"),
    [("openai-gpt", transformers.OpenAIGPTDoubleHeadsModel), ("gpt2", transformers.GPT2DoubleHeadsModel)],
)
def test_transformers_scores_choices_with_its_double_heads(tmp_path, family, kind):
    gpt = rules.random_gpt(tmp_path / "gpt", family)
    result = run(tmp_path, gpt, "choice", rules.choice_with_the_thing, 60, 1)
    _, report = kind.from_pretrained(result.out, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    code = transformers_code(ReportedTaskRun.load(result.out))
    before, _, last = code.rpartition("\n")
    said: dict = {}
    with torch.no_grad():
        exec(f"{before}\nfound = {last}", said)
    (found,) = load_predictor(result.out).predict([(said["context"], said["choices"])])
    assert np.allclose(found.probabilities, said["found"][0], atol=1e-5)


def test_both_orders_open_there_as_the_bare_model(judged):
    model = transformers.AutoModel.from_pretrained(judged["both"].out)
    assert type(model).__name__ == "OpenAIGPTModel" == read_json(judged["both"].out / "config.json")["architectures"][0]


@pytest.mark.parametrize("pair_encoding", ["joint", "separate", "both"])
def test_an_empty_text_is_read_at_the_end_of_text_token_in_any_batch(gpt1, pair_encoding):
    _, tokenizer = load_folder(gpt1)
    task = Classification(HeadConfig("sequence", 2, ("no", "yes"), pair_encoding=pair_encoding), ("accuracy",))
    pair = None if pair_encoding == "joint" else ""
    encoded = task.encode([TextExample("1", "the lamp", pair), TextExample("2", "", pair)], tokenizer, 48)
    group_size = task.head_config.group_size
    assert [each.tolist() for each in encoded.ids[-group_size:]] == [[tokenizer.eos_id]] * group_size


def test_an_empty_text_predicts_the_same_alone_and_in_a_batch(tmp_path, gpt1):
    result = run(tmp_path, gpt1, "classification", rules.named_word, 64, 1, task__format="tokenizer")
    predictor = load_predictor(result.out)
    empty = TextExample("0", "")  # in data to evaluate, a text may be empty
    (alone,) = predictor.predict_examples([empty]).predictions
    for other in ("lamp", "the garden and the apple"):
        beside = predictor.predict_examples([TextExample("1", other), empty]).predictions[1]
        assert beside.probabilities == pytest.approx(alone.probabilities, abs=1e-6)


def test_an_empty_text_is_refused_where_no_token_could_stand_for_it(gpt1):
    _, tokenizer = load_folder(gpt1)
    tokenizer.eos_id = None
    task = Classification(HeadConfig("sequence", 2, ("no", "yes")), ("accuracy",))
    with pytest.raises(ValueError, match="remove the text"):
        task.encode([TextExample("1", "")], tokenizer, 48)
