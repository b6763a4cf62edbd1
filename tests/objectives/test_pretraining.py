import numpy as np
import pytest
import torch

from hornbook.batch import Batch, pack
from hornbook.models.bert import Bert, BertConfig
from hornbook.objectives.masking import Masking, MaskingSettings
from hornbook.objectives.mlm import MlmObjective, summed_loss
from hornbook.objectives.vocabulary_loss import unigram_baseline
from hornbook.train.objective import StepInputs
from hornbook.train.randomness import seed_of
from hornbook.train.step import bucketed

CONFIG = BertConfig(vocab_size=90, num_layers=2, width=16, num_heads=2, inner_width=32, max_positions=40)
SPECIAL = [0, 1, 2, 3, 4]


def pretraining(sentence: str = "nsp", **settings) -> MlmObjective:
    return MlmObjective(Masking(MaskingSettings(**settings), CONFIG.vocab_size, 4, SPECIAL), sentence)


@pytest.fixture(scope="module")
def model() -> Bert:
    model = Bert(CONFIG)
    model.initialize(torch.Generator().manual_seed(0))
    return model.double().eval()


def batch_of(random: np.random.Generator, lengths, max_length: int = 40) -> Batch:
    sequences = [np.concatenate([[2], random.integers(5, 90, length - 2), [3]]) for length in lengths]
    segments = [np.arange(length) // (1 + length // 2) for length in lengths]
    words = [random.random(length) < 0.6 for length in lengths]
    return pack(sequences, segments, words, random.integers(0, 2, len(lengths)), max_length)


def drawn_of(random, lengths, seed: int = 0, **settings) -> StepInputs:
    return pretraining(**settings).prepare(batch_of(random, lengths), seed)


def sums_and_gradients(model: Bert, parts: list[StepInputs], sentence: str = "nsp") -> tuple[dict, dict]:
    model.zero_grad()
    totals = {}
    for part in parts:
        sums = pretraining(sentence).loss_sums(model, part)
        sum(sums.values()).backward()
        totals = {term: totals.get(term, 0.0) + value.item() for term, value in sums.items()}
    return totals, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same(first: tuple[dict, dict], second: tuple[dict, dict]) -> None:
    assert first[0] == pytest.approx(second[0], rel=1e-12)
    assert first[1].keys() == second[1].keys() and first[1]
    for name, gradient in first[1].items():
        torch.testing.assert_close(gradient, second[1][name], rtol=1e-10, atol=1e-12)


# ---- the loss


def test_the_sums_are_cross_entropies(model, random):
    step_inputs = drawn_of(random, [20, 31, 8])
    mlm = step_inputs.targets["mlm"]
    with torch.no_grad():
        sums = pretraining().loss_sums(model, step_inputs)
        x_TD = model(step_inputs.batch)
        expected = 0.0
        for position, value in zip(mlm.indices_K.tolist(), mlm.values_K.tolist(), strict=True):
            expected -= float(model.vocabulary_logits(x_TD[position : position + 1])[0].log_softmax(0)[value])
        assert float(sums["mlm"]) == pytest.approx(expected)
        nsp = model.sentence_logits(x_TD[[0, 20, 51]]).log_softmax(-1)
        expected = -sum(float(nsp[i, label]) for i, label in enumerate(step_inputs.batch.labels_N.tolist()))
        assert float(sums["nsp"]) == pytest.approx(expected)
    assert float(mlm.weights_K.sum()) == 3 + 5 + 1 and float(step_inputs.total_weights()["nsp"]) == 3


def test_hits_count_right_guesses(model, random):
    step_inputs = drawn_of(random, [40] * 20)
    with torch.no_grad():
        hits, sums = (
            pretraining().loss_sums(model, step_inputs, with_metrics=True),
            pretraining().loss_sums(model, step_inputs),
        )
        mlm = step_inputs.targets["mlm"]
        guesses = model.vocabulary_logits(model(step_inputs.batch)[mlm.indices_K]).argmax(-1)
    assert hits["mlm_accuracy"] == (guesses == mlm.values_K).sum()
    assert 0 <= hits["nsp_accuracy"] <= 20
    assert hits["mlm"] == pytest.approx(float(sums["mlm"])) and hits["nsp"] == pytest.approx(float(sums["nsp"]))
    right = StepInputs(step_inputs.batch.with_values("mlm", values_K=guesses))
    with torch.no_grad():
        assert pretraining().loss_sums(model, right, with_metrics=True)["mlm_accuracy"] == len(guesses)


def test_without_a_sentence_task_there_is_one_term(model, random):
    step_inputs = drawn_of(random, [20, 30], sentence="none")
    assert list(step_inputs.targets) == ["mlm"] and list(pretraining("none").loss_sums(model, step_inputs)) == ["mlm"]
    assert pretraining("none").weights == {"mlm": 1.0}


def test_sentence_order_is_a_term_of_its_own_name(model, random):
    assert MlmObjective(pretraining().masking, "sop", 0.5).weights == {"mlm": 1.0, "sop": 0.5}
    one, other = (drawn_of(np.random.default_rng(0), [20, 30], sentence=task) for task in ("nsp", "sop"))
    with torch.no_grad():
        nsp, sop = (
            pretraining("nsp").loss_sums(model, one, with_metrics=True),
            pretraining("sop").loss_sums(model, other, with_metrics=True),
        )
    assert list(sop) == ["mlm", "mlm_accuracy", "sop", "sop_accuracy"]
    assert list(nsp.values()) == list(sop.values())


def test_targets_of_no_weight_enter_no_sum():
    logits = torch.randn(4, 9, dtype=torch.float64, requires_grad=True)
    values, weights = torch.tensor([1, 2, 3, 4]), torch.tensor([1.0, 0.0, 1.0, 0.0])
    loss = summed_loss(logits, values, weights)
    assert loss.item() == pytest.approx(2 * torch.nn.functional.cross_entropy(logits[::2], values[::2]).item())
    loss.backward()
    assert not logits.grad[1::2].any() and logits.grad[::2].all()
    assert summed_loss(logits.detach().bfloat16(), values, weights).dtype == torch.float32


def test_the_draw_leaves_the_batch_as_it_was(random):
    batch = batch_of(random, [30, 30])
    before = batch.ids_T.clone()
    step_inputs = pretraining().prepare(batch, 0)
    assert batch.ids_T.equal(before) and not step_inputs.batch.ids_T.equal(before)
    assert step_inputs.batch.labels_N.equal(batch.labels_N) and step_inputs.batch.offsets.equal(batch.offsets)


# ---- buckets


@pytest.mark.parametrize(("sentence", "unit"), [("nsp", "token"), ("none", "word")])
@pytest.mark.parametrize(("token_bucket", "target_bucket"), [(64, 8), (256, 128), (7, 1)])
def test_dead_tokens_change_nothing(token_bucket, target_bucket, sentence, unit, model, random):
    step_inputs = drawn_of(random, [20, 33, 9, 40, 12], sentence=sentence, unit=unit)
    filled = bucketed(step_inputs, token_bucket, target_bucket)
    assert filled.batch.num_tokens % token_bucket == 0 and filled.batch.num_real_tokens == 114
    assert all(len(targets.indices_K) % target_bucket == 0 for targets in filled.targets.values())
    assert {t: float(c) for t, c in filled.total_weights().items()} == {
        t: float(c) for t, c in step_inputs.total_weights().items()
    }
    assert all(len(t.offsets_host) == filled.batch.num_sequences + 1 for t in filled.targets.values())
    assert_same(sums_and_gradients(model, [step_inputs], sentence), sums_and_gradients(model, [filled], sentence))


def test_dead_tokens_get_no_gradient_where_they_could(model, random):
    """The same, but the dead tokens would be seen if they leaked: their embedding is made huge."""
    step_inputs = drawn_of(random, [20, 33])
    filled = bucketed(step_inputs, 256, 64)
    before = sums_and_gradients(model, [filled])
    weight = model.embeddings.tokens.weight
    with torch.no_grad():
        kept = weight[0].clone()
        weight[0] = 50 * torch.randn(16, dtype=torch.float64)
    try:
        after = sums_and_gradients(model, [filled])
    finally:
        with torch.no_grad():
            weight[0] = kept
    assert before[0]["nsp"] == pytest.approx(after[0]["nsp"], rel=1e-12)


def test_too_small_a_bucket_is_refused(random):
    step_inputs = drawn_of(random, [20, 33])
    with pytest.raises(ValueError, match="do not fit a bucket"):
        step_inputs.targets["mlm"].padded(3, 2)


# ---- parts


LENGTHS = [
    [40] * 16,
    [50, 90, 40, 60],
    [5, 5, 5, 90, 5, 5, 5, 90, 90],
    [100],
    [60, 60, 5, 5, 5],
    *(np.random.default_rng(seed).integers(4, 101, 60).tolist() for seed in range(20)),
]


@pytest.mark.parametrize("lengths", LENGTHS, ids=range(len(LENGTHS)))
@pytest.mark.parametrize("micro_tokens", [100, 150, 1000, 10**6])
def test_parts_hold_all_sequences_in_order(lengths, micro_tokens, random):
    batch = batch_of(random, lengths, max_length=100)
    whole = pretraining().prepare(batch, 0)
    parts = whole.split(micro_tokens)
    assert torch.cat([part.batch.ids_T for part in parts]).equal(whole.batch.ids_T)
    assert torch.cat([part.batch.labels_N for part in parts]).equal(whole.batch.labels_N)
    assert np.concatenate([np.diff(part.batch.offsets_host) for part in parts]).tolist() == lengths
    assert all(0 < part.batch.num_tokens <= micro_tokens for part in parts)
    assert len(parts) <= 2 * -(-sum(lengths) // micro_tokens)
    token_start = 0
    positions = []
    for part in parts:
        targets = part.targets["mlm"]
        assert targets.values_K.equal(whole.targets["mlm"].values_K[len(positions) :][: len(targets.values_K)])
        assert targets.offsets_host[0] == 0 and targets.offsets_host[-1] == len(targets.indices_K)
        assert part.targets["nsp"].indices_K.tolist() == part.batch.offsets_host[:-1].tolist()
        positions += (targets.indices_K + token_start).tolist()
        token_start += part.batch.num_tokens
    assert positions == whole.targets["mlm"].indices_K.tolist()
    for term, count in whole.total_weights().items():
        assert sum(float(part.targets[term].weights_K.sum()) for part in parts) == float(count)


def test_equal_sequences_make_equal_parts(random):
    parts = drawn_of(random, [32] * 64).split(1024)
    assert [part.batch.num_tokens for part in parts] == [1024, 1024]
    parts = drawn_of(random, [32] * 64).split(900)
    sizes = [part.batch.num_tokens for part in parts]
    assert len(sizes) == 3 and max(sizes) - min(sizes) <= 32


def test_a_sequence_longer_than_a_part_stands_alone(random):
    parts = drawn_of(random, [10, 10, 38, 10, 10]).split(25)
    assert [np.diff(part.batch.offsets_host).tolist() for part in parts] == [[10, 10], [38], [10, 10]]


@pytest.mark.parametrize("unit", ["token", "ngram"])
@pytest.mark.parametrize("micro_tokens", [40, 100])
def test_parts_add_up_to_the_whole(unit, micro_tokens, model, random):
    step_inputs = drawn_of(random, [20, 33, 9, 40, 12, 38, 38], unit=unit)
    parts = step_inputs.split(micro_tokens)
    assert len(parts) > 1
    whole = sums_and_gradients(model, [step_inputs])
    assert_same(whole, sums_and_gradients(model, parts))
    assert_same(whole, sums_and_gradients(model, [bucketed(part, 64, 16) for part in parts]))


# ---- guessing by frequency


def test_the_unigram_baseline(random):
    objective = pretraining()
    held_out = [batch_of(random, [40] * 30), batch_of(random, [17, 23])]
    counts = random.integers(0, 1000, 90)
    counts[7] = 5000
    found = unigram_baseline(objective, held_out, counts)
    values = []
    for i, batch in enumerate(held_out):
        values += objective.prepare(batch, seed_of("validation", i)).targets["mlm"].values_K.tolist()
    losses = [-np.log((counts[value] + 1) / (counts.sum() + 90)) for value in values]
    assert found["mlm"] == pytest.approx(np.mean(losses))
    assert found["mlm_accuracy"] == pytest.approx(values.count(7) / len(values)) and 7 in values
    assert found.keys() == {"mlm", "mlm_accuracy"}


def test_the_baseline_leaves_out_targets_of_no_weight(random):
    objective = pretraining(unit="ngram")
    batch = batch_of(random, [9] * 200)
    targets = objective.prepare(batch, seed_of("validation", 0)).targets["mlm"]
    wanted = targets.values_K[targets.weights_K > 0].numpy()
    assert len(wanted) < len(targets.values_K)
    counts = np.arange(90) * 10
    found = unigram_baseline(objective, [batch], counts)
    assert found["mlm"] == pytest.approx(-np.log((counts[wanted] + 1) / (counts.sum() + 90)).mean())
