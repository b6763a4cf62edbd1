"""Pre-training of each family: its run folder opens in `transformers` with the same hidden states, can be continued
from, and incompatible options are refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tiny import tiny_text
from tiny_runs import run, same, weights

import hornbook
from hornbook.batch import pack
from hornbook.cli.pretraining import PRESET_HELP
from hornbook.data.build import build_corpus
from hornbook.data.corpus import Corpus
from hornbook.data.sequences import SequenceSampler
from hornbook.interop.folder import load_folder
from hornbook.report.info import describe
from hornbook.report.page import write_report
from hornbook.runs.pretraining.presets import PRESETS
from hornbook.runs.pretraining.pretrain import pretrain
from hornbook.runs.pretraining.record import PretrainRequest
from hornbook.runs.pretraining.resolve import resolve_settings
from hornbook.text.training import train_tokenizer

TEXTS = ["the river and the garden", "a teacher", "한국어 위키백과는 the bridge of letters"]


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "unigram"])
def corpus(request, tmp_path_factory, tiny_text_file) -> Path:
    """One of each kind of tokenizer: their pad tokens have the ids 0, 1 and 0."""
    folder = tmp_path_factory.mktemp("families")
    tokenizer = train_tokenizer(tiny_text(200).split("\n\n"), kind=request.param, vocab_size=320)
    tokenizer.save(folder / "tokenizer")
    build_corpus(tiny_text_file, folder / "tokenizer", folder / "corpus", workers=0)
    return folder / "corpus"


def check_same_hidden(folder: Path, pairs: bool) -> None:
    """Of a padded batch that `transformers` makes by itself, from text to hidden states."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").double().eval()
    ours, our_tokenizer = load_folder(folder)
    second = TEXTS[::-1] if pairs else None
    inputs = tokenizer(TEXTS, second, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs).last_hidden_state[inputs["attention_mask"].bool()]
        encoded = [our_tokenizer.encode(*each) for each in (zip(TEXTS, second, strict=True) if pairs else zip(TEXTS))]
        found = ours.double()(pack([np.array(each.ids) for each in encoded], [each.segments for each in encoded]))
    assert inputs["input_ids"][inputs["attention_mask"].bool()].tolist() == [i for each in encoded for i in each.ids]
    assert (found - expected).abs().max() <= 1e-9


@pytest.mark.parametrize("family", ["albert", "roberta"])
def test_a_run_folder_opens_in_transformers(tmp_path, corpus, family):
    run(tmp_path / "run", corpus, steps=2, family=family)
    for pairs in (False, True):
        check_same_hidden(tmp_path / "run", pairs)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    _, tokenizer = load_folder(tmp_path / "run")
    if family == "roberta":
        assert config["architectures"] == ["RobertaForMaskedLM"] and config["pad_token_id"] == tokenizer.pad_id
        assert config["max_position_embeddings"] == 512 + tokenizer.pad_id + 1
    else:
        assert config["architectures"] == ["AlbertForPreTraining"] and config["num_hidden_groups"] == 1
    loaded = hornbook.load(tmp_path / "run")
    assert len(loaded.fill_mask(f"the {tokenizer.mask_token} and", top_k=3)[0]) == 3


@pytest.mark.parametrize("layout", ["nsp", "sop", "pairs"])
def test_pairs_are_joined_as_the_tokenizer_joins_them(corpus, layout):
    """So that a task meets what pre-training has seen, whatever the kind of tokenizer."""
    opened = Corpus(corpus)
    tokenizer = opened.tokenizer
    batch = SequenceSampler([(opened, 1.0)], 48, 0, layout).batch(0, 200)
    expected = tokenizer.encode("the river", "a teacher")
    ends = (tokenizer.cls_id, tokenizer.sep_id)

    def shape(ids: list[int], segments: list[int]) -> list[tuple[int, int]]:
        """Special tokens and other tokens with their segments, repeated others once."""
        seen = [(number if number in ends else -1, kind) for number, kind in zip(ids, segments, strict=True)]
        return [each for each, before in zip(seen, [None, *seen], strict=False) if each != before or each[0] >= 0]

    singles = shape(*tokenizer.encode("the river")[:2])
    found = [
        shape(batch.ids_T[start:stop].tolist(), batch.segments_T[start:stop].tolist())
        for start, stop in zip(batch.offsets_host[:-1], batch.offsets_host[1:], strict=True)
    ]
    pairs = [each for each in found if layout != "pairs" or each != singles]
    assert len(pairs) > 30 and all(each == shape(*expected[:2]) for each in pairs)
    assert max(np.diff(batch.offsets_host)) == 48


@pytest.mark.parametrize("sharing", ["attention", "ffn", "none"])
def test_layers_that_share_weights_keep_sharing_them(tmp_path, tiny_corpus, sharing):
    overrides = {"model.sharing": sharing, "objective.sentence": "none"}
    run(tmp_path / "run", tiny_corpus, steps=3, family="albert", overrides=overrides)
    first, second = load_folder(tmp_path / "run")[0].blocks
    assert (first.attention is second.attention) == (sharing == "attention")
    assert (first.fc1 is second.fc1) == (sharing == "ffn")
    assert not torch.equal(first.norm.weight, torch.ones(32))  # it learned


@pytest.mark.parametrize("family", ["albert", "roberta"])
def test_continued_pretraining_from_a_model(tmp_path, tiny_corpus, family):
    """With the preset of its family only; the shape is that of the model, dropout may be overridden."""
    base = tmp_path / "base"
    run(base, tiny_corpus, steps=2, family=family)
    free = {"model.dropout": 0.2} | ({"model.head_dropout": 0.3} if family == "albert" else {})
    run(tmp_path / "more", tiny_corpus, steps=2, family=family, init_from=base, overrides=free)
    model = load_folder(tmp_path / "more")[0]
    assert model.config.dropout == 0.2 and (family == "roberta" or model.config.head_dropout == 0.3)
    assert not same(base, tmp_path / "more")
    with pytest.raises(ValueError, match=f"of the family {family}, .* such as {family}-base"):
        run(tmp_path / "other", tiny_corpus, steps=2, init_from=base)
    assert not (tmp_path / "other").exists()


def encoded_alone(folder: Path) -> None:
    """Text is encoded without special tokens, and `transformers` continues it as the logits here predict."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    ours, our_tokenizer = load_folder(folder)
    for text in TEXTS:
        ids = our_tokenizer.encode(text).ids
        assert tokenizer(text)["input_ids"] == ids and not set(ids) & set(our_tokenizer.special_ids)
        with torch.no_grad():
            scores = ours.vocabulary_logits(ours(pack([np.array(ids)])))[-1]
        after = model.generate(torch.tensor([ids]), max_new_tokens=1, do_sample=False)[0, -1]
        assert int(after) == int(scores.argmax())


@pytest.mark.parametrize("family", ["gpt1", "gpt2"])
def test_a_gpt_run(tmp_path, corpus, family):
    """No mask is needed, a sample neither; what is predicted is every next token, and the end of a text."""
    window = {"model.window": "none"} if family == "gpt2" else {}  # transformers has no windows
    run(tmp_path / "run", corpus, steps=3, family=family, overrides=window)
    encoded_alone(tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["heads"] == ["clm"] and set(record["unigram_baseline"]) == {"clm", "clm_accuracy"}
    assert record["settings"]["model"]["eos_id"] == Corpus(corpus).tokenizer.eos_id
    assert not (tmp_path / "run" / "samples.json").exists()
    page = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "next-token accuracy" in page and "of next tokens: exp of the clm loss" in page
    assert "data.crosses_documents" in page and "masking" not in page and "data.layout" not in page
    assert any("clm" in words for label, words in describe(tmp_path / "run")["lines"] if label == "last validation")
    run(tmp_path / "more", corpus, steps=2, family=family, init_from=tmp_path / "run", overrides=window)
    with pytest.raises(ValueError, match="cannot fill in masks"):
        hornbook.load(tmp_path / "run").fill_mask("the [MASK]")


def test_documents_may_be_crossed(tmp_path, tiny_corpus):
    for crosses in (False, True):
        run(tmp_path / str(crosses), tiny_corpus, 2, {"data.crosses_documents": crosses}, "gpt2")
    assert not same(tmp_path / "False", tmp_path / "True")
    with pytest.raises(ValueError, match=r"data\.crosses_documents"):
        run(tmp_path / "other", tiny_corpus, 2, {"data.layout": "full-sentences"}, "gpt2")


def test_help_and_documents_name_every_preset():
    readme = (Path(__file__).parent.parent / "docs" / "pretraining.md").read_text(encoding="utf-8")
    tables = {line.split("`")[1].partition("-")[0]: line for line in readme.splitlines() if line.startswith("| `")}
    helps = {part.split("-")[0]: part for part in PRESET_HELP.rstrip(".").split("; ")}
    for preset in PRESETS:
        family, _, size = preset.partition("-")
        assert (
            f"-{size}" in helps[family].replace(",", " ").split() or preset in helps[family].replace(",", " ").split()
        )
        assert f"`-{size}`" in tables[family] or f"`{preset}`" in tables[family]


def test_a_generator_learns_at_its_own_rate(tmp_path, corpus):
    """With `none` its own weights keep their initial values; those that it shares with the discriminator do not."""
    for steps in (1, 4):
        run(
            tmp_path / f"{steps}",
            corpus,
            steps=steps,
            family="electra",
            overrides={"objective.generator_lr_ratio": 0.0},
        )
    first, last = (weights(tmp_path / steps / "generator") for steps in ("1", "4"))
    moved = {name for name, value in first.items() if not torch.equal(value, last[name])}
    assert moved and all("embeddings." in name and "project" not in name for name in moved)
    assert not same(tmp_path / "1", tmp_path / "4")


def test_followed_tokens_resume_with_the_same_bits(tmp_path, corpus):
    """The two tables are all that a step reads of what went before."""
    words = {"family": "electra", "overrides": {"objective.shared": "followed", "checkpoint.every_steps": 5}}
    run(tmp_path / "whole", corpus, **words)

    def stop(status):
        if status.step == 7:
            raise RuntimeError("the light went out")

    with pytest.raises(RuntimeError, match="the light went out"):
        run(tmp_path / "cut", corpus, on_progress=stop, **words)
    run(tmp_path / "cut", corpus, resume=True, **words)
    for part in (".", "generator"):
        assert same(tmp_path / "whole" / part, tmp_path / "cut" / part)
    tables = [
        weights(tmp_path / "whole" / part)["electra.embeddings.word_embeddings.weight"] for part in (".", "generator")
    ]
    alike = torch.corrcoef(torch.stack([table.flatten() for table in tables]))[0, 1]
    assert not torch.equal(*tables) and alike > 0.5  # drawn apart: 0


def test_a_discriminator_that_corrects_is_still_one(tmp_path, tiny_corpus):
    """It opens in `transformers`, masks are filled in by its generator, and a run can be continued from it."""
    run(tmp_path / "run", tiny_corpus, steps=3, family="electra", overrides={"objective.correction": 1.0})
    check_same_hidden(tmp_path / "run", pairs=True)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["architectures"] == ["ElectraForPreTraining"]
    assert {"mlm", "rtd"} <= set(load_folder(tmp_path / "run")[0].heads)
    loaded, generator = (hornbook.load(tmp_path / "run" / part) for part in (".", "generator"))
    text = f"the {loaded.tokenizer.mask_token} and"
    assert loaded.fill_mask(text) == generator.fill_mask(text)
    assert "correction" in dict(describe(tmp_path / "run")["lines"])["last validation"]
    run(tmp_path / "more", tiny_corpus, steps=2, family="electra", init_from=tmp_path / "run")
    assert "mlm" not in load_folder(tmp_path / "more")[0].heads
    # Without its generator, as the built-in models are, it generates the replacements itself.
    shutil.rmtree(tmp_path / "run" / "generator")
    messages = []
    options = {"steps": 1, "batch_tokens": 512, "init_from": tmp_path / "run", "log": messages.append}
    pretrain("electra-small", [tiny_corpus], tmp_path / "own", overrides={"runtime.threads": 1}, **options)
    assert any("it generates replacements itself" in message for message in messages)
    assert not any("newly initialised" in message for message in messages)
    before, after, generator = (load_folder(tmp_path / part)[0] for part in ("run", "own", "own/generator"))
    assert after.heads == before.heads
    for model in (after, generator):
        assert torch.allclose(model.mlm.dense.weight, before.mlm.dense.weight, atol=1e-3)
        assert torch.allclose(model.blocks[0].fc1.weight, before.blocks[0].fc1.weight, atol=1e-3)


def test_a_trained_model_gets_a_lower_learning_rate(tmp_path, tiny_corpus):
    run(tmp_path / "run", tiny_corpus, steps=1, family="electra")

    def lr_of(**options) -> float:
        request = PretrainRequest("electra-small", [], steps=100, init_from=str(tmp_path / "run"), **options)
        return resolve_settings(request).optimizer.lr

    assert lr_of() == 1e-4
    assert lr_of(recipe="published") == 5e-4
    assert lr_of(overrides={"optimizer.lr": 3e-4}) == 3e-4
