"""Settings that follow from the corpora of a run, the model that it starts from, its graph or its teacher."""

import dataclasses

from torch import nn

from hornbook import config as configuration
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import model_folder
from hornbook.interop.vocabulary import extend_vocabulary
from hornbook.lifecycle.run_folder import Log
from hornbook.models import registry
from hornbook.runs.distillation.teacher import Teacher, fitted_to_teacher
from hornbook.runs.pretraining.assembly import OWN_GENERATOR, generator_settings_for
from hornbook.runs.pretraining.entities import fitted_to_graph
from hornbook.runs.pretraining.presets import presets_of
from hornbook.runs.pretraining.record import PretrainRequest
from hornbook.runs.pretraining.settings import PretrainSettings
from hornbook.text.tokenizer import Tokenizer

# Model settings that may differ from the `init_from` model; all others must match it.
OVERRIDABLE_WITH_BASE = {
    *("model.dropout", "model.attention_dropout", "model.embedding_dropout", "model.head_dropout"),
    *("model.init_std", "model.init_by_width", "model.fusion", "model.trains_entities"),
}
ADAPTATION_LR = 1e-4  # largest learning rate of AdamW for a model that is trained already
MAX_WARMUP = 0.1  # largest share of the steps that a published warmup in steps may take


def fitted_settings(
    settings: PretrainSettings, tokenizer: Tokenizer | None, request: PretrainRequest, teacher: Teacher | None, log: Log
) -> PretrainSettings:
    """The settings with the vocabulary of the corpora, if their `tokenizer` is known, and with the shape of the model
    of the `init_from` model, or fitted to the teacher."""
    if teacher is not None:
        return fitted_to_teacher(settings, tokenizer, teacher)
    if request.init_from is not None:
        return _with_mask(_fitted_to_base(settings, tokenizer, request, log), tokenizer)
    settings = fitted_to_graph(settings, request, None)
    if tokenizer is None:
        return settings
    settings = configuration.with_overrides(settings, {"model.vocab_size": tokenizer.vocab_size})
    config = registry.family_of(settings.model).for_tokenizer(settings.model, tokenizer.pad_id, tokenizer.eos_id)
    return _with_mask(dataclasses.replace(settings, model=config), tokenizer)


def _with_mask(settings: PretrainSettings, tokenizer: Tokenizer | None) -> PretrainSettings:
    """The settings in which a model that also learns from masked text knows its mask token."""
    if tokenizer is None or not settings.mlm_fraction:
        return settings
    return configuration.with_overrides(settings, {"model.mask_id": tokenizer.mask_id})


def _fitted_to_base(
    settings: PretrainSettings, tokenizer: Tokenizer | None, request: PretrainRequest, log: Log
) -> PretrainSettings:
    folder = model_folder(request.init_from)
    trained, old_tokenizer = load_folder(folder)
    family = registry.family_of(settings.model)
    if type(trained) is not family and trained.family not in family.initializes_from:
        raise ValueError(
            f"{request.init_from} is a model of the family {trained.family}, but {request.preset} is not: "
            f"choose a preset of that family, such as {presets_of(trained.family)[0]}"
        )
    if tokenizer is not None and tokenizer.fingerprint != old_tokenizer.fingerprint:
        num_new = tokenizer.vocab_size - old_tokenizer.vocab_size
        trained = extend_vocabulary(trained, old_tokenizer, tokenizer)
        if num_new:
            log(f"{num_new:,} new words are initialised with the mean of their old tokens")
    settings = _with_shape_of(trained, settings, request)
    settings = fitted_to_graph(settings, request, getattr(trained.config, "graph", None))
    overrides = generator_settings_for(trained, folder, settings, request.overrides)
    if overrides is OWN_GENERATOR:
        log(f"{request.init_from} has no generator, but fills in masks: it generates replacements itself")
    settings = configuration.with_overrides(settings, overrides)
    return _with_lower_lr(settings, request, log)


def _with_lower_lr(settings: PretrainSettings, request: PretrainRequest, log: Log) -> PretrainSettings:
    """The learning rate of a model that is trained already, unless the request chooses the recipe or an optimizer
    setting: that of a new model would undo much of what it has learned."""
    published, optimizer = settings.optimizer.lr, settings.optimizer.name
    is_chosen = request.recipe is not None or any(name.startswith("optimizer.") for name in request.all_overrides())
    if is_chosen or optimizer != "adamw" or published <= ADAPTATION_LR:
        return settings
    log(
        f"learning rate {ADAPTATION_LR:g} instead of {published:g}, which is for new models; "
        f"optimizer.lr={published:g} restores it"
    )
    return configuration.with_overrides(settings, {"optimizer.lr": ADAPTATION_LR})


def _with_shape_of(trained: nn.Module, settings: PretrainSettings, request: PretrainRequest) -> PretrainSettings:
    """The settings with the shape of a trained model. Overriding its shape is an error; dropouts may differ."""
    shape = {setting.name: setting.value for setting in configuration.iter_settings(trained.config, "model.")}
    for name in request.overrides:
        if name in OVERRIDABLE_WITH_BASE:
            shape.pop(name, None)
        elif name in shape and getattr(settings.model, name.removeprefix("model.")) != shape[name]:
            raise ValueError(
                f"{name} is {shape[name]} in the model that it starts from and cannot be overridden: leave it out"
            )
    positions = trained.config.max_positions
    shorter = {f"data.{name}": min(getattr(settings.data, name), positions) for name in ("length", "short_length")}
    return configuration.with_overrides(settings, shape | shorter)


def with_warmup_that_fits(settings: PretrainSettings, request: PretrainRequest, log: Log) -> PretrainSettings:
    """Limits a published warmup in steps to a tenth of this run, which may be much shorter than the published one."""
    published, limit = settings.schedule.warmup_steps, round(MAX_WARMUP * settings.schedule.steps)
    if published is None or published <= limit or "schedule.warmup_steps" in request.overrides:
        return settings
    log(f"the published warmup of {published:,} steps is reduced to {limit:,}, a tenth of this run")
    return configuration.with_overrides(settings, {"schedule.warmup_steps": limit})
