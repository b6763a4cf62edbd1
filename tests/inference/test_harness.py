"""Requests of lm-evaluation-harness: the results of `score`, the conventions of the harness, and the command with a
stand-in for the harness; with the real one where it is installed."""

import importlib
import json
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from small_gpts import CONTEXT, PROMPTS, saved_gpt

import hornbook as library
from hornbook import cli
from hornbook.evaluation.harness import Answers, disjoint_windows, generation_config_for

ROOT = Path(__file__).parents[2]
PAIRS = [("the river", " and the garden"), ("A teacher ", "of letters"), ("한국어", " 위키"), ("bread", " bread bread")]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("asked")
    theirs = saved_gpt(folder)
    return library.load(folder), theirs, folder


@pytest.fixture
def answers(pair) -> Answers:
    return Answers(pair[0])


def directly(theirs, ids: list[int], num: int) -> tuple[float, bool]:
    """Of the last `num` tokens, by the model in `transformers`."""
    with torch.no_grad():
        scores = theirs(torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)[-num:]
    wanted = torch.tensor(ids[-num:])
    return float(scores.gather(1, wanted[:, None]).sum()), bool((scores.argmax(-1) == wanted).all())


def test_without_a_context_it_is_our_score(pair, answers):
    found = answers.log_likelihoods([("", text) for text in PROMPTS])
    assert [each for each, _ in found] == pytest.approx([each.total for each in pair[0].score(PROMPTS)], abs=1e-4)
    assert answers.rolling_log_likelihoods(PROMPTS) == pytest.approx([each for each, _ in found], abs=1e-4)


def test_with_a_context(pair, answers):
    ours, theirs, _ = pair
    found = answers.log_likelihoods(PAIRS)
    for (context, continuation), (total, is_greedy) in zip(PAIRS, found, strict=True):
        whole, before = (
            ours.tokenizer.encode_batch([text])[0].ids for text in (context + continuation, context.rstrip())
        )
        assert whole[: len(before)] == before
        expected = directly(theirs, whole, len(whole) - len(before))
        assert (total, is_greedy) == (pytest.approx(expected[0], abs=1e-4), expected[1])


def test_greedy_continuation_is_flagged(pair, answers):
    (text,) = pair[0].generate("the river", 4, temperature=0)
    before = pair[0].tokenizer.encode_batch(["the river"])[0].ids
    ids = pair[0].tokenizer.encode_batch(["the river" + text.text])[0].ids
    if ids == before + text.ids:  # it could be cut otherwise when read again
        assert answers.log_likelihoods([("the river", text.text)])[0][1]
    assert not all(is_greedy for _, is_greedy in answers.log_likelihoods(PAIRS))


def test_what_is_too_long_loses_its_beginning(pair, answers):
    ours, theirs, _ = pair
    context, continuation = "the river " * 40, "and bread"
    ids = ours.tokenizer.encode_batch([context + continuation])[0].ids
    num = len(ids) - len(ours.tokenizer.encode_batch([context.rstrip()])[0].ids)
    found = answers.log_likelihoods([(context, continuation)])[0]
    assert found[0] == pytest.approx(directly(theirs, ids[-CONTEXT - 1 :], num)[0], abs=1e-4)


def test_a_long_text_in_windows_of_which_the_last_is_full(pair, answers):
    ours, theirs, _ = pair
    text = "A teacher of the garden, and letters. " * 12
    ids = [ours.eos_id, *ours.tokenizer.encode_batch([text])[0].ids]
    expected, done = 0.0, 0
    while done < len(ids) - 1:
        end = min(done + CONTEXT, len(ids) - 1)
        expected += directly(theirs, ids[max(end - CONTEXT, 0) : end + 1], end - done)[0]
        done = end
    assert len(ids) > 2 * CONTEXT and (len(ids) - 1) % CONTEXT
    assert answers.rolling_log_likelihoods([text, "the"])[0] == pytest.approx(expected, abs=1e-3)
    covered = np.concatenate([np.arange(scored, end) for _, scored, end in disjoint_windows(101, 12)])
    assert covered.tolist() == list(range(101))


def test_continuations(pair, answers):
    ours, _, _ = pair
    greedy, drawn = {"until": [], "max_gen_toks": 9}, {"do_sample": True, "temperature": 0.8, "max_gen_toks": 5}
    asked = [("the river", greedy), ("bread", drawn), ("A teacher", greedy | {"until": ["e", "zz"]}), ("bread", greedy)]
    found = answers.continuations(asked)
    assert found[0] == ours.generate("the river", 9, temperature=0)[0].text
    assert found[1] == ours.generate("bread", 5, temperature=0.8)[0].text
    assert (
        found[2] == ours.generate("A teacher", 9, temperature=0, stop_strings=["e", "zz"])[0].text
        and "e" not in found[2]
    )
    assert found[3] == ours.generate("bread", 9, temperature=0)[0].text
    long = "bread 🙂 " * 40
    ids = ours.tokenizer.encode_batch([long])[0].ids[-(CONTEXT - 4) :]
    assert answers.continuations([(long, {"max_gen_toks": 4})]) == answers.continuations(
        [(ours.tokenizer.decode(ids), {"max_gen_toks": 4})]
    )
    with pytest.raises(ValueError, match="no space for the prompt"):
        answers.continuations([("the", {"max_gen_toks": CONTEXT})])
    with pytest.raises(ValueError, match="sets num_beams, which is not supported"):
        answers.continuations([("the", {"num_beams": 3})])


def test_settings():
    assert generation_config_for({}).max_new_tokens == 256 and generation_config_for({}).is_greedy
    assert generation_config_for({"temperature": 0.0, "do_sample": False, "max_tokens": 3}).max_new_tokens == 3
    assert generation_config_for({"temperature": 0.7, "top_k": 0}).temperature == 0.7
    assert generation_config_for({"temperature": 0.7, "do_sample": False}).is_greedy


def test_models_that_cannot_be_scored_are_refused(tmp_path):
    saved_gpt(tmp_path, end=None)
    with pytest.raises(ValueError, match="has no end-of-text token"):
        Answers(library.load(tmp_path))


# ---- the class and the command, with a stand-in for the harness


@pytest.fixture
def harness(monkeypatch):
    """Modules with the names of theirs; `simple_evaluate` asks one thing of each kind."""
    registered = {}

    class LM:
        def __init__(self):
            self.cache_hook = SimpleNamespace(add_partial=lambda *_: None)

    def register_model(*names):
        return lambda kind: registered.update(dict.fromkeys(names, kind)) or kind

    def simple_evaluate(model, tasks, num_fewshot, limit, log_samples):
        requests = [SimpleNamespace(args=each) for each in PAIRS]
        total = sum(each for each, _ in model.loglikelihood(requests))
        whole = model.loglikelihood_rolling([SimpleNamespace(args=("the river",))])[0]
        texts = model.generate_until([SimpleNamespace(args=("the river", {"until": ["."], "max_gen_toks": 3}))])
        scores = {"alias": tasks[0], "sum,none": total, "sum_stderr,none": 0.5, "whole,strict": whole, "text": texts[0]}
        return {"results": {tasks[0]: scores}, "versions": {tasks[0]: 1}}

    modules = {
        name: ModuleType(name) for name in ("lm_eval", "lm_eval.api", "lm_eval.api.model", "lm_eval.api.registry")
    }
    modules["lm_eval"].simple_evaluate = simple_evaluate
    modules["lm_eval.api.model"].LM = LM
    modules["lm_eval.api.registry"].register_model = register_model
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "hornbook.evaluation.harness_model", raising=False)
    yield registered
    sys.modules.pop("hornbook.evaluation.harness_model", None)


@pytest.fixture
def run(monkeypatch, capsys):
    def of(*words) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hornbook", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return of


def test_command(run, harness, pair, answers):
    words = ["lm-eval", pair[2], "--tasks", "made_up", "--limit", 4, "--device", "cpu"]
    status, out, error = run(*words)
    total = sum(each for each, _ in answers.log_likelihoods(PAIRS))
    assert status == 0 and f"{total:.4f}" in out and "± 0.5000" in out and "first 4 examples" in error
    found = json.loads(run(*words, "--json")[1])["results"]["made_up"]
    assert found["whole,strict"] == pytest.approx(answers.rolling_log_likelihoods(["the river"])[0])
    assert found["text"] == answers.continuations([("the river", {"until": ["."], "max_gen_toks": 3})])[0]


def test_it_is_registered_and_has_an_entry_point(harness):
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["lm_eval.models"]
    module, _, name = entry["hornbook"].partition(":")
    kind = getattr(importlib.import_module(module), name)
    assert harness["hornbook"] is kind


def test_without_the_harness(run, pair, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    status, _, error = run("lm-eval", pair[2], "--tasks", "lambada_openai")
    assert status == 2 and "pip install 'hornbook[lm-eval]'" in error


# ---- with the real one


def test_as_its_own_model_for_such_folders(pair):
    pytest.importorskip("lm_eval.models.huggingface", exc_type=ImportError)
    from lm_eval.api.instance import Instance
    from lm_eval.api.registry import get_model
    from lm_eval.models.huggingface import HFLM

    from hornbook.evaluation.harness_model import HornbookLM

    assert get_model("hornbook") is HornbookLM
    ours = HornbookLM(pair[2], device="cpu")
    theirs = HFLM(pretrained=str(pair[2]), device="cpu", batch_size=2, dtype="float32", add_bos_token=False)
    theirs.tokenizer.eos_token = "</s>"

    def requests(kind: str, asked: list[tuple]) -> list[Instance]:
        return [Instance(request_type=kind, doc={}, arguments=each, idx=i) for i, each in enumerate(asked)]

    pairs = [*PAIRS, ("", "the river"), ("the river " * 40, "and bread")]
    found, expected = (model.loglikelihood(requests("loglikelihood", pairs)) for model in (ours, theirs))
    assert [is_greedy for _, is_greedy in found] == [is_greedy for _, is_greedy in expected]
    assert [total for total, _ in found] == pytest.approx([total for total, _ in expected], abs=1e-3)
    texts = [(text,) for text in (*PROMPTS, "A teacher of the garden, and letters. " * 12)]
    found, expected = (m.loglikelihood_rolling(requests("loglikelihood_rolling", texts)) for m in (ours, theirs))
    assert found == pytest.approx(expected, abs=1e-2)
    asked = [(text, {"until": ["e"], "max_gen_toks": 8, "do_sample": False}) for text in PROMPTS]
    found, expected = (m.generate_until(requests("generate_until", asked)) for m in (ours, theirs))
    assert found == [text.replace("\ufffd", "") for text in expected]  # no half characters here
