"""Recipes: `published`, the settings of the paper, or `budget`, those for a short run.

Published settings are made for runs of days: in minutes, a learning rate of 1e-4 with batches of 131,072 tokens
teaches a BERT little more than word frequencies. The `budget` recipe takes more and larger steps from the same time.
docs/budgets.md has the measurements behind each number.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

from hornbook import config as configuration
from hornbook.devices import chosen_device
from hornbook.files import num_cores
from hornbook.objectives.mlm import MlmSettings
from hornbook.objectives.rtd import RtdSettings
from hornbook.runs.pretraining.batches import Corpora
from hornbook.runs.pretraining.presets import preset
from hornbook.runs.pretraining.record import PretrainRequest
from hornbook.runs.pretraining.settings import GPU_FLOPS_PER_SECOND, PretrainSettings

Recipe = Literal["published", "budget"]
FAR_SHORTER = 0.1  # of the published tokens: below, the budget recipe is the default
CPU_FLOPS_PER_SECOND = 4e10  # per core; only to estimate the length of a run with --minutes
STEPS_WANTED = 2500  # batches are halved until the budget has about this many steps
SMALLEST_BATCH, LARGEST_BATCH, LARGEST_GPT_BATCH = 2048, 32_768, 65_536  # tokens
LEARNING_RATES = {640: 1e-3, 256: 2e-3, 0: 4e-3}  # Muon's, for models at least this wide
DROPOUTS = {"dropout", "attention_dropout", "embedding_dropout"}
SHORT_LENGTH, FEW_TOKENS = 128, 10**9  # with fewer tokens, all sequences have this length
SHORTEST_LENGTH, VERY_FEW_TOKENS = 64, 10**7
SEQUENCES_PER_BATCH = 8  # at least, for a GPT: its sequences are shortened
MANY_EPOCHS = 7  # of a GPT: in 3.5 epochs no dropout is best, in 10 dropout 0.2 and strong weight decay
MANY_ENCODER_EPOCHS = 20  # an encoder predicts other tokens in each epoch, and overfits later
REPEATED_DROPOUTS = {"model.dropout": 0.2, "model.embedding_dropout": 0.1}
ENCODER_TOKENS_PER_PARAMETER = 2  # up to this many, an encoder gains from strong weight decay; a GPT up to one
ENCODER_DECAY, GPT_DECAY = (7, 1.0), (1.6, 2.0)  # epochs in 1 / (lr x weight decay) steps, and the largest weight decay


def choose_recipe(request: PretrainRequest, settings: PretrainSettings) -> Recipe:
    """The requested recipe; by default `budget` for a new model that is trained on far fewer tokens than published."""
    if request.recipe is not None:
        if request.recipe == "budget" and request.teacher is not None:
            raise ValueError("recipe budget is for pre-training without a teacher: leave it out")
        return request.recipe
    if request.init_from is not None or request.teacher is not None:
        return "published"
    published = preset(request.preset)
    return "budget" if _budget(request, settings) < FAR_SHORTER * _scheduled(published) else "published"


def _scheduled(settings: PretrainSettings) -> float:
    return settings.schedule.steps * settings.batch.mean_tokens


def _budget(request: PretrainRequest, settings: PretrainSettings) -> float:
    """Training tokens of the run; estimated from a typical speed if it is given in minutes."""
    if request.minutes is None:
        return request.tokens or _scheduled(settings)
    return request.minutes * 60 * _typical_speed(settings) / settings.flops_per_token(SHORT_LENGTH)


def _typical_speed(settings: PretrainSettings) -> float:
    """FLOPs per second that a run on this device usually reaches."""
    is_cpu = chosen_device(settings.runtime.device) == "cpu"
    return CPU_FLOPS_PER_SECOND * num_cores() if is_cpu else GPU_FLOPS_PER_SECOND


def takes_a_minute(settings: PretrainSettings) -> bool:
    """Whether a run is likely to take more than a minute, by a typical speed."""
    return settings.planned_flops() > 60 * _typical_speed(settings)


def with_recipe(settings: PretrainSettings, request: PretrainRequest, recipe: Recipe) -> PretrainSettings:
    """The settings of the recipe, except for the batch and learning rate of a run given in minutes, which are measured
    first (`with_budget_batch`). Settings of the user are kept, and with them the settings that depend on them."""
    requested = request.all_overrides()
    if recipe == "published":
        return settings
    tokens = _budget(request, settings)
    overrides = _model_overrides(settings, requested) | _objective_overrides(settings, requested)
    if not settings.reads_documents and not _has(requested, "data.length", "data.short_", "data.repeat_"):
        overrides["data.repeat_positions"] = True
        if tokens < FEW_TOKENS:
            length = min(SHORTEST_LENGTH if tokens < VERY_FEW_TOKENS else SHORT_LENGTH, settings.data.length)
            overrides |= {"data.short_length": length, "data.short_fraction": 1.0}
    if not chooses_optimizer(requested):
        muon = {"optimizer.name": "muon", "optimizer.beta1": 0.95, "optimizer.bias_correction": True}
        if settings.optimizer.max_grad_norm == 0:
            muon["optimizer.max_grad_norm"] = 1.0
        overrides |= {name: value for name, value in muon.items() if name not in requested}
    if not _has(requested, "schedule.warmup", "schedule.decay", "schedule.min", "schedule.power"):
        overrides |= {
            "schedule.warmup_steps": None,
            "schedule.warmup_fraction": 0.05,
            "schedule.decay_in_warmup": False,
            "schedule.decay": "polynomial",
            "schedule.min_lr_ratio": 0.0,
            "schedule.decay_fraction": 1.0,
        }
    if "batch.first_tokens" not in requested:
        overrides["batch.first_tokens"] = None
    settings = configuration.with_overrides(settings, overrides)
    return settings if request.minutes is not None else with_budget_batch(settings, tokens, requested)


def with_repeated_text(
    settings: PretrainSettings, request: PretrainRequest, recipe: Recipe, corpora: Corpora
) -> PretrainSettings:
    """The settings for these corpora: a GPT with as many parameters as they have tokens that reads them many times
    would memorise them. Dropout and other cuts of the text in each epoch delay that."""
    is_repeated = _is_repeated(settings, _budget(request, settings), corpora, MANY_EPOCHS)
    if recipe == "published" or not settings.reads_documents or not is_repeated:
        return settings
    requested = request.all_overrides()
    overrides: dict[str, Any] = {}
    if not _has(requested, *(f"model.{name}" for name in DROPOUTS)):
        overrides |= REPEATED_DROPOUTS
    if "data.shift_chunks" not in requested:
        overrides["data.shift_chunks"] = True
    return configuration.with_overrides(settings, overrides)


def with_repeated_weight_decay(
    settings: PretrainSettings, request: PretrainRequest, recipe: Recipe, corpora: Corpora
) -> PretrainSettings:
    """Stronger weight decay for a model that reads its text many times. A weight decays to 1/e in 1 / (lr x weight
    decay) steps; the best weight decay makes that the same number of epochs in runs of any length."""
    if recipe == "published" or not _takes_weight_decay(request.all_overrides()):
        return settings
    many, (epochs, largest) = (MANY_ENCODER_EPOCHS, ENCODER_TOKENS_PER_PARAMETER), ENCODER_DECAY
    if settings.reads_documents:
        many, (epochs, largest) = (MANY_EPOCHS, 1), GPT_DECAY
    if not _is_repeated(settings, _scheduled(settings), corpora, *many):
        return settings
    optimizer, steps_per_epoch = settings.optimizer, _num_tokens(corpora) / settings.batch.mean_tokens
    weight_decay = min(largest, 1 / (optimizer.lr * epochs * steps_per_epoch))
    chosen = max(optimizer.weight_decay, float(f"{weight_decay:.2g}"))
    return configuration.with_overrides(settings, {"optimizer.weight_decay": chosen})


def _is_repeated(
    settings: PretrainSettings, tokens: float, corpora: Corpora, many_epochs: int, tokens_per_parameter: int = 1
) -> bool:
    """Whether a run of `tokens` reads the corpora `many_epochs` times, and they have at most so many tokens per
    parameter of the model that it could memorise them."""
    num_tokens = _num_tokens(corpora)
    model = dataclasses.replace(settings.model, vocab_size=corpora[0][0].tokenizer.vocab_size)
    return tokens >= many_epochs * num_tokens and num_tokens <= tokens_per_parameter * model.num_matrix_parameters


def _num_tokens(corpora: Corpora) -> int:
    return sum(corpus.num_tokens for corpus, _ in corpora)


def _has(overrides: Mapping[str, Any], *prefixes: str) -> bool:
    return any(name.startswith(prefixes) for name in overrides)


def chooses_optimizer(overrides: Mapping[str, Any]) -> bool:
    """Whether the user has set the optimizer, or its learning rate or betas, which depend on it."""
    return _has(overrides, "optimizer.name", "optimizer.lr", "optimizer.beta")


def _takes_weight_decay(requested: Mapping[str, Any]) -> bool:
    """Whether the recipe sets the weight decay, whose values are for its own optimizer."""
    return not chooses_optimizer(requested) and "optimizer.weight_decay" not in requested


def _model_overrides(settings: PretrainSettings, requested: Mapping[str, Any]) -> dict[str, Any]:
    """No dropout, and a wider initialisation of narrow models."""
    names = {field.name for field in dataclasses.fields(settings.model)}
    no_dropout = {f"model.{name}": 0.0 for name in DROPOUTS & names}
    overrides = {} if _has(requested, *no_dropout) else no_dropout
    return overrides if _has(requested, "model.init_") else overrides | {"model.init_by_width": True}


def _objective_overrides(settings: PretrainSettings, requested: Mapping[str, Any]) -> dict[str, Any]:
    """Without a sentence task, which keeps a short run at word frequencies; ELECTRA with the correction loss, and
    detection weighted so that it does not drown the other losses."""
    objective = settings.objective
    if isinstance(objective, MlmSettings) and not _has(requested, "objective.sentence", "data.layout"):
        return {"objective.sentence": "none"}
    if isinstance(objective, RtdSettings) and objective.discriminator_task.startswith("rtd"):
        if "objective.correction" in requested:
            return {}
        return {"objective.correction": 1.0} | ({} if "objective.weight" in requested else {"objective.weight": 5.0})
    return {}


def with_budget_batch(settings: PretrainSettings, tokens: float, requested: Mapping[str, Any]) -> PretrainSettings:
    """The settings with a batch size for the training `tokens` of the run, and the learning rate. The batch size stays
    if the request has it; if it has the number of steps, the batch is at most the largest of the recipe."""
    overrides: dict[str, Any] = {}
    batch_tokens, largest = settings.batch.tokens, LARGEST_GPT_BATCH if settings.reads_documents else LARGEST_BATCH
    if "batch.tokens" not in requested and "schedule.steps" in requested:
        batch_tokens = overrides["batch.tokens"] = min(batch_tokens, largest)
    elif "batch.tokens" not in requested:
        batch_tokens = min(largest, max(SMALLEST_BATCH, 2 ** round(math.log2(max(1.0, tokens / STEPS_WANTED)))))
        overrides |= {"batch.tokens": batch_tokens, "schedule.steps": max(1, math.ceil(tokens / batch_tokens))}
    if settings.reads_documents and "data.length" not in requested:
        overrides["data.length"] = min(settings.data.length, max(SHORT_LENGTH, batch_tokens // SEQUENCES_PER_BATCH))
    if not chooses_optimizer(requested):
        overrides["optimizer.lr"] = next(lr for width, lr in LEARNING_RATES.items() if settings.model.width >= width)
    return configuration.with_overrides(settings, overrides)


def description(settings: PretrainSettings, request: PretrainRequest) -> str:
    """One line for the log: what the budget recipe sets and how to get the published settings."""
    published = preset(request.preset)
    parts = [f"{settings.optimizer.name} at {settings.optimizer.lr:g}", f"batches of {settings.batch.tokens:,} tokens"]
    if settings.model.dropout != published.model.dropout:
        parts.append(f"dropout {settings.model.dropout:g}" if settings.model.dropout else "no dropout")
    if settings.optimizer.weight_decay != published.optimizer.weight_decay:
        parts.append(f"weight decay {settings.optimizer.weight_decay:g}")
    if (longest := max(settings.lengths)) < settings.model.max_positions:
        beyond = "repeat those before" if settings.data.repeat_positions else "stay untrained"
        parts.append(f"length {longest} (positions beyond it {beyond})")
    if getattr(settings.objective, "sentence", "none") != getattr(published.objective, "sentence", "none"):
        parts.append("no sentence task")
    if getattr(settings.objective, "correction", 0) and not published.objective.correction:
        parts.append(f"correction loss, detection weighted {settings.objective.weights['rtd']:g}")
    why = "" if request.recipe == "budget" else ", as this run is far shorter than the published one"
    return f"recipe budget{why}: {', '.join(parts)}; recipe='published' keeps the published settings"
