"""Pre-training with each sentence task and without: layouts, names of losses, resuming, runs of the first version."""

import json

import pytest
import torch
from safetensors.torch import load_file
from tiny import TINY_MODEL

import hornbook
from hornbook.data.build import build_corpus
from hornbook.data.corpus import Corpus
from hornbook.runs.pretraining.batches import BatchMaker, held_out_batches
from hornbook.runs.pretraining.presets import preset_settings
from hornbook.runs.pretraining.pretrain import pretrain

CASES = {
    "none": ({"objective.sentence": "none"}, "full-sentences", []),
    "two segments": ({"objective.sentence": "none", "data.layout": "pairs"}, "pairs", []),
    "nsp": ({}, "nsp", ["nsp"]),
    "sop": ({"objective.sentence": "sop", "objective.sentence_weight": 0.5}, "sop", ["sop"]),
}


def run(out, corpus, overrides, **more):
    settings = TINY_MODEL | {"checkpoint.every_steps": 2, "optimizer.lr": 1e-3} | overrides
    words = {"steps": 5, "batch_tokens": 512, "overrides": settings, "log": lambda words: None, "recipe": "published"}
    return pretrain("bert-tiny", [corpus], out, **words | more)


class Killed(Exception):
    pass


def killed_at_step_3(status):
    if status.step == 3:
        raise Killed


def same_weights(one, two) -> bool:
    a, b = (load_file(folder / "model.safetensors") for folder in (one, two))
    return a.keys() == b.keys() and all(torch.equal(value, b[name]) for name, value in a.items())


@pytest.mark.parametrize("case", CASES)
def test_a_run_with_each_task(case, tmp_path, tiny_corpus):
    overrides, layout, terms = CASES[case]
    assert preset_settings("bert-tiny", overrides).layout == layout
    run(tmp_path / "whole", tiny_corpus, overrides)
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    for kind, endings in (("train", [""]), ("validation", ["", "_accuracy"])):
        line = next(line for line in lines if line["kind"] == kind)
        assert [name for name in line if name[:3] in ("mlm", "nsp", "sop")] == [
            f"{term}{ending}" for term in ["mlm", *terms] for ending in endings
        ]
        weight = overrides.get("objective.sentence_weight", 1.0)
        assert line["loss"] == pytest.approx(line["mlm"] + sum(weight * line[term] for term in terms), rel=1e-5)
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert config["architectures"] == ["BertForPreTraining" if terms else "BertForMaskedLM"]
    with pytest.raises(Killed):
        run(tmp_path / "cut", tiny_corpus, overrides, on_progress=killed_at_step_3)
    assert run(tmp_path / "cut", tiny_corpus, overrides, resume=True).ended == "finished"
    assert same_weights(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize("case", CASES)
def test_batches_have_the_requested_layout(case, tiny_corpus):
    overrides, layout, terms = CASES[case]
    more = {"schedule.steps": 10, "batch.tokens": 2048, "data.single_segment_probability": 0.5}
    settings = preset_settings("bert-tiny", TINY_MODEL | more | overrides)
    opened = [(Corpus(tiny_corpus), 1.0)]
    for batch in (BatchMaker(settings, opened)(0), *held_out_batches(settings, opened)[:1]):
        assert (batch.labels_N is not None) == bool(terms)
        assert bool(batch.segments_T.any()) == (layout != "full-sentences")
    made = BatchMaker(settings, opened)
    num_single = sum(not made(0).slice(i, i + 1).segments_T.any() for i in range(64))
    assert {"full-sentences": num_single == 64, "pairs": 15 < num_single < 50}.get(layout, num_single == 0)


def test_what_does_not_fit_is_refused():
    for overrides, said in (
        ({"data.layout": "full-sentences"}, r"data\.layout=pairs, or objective\.sentence=none"),
        ({"objective.sentence": "sop", "data.layout": "full-sentences"}, r"objective\.sentence=sop needs pairs"),
        ({"objective.sentence": "order"}, "must be one of none, nsp, sop"),
        ({"objective.sentence": None}, "must be one of none, nsp, sop"),
        ({"data.layout": "rows"}, r"data\.layout must be"),
        ({"objective.nsp": "false"}, "there is no setting 'objective.nsp'; did you mean 'objective.sentence'"),
    ):
        with pytest.raises(ValueError, match=said):
            preset_settings("bert-tiny", overrides)
    assert (
        preset_settings("bert-tiny", {"objective.sentence": "none", "model.num_segments": 1}).layout == "full-sentences"
    )
    assert preset_settings("bert-tiny", {"data.layout": "pairs"}).layout == "nsp"
    assert preset_settings("bert-tiny", {"data.layout": "none"}).data.layout is None


@pytest.mark.parametrize("sentence", ["nsp", "sop"])
@pytest.mark.parametrize("preset", ["albert-base", "roberta-base", "electra-small"])
def test_a_sentence_task_on_any_encoder(preset, sentence, tmp_path, tiny_corpus):
    """Published with it or not: it is trained, measured, saved and opened again."""
    overrides = TINY_MODEL | {"objective.sentence": sentence, "data.layout": None}
    if preset == "electra-small":
        overrides |= {"objective.generator_size": 0.5}
    words = {"steps": 3, "batch_tokens": 512, "overrides": overrides, "log": lambda words: None}
    pretrain(preset, [tiny_corpus], tmp_path / "run", **words)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(sentence in line for line in lines if line["kind"] in ("train", "validation"))
    assert 0 <= lines[-1][f"{sentence}_accuracy"] <= 1
    model = hornbook.load(tmp_path / "run")
    assert {"pooler", "sentence"} <= set(model.model.heads)
    assert 0 < model.next_sentence("the river.", "a bridge.") < 1


def test_one_sided_labels_of_next_sentences_are_warned_of(tmp_path, tiny_tokenizer):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"The river has {number} lanterns." for number in range(80)), encoding="utf-8")
    build_corpus(text, tiny_tokenizer, tmp_path / "corpus", workers=0)
    said = []
    run(tmp_path / "run", tmp_path / "corpus", {}, steps=1, log=said.append)
    (warning,) = [words for words in said if words.startswith("warning")]
    assert "100% of the pairs for next-sentence prediction are labelled 'not next'" in warning
    assert "objective.sentence=none" in warning


def test_documents_of_several_sentences_are_not_warned_of(tmp_path, tiny_corpus):
    said = []
    run(tmp_path / "run", tiny_corpus, {}, steps=1, log=said.append)
    assert not [words for words in said if words.startswith("warning")]
