"""What only a CUDA device can show: the flash kernel, bfloat16, compilation, short memory. Run by `make test-gpu`."""

import dataclasses

import numpy as np
import pytest
import torch

from hornbook.batch import pack
from hornbook.lifecycle.run_folder import read_metrics
from hornbook.models.bert import Bert
from hornbook.models.gpt import Gpt2, Gpt2Config
from hornbook.nn import kernels
from hornbook.nn.block import PackedLayout, attention
from hornbook.objectives import clm
from hornbook.objectives.clm import ClmObjective
from hornbook.objectives.mlm import summed_loss
from hornbook.objectives.vocabulary_loss import can_fuse_loss
from hornbook.train import randomness
from hornbook.train.job import Stopped
from hornbook.train.loop import train
from hornbook.train.objective import TrainingModule
from hornbook.train.optimizer import make_optimizer
from hornbook.train.runtime import choose_runtime
from hornbook.train.settings import OptimizerSettings, RuntimeSettings, ScheduleSettings
from hornbook.train.step import Stepper, bucketed
from train.small import small_batch, small_job, small_model, small_objective, small_settings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]
CUDA = torch.device("cuda")


def stream_field(dtype: torch.dtype, width: int = 64) -> tuple:
    torch.manual_seed(0)
    lengths = [13, 128, 1, 77, 0, 64]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    qkv = [torch.randn(int(offsets[-1]), 4, width, device=CUDA, dtype=dtype, requires_grad=True) for _ in range(3)]
    return qkv, torch.from_numpy(offsets.astype(np.int32)).to(CUDA), offsets


@pytest.mark.parametrize(
    ("direction", "width"), [("bidirectional", 64), ("causal", 64), ("bidirectional", 26), ("causal", 26)]
)
def test_flash_equals_the_loop(direction, width):
    """26 is the width of TinyBERT's heads, which the kernel only supports padded with zeros."""
    qkv, offsets, offsets_host = stream_field(torch.bfloat16, width)
    found = attention(*qkv, PackedLayout(offsets, None, 128), direction)
    exact = [x.detach().double().requires_grad_() for x in qkv]
    expected = attention(*exact, PackedLayout(offsets, offsets_host, 128), direction)
    assert (found.double() - expected).norm() / expected.norm() < 1e-2
    weights = torch.randn_like(expected)
    (found.double() * weights).sum().backward()
    (expected * weights).sum().backward()
    for ours, reference in zip(qkv, exact, strict=True):
        assert (ours.grad.double() - reference.grad).norm() / reference.grad.norm() < 1e-2


@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize(("direction", "width"), [("bidirectional", 64), ("causal", 64), ("causal", 26)])
def test_attention_of_even_sequences_equals_the_loop(direction, width, window):
    if window is not None and direction == "bidirectional":
        pytest.skip("a window is to one side")
    torch.manual_seed(0)
    qkv_T3HC = torch.randn(3 * 128, 3, 4, width, device=CUDA, dtype=torch.bfloat16, requires_grad=True)
    exact_T3HC = qkv_T3HC.detach().double().requires_grad_()
    offsets_host = np.arange(4) * 128
    offsets = torch.from_numpy(offsets_host.astype(np.int32)).to(CUDA)
    found = attention(*qkv_T3HC.unbind(1), PackedLayout(None, None, 128), direction, window=window)
    expected = attention(*exact_T3HC.unbind(1), PackedLayout(offsets, offsets_host, 128), direction, window=window)
    assert (found.double() - expected).norm() / expected.norm() < 1e-2
    weights = torch.randn_like(expected)
    (found.double() * weights).sum().backward()
    (expected * weights).sum().backward()
    assert (qkv_T3HC.grad.double() - exact_T3HC.grad).norm() / exact_T3HC.grad.norm() < 1e-2


@pytest.mark.parametrize("is_even", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_attention_dropout_follows_the_seed(compiled, is_even):
    (q, k, v), offsets, _ = stream_field(torch.bfloat16)
    if is_even:
        q, k, v = (x[:256] for x in (q, k, v))
        offsets = None

    def dropped(q, k, v):
        return attention(q, k, v, PackedLayout(offsets, None, 128), "bidirectional", 0.5)

    function = torch.compile(dropped) if compiled else dropped
    out = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        out.append(function(q, k, v))
    assert torch.equal(out[0], out[1]) and not torch.equal(out[0], out[2])


def test_float32_parity_with_transformers(tmp_path):
    import transformers

    from hornbook.interop.folder import load_model

    torch.set_float32_matmul_precision("highest")
    config = transformers.BertConfig(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128, vocab_size=99
    )
    theirs = transformers.BertForPreTraining(config).eval().to(CUDA)
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path).to(CUDA)
    random = np.random.default_rng(0)
    rows = [random.integers(1, 99, n) for n in (30, 7, 51)]
    batch = pack(rows).to(CUDA)
    found = ours.vocabulary_logits(ours(batch))[:, :99]
    one_by_one = [theirs(torch.from_numpy(row)[None].to(CUDA)).prediction_logits[0] for row in rows]
    expected = torch.cat(one_by_one)
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


def runtime(**overrides):
    return choose_runtime(RuntimeSettings(device="cuda", **overrides), planned_flops=0)


def stepper(micro_tokens: int = 4096, compiled: bool = False, **model_changes) -> Stepper:
    model = small_model(width=64, num_heads=1, **model_changes).to(CUDA)
    objective = small_objective()
    if compiled:
        model.compile_parts()
        objective.compile()
    return Stepper(
        TrainingModule(model, objective), make_optimizer(model, OptimizerSettings()), runtime(), 0, 1.0, micro_tokens
    )


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("unit", ["token", "word", "ngram"])
def test_masks_are_those_of_a_cpu(unit, is_compiled, monkeypatch):
    monkeypatch.setattr(randomness, "is_hashing_compiled", is_compiled)
    objective, batch = small_objective(unit=unit), small_batch(0, num_sequences=40)
    on_cpu, on_cuda = objective.prepare(batch, 7), objective.prepare(batch.to(CUDA), 7)
    assert on_cuda.batch.ids_T.cpu().equal(on_cpu.batch.ids_T)
    for name, value in on_cpu.targets["mlm"].values.items():
        assert on_cuda.targets["mlm"].values[name].cpu().equal(value), name


def test_bfloat16_losses_are_near_float32_ones():
    half = stepper(dropout=0.0, attention_dropout=0.0).train_step(small_batch(0).to(CUDA), 0, 1e-3)
    model = small_model(width=64, num_heads=1, dropout=0.0, attention_dropout=0.0)
    step_inputs = small_objective().prepare(small_batch(0).to(CUDA), _seed(0))
    sums = small_objective().loss_sums(model.to(CUDA), step_inputs)
    counts = step_inputs.total_weights()
    for term, value in half.terms.items():
        assert float(value) == pytest.approx(float(sums[term] / counts[term]), rel=1e-2)


def _seed(number: int) -> int:
    from hornbook.train.randomness import seed_of

    return seed_of(0, number, "draw")


def test_compiled_equals_plain():
    plain, fast = (
        stepper(dropout=0.0, attention_dropout=0.0),
        stepper(compiled=True, dropout=0.0, attention_dropout=0.0),
    )
    for number in range(6):
        batch = small_batch(number, num_sequences=8 + number).to(CUDA)
        one, two = plain.train_step(batch, number, 1e-3), fast.train_step(batch, number, 1e-3)
        assert float(one.loss) == pytest.approx(float(two.loss), rel=5e-3)


def test_bucketed_equals_unbucketed():
    objective, model = small_objective(), small_model(width=64, num_heads=1).eval().to(CUDA)
    step_inputs = objective.prepare(small_batch(3).to(CUDA), 1)
    whole, filled = objective.loss_sums(model, step_inputs), objective.loss_sums(model, bucketed(step_inputs, 512, 64))
    for term, value in whole.items():
        assert float(filled[term]) == pytest.approx(float(value), rel=1e-5)
    with torch.autocast("cuda", torch.bfloat16):
        whole, filled = (
            objective.loss_sums(model, step_inputs),
            objective.loss_sums(model, bucketed(step_inputs, 512, 64)),
        )
    for term, value in whole.items():
        assert float(filled[term]) == pytest.approx(float(value), rel=1e-3)


def test_masks_do_not_depend_on_the_parts():
    """The same batch in micro-batches of half the size: same masks, the same losses without dropout."""
    whole, parts = stepper(4096, dropout=0.0, attention_dropout=0.0), stepper(96, dropout=0.0, attention_dropout=0.0)
    batch = small_batch(1, num_sequences=16).to(CUDA)
    one, two = whole.train_step(batch, 1, 1e-3), parts.train_step(batch, 1, 1e-3)
    assert float(one.loss) == pytest.approx(float(two.loss), rel=2e-3)


def test_real_short_memory_halves_the_parts():
    one = stepper(1 << 20, inner_width=8192, num_layers=4)
    batch = small_batch(0, num_sequences=4000).to(CUDA)
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(2.5 * 2**30 / torch.cuda.get_device_properties(0).total_memory)
    try:
        result = one.train_step(batch, 0, 1e-3)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert one.micro_tokens < 1 << 20 and torch.isfinite(result.loss)


def test_the_loop_learns_stops_and_resumes(tmp_path):
    import signal

    schedule, optimizer = ScheduleSettings(steps=200, warmup_fraction=0.1), OptimizerSettings(lr=3e-3)
    settings = small_settings(schedule=schedule, optimizer=optimizer)
    settings = dataclasses.replace(settings, runtime=RuntimeSettings(log_every_steps=10))

    device = runtime(loader_workers=0)

    def job():
        model = small_model(width=64, num_heads=1, init_std=0.1, dropout=0.0, attention_dropout=0.0)
        return small_job(model, lambda number: small_batch(number, num_sequences=16), runtime=device)

    def stop(status):
        if status.step == 60:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Stopped):
        train(tmp_path, job(), settings, device, stop)
    assert train(tmp_path, job(), settings, device, lambda status: None).ended == "finished"
    lines = [line for line in read_metrics(tmp_path) if line["kind"] == "validation"]
    assert lines[-1]["loss"] < 4.5  # guessing gives log 60 + log 2 = 4.79
    steps = [line["step"] for line in read_metrics(tmp_path) if line["kind"] == "train"]
    assert steps == list(range(10, 201, 10))


@pytest.mark.parametrize("nearly_all", [0.5, 1.0])
@pytest.mark.parametrize("tied", [True, False])
def test_a_gpts_fused_loss_equals_the_plain_one(monkeypatch, tied, nearly_all):
    """Loss and all gradients, of a vocabulary that is no multiple of 64; of every token, or of the targets alone."""
    size = {"num_layers": 2, "width": 64, "num_heads": 2, "inner_width": 128, "max_positions": 64}
    model = Gpt2(Gpt2Config(vocab_size=1000, tied=tied, **size), ("clm",))
    model.initialize(torch.Generator().manual_seed(0))
    model.cuda().eval()  # no dropout
    random = np.random.default_rng(0)
    batch = pack([random.integers(0, 1000, length) for length in (64, 40, 7)]).to(CUDA)
    objective = ClmObjective()
    step_inputs = objective.prepare(batch, 0)
    monkeypatch.setattr(clm, "NEARLY_ALL", nearly_all)
    targets = step_inputs.targets["clm"]
    with torch.autocast("cuda", torch.bfloat16):
        x_KD = model(batch).index_select(0, targets.indices_K)
        assert can_fuse_loss(x_KD)
        plain = summed_loss(model.vocabulary_logits(x_KD), targets.values_K, targets.weights_K)
        fused = objective.loss_sums(model, step_inputs)["clm"]
    assert fused.item() == pytest.approx(plain.item(), rel=1e-3)
    parameters = list(model.parameters())
    for one, other in zip(*(torch.autograd.grad(loss, parameters) for loss in (fused, plain)), strict=True):
        assert (one - other).norm() < 2e-2 * other.norm()


@pytest.mark.parametrize("kind", [Bert, Gpt2])
@pytest.mark.parametrize("compiled", [False, True])
def test_fused_blocks_equal_plain_ones(monkeypatch, kind, compiled):
    """Post-norm and pre-norm: hidden states and all gradients, the biases' too, which the kernels sum up."""
    size = {"num_layers": 3, "width": 96, "num_heads": 3, "inner_width": 384, "max_positions": 64, "vocab_size": 200}
    model = kind(kind.config_class(**size))
    model.initialize(torch.Generator().manual_seed(0))
    model.cuda().eval()  # no dropout
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    random = np.random.default_rng(0)
    batch = pack([random.integers(0, 200, length) for length in (64, 40, 7)]).to(CUDA)
    parameters = [*model.blocks.parameters(), *([] if model.norm is None else model.norm.parameters())]
    weights = torch.randn(111, 96, device=CUDA)

    def found() -> list[torch.Tensor]:
        with torch.autocast("cuda", torch.bfloat16):
            x_TD = model(batch).float()
        return [x_TD, *torch.autograd.grad((x_TD * weights).sum(), parameters)]

    monkeypatch.setattr(kernels, "HAS_TRITON", False)
    plain = found()
    monkeypatch.setattr(kernels, "HAS_TRITON", True)
    if compiled:
        model.compile_parts()
    for one, other in zip(found(), plain, strict=True):
        assert (one - other).norm() < 3e-2 * other.norm()


def test_dropout_of_fused_blocks_follows_the_seed():
    size = {"num_layers": 2, "width": 64, "num_heads": 2, "inner_width": 128, "max_positions": 64, "vocab_size": 200}
    model = Gpt2(Gpt2Config(**size, dropout=0.2, attention_dropout=0.0, embedding_dropout=0.0), ("clm",))
    model.initialize(torch.Generator().manual_seed(0))
    model.cuda().train()
    batch = pack([np.arange(64)]).to(CUDA)
    out = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        with torch.autocast("cuda", torch.bfloat16):
            out.append(model(batch))
    assert torch.equal(out[0], out[1]) and not torch.equal(out[0], out[2])
