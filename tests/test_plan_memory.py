"""The memory that a plan predicts is that of a step on a GPU, counted here with tensors that have shapes but no data.

The CPU plays the GPU: the fused operations have fake versions, which compilation needs too, and bfloat16 is autocast.
`benchmarks/plan_memory.py` measures the same on a real one.
"""

import sys
import weakref
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hornbook.batch import pack
from hornbook.models import transformer
from hornbook.nn import block, kernels
from hornbook.runs.pretraining.assembly import new_network, objective_of
from hornbook.runs.pretraining.plan import plan
from hornbook.runs.pretraining.presets import preset_settings
from hornbook.train.objective import TrainingModule
from hornbook.train.optimizer import make_optimizer
from hornbook.train.parallel.sharding import checkpoint_activations
from hornbook.train.runtime import Runtime
from hornbook.train.step import Stepper

CHECKPOINTED = {"parallel.activation_checkpointing": True}
FEW_LAYERS = {"model.num_layers": 4}
CASES = {  # preset, length, tokens of a batch and of a micro-batch, other settings
    "post-norm": ("bert-base", 128, 16_384, 16_384, {}),
    "post-norm, accumulation": ("bert-base", 512, 16_384, 8192, {}),
    "post-norm, few tokens": ("bert-base", 128, 1024, 1024, {}),
    "two encoders": ("electra-small", 128, 16_384, 16_384, {}),
    "shared layers": ("albert-base", 512, 8192, 8192, {}),
    "pre-norm": ("gpt2-small", 1024, 16_384, 16_384, {}),
    "pre-norm, logits in two chunks": ("gpt2-small", 1024, 65_536, 65_536, CHECKPOINTED),
    "recomputed": ("bert-large", 512, 32_768, 32_768, CHECKPOINTED),
    "recomputed, accumulation": ("gpt3-1.3b", 2048, 8192, 4096, CHECKPOINTED),
}


class PeakBytes(TorchDispatchMode):
    """Counts the bytes of all tensors that operations return, as long as they live."""

    def __init__(self):
        super().__init__()
        self.alive: dict[int, tuple[int, weakref.ref]] = {}
        self.now = self.peak = 0

    def count(self, value: object) -> None:
        for tensor in tree_leaves(value):
            if isinstance(tensor, torch.Tensor) and (key := tensor.untyped_storage()._cdata) not in self.alive:
                storage = tensor.untyped_storage()
                self.alive[key] = storage.nbytes(), weakref.ref(storage, lambda _, key=key: self._forget(key))
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)

    def _forget(self, key: int) -> None:
        self.now -= self.alive.pop(key)[0]

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        result = function(*arguments, **(named or {}))
        self.count(result)
        return result


@pytest.fixture
def like_a_gpu(monkeypatch):
    """The operations of a step on CUDA."""
    monkeypatch.setattr(kernels, "use_triton", lambda x: torch.is_grad_enabled())
    monkeypatch.setattr(block, "_has_fast_cudnn", lambda: False)
    for module in (block, transformer):
        monkeypatch.setattr(module, "runs_flash", lambda x: True)
    loss_kernels = ModuleType("losses")
    loss_kernels.overwrite_with_gradient = lambda logits, *_: logits.new_zeros(len(logits), dtype=torch.float)
    loss_kernels.scaled = lambda gradient, factor, dtype: torch.empty_like(gradient, dtype=dtype)
    monkeypatch.setitem(sys.modules, "hornbook.nn.kernels.losses", loss_kernels)
    dtype = torch.get_autocast_dtype("cuda")
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    yield
    torch.set_autocast_dtype("cuda", dtype)


def peak_of_a_step(settings) -> int:
    length, vocab_size = settings.data.length, settings.model.vocab_size
    num = settings.batch.tokens // length
    sequences = list(np.random.default_rng(0).integers(5, vocab_size, (num, length)))
    labels = () if settings.predicts_next else ([np.zeros(length, int)] * num, None, np.zeros(num, int))
    tokenizer = SimpleNamespace(vocab_size=vocab_size, mask_id=4, special_ids=[0, 1, 2, 3, 4])
    objective = objective_of(settings, tokenizer)
    parts = objective.prepare(pack(sequences, *labels, max_length=length), 1).split(settings.batch.micro_tokens)
    runtime = Runtime(torch.device("cpu"), torch.bfloat16, False, 1, 0, "test")
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = new_network(settings).train()
        for encoder in model.modules():
            if isinstance(encoder, transformer.Transformer) and not encoder.config.pre_norm:
                encoder.embeddings.register_forward_hook(lambda *arguments: arguments[-1].bfloat16())  # as on CUDA
        if settings.parallel.activation_checkpointing:
            runtime = checkpoint_activations(model, runtime)
        optimizer, tokens = make_optimizer(model, settings.optimizer), settings.batch.micro_tokens
        stepper = Stepper(TrainingModule(model, objective), optimizer, runtime, 0, 1.0, tokens)
        with PeakBytes() as memory:
            memory.count([*model.parameters(), *(list(each.values()) for each in optimizer.state.values())])
            stepper._backward(parts, {term: torch.ones(()) for term in objective.weights}, 0, False)
            torch.nn.utils.clip_grads_with_norm_(stepper.parameters, 1.0, stepper.grad_norm())
    return memory.peak


@pytest.mark.parametrize("case", CASES)
def test_a_step_takes_the_memory_that_was_planned(case, like_a_gpu):
    preset, length, tokens, micro_tokens, more = CASES[case]
    overrides = {"data.length": length, "data.short_length": length, "data.short_fraction": 0.0} | FEW_LAYERS | more
    overrides |= {"batch.tokens": tokens, "batch.micro_tokens": micro_tokens, "batch.first_tokens": None}
    predicted = plan(preset, overrides=overrides).step_bytes
    assert predicted == pytest.approx(peak_of_a_step(preset_settings(preset, overrides)), rel=0.1)
