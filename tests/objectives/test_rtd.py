"""Replaced-token detection: losses and labels equal a direct computation, samples are fair samples that no split
changes, and gradients go only where they should."""

import math

import numpy as np
import pytest
import torch

from hornbook.batch import pack
from hornbook.models.electra import ElectraConfig, ElectraPair, generator_config
from hornbook.objectives.masking import Masking, MaskingSettings
from hornbook.objectives.rtd import RtdObjective, RtdSettings, replace_at_targets, sample_tokens, uniform
from hornbook.train.objective import Targets
from hornbook.train.optimizer import make_optimizer
from hornbook.train.settings import OptimizerSettings
from hornbook.train.step import bucketed

VOCABULARY, MASK, SPECIAL = 70, 4, [0, 1, 2, 3, 4]
LENGTHS = [12, 30, 7, 21]


def pair_of(settings: RtdSettings, seed: int = 0, **overrides) -> ElectraPair:
    size = {"num_layers": 2, "width": 16, "num_heads": 2, "inner_width": 24, "max_positions": 32, "embedding_width": 8}
    config = ElectraConfig(VOCABULARY, **size | {"dropout": 0.0, "attention_dropout": 0.0, "init_std": 0.3} | overrides)
    smaller = generator_config(config, settings.generator_size, settings.generator_layers)
    adversarial = settings.generator_objective == "adversarial"
    pair = ElectraPair(config, smaller, settings.shared, settings.heads, predicts_reward=adversarial)
    pair.initialize(torch.Generator().manual_seed(seed))
    return pair.double()


def objective_of(settings: RtdSettings) -> RtdObjective:
    masking = MaskingSettings(probability=0.3, mask_fraction=0.85, random_fraction=0.0)
    return RtdObjective(Masking(masking, VOCABULARY, MASK, SPECIAL), settings)


def batch_of(seed: int = 0):
    random = np.random.default_rng(seed)
    return pack([np.concatenate([[2], random.integers(5, VOCABULARY, n - 2), [3]]) for n in LENGTHS], max_length=32)


def drawn_of(objective: RtdObjective, seed: int = 0):
    return objective.prepare(batch_of(), seed)


def settings_of(discriminator_task: str = "rtd", **overrides) -> RtdSettings:
    return RtdSettings(discriminator_task=discriminator_task, generator_size=0.5, **overrides)


def sampled_by_hand(pair: ElectraPair, step_inputs) -> tuple[torch.Tensor, list[int], list[int]]:
    """(generator's log-probabilities at the masked tokens, their positions, the samples), token by token."""
    mlm, numbers = step_inputs.targets["mlm"], step_inputs.targets["noise_seeds"].values_K
    logits = pair.generator.vocabulary_logits(pair.generator(step_inputs.batch)[mlm.indices_K])
    samples = []
    for row, number in zip(logits, numbers, strict=True):
        scores = [
            float(score)
            - math.log(-math.log(float(uniform(number.to(torch.int32), torch.tensor(v, dtype=torch.int32)))))
            for v, score in enumerate(row)
        ]
        samples.append(int(np.argmax(scores)))
    return logits.log_softmax(-1), mlm.indices_K.tolist(), samples


@pytest.mark.parametrize("discriminator_task", ["rtd", "rtd-masked", "replace-mlm", "all-tokens-mlm"])
@torch.no_grad()
def test_the_losses_are_those_of_the_definition(discriminator_task):
    settings = settings_of(discriminator_task)
    pair, objective = pair_of(settings), objective_of(settings)
    step_inputs = drawn_of(objective, seed=4)
    original = batch_of().ids_T.tolist()
    log_p, positions, samples = sampled_by_hand(pair, step_inputs)
    sums, hits = objective.loss_sums(pair, step_inputs), objective.loss_sums(pair, step_inputs, with_metrics=True)
    values = step_inputs.targets["mlm"].values_K.tolist()
    assert [original[place] for place in positions] == values
    assert float(sums["mlm"]) == pytest.approx(-sum(float(row[v]) for row, v in zip(log_p, values, strict=True)))

    text = list(original)
    for place, token in zip(positions, samples, strict=True):
        text[place] = token
    x_TD = pair.discriminator(pack(np.split(np.array(text), np.cumsum(LENGTHS)[:-1]), max_length=32))
    places = range(len(text)) if discriminator_task in ("rtd", "all-tokens-mlm") else positions
    loss = num_right = 0.0
    for place in places:
        replaced = text[place] != original[place]
        if discriminator_task == "replace-mlm":
            named = pair.discriminator.vocabulary_logits(x_TD[[place]])[0].log_softmax(-1)
            loss -= float(named[original[place]])
            num_right += int(named.argmax()) == original[place]
            continue
        p = float(torch.sigmoid(pair.discriminator.rtd(x_TD[[place]])[0]))
        if discriminator_task == "all-tokens-mlm":
            named = pair.discriminator.vocabulary_logits(x_TD[[place]])[0].softmax(-1)
            loss -= math.log((0 if replaced else 1 - p) + p * float(named[original[place]]))
            num_right += int(named.argmax()) == original[place] if p > 0.5 else not replaced
        else:
            loss -= math.log(p if replaced else 1 - p)
            num_right += (p > 0.5) == replaced
    assert float(sums[objective.term]) == pytest.approx(loss, rel=1e-9)
    assert float(hits[objective.term]) == pytest.approx(loss, rel=1e-9)
    assert float(hits[f"{objective.term}_accuracy"]) == num_right
    if objective.term == "rtd":
        assert float(hits["rtd_replaced"]) == sum(text[place] != original[place] for place in places)
        assert 0 <= float(hits["rtd_found"]) <= float(hits["rtd_replaced"])
    assert float(step_inputs.total_weights()[objective.term]) == len(places)
    assert 0 < sum(a != b for a, b in zip(text, original, strict=True)) < len(positions)


@torch.no_grad()
def test_a_correction_names_or_copies_what_stood_at_the_masked_tokens():
    settings = settings_of(correction=2.0)
    pair, objective = pair_of(settings), objective_of(settings)
    step_inputs = drawn_of(objective)
    assert objective.weights == {"mlm": 1.0, "rtd": 50.0, "correction": 2.0}
    original = batch_of().ids_T.tolist()
    _, positions, samples = sampled_by_hand(pair, step_inputs)
    text = list(original)
    for place, token in zip(positions, samples, strict=True):
        text[place] = token
    x_TD = pair.discriminator(pack(np.split(np.array(text), np.cumsum(LENGTHS)[:-1]), max_length=32))
    loss = num_right = 0.0
    for place in positions:
        p = float(torch.sigmoid(pair.discriminator.rtd(x_TD[[place]])[0]))
        named = pair.discriminator.vocabulary_logits(x_TD[[place]])[0].softmax(-1)
        copied = text[place] == original[place]
        loss -= math.log((1 - p if copied else 0) + p * float(named[original[place]]))
        num_right += int(named.argmax()) == original[place] if p > 0.5 else copied
    sums, hits = objective.loss_sums(pair, step_inputs), objective.loss_sums(pair, step_inputs, with_metrics=True)
    assert float(sums["correction"]) == pytest.approx(loss, rel=1e-9)
    assert float(hits["correction"]) == pytest.approx(loss, rel=1e-9)
    assert float(hits["correction_accuracy"]) == num_right
    assert float(step_inputs.total_weights()["correction"]) == len(positions)
    alone = objective_of(settings_of())  # the published terms do not change
    assert {term: float(sums[term]) for term in ("mlm", "rtd")} == {
        term: float(value) for term, value in alone.loss_sums(pair, drawn_of(alone)).items()
    }


@torch.no_grad()
def test_unreplaced_masks_are_seen_by_the_discriminator():
    settings = settings_of(correction=1.0, unreplaced_mask_fraction=0.4)
    pair, objective = pair_of(settings), objective_of(settings)
    num_kept = num_masked = 0
    for seed in range(40):
        step_inputs = drawn_of(objective, seed)
        samples_K = objective._corrupted(pair, step_inputs).samples_K
        is_kept_K = samples_K == MASK
        if seed == 0:
            _, _, by_hand = sampled_by_hand(pair, step_inputs)
            assert torch.equal(samples_K[~is_kept_K], torch.tensor(by_hand)[~is_kept_K])
        num_kept, num_masked = num_kept + int(is_kept_K.sum()), num_masked + len(samples_K)
    assert 0.33 < num_kept / num_masked < 0.47
    assert float(objective.loss_sums(pair, step_inputs, with_metrics=True)["rtd_replaced"]) >= int(is_kept_K.sum())


def test_unreplaced_masks_need_a_correction():
    with pytest.raises(ValueError, match=r"set objective\.correction=1"):
        settings_of(unreplaced_mask_fraction=0.2)
    with pytest.raises(ValueError, match=r"leave objective\.unreplaced_mask_fraction out"):
        settings_of(unreplaced_mask_fraction=0.2, correction=1.0, generator_objective="adversarial")


def test_a_correction_teaches_the_discriminator_and_neither_the_scores_nor_the_generator():
    settings = settings_of(correction=1.0, shared="none")
    pair, objective = pair_of(settings), objective_of(settings)
    objective.loss_sums(pair, drawn_of(objective))["correction"].backward()
    assert all(parameter.grad is None for parameter in pair.generator.parameters())
    assert all(parameter.grad is None for parameter in pair.discriminator.rtd.parameters())
    assert all(bool(block.fc1.weight.grad.any()) for block in pair.discriminator.blocks)
    with pytest.raises(ValueError, match=r"predicts tokens already: set objective\.discriminator_task=rtd"):
        settings_of("replace-mlm", correction=1.0)
    with pytest.raises(ValueError, match=r"objective\.correction must be at least 0"):
        settings_of(correction=-1.0)


def test_published_weights():
    assert RtdSettings().weights == {"mlm": 1.0, "rtd": 50.0}
    assert RtdSettings(discriminator_task="replace-mlm").weights == {"mlm": 1.0, "replace_mlm": 1.0}
    assert RtdSettings(weight=20.0).weights == {"mlm": 1.0, "rtd": 20.0}


@torch.no_grad()
def test_a_sample_that_is_the_original_counts_as_original():
    """A generator that always predicts token 9: where the original is 9, nothing is replaced."""
    settings = settings_of()
    pair, objective = pair_of(settings), objective_of(settings)
    pair.generator.mlm.bias[9] += 1000.0
    batch = pack([np.full(20, 9), np.full(20, 8)])
    step_inputs = objective.prepare(batch, 1)
    corrupted = objective._corrupted(pair, step_inputs)
    is_replaced = corrupted.batch.ids_T != corrupted.original_T
    assert not is_replaced[:20].any() and int(is_replaced[20:].sum()) == round(0.3 * 20)
    assert torch.equal(corrupted.original_T, batch.ids_T)


@torch.no_grad()
def test_no_mask_is_left_for_the_discriminator_and_none_is_drawn_at_random():
    """85% of the chosen tokens become the mask, the rest stay: never a random one."""
    objective = objective_of(settings_of())
    batch = pack([np.random.default_rng(3).integers(5, VOCABULARY, 400) for _ in range(30)])
    step_inputs = objective.prepare(batch, 0)
    put_there = step_inputs.batch.ids_T[step_inputs.targets["mlm"].indices_K]
    is_mask = put_there == MASK
    assert 0.83 < float(is_mask.float().mean()) < 0.87
    assert torch.equal(put_there[~is_mask], step_inputs.targets["mlm"].values_K[~is_mask])


def test_gradients_do_not_go_through_the_sample():
    settings = settings_of(shared="none")
    pair, objective = pair_of(settings), objective_of(settings)
    objective.loss_sums(pair, drawn_of(objective))["rtd"].backward()
    assert all(p.grad is None or not p.grad.any() for p in pair.generator.parameters())
    assert all(p.grad is not None for p in pair.discriminator.blocks.parameters())


def test_shared_embeddings_learn_from_both():
    settings = settings_of()
    pair, objective = pair_of(settings), objective_of(settings)
    table = pair.discriminator.embeddings.tokens.weight
    gradients = {}
    for term in ("mlm", "rtd"):
        objective.loss_sums(pair, drawn_of(objective))[term].backward()
        gradients[term], table.grad = table.grad.clone(), None
        pair.zero_grad()
    assert gradients["mlm"].abs().sum() > 0 and gradients["rtd"].abs().sum() > 0


@pytest.mark.parametrize("optimizer", ["adamw", "lamb", "muon"])
def test_followed_tokens_take_over_what_the_generators_learn(optimizer):
    """And learn for themselves, without a gradient back: from the generator's alone they stay equal to it."""
    settings = settings_of(shared="followed")
    pair, objective = pair_of(settings), objective_of(settings)
    first, second = (each.embeddings.tokens.weight for each in (pair.generator, pair.discriminator))
    assert torch.equal(first, second)
    objective.loss_sums(pair, drawn_of(objective))["rtd"].backward()
    assert first.grad is None or not first.grad.any()
    assert second.grad.any()
    made = make_optimizer(pair, OptimizerSettings(name=optimizer, lr=0.01, weight_decay=0.0))
    for term in ("mlm", "rtd"):
        before = first.detach().clone(), second.detach().clone()
        pair.zero_grad(set_to_none=True)
        objective.loss_sums(pair, drawn_of(objective))[term].backward()
        made.step()
        change = first - before[0]
        if term == "mlm":
            assert change.abs().max() > 1e-4
            torch.testing.assert_close(second, before[1] + change)
            torch.testing.assert_close(second, first)
        else:  # a step of its own, besides what the generator's momentum still moves
            assert (second - before[1] - change).abs().max() > 1e-4


@pytest.mark.parametrize("discriminator_task", ["rtd", "rtd-masked", "replace-mlm", "all-tokens-mlm", "corrected"])
@pytest.mark.parametrize("how", ["split", "bucketed"])
@torch.no_grad()
def test_splitting_and_filling_up_change_nothing(discriminator_task, how):
    settings = settings_of(correction=1.0) if discriminator_task == "corrected" else settings_of(discriminator_task)
    pair, objective = pair_of(settings), objective_of(settings)
    step_inputs = drawn_of(objective)
    whole = objective.loss_sums(pair, step_inputs)
    parts = step_inputs.split(32) if how == "split" else [bucketed(step_inputs, 128, 64)]
    assert len(parts) > 1 or how == "bucketed"
    for term in whole:
        found = sum(float(objective.loss_sums(pair, part)[term]) for part in parts)
        assert found == pytest.approx(float(whole[term]), rel=1e-9)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 0.5])
def test_tokens_are_samples_of_the_softmax(temperature):
    logits = torch.tensor([0.5, 0.3, 0.15, 0.0499, 0.0001]).log()
    shares = (logits / temperature).softmax(0)
    num = 100_000
    numbers = torch.randint(-(2**31), 2**31, (num,), generator=torch.Generator().manual_seed(0))
    found = torch.bincount(sample_tokens(logits.expand(num, 5), numbers, temperature), minlength=5) / num
    assert ((found - shares).abs() < 4 * (shares * (1 - shares) / num).sqrt() + 1e-9).all()


@torch.no_grad()
def test_at_a_low_temperature_the_samples_are_the_likeliest_tokens():
    settings = settings_of(temperature=1e-9)
    pair, objective = pair_of(settings), objective_of(settings)
    corrupted = objective._corrupted(pair, drawn_of(objective))
    assert torch.equal(corrupted.samples_K, corrupted.logits_KV.argmax(-1))
    with pytest.raises(ValueError, match=r"objective\.temperature must be above 0"):
        RtdSettings(temperature=0.0)


def test_noise_is_even_and_never_at_the_ends():
    numbers = torch.arange(-500, 500, dtype=torch.int32)[:, None]  # neighbouring numbers must not look alike
    found = uniform(numbers, torch.arange(1000, dtype=torch.int32))
    assert float(found.min()) > 0 and float(found.max()) < 1
    counts = torch.histc(found, 100, 0, 1)
    assert float(((counts - 10_000) ** 2 / 10_000).sum()) < 160  # chi-squared of 99 degrees: 1 in 10,000 is above
    correlations = np.corrcoef(found.numpy()) - np.eye(1000)
    assert np.abs(correlations).max() < 0.2  # 1,000 values a row: six deviations
    ends = uniform(torch.arange(2**20, dtype=torch.int32), torch.tensor(0, dtype=torch.int32))
    assert torch.isfinite(torch.log(-torch.log(ends))).all()


def test_a_target_of_weight_0_puts_nothing():
    positions, weights = torch.tensor([0, 2]), torch.tensor([0.0, 1.0])
    targets = Targets(positions, torch.tensor([9, 9]), weights, offsets_host=np.array([0, 2]))
    assert replace_at_targets(torch.tensor([5, 6, 7]), targets, torch.tensor([9, 8])).tolist() == [5, 6, 8]


class TestAdversarial:
    """The generator by policy gradient."""

    settings = RtdSettings(generator_objective="adversarial", generator_size=0.5, shared="none")

    def test_the_terms_are_those_of_the_paper(self):
        pair, objective = pair_of(self.settings), objective_of(self.settings)
        step_inputs = drawn_of(objective)
        sums = objective.loss_sums(pair, step_inputs)
        assert objective.weights == {"mlm": 0.0, "rtd": 50.0, "policy": 1.0, "baseline": 1.0} and set(sums) == set(
            objective.weights
        )
        with torch.no_grad():
            corrupted = objective._corrupted(pair, step_inputs)
            scores = pair.discriminator.rtd(pair.discriminator(corrupted.batch))
            policy = baseline = 0.0
            for i, place in enumerate(step_inputs.targets["mlm"].indices_K.tolist()):
                replaced = corrupted.samples_K[i] != corrupted.original_T[place]
                p_right = float(torch.sigmoid(scores[place] if replaced else -scores[place]))
                expected = float(torch.sigmoid(pair.generator.reward(corrupted.x_KD[i]))[0])
                gain = -math.log(p_right) + math.log(expected)
                policy -= gain * float(corrupted.logits_KV[i].log_softmax(-1)[corrupted.samples_K[i]])
                baseline -= p_right * math.log(expected) + (1 - p_right) * math.log(1 - expected)
        assert float(sums["policy"].detach()) == pytest.approx(policy, rel=1e-9)
        assert float(sums["baseline"].detach()) == pytest.approx(baseline, rel=1e-9)

    @pytest.mark.parametrize("term", ["policy", "baseline"])
    def test_each_term_teaches_only_its_own_part(self, term):
        pair, objective = pair_of(self.settings), objective_of(self.settings)
        objective.loss_sums(pair, drawn_of(objective))[term].backward()
        moved = {name for name, p in pair.named_parameters() if p.grad is not None and p.grad.any()}
        of_reward = {name for name in moved if name.startswith("generator.reward.")}
        of_generator = {name for name in moved if name.startswith("generator.")} - of_reward
        assert moved == (of_generator if term == "policy" else of_reward) and len(moved) > 1

    def test_needs_a_discriminator(self):
        with pytest.raises(ValueError, match=r"objective\.discriminator_task=rtd"):
            RtdSettings(generator_objective="adversarial", discriminator_task="replace-mlm")


def test_all_layers_shared_needs_one_size():
    with pytest.raises(ValueError, match=r"generator_size=1"):
        RtdSettings(shared="all")
