"""Published fine-tuning settings of model families by dotted name, where they differ from the defaults."""

from typing import Any

from hornbook.models.electra import Electra
from hornbook.models.gpt import Gpt1
from hornbook.models.transformer import BASE_WIDTH, Transformer

SMALL_WIDTH = 256  # of ELECTRA-small
MANY_EXAMPLES, FEW_EXAMPLES = 50_000, 6_000


def family_settings(model: Transformer, task: str) -> dict[str, Any]:
    """The published settings of the model's family for a task; empty if they are the defaults."""
    if isinstance(model, Electra):
        return _electra(model.config.width, task)
    return _gpt1(model.config.width, task) if isinstance(model, Gpt1) else {}


def measured_settings(model: Transformer, is_own: bool, num_examples: int) -> dict[str, Any]:
    """Settings of an ELECTRA of a size between the published ones, as the built-in models are, where the published ones
    are not the best (RESULTS.md): a larger rate helps with many training examples and makes runs with few of them fail.
    Small data sets of the user (`is_own`) keep the default epochs, so that a run takes minutes on a CPU."""
    if not isinstance(model, Electra) or not SMALL_WIDTH < model.config.width < BASE_WIDTH:
        return {}
    if num_examples >= MANY_EXAMPLES:
        return {"optimizer.lr": 2e-4, "layers.lr_decay": 0.9}
    return {"epochs": 10.0} if num_examples < FEW_EXAMPLES and not is_own else {}


def _electra(width: int, task: str) -> dict[str, Any]:
    """Appendix B of the paper; that the layer-wise decay starts two above the top block is only in its code."""
    settings = {
        "optimizer.lr": 3e-4 if width <= SMALL_WIDTH else 1e-4 if width <= BASE_WIDTH else 5e-5,
        "optimizer.weight_decay": 0.0,
        "optimizer.bias_correction": False,
        "layers.lr_decay": 0.8 if width <= BASE_WIDTH else 0.9,
        "layers.lr_decay_from": "electra",
        "schedule.decay_in_warmup": True,
    }
    settings |= {"epochs": 10.0} if task in ("rte", "sts-b") else {}
    return settings | ({"task.swapped_pairs": True} if task in ("mrpc", "sts-b") else {})


def _gpt1(width: int, task: str) -> dict[str, Any]:
    """Sections 3.3 and 4.1 of the paper. Narrow models use the learning rate for their width instead."""
    settings = {
        "task.format": "gpt1",
        "task.lm_weight": 0.5,
        "batch_size": 32,
        "epochs": 3.0,
        "optimizer.eps": 1e-8,
        "schedule.warmup_fraction": 0.002,
    }
    settings |= {"optimizer.lr": 6.25e-5} if width >= BASE_WIDTH else {}
    return settings | ({"task.pair_encoding": "both"} if task in ("mrpc", "qqp", "sts-b") else {})
