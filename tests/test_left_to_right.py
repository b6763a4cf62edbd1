"""`model.direction=causal`: the BERT paper's left-to-right model, from pre-training to tasks and students."""

import random as chance
import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from tiny import ENGLISH, TINY_MODEL
from tiny_runs import run, same
from typer.testing import CliRunner

import hornbook
from hornbook import cli
from hornbook.batch import pack
from hornbook.data.corpus import Corpus
from hornbook.files import read_json
from hornbook.interop.folder import load_model
from hornbook.lifecycle.run_folder import read_metrics
from hornbook.runs.pretraining.batches import held_out_batches
from hornbook.runs.pretraining.presets import preset_settings
from hornbook.runs.pretraining.settings import settings_in
from hornbook.serve.models import open_models
from hornbook.text.tokenizer import Encoded

LEFT = {"model.direction": "causal", "objective.sentence": "none"}
QUIET = {"log": lambda words: None}
OUTSIDE = {  # what `AutoModelFor...` opens a task as
    "classification": transformers.BertModel,
    "tagging": transformers.BertForTokenClassification,
    "spans": transformers.BertForQuestionAnswering,
}


@pytest.fixture(scope="module")
def left_run(tmp_path_factory, tiny_corpus):
    out = tmp_path_factory.mktemp("left") / "run"
    run(out, tiny_corpus, steps=12, overrides=LEFT)
    return out


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, left_run):
    out = tmp_path_factory.mktemp("left") / "classifier"
    return hornbook.finetune(left_run, rows("classification"), "classification", out, epochs=12, lr=5e-3, **QUIET)


def rows(task: str, number: int = 96) -> list[dict]:
    """The word to find is anywhere in the text."""
    draw, made = chance.Random(1), []
    for _ in range(number):
        words = draw.choices(ENGLISH.split()[:8], k=6)
        place, key = draw.randrange(6), draw.choice(["garden", "silver"])
        words[place] = key
        text = " ".join(words)
        made.append(
            {
                "classification": {"text": text, "label": key},
                "tagging": {"words": words, "tags": [word if word == key else "O" for word in words]},
                "spans": {"question": "which", "context": text, "answers": key},
            }[task]
        )
    return made


def test_it_learns_next_tokens_and_opens_as_the_causal_class(left_run):
    record = read_json(left_run / "run.json")
    assert list(record["terms"]) == ["clm"] and record["heads"] == ["mlm"]
    assert read_json(left_run / "config.json")["architectures"] == ["BertLMHeadModel"]
    losses = [line["loss"] for line in read_metrics(left_run) if line["kind"] == "train"]
    assert losses[-1] < losses[0]


def test_the_loss_is_that_of_the_next_token_by_transformers(left_run, tiny_corpus):
    settings = settings_in(read_json(left_run / "run.json"))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(left_run).eval()
    total, num = 0.0, 0
    for batch in held_out_batches(settings, [(Corpus(tiny_corpus, settings.data.held_out_fraction), 1.0)]):
        for ids in batch.ids_T.tensor_split(batch.offsets_host[1:-1].tolist()):
            with torch.no_grad():
                total += float(F.cross_entropy(theirs(ids[None]).logits[0, :-1], ids[1:], reduction="sum"))
            num += len(ids) - 1
    measured = [line for line in read_metrics(left_run) if line["kind"] == "validation"][-1]
    assert measured["clm"] == pytest.approx(total / num, abs=1e-4)


def test_the_server_offers_no_masks(left_run, tiny_run):
    served = open_models([str(left_run), str(tiny_run)], "cpu")
    left, both = (served[key].abilities for key in served)
    assert not {"fill-mask", "masking", "next-sentence"} & set(left) and {"fill-mask", "masking"} <= set(both)


def test_a_resumed_run_ends_with_the_same_weights(tmp_path, left_run, tiny_corpus):
    shutil.copytree(left_run, tmp_path / "run")
    _, *later = sorted((tmp_path / "run" / "checkpoints").iterdir())
    for folder in later:
        shutil.rmtree(folder)
    outcome = run(tmp_path / "run", tiny_corpus, steps=12, overrides=LEFT, resume=True)
    assert outcome.ended == "finished" and same(tmp_path / "run", left_run)


@pytest.mark.parametrize(
    ("preset", "overrides", "reason"),
    [
        ("bert-tiny", {"model.direction": "causal"}, r"set objective\.sentence=none"),
        ("albert-base", LEFT, "transformers has no one-sided model of this family"),
        ("electra-small", {"model.direction": "causal"}, "ELECTRA detects replaced"),
        ("bert-tiny", {"model.direction": "right"}, r"model\.direction must be"),
        ("bert-tiny", LEFT | {"masking.probability": 0.2}, "masks none"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_what_to_set(preset, overrides, reason):
    with pytest.raises(ValueError, match=reason):
        preset_settings(preset, overrides)


def test_masks_and_next_sentences_are_refused_and_texts_are_scored(left_run, monkeypatch):
    model = hornbook.load(left_run)
    for use in (model.fill_mask, model.fill):
        with pytest.raises(ValueError, match="predicts next tokens and was not trained on masks"):
            use("the river [MASK]")
    with pytest.raises(ValueError, match="use a GPT to generate text"):
        model.generate("the river")
    with pytest.raises(ValueError, match="attends to neither sentence"):
        model.next_sentence("the river", "a bridge")
    (score,) = model.score("the river bridge")
    ids_T = torch.tensor(model.tokenizer.encode("the river bridge").ids)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(left_run).eval()
    with torch.no_grad():
        expected = theirs(ids_T[None]).logits[0, :-1].log_softmax(-1).gather(1, ids_T[1:, None])[:, 0]
    assert np.allclose(score.log_probabilities, expected[:-1], atol=1e-4)  # without [SEP]
    monkeypatch.setattr(model, "_encode", lambda text: Encoded(*(each[1:] for each in model.tokenizer.encode(text))))
    num_done = []
    (score,) = model.score("the river bridge", on_progress=num_done.append)  # by a tokenizer that adds no [CLS]
    assert len(score.tokens) == len(score.log_probabilities) == len(expected) - 2 and num_done == [1]
    first, second = model.embed(["the river", "the bridge"])
    assert not np.allclose(first, second)


@pytest.mark.parametrize("task", OUTSIDE)
def test_a_task_learns_from_the_whole_text(tmp_path, left_run, classifier, task):
    found = classifier
    if task != "classification":
        found = hornbook.finetune(left_run, rows(task), task, tmp_path / "run", epochs=12, lr=5e-3, **QUIET)
    assert found.score > 0.9
    assert found.evaluate(rows(task))


@pytest.mark.parametrize("task", OUTSIDE)
def test_transformers_opens_a_task_with_the_same_outputs_or_without_its_head(tmp_path, left_run, classifier, task):
    """Its classes for whole texts read `[CLS]`, so they must not find a head there."""
    out = classifier.out if task == "classification" else tmp_path / "run"
    if task != "classification":
        hornbook.finetune(left_run, rows(task, 24), task, out, epochs=1, **QUIET)
    assert read_json(out / "config.json")["architectures"] == [OUTSIDE[task].__name__]
    ours, theirs = load_model(out), OUTSIDE[task].from_pretrained(out).eval()
    ids_NS = np.array([[2, 17, 23, 42, 3], [2, 18, 24, 41, 3]])
    batch = pack(list(ids_NS))
    with torch.no_grad():
        given, outputs = theirs(torch.from_numpy(ids_NS)), ours.outputs(batch)
        found, expected = {
            "classification": lambda: (ours(batch), given.last_hidden_state.flatten(0, 1)),
            "tagging": lambda: (outputs, given.logits.flatten(0, 1)),
            "spans": lambda: (outputs, torch.stack([given.start_logits, given.end_logits], -1)),
        }[task]()
    assert (found - expected).abs().max() < 1e-5


def test_a_student_learns_on_plain_text_and_on_a_task(tmp_path, left_run, classifier, tiny_corpus):
    shape = {name: value for name, value in TINY_MODEL.items() if name.startswith("model.")}
    overrides = {**TINY_MODEL, "model.direction": "causal"}
    more = {"corpora": [tiny_corpus], "steps": 4, "batch_tokens": 512, **QUIET}
    hornbook.distill(left_run, "bert-tiny", tmp_path / "student", overrides=overrides, **more)
    assert "clm" in read_json(tmp_path / "student" / "run.json")["terms"]
    assert load_model(tmp_path / "student").config.direction == "causal"
    with pytest.raises(ValueError, match=r"set model\.direction=causal"):
        hornbook.distill(left_run, "bert-tiny", tmp_path / "other", overrides=TINY_MODEL, **more)
    found = hornbook.distill(
        classifier.out,
        "bert-tiny",
        tmp_path / "taught",
        task="classification",
        data=rows("classification"),
        overrides={**shape, "model.direction": "causal", "stages.1.epochs": 2},
        epochs=12,
        lr=5e-3,
        **QUIET,
    )
    assert found.score > 0.9


def test_the_command_names_what_it_scores_by(left_run):
    found = CliRunner().invoke(cli.app, ["score", str(left_run), "the river", "--json"])
    assert found.exit_code == 0 and "masked in turn" not in found.output
