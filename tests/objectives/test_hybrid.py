"""Masked and next-token prediction in one model: sums against one sequence at a time, parts of a batch, resuming,
learning, and the saved folder as a decoder, as an encoder and in a task."""

import dataclasses
import json

import numpy as np
import pytest
import torch
import transformers
from finetuned import labelled_texts
from tiny_runs import HYBRID, run, same

import hornbook
from hornbook.batch import concatenate, pack
from hornbook.data.sequences import SequenceSampler
from hornbook.evaluation.minimal_pairs import minimal_pairs, read_pairs
from hornbook.interop.folder import load_folder
from hornbook.lifecycle.run_folder import read_metrics
from hornbook.models.gpt import Gpt1, Gpt1Config, Gpt2, Gpt2Config
from hornbook.objectives.clm import HybridObjective
from hornbook.objectives.masking import Masking, MaskingSettings
from hornbook.objectives.vocabulary_loss import unigram_baseline
from hornbook.runs.pretraining.batches import BatchMaker
from hornbook.runs.pretraining.presets import preset_settings
from hornbook.train.cuda_graphs import bucket_for, padded_to_bucket
from hornbook.train.job import Stopped
from hornbook.train.objective import StepInputs
from hornbook.train.parallel.sharding import checkpoint_activations
from hornbook.train.step import bucketed
from train.small import CPU

SIZE = {"vocab_size": 90, "num_layers": 2, "width": 16, "num_heads": 2, "inner_width": 64, "max_positions": 40}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0}
MASK, SPECIAL = 4, [0, 1, 2, 3, 4]
LENGTHS = [9, 20, 31, 1, 17, 25]  # the first three are read from left to right


def model_of(kind=Gpt2, config=Gpt2Config, **overrides):
    model = kind(config(**SIZE | NO_DROPOUT | {"mask_id": MASK, "eos_id": 2} | overrides))
    model.initialize(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return model.double().eval()


def objective_of(**masking) -> HybridObjective:
    return HybridObjective(Masking(MaskingSettings(probability=0.3, **masking), 90, MASK, SPECIAL), 0.25)


def step_of(random, lengths=LENGTHS, num_causal: int = 60, **masking) -> tuple[StepInputs, list[np.ndarray]]:
    rows = [random.integers(5, 90, length + 1) for length in lengths]
    batch = pack(
        [row[:-1] for row in rows],
        token_labels=[row[1:] for row in rows],
        max_length=40,
        num_causal=num_causal,
    )
    return objective_of(**masking).prepare(batch, 7), rows


@pytest.mark.parametrize(("kind", "config"), [(Gpt1, Gpt1Config), (Gpt2, Gpt2Config)])
def test_the_sums_are_those_of_each_sequence_alone(random, kind, config):
    """The left-to-right sequences by the model as it is; the masked ones in both directions, each masked token at the
    position before it."""
    model, (step_inputs, rows) = model_of(kind, config), step_of(random)
    both = model.with_direction("bidirectional")
    batch, mlm = step_inputs.batch, step_inputs.targets["mlm"]
    expected, counts, hits = {"clm": 0.0, "mlm": 0.0}, {"clm": 0, "mlm": 0}, {"clm": 0, "mlm": 0}
    with torch.no_grad():
        for number, (start, stop) in enumerate(zip(batch.offsets_host[:-1], batch.offsets_host[1:], strict=True)):
            ids, row = batch.ids_T[start:stop], rows[number]
            term, reader = ("clm", model) if number < 3 else ("mlm", both)
            scores = reader.vocabulary_logits(reader(pack([ids.numpy()])))[:, :90].log_softmax(-1)
            changed = [place for place in range(1, len(ids)) if ids[place] != row[place]]
            places = range(1, len(row)) if number < 3 else changed
            for place in places:
                expected[term] -= float(scores[place - 1, row[place]])
                counts[term] += 1
                hits[term] += int(scores[place - 1].argmax() == row[place])
        # Some selected tokens stay as they are.
        kept = [k for k in range(len(mlm.indices_K)) if mlm.weights_K[k] > 0]
        unchanged = [k for k in kept if batch.ids_T[mlm.indices_K[k] + 1] == mlm.values_K[k]]
        for k in unchanged:
            place = int(mlm.indices_K[k])
            number = int(np.searchsorted(batch.offsets_host, place, side="right")) - 1
            start, stop = batch.offsets_host[number : number + 2]
            scores = both.vocabulary_logits(both(pack([batch.ids_T[start:stop].numpy()])))[:, :90].log_softmax(-1)
            expected["mlm"] -= float(scores[place - start, mlm.values_K[k]])
            hits["mlm"] += int(scores[place - start].argmax() == mlm.values_K[k])
        counts["mlm"] += len(unchanged)
        found, judged = (
            objective_of().loss_sums(model, step_inputs),
            objective_of().loss_sums(model, step_inputs, with_metrics=True),
        )
    assert counts["clm"] == 60 and counts["mlm"] >= 10
    for term in counts:
        assert float(step_inputs.total_weights()[term]) == counts[term], term
        assert float(found[term]) == pytest.approx(expected[term], rel=1e-10) == float(judged[term]), term
        assert float(judged[f"{term}_accuracy"]) == hits[term], term
    assert objective_of().weights == {"clm": 0.75, "mlm": 0.25}


def test_only_ordinary_tokens_of_the_right_part_are_masked(random):
    step_inputs, rows = step_of(random, mask_fraction=1.0, random_fraction=0.0)
    ids, original = step_inputs.batch.ids_T.numpy(), np.concatenate([row[:-1] for row in rows])
    changed = np.flatnonzero(ids != original)
    assert changed.min() >= 60 and (ids[changed] == MASK).all()
    mlm = step_inputs.targets["mlm"]
    is_counted = mlm.weights_K.numpy() > 0
    places = mlm.indices_K.numpy()[is_counted] + 1
    firsts = {int(start) for start in step_inputs.batch.offsets_host[:-1]}
    assert {*places.tolist()} == {*changed.tolist()} - firsts
    assert (original[places] == mlm.values_K.numpy()[is_counted]).all()


def gradients(model, parts, weigh) -> dict[str, torch.Tensor]:
    model.zero_grad()
    for part in parts:
        sums = objective_of().loss_sums(model, part)
        sum(weigh[term] * value for term, value in sums.items()).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def test_micro_batches_and_padding_change_nothing(random):
    model, (step_inputs, _) = model_of(), step_of(random)
    weigh = {"clm": 0.3, "mlm": 0.7}
    whole = gradients(model, [step_inputs], weigh)
    parts = step_inputs.split(40)
    assert len(parts) >= 3 and {part.batch.num_causal for part in parts} >= {0}
    assert sum(part.batch.num_causal for part in parts) == 60
    padded = bucketed(step_inputs, 128, 16)
    for others in (parts, [padded], [bucketed(part, 64, 8) for part in parts]):
        for name, gradient in gradients(model, others, weigh).items():
            assert torch.allclose(gradient, whole[name], atol=1e-9), name
    joined = concatenate([step_inputs.batch.slice(0, 3), step_inputs.batch.slice(3, 6)])
    assert joined.num_causal == 60


def test_a_captured_step_has_the_same_directions(random):
    step_inputs, _ = step_of(random)
    bucket = bucket_for(step_inputs, 40)
    assert bucket.num_causal == 60 and padded_to_bucket(step_inputs, bucket).batch.num_causal == 60
    other = dataclasses.replace(step_inputs, batch=dataclasses.replace(step_inputs.batch, num_causal=29))
    assert bucket_for(other, 40) != bucket


def test_activations_may_be_recomputed(random):
    (step_inputs, _), weigh = step_of(random), {"clm": 0.3, "mlm": 0.7}
    model = model_of()
    kept = gradients(model, [step_inputs], weigh)
    checkpoint_activations(model, CPU)
    for name, gradient in gradients(model, [step_inputs], weigh).items():
        assert torch.allclose(gradient, kept[name], atol=1e-12), name


@pytest.mark.parametrize("num_causal", [0, 103])
def test_a_batch_may_have_one_part_only(random, num_causal):
    """As a micro-batch or the part of a rank may."""
    step_inputs, _ = step_of(random, num_causal=num_causal)
    with torch.no_grad():
        sums = objective_of().loss_sums(model_of(), step_inputs)
    empty, other = ("clm", "mlm") if num_causal == 0 else ("mlm", "clm")
    assert float(sums[empty]) == 0 < float(sums[other]) and float(step_inputs.total_weights()[empty]) == 0


def sampler_of(corpora, fraction: float) -> SequenceSampler:
    return SequenceSampler([(corpora["bpe"], 1.0)], 32, 0, "documents", mlm_fraction=fraction)


def test_the_fraction_of_masked_chunks_is_exact_and_parts_have_the_same_masks(corpora):
    tokenizer = corpora["bpe"].tokenizer
    objective = HybridObjective(
        Masking(MaskingSettings(unit="word"), tokenizer.vocab_size, tokenizer.mask_id, tokenizer.special_ids), 0.25
    )
    sampler = sampler_of(corpora, 0.25)
    whole = sampler.batch(3, 16)
    assert whole.num_causal == 12 * 32 and whole.num_tokens == 16 * 32
    plain = sampler_of(corpora, 0.0).batch(3, 16)
    assert plain.num_causal is None and sorted(plain.ids_T.tolist()) == sorted(whole.ids_T.tolist())
    shares = [(0, 5), (5, 6), (6, 16)]

    def corrupted(batch) -> list[tuple]:
        prepared = objective.prepare(batch, 11).batch
        cuts = prepared.offsets_host[1:-1]
        rows = np.split(prepared.ids_T.numpy(), cuts)
        return [
            (tuple(row), end <= prepared.num_causal) for row, end in zip(rows, prepared.offsets_host[1:], strict=True)
        ]

    parts = [sampler.batch(3, 16, span=share) for share in shares]
    assert sorted(corrupted(whole)) == sorted(each for part in parts for each in corrupted(part))
    word_starts = np.split(whole.word_starts_T.numpy(), whole.offsets_host[1:-1])
    assert 0.2 < np.concatenate(word_starts).mean() < 0.9  # words have several tokens


@pytest.mark.parametrize("seed", range(3))
def test_a_rare_corpus_has_its_fraction_of_masked_chunks_too(corpora, seed):
    """The corpora are mixed in a fixed pattern, whose length is a multiple of that of the directions."""
    weighted = [(corpora["bpe"], 99.0), (corpora["bpe"], 1.0)]
    sampler = SequenceSampler(weighted, 32, seed, "documents", mlm_fraction=0.5)
    rare = [i for i, (corpus, *_) in enumerate(sampler._chunks_of(np.arange(4000))) if corpus == 1]
    num_masked = sum(sampler.batch(i, 1).num_causal == 0 for i in rare)
    assert len(rare) == 40 and num_masked == 20


def test_the_masked_share_changes_linearly(corpora, random):
    overrides = {"masking.probability": 0.4, "masking.final_probability": 0.1, "objective.mlm_fraction": 0.5}
    overrides |= {"data.length": 40, "model.max_positions": 40, "schedule.steps": 3, "batch.tokens": 640}
    settings = preset_settings("gpt2-tiny", overrides)
    tokenizer = corpora["bpe"].tokenizer
    masking = Masking(settings.masking, tokenizer.vocab_size, tokenizer.mask_id, tokenizer.special_ids)
    make = BatchMaker(settings, [(corpora["bpe"], 1.0)])
    shares = []
    for number in range(3):
        batch = make(number)
        targets = HybridObjective(masking, 0.5).prepare(batch, 0).targets["mlm"]
        shares.append(targets.num_entries / (batch.num_tokens - batch.num_causal))
    assert shares == pytest.approx([0.4, 0.3, 0.2], abs=0.03)
    sampler = SequenceSampler([(corpora["bpe"], 1.0)], 40, 0, "documents", held_out=True, mlm_fraction=0.5)
    held_out = sampler.batch(0, 4)
    assert held_out.run_fraction == 1.0
    baseline = unigram_baseline(HybridObjective(masking, 0.5), [held_out], corpora["bpe"].token_counts)
    assert baseline.keys() == {"clm", "clm_accuracy", "mlm", "mlm_accuracy"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny_text_file):
    """A hybrid model that has learned the made-up text."""
    from tiny import tiny_text

    from hornbook.data.build import build_corpus
    from hornbook.text.training import train_tokenizer

    folder = tmp_path_factory.mktemp("hybrid")
    train_tokenizer(tiny_text(200).split("\n\n"), kind="bpe", vocab_size=400).save(folder / "tokenizer")
    build_corpus(tiny_text_file, folder / "tokenizer", folder / "corpus", workers=0)
    settings = {"optimizer.lr": 6e-3, "schedule.warmup_steps": 5, "validation.every_steps": 30, "model.dropout": 0.0}
    run(folder / "run", folder / "corpus", steps=60, family="gpt2", overrides=HYBRID | settings)
    return folder


def test_both_terms_are_learned_and_logged(trained):
    lines = read_metrics(trained / "run")
    validations = [line for line in lines if line["kind"] == "validation"]
    baseline = json.loads((trained / "run" / "run.json").read_text())["unigram_baseline"]
    for term in ("clm", "mlm"):
        assert validations[-1][term] < validations[0][term] < baseline[term], term
        assert validations[-1][term] < baseline[term] - 0.4, term
    last = validations[-1]
    assert last["loss"] == pytest.approx(0.5 * last["clm"] + 0.5 * last["mlm"])
    assert {"clm", "mlm"} <= next(line for line in lines if line["kind"] == "train").keys()


def test_a_resumed_run_has_the_same_weights(trained, tmp_path):
    more = {"family": "gpt2", "overrides": HYBRID | {"masking.probability": 0.3, "masking.final_probability": 0.15}}
    run(tmp_path / "whole", trained / "corpus", steps=8, **more)
    with pytest.raises(Stopped):
        run(tmp_path / "stopped", trained / "corpus", steps=8, on_progress=lambda status: status.step >= 5, **more)
    assert not same(tmp_path / "whole", tmp_path / "stopped")
    run(tmp_path / "stopped", trained / "corpus", steps=8, resume=True, **more)
    assert same(tmp_path / "whole", tmp_path / "stopped")


TEXT = "The river of silver letters and the bridge"


def test_the_folder_is_a_decoder(trained):
    model = hornbook.load(trained / "run")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(trained / "run").eval()
    ids = [model.eos_id, *model.tokenizer.encode(TEXT).ids]
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0].log_softmax(-1)
    scores = [float(expected[place, token]) for place, token in enumerate(ids[1:])]
    assert model.score(TEXT)[0].log_probabilities == pytest.approx(scores, abs=1e-4)
    assert model.generate("The river", max_new_tokens=5, temperature=0)[0].text
    assert model.encoder.model.blocks[0].fc1.weight is model.model.blocks[0].fc1.weight


def test_the_folder_is_an_encoder(trained, tmp_path):
    """Masked tokens are predicted from both sides, at the position before them."""
    model = hornbook.load(trained / "run", direction="bidirectional")
    network = model.model
    ids = [network.config.eos_id, *model.tokenizer.encode(TEXT).ids]
    totals = []
    for place in range(1, len(ids)):
        masked = np.array([*ids[:place], model.tokenizer.mask_id, *ids[place + 1 :]])
        with torch.no_grad():
            logits = network.vocabulary_logits(network(pack([masked])))[place - 1, : network.config.vocab_size]
            pretrained, _ = load_folder(trained / "run")
            assert torch.allclose(pretrained.eval()(pack([masked], num_causal=0)), network(pack([masked])), atol=1e-5)
        totals.append(float(logits.log_softmax(-1)[ids[place]]))
    assert model.score(TEXT)[0].log_probabilities == pytest.approx(totals, abs=1e-4)
    context, text = TEXT[:20], TEXT[20:]
    num = len(model.tokenizer.split_encode([(context, text)])[0][1])
    assert model.continuations([(context, text)])[0].total == pytest.approx(sum(totals[-num:]), abs=1e-4)
    decoder = hornbook.load(trained / "run")
    guesses = decoder.fill_mask("The river [MASK] silver letters.", top_k=3)[0]
    assert len(guesses) == 3 and guesses[0].probability > guesses[1].probability
    # The words after the mask matter.
    other = decoder.fill_mask("The river [MASK] 한국어 위키백과는.", top_k=3)[0]
    assert guesses[0].probability != pytest.approx(other[0].probability, rel=1e-3)
    assert decoder.embed([TEXT, "bread"]).shape == (2, 32)
    hornbook.extract_features(trained / "run", [TEXT], tmp_path / "features.npy", layers="last", pooling="mean")
    with torch.no_grad():
        hidden = network(pack([np.array(ids[1:])])).mean(0)
    assert np.load(tmp_path / "features.npy")[0] == pytest.approx(hidden.numpy(), abs=1e-5)


def test_minimal_pairs_in_each_direction(trained, tmp_path):
    rows = [{"sentence_good": TEXT, "sentence_bad": "river The of silver letters and the bridge"}]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    model = hornbook.load(trained / "run")
    causal, both = model.score(TEXT)[0].total, model.encoder.score(TEXT)[0].total
    for direction, expected in (("causal", causal), (None, causal), ("bidirectional", both), ("fused", causal + both)):
        found = minimal_pairs(trained / "run", tmp_path / "pairs.jsonl", direction=direction)
        assert found.log_probabilities[0][1] == pytest.approx(expected, abs=1e-4), direction
        assert ("masked in turn" in found.definition) == (direction in ("bidirectional", "fused"))
    with pytest.raises(ValueError, match="direction must be causal, bidirectional or fused"):
        minimal_pairs(trained / "run", tmp_path / "pairs.jsonl", direction="right")


def test_continuations_of_a_context_are_compared(trained, tmp_path):
    """As in BabyLM's entity tracking: the first option is right; paradigms are numbers of operations."""
    options = ["the bread.", "the silver lantern.", "the harbour and the bridge."]
    rows = [
        {"numops": n, "input_prefix": "Box 0 contains the bread. Box 0 contains ", "options": options} for n in (0, 1)
    ]
    (tmp_path / "regular.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pairs = read_pairs(tmp_path)
    assert [pair.paradigm for pair in pairs] == ["regular_0_ops", "regular_1_ops"]
    assert pairs[0].others == (options[2],)
    model, context = hornbook.load(trained / "run"), rows[0]["input_prefix"]
    for direction, reader in (("causal", model), ("bidirectional", model.encoder)):
        found = minimal_pairs(trained / "run", tmp_path, direction=direction)
        good, *bad = (each.total for each in reader.continuations([(context, option) for option in options]))
        assert found.log_probabilities[0][1:] == pytest.approx((good, max(bad)), abs=1e-4)
        assert found.mean.value == float(good > max(bad)) and found.paradigms.keys() == {p.paradigm for p in pairs}
    (tmp_path / "regular.jsonl").write_text(json.dumps(rows[0] | {"options": ["one"]}))
    with pytest.raises(ValueError, match="at least two options"):
        read_pairs(tmp_path)


def finetuned(trained, out, **overrides):
    settings = {"runtime.threads": 1, "optimizer.lr": 2e-3} | {f"task.{n}": value for n, value in overrides.items()}
    rows = labelled_texts(24)
    hornbook.finetune(
        trained / "run", rows, "classification", out, epochs=2, overrides=settings, log=lambda words: None
    )
    return [row["text"] for row in rows]


def test_a_task_is_read_in_both_directions_unless_told_otherwise(trained, tmp_path):
    texts = finetuned(trained, tmp_path / "bidirectional")
    config = json.loads((tmp_path / "bidirectional" / "config.json").read_text())
    assert config["attention_direction"] == "bidirectional" and config["architectures"] == ["GPT2Model"]
    model, tokenizer = load_folder(tmp_path / "bidirectional")
    assert model.config.direction == "bidirectional"
    ids = np.array(tokenizer.encode(texts[0]).ids)
    with torch.no_grad():
        changed = ids.copy()
        changed[-1] = ids[0]
        one, two = (model.eval()(pack([each]))[0] for each in (ids, changed))
    assert not torch.allclose(one, two)  # the first token sees the last one
    opened = hornbook.load(tmp_path / "bidirectional")
    assert opened.predict(texts[:3])[0].label
    with pytest.raises(ValueError, match="read in both directions"):
        opened.generate("The river")
    finetuned(trained, tmp_path / "causal", direction="causal", lm_weight=0.5)
    config = json.loads((tmp_path / "causal" / "config.json").read_text())
    assert "attention_direction" not in config and config["architectures"] == ["GPT2ForSequenceClassification"]


def test_refusals(trained, tmp_path, tiny_run):
    for overrides, message in (
        ({"model.direction": "bidirectional"}, "model.direction=bidirectional is for fine-tuning"),
        ({"objective.mlm_fraction": 0.5, "model.window": 16}, "model.window looks to the left only"),
        ({"masking.probability": 0.2}, "masks none"),
    ):
        with pytest.raises(ValueError, match=message):
            preset_settings("gpt2-tiny", overrides)
    with pytest.raises(ValueError, match=r"task\.lm_weight predicts next tokens"):
        finetuned(trained, tmp_path / "leak", lm_weight=0.5)
    run(tmp_path / "gpt", trained / "corpus", steps=1, family="gpt2")
    with pytest.raises(ValueError, match=r"task\.direction=bidirectional is for a hybrid"):
        hornbook.finetune(
            tmp_path / "gpt",
            labelled_texts(8),
            "classification",
            tmp_path / "x",
            overrides={"task.direction": "bidirectional"},
        )
    with pytest.raises(ValueError, match="cannot be used as an encoder"):
        hornbook.load(tmp_path / "gpt", direction="bidirectional")
    with pytest.raises(ValueError, match="for a hybrid GPT"):
        hornbook.load(tiny_run, direction="causal")
