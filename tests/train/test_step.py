"""One step: accumulation, short memory, what decays."""

import dataclasses
import itertools
from functools import partial

import pytest
import torch
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from hornbook.train.objective import TrainingModule
from hornbook.train.optimizer import load_optimizer_tensors, make_optimizer, optimizer_tensors
from hornbook.train.settings import OptimizerSettings, ScheduleSettings
from hornbook.train.step import Stepper
from train.small import CPU, small_batch, small_model, small_objective


def stepper(micro_tokens: int, **overrides) -> Stepper:
    model = small_model(**({"dropout": 0.0, "attention_dropout": 0.0} | overrides))
    return Stepper(
        TrainingModule(model, small_objective()), make_optimizer(model, OptimizerSettings()), CPU, 0, 1.0, micro_tokens
    )


def gradients(one: Stepper, batch) -> dict[str, torch.Tensor]:
    """The gradient that a step applies, caught before it is thrown away."""
    caught = {}

    def catch(*_args, **_keywords):
        caught.update({name: p.grad.clone() for name, p in one.model.named_parameters()})

    one.optimizer.step = catch
    one.max_grad_norm = 0.0
    one.train_step(batch, 3, 1e-3)
    return caught


def test_four_micro_batches_equal_one_large_batch():
    """Unequal numbers of masks, two loss terms: sums and counts make it exact up to rounding."""
    batch = small_batch(0, num_sequences=12)
    whole, parts = stepper(4096).model.double(), stepper(batch.num_tokens // 4 + 8)
    one = stepper(4096)
    one.module.model = whole
    parts.model.double()
    parts.model.load_state_dict(whole.state_dict())
    step_inputs = parts.objective.prepare(batch, 1)
    sizes = [len(part.targets["mlm"].indices_K) for part in step_inputs.split(parts.micro_tokens)]
    assert len(sizes) >= 4 and len(set(sizes)) > 1
    expected, found = gradients(one, batch), gradients(parts, batch)
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, rtol=1e-6, atol=1e-9), name
    assert max(g.abs().max() for g in expected.values()) > 1e-3


def test_averaging_over_micro_batches_would_not_be_equal():
    """The same comparison with each micro-batch divided by its own count is far off, so the test above can fail."""
    batch = small_batch(0, num_sequences=12)
    one = stepper(4096)
    step_inputs = one.objective.prepare(batch, 1)
    counts = step_inputs.total_weights()
    whole = {term: value / counts[term] for term, value in one.module(step_inputs).items()}
    parts = step_inputs.split(batch.num_tokens // 4 + 8)
    naive = [{t: v / p.total_weights()[t] for t, v in one.module(p).items()} for p in parts]
    mean = {term: sum(each[term] for each in naive) / len(naive) for term in whole}
    assert any(abs(mean[term] - whole[term]) > 1e-3 for term in whole)


@pytest.mark.parametrize("name", ["compiled", "ddp", "fsdp"])
def test_wrapped_modules_compute_the_same(name, tmp_path):
    """Everything that is differentiated happens in `forward`, so wrappers see it."""
    size = {"num_layers": 1, "dropout": 0.0, "attention_dropout": 0.0}
    plain, wrapped = (TrainingModule(small_model(**size), small_objective()) for _ in "ab")
    step_inputs = plain.objective.prepare(small_batch(0), 1)
    if name != "compiled":
        torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    wrap = {"compiled": partial(torch.compile, backend="eager"), "ddp": DistributedDataParallel, "fsdp": fully_shard}
    try:
        sums, expected = wrap[name](wrapped)(step_inputs), plain(step_inputs)
        for each in (sums, expected):
            sum(each.values()).backward()
    finally:
        if name != "compiled":
            torch.distributed.destroy_process_group()
    assert {term: value.item() for term, value in sums.items()} == {t: v.item() for t, v in expected.items()}
    for (parameter, one), two in zip(plain.named_parameters(), wrapped.parameters(), strict=True):
        gradient = two.grad.to_local() if name == "fsdp" else two.grad
        assert torch.allclose(one.grad, gradient, atol=1e-7), parameter


def _cuda_is_full():
    raise torch.OutOfMemoryError("CUDA out of memory")


def _memory_is_full():
    torch.empty(2**56, dtype=torch.uint8)  # the error of this version of torch on a CPU


@pytest.mark.parametrize("run_out", [_cuda_is_full, _memory_is_full])
def test_out_of_memory_halves_the_parts_and_keeps_masks_and_result(run_out):
    batch = small_batch(2, num_sequences=12)
    expected = stepper(4096)
    expected.train_step(batch, 7, 1e-3)
    short = stepper(4096)
    forward, refused = short.model.forward, []

    def limited(batch):
        if batch.num_tokens > 100:
            refused.append(batch.num_tokens)
            run_out()
        return forward(batch)

    short.model.forward = limited
    short.train_step(batch, 7, 1e-3)
    assert refused and short.micro_tokens <= 128
    for (name, one), two in zip(expected.model.named_parameters(), short.model.parameters(), strict=True):
        assert torch.allclose(one, two, atol=2e-5), name


def test_out_of_memory_with_one_sequence_is_not_hidden():
    short = stepper(24)
    short.model.forward = lambda batch: (_ for _ in ()).throw(torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(torch.OutOfMemoryError):
        short.train_step(small_batch(0), 0, 1e-3)


def test_other_errors_are_not_taken_for_short_memory():
    broken = stepper(4096)
    broken.model.forward = lambda batch: (_ for _ in ()).throw(RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes"):
        broken.train_step(small_batch(0), 0, 1e-3)


def test_steps_depend_on_seed_and_number_alone():
    one, two = stepper(4096, dropout=0.1), stepper(4096, dropout=0.1)
    torch.manual_seed(1)
    first = one.train_step(small_batch(4), 4, 1e-3)
    torch.manual_seed(2)
    second = two.train_step(small_batch(4), 4, 1e-3)
    assert torch.equal(first.loss, second.loss)
    other = stepper(4096, dropout=0.1).train_step(small_batch(4), 5, 1e-3)
    assert not torch.equal(first.loss, other.loss)


def test_biases_and_norms_do_not_decay():
    model = small_model()
    decaying, free = make_optimizer(model, OptimizerSettings()).param_groups
    names = {parameter: name for name, parameter in model.named_parameters()}
    assert decaying["weight_decay"] == 0.01 and free["weight_decay"] == 0.0
    assert all(names[p].endswith("bias") or "norm" in names[p] for p in free["params"])
    assert not any("norm" in names[p] or names[p].endswith("bias") for p in decaying["params"])
    assert len(decaying["params"]) + len(free["params"]) == len(names)


def test_optimizer_state_round_trips():
    one, two = stepper(4096), stepper(4096)
    one.train_step(small_batch(0), 0, 1e-2)
    two.model.load_state_dict(one.model.state_dict())
    load_optimizer_tensors(two.model, two.optimizer, optimizer_tensors(one.model, one.optimizer))
    one.train_step(small_batch(1), 1, 1e-2)
    two.train_step(small_batch(1), 1, 1e-2)
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True))


def test_schedule_rises_and_falls_in_lines():
    schedule = ScheduleSettings(steps=100, warmup_fraction=0.1)
    rates = [schedule.lr_ratio(step) for step in range(100)]
    assert rates.index(max(rates)) == 10 and max(rates) == 1.0
    assert rates[0] > 0 and rates[-1] == pytest.approx(1 / 90)
    assert all(a < b for a, b in itertools.pairwise(rates[:11]))
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))


def test_warmup_in_steps():
    """Whatever the fraction; a warmup longer than the run only rises."""
    by_steps, by_share = ScheduleSettings(100, 0.5, warmup_steps=10), ScheduleSettings(100, 0.1)
    assert [by_steps.lr_ratio(step) for step in range(100)] == [by_share.lr_ratio(step) for step in range(100)]
    assert ScheduleSettings(100, 0.5, warmup_steps=0).lr_ratio(0) == 1.0
    assert [ScheduleSettings(3, warmup_steps=9).lr_ratio(step) for step in range(3)] == [0.1, 0.2, 0.3]
    with pytest.raises(ValueError, match=r"schedule\.warmup_steps must be at least 0"):
        ScheduleSettings(warmup_steps=-1)


def test_multiplied_schedule():
    """The rise times the fall: the rate is highest where the warm-up ends, and below the peak even there."""
    schedule = ScheduleSettings(100, warmup_steps=10, decay_in_warmup=True)
    found = [schedule.lr_ratio(step) for step in (0, 4, 9, 10, 50, 99)]
    assert found == pytest.approx([0.1 * 1.0, 0.5 * 0.96, 1.0 * 0.91, 0.9, 0.5, 0.01])
    rates = [schedule.lr_ratio(step) for step in range(100)]
    assert rates.index(max(rates)) == 9
    assert ScheduleSettings(10, 0.0, decay_in_warmup=True).lr_ratio(0) == 1.0
    assert ScheduleSettings(4, warmup_steps=8, decay_in_warmup=True).lr_ratio(2) == 3 / 8 * 0.5


def test_power_of_the_polynomial_decay():
    line, bent = ScheduleSettings(100, 0.1), ScheduleSettings(100, 0.1, power=2.0)
    assert [bent.lr_ratio(step) for step in range(10)] == [line.lr_ratio(step) for step in range(10)]
    assert bent.lr_ratio(55) == pytest.approx(0.5**2)
    multiplied = ScheduleSettings(100, warmup_steps=10, decay_in_warmup=True, power=2.0)
    assert multiplied.lr_ratio(4) == pytest.approx(0.5 * 0.96**2) and multiplied.lr_ratio(50) == pytest.approx(0.25)


def test_rows_that_pad_the_vocabulary_never_move():
    one = stepper(4096, dropout=0.1)
    model = one.model
    config = dataclasses.replace(model.config, vocab_size=60)
    one.module.model = type(model)(config)
    one.model.initialize(torch.Generator().manual_seed(0))
    one.optimizer = make_optimizer(one.model, OptimizerSettings())
    one.objective.masking.ordinary_ids = one.objective.masking.ordinary_ids[:50]
    batch = small_batch(0)
    batch = batch.with_values("tokens", ids_T=batch.ids_T.clamp(max=59))
    before = one.model.mlm.bias[60:].clone()
    for number in range(3):
        one.train_step(batch, number, 1e-2)
    assert torch.equal(one.model.mlm.bias[60:], before)
    assert one.model.embeddings.tokens.weight[60:].abs().max() == 0
