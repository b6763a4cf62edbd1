"""A whole pre-training run through its one function: what it leaves, how it resumes, what it refuses."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from finetuning.rules import random_encoder
from forked import begun, status_of
from tiny import TINY_MODEL, tiny_text
from tiny_runs import FAMILIES, run, same, weights

import hornbook
from hornbook.config import with_overrides
from hornbook.data.build import build_corpus
from hornbook.data.corpus import Corpus
from hornbook.lifecycle.run_folder import read_metrics
from hornbook.runs.pretraining import minutes
from hornbook.runs.pretraining.batches import BatchMaker, held_out_batches, mixed_token_counts
from hornbook.runs.pretraining.minutes import steps_in
from hornbook.runs.pretraining.presets import preset_settings
from hornbook.runs.pretraining.pretrain import pretrain
from hornbook.runs.pretraining.settings import settings_in
from hornbook.train.checkpoint import Checkpoints, kept_folder
from hornbook.train.job import Stopped


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, tiny_corpus) -> Path:
    folder = tmp_path_factory.mktemp("pretrain") / "unbroken"
    run(folder, tiny_corpus)
    return folder


def test_a_run_folder_opens_in_transformers(unbroken):
    model = transformers.BertForPreTraining.from_pretrained(unbroken).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(unbroken)
    ours = hornbook.load(unbroken)
    text = "the [MASK] of 한국어 위키백과는"
    assert tokenizer(text)["input_ids"] == ours.tokenizer.encode(text).ids
    with torch.no_grad():
        logits = model(**tokenizer(text, return_tensors="pt")).prediction_logits[0]
    place = tokenizer(text)["input_ids"].index(tokenizer.mask_token_id)
    best = ours.fill_mask(text, top_k=1)[0][0]
    assert tokenizer.convert_ids_to_tokens(int(logits[place].argmax())) == best.token
    assert best.probability == pytest.approx(float(logits[place].softmax(-1).max()), rel=1e-4)
    assert transformers.AutoModel.from_pretrained(unbroken).config.model_type == "bert"
    assert hornbook.describe(unbroken)["parameters"] == model.num_parameters()


def test_run_json_holds_every_decision(unbroken, tiny_corpus):
    record = json.loads((unbroken / "run.json").read_text())
    assert record["preset"] == "bert-tiny" and record["settings"]["schedule"]["steps"] == 12
    assert record["settings"]["validation"]["every_steps"] == 6 and record["runtime"]["threads"] == 1
    assert Path(record["inputs"]["corpora"][0]["folder"]) == tiny_corpus.resolve()
    assert 0 < record["unigram_baseline"]["mlm"] < 8


def test_validating_takes_about_a_tenth_of_a_short_run(unbroken, tiny_corpus):
    """A validation of all held-out text is a forward pass, a third of a step for as many tokens."""
    settings = settings_in(json.loads((unbroken / "run.json").read_text()))
    held_out = sum(
        batch.num_tokens
        for batch in held_out_batches(settings, [(Corpus(tiny_corpus, settings.data.held_out_fraction), 1.0)])
    )
    num = len([line for line in read_metrics(unbroken) if line["kind"] == "validation"])
    assert 2 <= num <= 4 and num * held_out / 3 < 0.15 * 12 * settings.batch.tokens


def test_all_held_out_sequences_are_validated_on(unbroken, tiny_corpus):
    settings = settings_in(json.loads((unbroken / "run.json").read_text()))
    nums = set()
    for tokens in (64, 160, 224):
        settings = with_overrides(settings, {"batch.tokens": tokens})
        batches = held_out_batches(settings, [(Corpus(tiny_corpus, 0.2), 1.0)])
        nums.add(sum(batch.num_sequences for batch in batches))
    assert len(nums) == 1


def test_held_out_samples_are_written(unbroken):
    samples = json.loads((unbroken / "samples.json").read_text())
    assert samples and all("[MASK]" in sample["text"] and len(sample["guesses"]) == 5 for sample in samples)


@pytest.mark.parametrize("family", FAMILIES)
def test_killed_and_resumed_it_ends_with_the_same_bits(unbroken, tmp_path, tiny_corpus, family):
    """A real `kill -9` of the command itself, in the middle of the run."""
    if family != "bert":
        unbroken = tmp_path / "unbroken"
        run(unbroken, tiny_corpus, family=family)
    program = (
        "import os, signal, sys\n"
        "from tiny_runs import run\n"
        "def watch(status):\n"
        "    if status.step == 7: os.kill(os.getpid(), signal.SIGKILL)\n"
        "run(sys.argv[1], sys.argv[2], on_progress=watch, family=sys.argv[3])\n"
    )
    assert status_of(program, tmp_path / "run", tiny_corpus, family) == -signal.SIGKILL
    assert not (tmp_path / "run" / "samples.json").exists()
    run(tmp_path / "run", tiny_corpus, resume=True, family=family)
    assert same(unbroken, tmp_path / "run") and same(unbroken / "best", tmp_path / "run" / "best")
    if family == "electra":
        assert same(unbroken / "generator", tmp_path / "run" / "generator")


@pytest.mark.parametrize("is_initialised", [False, True])
def test_killed_before_the_first_checkpoint(unbroken, tmp_path, tiny_corpus, is_initialised):
    """`run.json` is there and no checkpoint yet: the first weights are made once more."""
    start = {"init_from": unbroken} if is_initialised else {}
    run(tmp_path / "whole", tiny_corpus, **start)
    run(tmp_path / "cut", tiny_corpus, **start)
    for path in (tmp_path / "cut").iterdir():
        if path.name != "run.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    run(tmp_path / "cut", tiny_corpus, resume=True)
    assert same(tmp_path / "whole", tmp_path / "cut")


def test_the_number_of_loader_workers_changes_nothing(unbroken, tmp_path, tiny_corpus):
    run(tmp_path / "run", tiny_corpus, overrides={"runtime.loader_workers": 2})
    assert same(unbroken, tmp_path / "run")


def test_an_existing_run_is_never_overwritten(unbroken, tiny_corpus):
    before = (unbroken / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="resume=True"):
        run(unbroken, tiny_corpus)
    assert (unbroken / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"steps": 13}, r"schedule\.steps is 12, not 13; leave these options out to resume"),
        ({"overrides": {"optimizer.lr": 2e-3}}, r"optimizer\.lr is 0\.001, not 0\.002"),
        ({"steps": None, "minutes": 3.0}, r"minutes is not set, not 3\.0"),
        ({"minutes": 3.0}, "give only one of steps=, tokens= and minutes="),
        ({"init_from": "elsewhere"}, "init_from= is not set"),
    ],
)
def test_a_resumed_run_cannot_become_another(unbroken, tiny_corpus, change, said):
    with pytest.raises(ValueError, match=said):
        run(unbroken, tiny_corpus, resume=True, **change)


def test_a_setting_that_does_not_fit_the_steps_leaves_no_run(tmp_path, tiny_corpus):
    with pytest.raises(ValueError, match=r"checkpoint\.keep_at has step 5, but schedule\.steps=2"):
        run(tmp_path / "run", tiny_corpus, steps=2, overrides={"checkpoint.keep_at": (5,)})
    assert run(tmp_path / "run", tiny_corpus, steps=2, overrides={"checkpoint.keep_at": (2,)}).step == 2


def test_a_changed_corpus_is_noticed(tmp_path, unbroken, tiny_corpus):
    copy = tmp_path / "run"
    shutil.copytree(unbroken, copy)
    record = json.loads((copy / "run.json").read_text())
    record["inputs"]["corpora"][0]["fingerprint"] = "0" * 64
    (copy / "run.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"the corpus .* is not what"):
        run(copy, tiny_corpus, resume=True)


def test_a_corpus_that_moved_is_known_again(tmp_path, unbroken, tiny_corpus, tiny_tokenizer):
    shutil.copytree(tiny_corpus, tmp_path / "moved")
    assert run(unbroken, tmp_path / "moved", resume=True).ended == "already finished"
    (tmp_path / "other.txt").write_text(tiny_text(20, seed=1), encoding="utf-8")
    build_corpus(tmp_path / "other.txt", tiny_tokenizer, tmp_path / "other", workers=0)
    with pytest.raises(ValueError, match=r"the corpus .*other is not what"):
        run(unbroken, tmp_path / "other", resume=True)
    with pytest.raises(ValueError, match="corpora is"):
        run(unbroken, f"{tmp_path / 'moved'}:2", resume=True)


def test_minutes_become_steps_once(tmp_path, tiny_corpus):
    said = []
    settings = TINY_MODEL | {"batch.tokens": 512}
    pretrain("bert-tiny", [tiny_corpus], tmp_path / "run", minutes=0.02, overrides=settings, log=said.append)
    steps = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["schedule"]["steps"]
    assert any("steps" in words and f"{steps:,}" in words for words in said)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(line["step"] for line in lines) == steps


@pytest.mark.parametrize("validation_seconds", [0.0, 0.1, 3.0, 20.0])
@pytest.mark.parametrize("every", [None, 1, 50])
def test_steps_and_validations_fill_the_minutes(validation_seconds, every):
    steps, found = steps_in(90, 0.5, validation_seconds, every)
    taken = 0.5 * steps + validation_seconds * (steps // found)
    assert 80 <= taken <= 90.5 or steps == 1
    assert every in (None, found)
    if every is None:
        assert steps // found >= 2 and (validation_seconds < 3 or steps // found < 20)


def test_a_run_in_minutes_counts_its_validations(tmp_path, tiny_corpus, monkeypatch):
    """Where held-out text is a hundred times a batch, validating twenty times would take most of the time."""
    asked = []
    monkeypatch.setattr(minutes, "steps_in", lambda *each: asked.append(each) or (4, 2))
    settings = TINY_MODEL | {"batch.tokens": 512, "data.held_out_fraction": 0.5}
    pretrain("bert-tiny", [tiny_corpus], tmp_path / "run", minutes=0.02, overrides=settings, log=lambda words: None)
    ((seconds, a_step, validation_seconds, every),) = asked
    assert seconds < 1.2 and validation_seconds > a_step / 3 and every is None
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "validation"] == [2, 4]


def test_measuring_minutes_moves_no_weight(tmp_path, tiny_corpus):
    """A run whose steps came from minutes equals one that was given those steps."""
    settings = TINY_MODEL | {"batch.tokens": 512}
    pretrain("bert-tiny", [tiny_corpus], tmp_path / "a", minutes=0.01, overrides=settings, log=lambda words: None)
    steps = json.loads((tmp_path / "a" / "run.json").read_text())["settings"]["schedule"]["steps"]
    pretrain("bert-tiny", [tiny_corpus], tmp_path / "b", steps=steps, overrides=settings, log=lambda words: None)
    assert same(tmp_path / "a", tmp_path / "b")


def test_masked_tokens_alone(tmp_path, tiny_corpus):
    run(tmp_path / "run", tiny_corpus, steps=2, overrides={"objective.sentence": "none", "masking.unit": "word"})
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["architectures"] == ["BertForMaskedLM"]
    transformers.BertForMaskedLM.from_pretrained(tmp_path / "run")
    with pytest.raises(ValueError, match="has no"):
        hornbook.load(tmp_path / "run").next_sentence("a", "b")


def test_variants_of_the_model(tmp_path, tiny_corpus):
    overrides = {"model.direction": "causal", "objective.sentence": "none", "model.positions": "sinusoidal"}
    run(tmp_path / "run", tiny_corpus, steps=2, overrides=overrides)
    again = hornbook.load(tmp_path / "run")
    assert again.model.config.direction == "causal" and again.model.config.positions == "sinusoidal"
    from hornbook.nn.embeddings import sinusoids

    assert torch.equal(again.model.embeddings.positions.weight, sinusoids(512, 32))


def test_continued_pretraining_with_an_extended_vocabulary(tmp_path, unbroken):
    """Words of the domain are added to the vocabulary, the corpus and the model, which initialises them from their
    former tokens."""
    from hornbook.text.tokenizer import Tokenizer
    from hornbook.text.vocabulary_fit import words_worth_adding

    text = tmp_path / "law.txt"
    documents = tiny_text(60).replace("river", "plaintiff").replace("bread", "affidavit")
    text.write_text(documents, encoding="utf-8")
    tokenizer = Tokenizer.load(unbroken)
    old_size = tokenizer.vocab_size
    words = words_worth_adding(tokenizer, documents.split("\n\n"), 4)
    assert {"plaintiff", "affidavit"} <= set(words)
    tokenizer.add_words(words)
    tokenizer.save(tmp_path / "vocabulary")
    build_corpus(text, tmp_path / "vocabulary", tmp_path / "corpus", workers=0)
    said = []
    settings = TINY_MODEL | {"batch.tokens": 512, "schedule.steps": 2}
    pretrain(
        "bert-tiny", [tmp_path / "corpus"], tmp_path / "law", init_from=unbroken, overrides=settings, log=said.append
    )
    assert any("new words" in words for words in said)
    model = transformers.BertForPreTraining.from_pretrained(tmp_path / "law")
    assert model.config.vocab_size == tokenizer.vocab_size > old_size
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path / "law")
    assert "plaintiff" in reader.tokenize("The plaintiff spoke.")


def test_a_model_without_heads_gets_new_ones(tmp_path):
    """Continues training from a folder that holds the encoder alone."""
    folder = random_encoder(tmp_path / "encoder", heads=())
    text = tmp_path / "text.txt"
    text.write_text(tiny_text(40), encoding="utf-8")
    build_corpus(text, folder, tmp_path / "corpus", workers=0)
    said = []
    settings = {"data.short_length": 32, "data.length": 32, "runtime.threads": 1}
    out = tmp_path / "run"
    keywords = {"init_from": folder, "steps": 1, "batch_tokens": 256, "overrides": settings, "log": said.append}
    pretrain("bert-small", [tmp_path / "corpus"], out, **keywords)
    assert any("newly initialised" in words for words in said)
    assert set(hornbook.load(out).model.heads) == {"pooler", "mlm", "sentence"}


def test_short_sequences_first_then_long_ones(tmp_path, tiny_corpus):
    """Nine tenths of the steps at the short limit, then the long one, at the same number of tokens a batch."""
    from hornbook.data.corpus import Corpus

    settings = preset_settings("bert-tiny", TINY_MODEL | {"schedule.steps": 20, "batch.tokens": 512})
    make = BatchMaker(settings, [(Corpus(tiny_corpus), 1.0)])
    made = [make(number) for number in range(20)]
    assert [batch.max_length for batch in made] == [32] * 18 + [64] * 2
    assert [batch.num_sequences for batch in made] == [16] * 18 + [8] * 2


def test_corpora_mix_by_weight(tmp_path, tiny_corpus, tiny_run):
    shutil.copytree(tiny_corpus, tmp_path / "second:3")
    out = tmp_path / "run"
    settings = TINY_MODEL | {"batch.tokens": 512, "schedule.steps": 2}
    folders = [f"{tiny_corpus}:3", tmp_path / "second:3"]
    pretrain("bert-tiny", folders, out, overrides=settings, log=lambda words: None)
    corpora = json.loads((out / "run.json").read_text())["inputs"]["corpora"]
    assert [entry["weight"] for entry in corpora] == [3.0, 1.0]
    assert corpora[1]["folder"].endswith("second:3")


def test_the_unigram_baseline_counts_what_is_predicted(tmp_path, tiny_corpus, tiny_tokenizer):
    """Of a small corpus with a large weight, and the ends of texts."""
    (tmp_path / "korean.txt").write_text("\n\n".join(tiny_text(80, seed=1).split("\n\n")[3::4]), encoding="utf-8")
    build_corpus(tmp_path / "korean.txt", tiny_tokenizer, tmp_path / "korean", workers=0)
    corpora = [(Corpus(tiny_corpus), 1.0), (Corpus(tmp_path / "korean"), 3.0)]
    settings = preset_settings("gpt2-tiny", {"data.length": 64, "batch.tokens": 64_000})
    labels = BatchMaker(settings, corpora)(0).labels_T.numpy()
    counts = mixed_token_counts(corpora, with_ends=True)
    assert counts.sum() == pytest.approx(sum(corpus.num_tokens + corpus.num_documents for corpus, _ in corpora))
    shares = np.bincount(labels, minlength=len(counts)) / len(labels)
    assert shares == pytest.approx(counts / counts.sum(), abs=0.005)
    assert shares[corpora[0][0].tokenizer.eos_id] > 0.01


def test_a_kill_in_the_last_moment_is_made_good(unbroken, tmp_path, tiny_corpus):
    """The last checkpoint was written, but neither its weights at the root nor the samples."""
    copy = tmp_path / "run"
    shutil.copytree(unbroken, copy)
    older = sorted((copy / "checkpoints").iterdir())[0]
    (copy / "model.safetensors").unlink()
    shutil.copy(older / "model.safetensors", copy / "model.safetensors")
    (copy / "samples.json").unlink()
    assert run(copy, tiny_corpus, resume=True).ended == "already finished"
    assert same(unbroken, copy)
    assert (copy / "samples.json").read_bytes() == (unbroken / "samples.json").read_bytes()


def test_a_run_that_ends_early_is_finished(tmp_path, tiny_corpus):
    """Without a learning rate nothing improves, so the second validation ends the run."""
    overrides = {"optimizer.lr": 1e-12, "validation.every_steps": 1, "validation.patience": 1}
    out = tmp_path / "run"
    outcome = run(out, tiny_corpus, overrides=overrides)
    assert outcome.ended == "finished early" and outcome.step < 12
    samples = (out / "samples.json").read_bytes()
    (out / "samples.json").unlink()
    Checkpoints(out).keep_only_state()
    assert run(out, tiny_corpus, overrides=overrides, resume=True).ended == "already finished"
    assert (out / "samples.json").read_bytes() == samples


def test_samples_are_those_of_the_saved_weights(tmp_path, tiny_corpus):
    overrides, out = {"optimizer.ema_decay": 0.99}, tmp_path / "run"
    run(out, tiny_corpus, overrides=overrides, steps=3)
    samples = (out / "samples.json").read_bytes()
    (out / "samples.json").unlink()
    run(out, tiny_corpus, overrides=overrides, steps=3, resume=True)
    assert (out / "samples.json").read_bytes() == samples


def test_what_a_kill_left_in_an_empty_folder_does_not_block(tmp_path, tiny_corpus):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".run.json.999999999.tmp").write_text("{")
    assert run(tmp_path / "run", tiny_corpus, steps=1, resume=True).ended == "finished"
    assert not list((tmp_path / "run").glob(".*.tmp"))


@pytest.mark.faults
def test_terminating_the_whole_group_saves(tmp_path, tiny_corpus):
    """Schedulers signal every process of a group: the loader's workers must not take the run down with them."""
    program = (
        "import os, sys, time; os.setsid()\n"
        "from pathlib import Path\n"
        "from tiny_runs import run\n"
        "from hornbook.train.job import Stopped\n"
        "overrides = {'runtime.loader_workers': 2, 'checkpoint.every_steps': 0}\n"
        "def slowly(status): time.sleep(0.01)\n"
        "try: run(sys.argv[1], sys.argv[2], steps=4000, overrides=overrides, on_progress=slowly)\n"
        "except Stopped as stopped: Path(sys.argv[3]).write_text(str(stopped.outcome.step))\n"
    )
    process = begun(program, tmp_path / "run", tiny_corpus, tmp_path / "ended")
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    process.join(60)
    step = int((tmp_path / "ended").read_text())
    assert process.exitcode == 0 and step > 0
    assert (tmp_path / "run" / "checkpoints" / f"step-{step:08d}").exists()


def test_continued_pretraining_resumes_by_the_same_command(unbroken, tmp_path, tiny_corpus):
    words = {"init_from": unbroken, "steps": 2, "overrides": {"model.dropout": "0", "model.width": "32"}}
    run(tmp_path / "run", tiny_corpus, **words)
    stored = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["model"]
    assert stored["dropout"] == 0.0 and stored["attention_dropout"] == 0.1
    assert run(tmp_path / "run", tiny_corpus, resume=True, **words).ended == "already finished"
    with pytest.raises(ValueError, match=r"model\.num_layers is 1 .* cannot be overridden"):
        run(tmp_path / "other", tiny_corpus, init_from=unbroken, overrides={"model.num_layers": 2})


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"model.max_positions": 48}, r"data\.length=64 is more than"),
        ({"data.length": 600, "model.max_positions": 512}, r"data\.length"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_anything_is_written(tmp_path, tiny_corpus, overrides, said):
    with pytest.raises(ValueError, match=said):
        run(tmp_path / "run", tiny_corpus, overrides=overrides)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("short_fraction", [0.0, 0.5, 1.0])
def test_one_length_for_all_steps(tmp_path, tiny_corpus, short_fraction):
    from hornbook.data.corpus import Corpus

    overrides = {
        "data.short_length": 64,
        "data.length": 64,
        "data.short_fraction": short_fraction,
        "schedule.steps": 10,
    }
    make = BatchMaker(preset_settings("bert-tiny", TINY_MODEL | overrides), [(Corpus(tiny_corpus), 1.0)])
    first, later = make(0), make(9)
    assert first.max_length == later.max_length == 64 and not torch.equal(first.ids_T[:64], later.ids_T[:64])


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
def test_positions_beyond_the_short_length_repeat_the_trained_ones(tmp_path, tiny_corpus, family):
    overrides = {"data.short_fraction": 0.5, "data.repeat_positions": True, "checkpoint.keep_at": [1, 2, 4]}
    overrides |= {"model.max_positions": 72, "checkpoint.every_steps": 1}
    options = {"family": family, "steps": 4, "overrides": overrides}
    run(tmp_path / "run", tiny_corpus, **options)

    def positions(step):
        table = weights(kept_folder(tmp_path / "run", step))[f"{family}.embeddings.position_embeddings.weight"]
        return table[-72:]

    repeated = torch.arange(72) % 32
    before, at_switch, after = positions(1), positions(2), positions(4)
    assert not torch.equal(before[32:64], before[:32])
    assert torch.equal(at_switch, at_switch[repeated])
    assert not torch.equal(after[32:64], after[:32])
    for stops_at in (1, 2, 3):
        out = tmp_path / f"stopped-{stops_at}"
        with pytest.raises(Stopped):
            run(out, tiny_corpus, **options, on_progress=lambda status, at=stops_at: status.step >= at)
        run(out, tiny_corpus, **options, resume=True)
        assert same(out, tmp_path / "run")


def test_averaged_positions_repeat_the_trained_ones_too(tmp_path, tiny_corpus):
    """The averages are what is validated and saved."""
    overrides = {"data.short_fraction": 0.5, "data.repeat_positions": True, "checkpoint.keep_at": [2]}
    overrides |= {"optimizer.ema_decay": 0.99, "checkpoint.every_steps": 1}
    options = {"steps": 4, "overrides": overrides}
    run(tmp_path / "run", tiny_corpus, **options)
    table = weights(kept_folder(tmp_path / "run", 2))["bert.embeddings.position_embeddings.weight"]
    assert torch.equal(table, table[torch.arange(len(table)) % 32])
    with pytest.raises(Stopped):
        run(tmp_path / "stopped", tiny_corpus, **options, on_progress=lambda status: status.step >= 2)
    run(tmp_path / "stopped", tiny_corpus, **options, resume=True)
    assert same(tmp_path / "stopped", tmp_path / "run")


@pytest.mark.parametrize("ends_early", [False, True])
def test_positions_are_repeated_at_the_end_if_no_long_sequences_are_trained_on(tmp_path, tiny_corpus, ends_early):
    overrides = {"data.short_fraction": 1.0, "data.repeat_positions": True}
    if ends_early:
        overrides |= {"optimizer.lr": 1e-12, "validation.every_steps": 1, "validation.patience": 1}
    outcome = run(tmp_path / "run", tiny_corpus, overrides=overrides, steps=6 if ends_early else 2)
    assert outcome.ended == ("finished early" if ends_early else "finished")
    table = weights(tmp_path / "run")["bert.embeddings.position_embeddings.weight"]
    assert torch.equal(table, table[torch.arange(len(table)) % 32])


def test_hornbook_pretrain_is_a_function_not_a_module():
    from hornbook.runs.pretraining import pretrain as module

    assert hornbook.pretrain is hornbook.pretrain and hornbook.pretrain.__wrapped__ is module.pretrain
