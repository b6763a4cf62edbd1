"""All settings of a run, from its request. `resolve_settings` is the order in which they are found; no step overwrites
what the user set:

    requested_settings   the preset with the overrides, and the recipe: published settings or those for a short run
    settings_for_model   the size of the model of the corpora, of `init_from` or of the teacher, then recipes.py
    (minutes.py)         of a run given in minutes, the batch and the number of steps, which are measured
    final_settings       what depends on the number of steps: warmup, weight decay, validations
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

from torch import nn

from hornbook import config as configuration
from hornbook.files import read_json
from hornbook.graph.embedding.vectors import GraphVectors
from hornbook.graph.graph import Graph
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import model_folder
from hornbook.interop.vocabulary import extend_vocabulary
from hornbook.lifecycle.run_folder import Log, ignore
from hornbook.models import registry
from hornbook.models.electra import GENERATOR
from hornbook.models.ernie import ErnieConfig
from hornbook.models.gpt import Gpt
from hornbook.models.transformer import Transformer
from hornbook.objectives.rtd import RtdSettings
from hornbook.runs.distillation.teacher import Teacher, refuse_other_vocabulary
from hornbook.runs.pretraining.assembly import can_generate
from hornbook.runs.pretraining.batches import Corpora, held_out_batches, open_corpora
from hornbook.runs.pretraining.presets import preset_settings, presets_of
from hornbook.runs.pretraining.recipes import (
    Recipe,
    choose_recipe,
    chooses_optimizer,
    with_recipe,
    with_repeated_text,
    with_repeated_weight_decay,
)
from hornbook.runs.pretraining.record import PretrainRequest
from hornbook.runs.pretraining.settings import PretrainSettings
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.step_timing import FORWARD_FRACTION

# Model settings that may differ from the `init_from` model; all others must match it.
OVERRIDABLE_WITH_BASE = {
    *("model.dropout", "model.attention_dropout", "model.embedding_dropout", "model.head_dropout"),
    *("model.init_std", "model.init_by_width", "model.fusion", "model.trains_entities"),
}
ADAPTATION_LR = 1e-4  # largest learning rate of AdamW for a model that is trained already
MAX_WARMUP = 0.1  # largest fraction of the steps that a published warmup in steps may take
NUM_VALIDATIONS, VALIDATING_FRACTION = 20, 0.1  # validations per run, and the largest fraction of its time for them
# A discriminator that is its own generator, and keeps filling in masks (docs/builtin-models.md).
OWN_GENERATOR = {
    "objective.generator_size": 1.0,
    "objective.shared": "all",
    "objective.correction": 1.0,
    "objective.unreplaced_mask_fraction": 0.15,
}


def resolve_settings(request: PretrainRequest, teacher: Teacher | None = None) -> PretrainSettings:
    """The settings that a run would have, except for those that it measures (`minutes`) or, without corpora, that
    depend on these; nothing is trained. As in a run, the chunks of the corpora are computed once and cached in them."""
    settings, recipe = requested_settings(request)
    corpora = open_corpora(request.corpora, settings) if request.corpora else []
    settings = settings_for_model(settings, recipe, corpora, request, teacher, ignore)
    num_held_out = sum(batch.num_tokens for batch in held_out_batches(settings, corpora)) if corpora else 0
    return final_settings(settings, recipe, corpora, request, num_held_out, ignore)


def requested_settings(request: PretrainRequest) -> tuple[PretrainSettings, Recipe]:
    """The published settings with the overrides, before corpora and teacher are known, and the recipe to apply."""
    settings = preset_settings(request.preset, request.all_overrides(), request.teacher is not None)
    if request.tokens is not None:
        steps = max(1, math.ceil(request.tokens / settings.batch.mean_tokens))
        settings = configuration.with_overrides(settings, {"schedule.steps": steps})
    return settings, choose_recipe(request, settings)


def settings_for_model(
    settings: PretrainSettings,
    recipe: Recipe,
    corpora: Corpora,
    request: PretrainRequest,
    teacher: Teacher | None,
    log: Log,
) -> PretrainSettings:
    """The settings with the model that is to be trained, and those of the recipe for this model and these corpora."""
    settings = _fitted_settings(settings, corpora[0][0].tokenizer if corpora else None, request, teacher, log)
    settings = with_recipe(settings, request, recipe)
    return with_repeated_text(settings, request, recipe, corpora) if corpora else settings


def final_settings(
    settings: PretrainSettings,
    recipe: Recipe,
    corpora: Corpora,
    request: PretrainRequest,
    num_held_out_tokens: int,
    log: Log,
) -> PretrainSettings:
    """The settings with those that depend on the final number of steps."""
    settings = _with_warmup_that_fits(settings, request, log)
    if not corpora:
        return settings
    settings = with_repeated_weight_decay(settings, request, recipe, corpora)
    return _with_validations(settings, num_held_out_tokens)


def _fitted_settings(
    settings: PretrainSettings, tokenizer: Tokenizer | None, request: PretrainRequest, teacher: Teacher | None, log: Log
) -> PretrainSettings:
    """The settings with the vocabulary of the corpora, if their `tokenizer` is known, and with the shape of the model
    of the `init_from` model, or fitted to the teacher."""
    if teacher is not None:
        return _fitted_to_teacher(settings, tokenizer, teacher)
    if request.init_from is not None:
        return _with_mask(_fitted_to_base(settings, tokenizer, request, log), tokenizer)
    settings = _fitted_to_graph(settings, request, None)
    if tokenizer is None:
        return settings
    return _with_mask(_with_vocabulary(settings, tokenizer.vocab_size, tokenizer), tokenizer)


def _with_vocabulary(settings: PretrainSettings, vocab_size: int, tokenizer: Tokenizer) -> PretrainSettings:
    settings = configuration.with_overrides(settings, {"model.vocab_size": vocab_size})
    config = registry.model_class_of(settings.model).for_tokenizer(settings.model, tokenizer.pad_id, tokenizer.eos_id)
    return dataclasses.replace(settings, model=config)


def _with_mask(settings: PretrainSettings, tokenizer: Tokenizer | None) -> PretrainSettings:
    """The settings with the id of the mask token, for a model that also learns from masked text."""
    if tokenizer is None or not settings.mlm_fraction:
        return settings
    return configuration.with_overrides(settings, {"model.mask_id": tokenizer.mask_id})


def _fitted_to_base(
    settings: PretrainSettings, tokenizer: Tokenizer | None, request: PretrainRequest, log: Log
) -> PretrainSettings:
    folder = model_folder(request.init_from)
    trained, old_tokenizer = load_folder(folder)
    model_class = registry.model_class_of(settings.model)
    if type(trained) is not model_class and trained.model_type not in model_class.initializes_from:
        raise ValueError(
            f"{request.init_from} is a model of the family {trained.model_type}, but {request.preset} is not: "
            f"choose a preset of that family, such as {presets_of(trained.model_type)[0]}"
        )
    if tokenizer is not None and tokenizer.fingerprint != old_tokenizer.fingerprint:
        num_new = tokenizer.vocab_size - old_tokenizer.vocab_size
        trained = extend_vocabulary(trained, old_tokenizer, tokenizer)
        if num_new:
            log(f"{num_new:,} new words are initialised with the mean of their old tokens")
    settings = _with_shape_of(trained, settings, request)
    settings = _fitted_to_graph(settings, request, getattr(trained.config, "graph", None))
    overrides = _generator_settings_for(trained, folder, settings, request.overrides)
    if overrides is OWN_GENERATOR:
        log(f"{request.init_from} has no generator, but fills in masks: it generates replacements itself")
    settings = configuration.with_overrides(settings, overrides)
    return _with_lower_lr(settings, request, log)


def _with_lower_lr(settings: PretrainSettings, request: PretrainRequest, log: Log) -> PretrainSettings:
    """The learning rate of a model that is trained already, unless the request chooses the recipe or the optimizer:
    that of a new model would undo much of what it has learned."""
    published, optimizer = settings.optimizer.lr, settings.optimizer.name
    is_chosen = request.recipe is not None or chooses_optimizer(request.all_overrides())
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


def _with_warmup_that_fits(settings: PretrainSettings, request: PretrainRequest, log: Log) -> PretrainSettings:
    """Limits a published warmup in steps to a tenth of this run, which may be much shorter than the published one."""
    published, limit = settings.schedule.warmup_steps, round(MAX_WARMUP * settings.schedule.steps)
    if published is None or published <= limit or "schedule.warmup_steps" in request.overrides:
        return settings
    log(f"the published warmup of {published:,} steps is reduced to {limit:,}, a tenth of this run")
    return configuration.with_overrides(settings, {"schedule.warmup_steps": limit})


def _fitted_to_teacher(settings: PretrainSettings, tokenizer: Tokenizer | None, teacher: Teacher) -> PretrainSettings:
    """The settings of a student on plain text with the teacher's vocabulary size; raises a `ValueError` if the student
    cannot learn from the teacher. `tokenizer`: that of the corpora, if they are known."""
    _refuse_other_objective(settings, teacher)  # before the vocabularies, which differ for the same reason
    tokenizer = tokenizer or teacher.tokenizer
    # Without special tokens, as a GPT's folder adds none and the tokenizer of its corpus may.
    if len({each.without_special_tokens().fingerprint for each in (tokenizer, teacher.tokenizer)}) > 1:
        refuse_other_vocabulary(teacher, tokenizer, "the corpus")
    positions = teacher.model.config.max_positions
    if max(settings.lengths) > positions:
        raise ValueError(f"the teacher reads at most {positions} tokens: set data.length={positions}")
    # The teacher's vocabulary may be larger than its tokenizer's; both models need a logit for each of its tokens.
    return _with_vocabulary(settings, teacher.model.config.vocab_size, tokenizer)


def _refuse_other_objective(settings: PretrainSettings, teacher: Teacher) -> None:
    """Raises a ValueError if one of student and teacher predicts next tokens and the other masked ones."""
    direction, is_gpt = teacher.model.config.direction, isinstance(teacher.model, Gpt)
    if settings.reads_documents != is_gpt:
        student = registry.model_class_of(settings.model)
        fix = "distilgpt2 or another GPT as the student" if is_gpt else "an encoder as the student"
        raise ValueError(
            f"on plain text a GPT predicts next tokens and an encoder masked ones, so {student.described()} cannot "
            f"learn from {teacher.model.described()}: use {fix}, or distill on a task (by task and data)"
        )
    if settings.model.direction != direction:
        raise ValueError(
            f"the teacher has direction={direction} and the student {settings.model.direction}, so one predicts next "
            f"tokens and the other masked ones: set model.direction={direction} (with a BERT or RoBERTa preset as the "
            "student)"
        )


def _fitted_to_graph(settings: PretrainSettings, request: PretrainRequest, base_graph: str | None) -> PretrainSettings:
    """The settings with the number of entities of an ERNIE's graph and the width of their vectors, as far as the
    request names them. `base_graph`: the fingerprint of the graph of an ERNIE to start from, which must be the same."""
    model = settings.model
    if not isinstance(model, ErnieConfig):
        if request.graph or request.vectors:
            option = "graph" if request.graph else "vectors"
            raise ValueError(f"{option}= is for ERNIE: use a preset such as ernie-base, or leave it out")
        return settings
    if request.graph is None:
        if request.vectors is not None:
            raise ValueError("vectors= needs graph=, the graph that they were trained on")
        return settings
    graph = Graph(request.graph)
    if base_graph is not None:
        if base_graph != graph.fingerprint:
            raise ValueError(f"{request.init_from} was trained with another graph than {request.graph}: give that one")
        if request.vectors is not None:
            raise ValueError(f"{request.init_from} has entity vectors already: leave out vectors=")
        return settings
    overrides = {"model.graph": graph.fingerprint, "model.num_entities": graph.num_entities}
    if request.vectors is not None:
        width = GraphVectors(request.vectors, graph).entities.shape[1]
        if "model.entity_width" in request.overrides and model.entity_width != width:
            raise ValueError(
                f"model.entity_width={model.entity_width}, but the vectors in {request.vectors} have {width} numbers: "
                "leave it out"
            )
        overrides["model.entity_width"] = width
        if width % model.entity_heads and "model.entity_heads" not in request.overrides:
            overrides["model.entity_heads"] = next(heads for heads in (2, 1) if width % heads == 0)
    elif model.entity_vectors == "graph":
        raise ValueError(
            "ERNIE reads entity vectors: make them with 'hornbook graph embed' and give vectors=, or set "
            "model.entity_vectors=random"
        )
    return configuration.with_overrides(settings, overrides)


def check_corpora_linked(settings: PretrainSettings, corpora: Corpora) -> None:
    """Raises a `ValueError` if there is no graph, or if a corpus is not linked to it."""
    if not isinstance(settings.model, ErnieConfig):
        return
    if settings.model.graph is None:
        raise ValueError("ERNIE needs a graph with vectors: give graph= and vectors=")
    for corpus, _ in corpora:
        if corpus.graph_fingerprint != settings.model.graph:
            problem = "is not linked to a graph" if corpus.graph_fingerprint is None else "is linked to another graph"
            raise ValueError(
                f"the corpus {corpus.folder} {problem}: build it with 'hornbook corpus build ... --graph GRAPH', with "
                "the graph of the model"
            )


def _generator_settings_for(
    trained: Transformer, folder: Path, settings: PretrainSettings, overrides: dict
) -> dict[str, Any]:
    """The overrides that match a trained discriminator in `folder`: the size of the generator saved with it or, if
    there is none but it fills in masks itself, as the built-in models do, that it is its own generator. Empty if the
    user overrides them."""
    if not isinstance(settings.objective, RtdSettings):
        return {}
    file = Path(folder) / GENERATOR / "config.json"
    if file.exists():
        if {"objective.generator_size", "objective.generator_layers"} & overrides.keys():
            return {}
        hf_config = read_json(file)
        return {
            "objective.generator_size": hf_config["hidden_size"] / settings.model.width,
            "objective.generator_layers": hf_config["num_hidden_layers"],
        }
    if any(name.startswith("objective.") for name in overrides) or not can_generate(trained, settings.model):
        return {}
    return OWN_GENERATOR


def _with_validations(settings: PretrainSettings, num_held_out_tokens: int) -> PretrainSettings:
    """The settings with an interval of validations whose cost is small compared with that of training."""
    if settings.validation.every_steps is not None:
        return settings
    steps = settings.schedule.steps
    validation_cost = num_held_out_tokens * FORWARD_FRACTION  # in tokens of training
    every = steps_between(steps, num_validations(steps * settings.batch.mean_tokens, validation_cost))
    return configuration.with_overrides(settings, {"validation.every_steps": every})


def num_validations(run_cost: float, validation_cost: float) -> int:
    """Default number of validations: twenty, or as many as cost a tenth of the run (seconds or tokens); at least two.

    >>> num_validations(1000, 1), num_validations(1000, 20), num_validations(10, 20)
    (20, 5, 2)
    """
    return min(NUM_VALIDATIONS, max(2, int(VALIDATING_FRACTION * run_cost / max(validation_cost, 1e-9))))


def steps_between(steps: int, num: int) -> int:
    return max(1, min(1000, steps // num))
