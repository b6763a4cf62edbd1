"""Settings that follow from the corpora of a run, the model that it starts from, its graph or its teacher."""

import dataclasses

from torch import nn

from hornbook import config as configuration
from hornbook.graph.embedding.vectors import open_vectors
from hornbook.graph.graph import open_graph
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import model_folder
from hornbook.interop.vocabulary import extend_vocabulary
from hornbook.lifecycle.run_folder import Log
from hornbook.models import registry
from hornbook.models.ernie import Ernie, ErnieConfig
from hornbook.models.gpt import Gpt
from hornbook.runs.distillation.teacher import Teacher, refuse_other_vocabulary
from hornbook.runs.pretraining.assembly import OWN_GENERATOR, generator_settings_for
from hornbook.runs.pretraining.batches import Corpora
from hornbook.runs.pretraining.presets import presets_of
from hornbook.runs.pretraining.recipes import chooses_optimizer
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
        return _fitted_to_teacher(settings, tokenizer, teacher)
    if request.init_from is not None:
        return _with_mask(_fitted_to_base(settings, tokenizer, request, log), tokenizer)
    settings = _fitted_to_graph(settings, request, None)
    if tokenizer is None:
        return settings
    return _with_mask(_with_vocabulary(settings, tokenizer.vocab_size, tokenizer), tokenizer)


def _with_vocabulary(settings: PretrainSettings, vocab_size: int, tokenizer: Tokenizer) -> PretrainSettings:
    settings = configuration.with_overrides(settings, {"model.vocab_size": vocab_size})
    config = registry.family_of(settings.model).for_tokenizer(settings.model, tokenizer.pad_id, tokenizer.eos_id)
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
    settings = _fitted_to_graph(settings, request, getattr(trained.config, "graph", None))
    overrides = generator_settings_for(trained, folder, settings, request.overrides)
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


def with_warmup_that_fits(settings: PretrainSettings, request: PretrainRequest, log: Log) -> PretrainSettings:
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
        student = registry.family_of(settings.model)
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
    graph = open_graph(request.graph)
    if base_graph is not None:
        if base_graph != graph.fingerprint:
            raise ValueError(f"{request.init_from} was trained with another graph than {request.graph}: give that one")
        if request.vectors is not None:
            raise ValueError(f"{request.init_from} has entity vectors already: leave out vectors=")
        return settings
    overrides = {"model.graph": graph.fingerprint, "model.num_entities": graph.num_entities}
    if request.vectors is not None:
        width = open_vectors(request.vectors, graph).entities.shape[1]
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
        if corpus.graph != settings.model.graph:
            problem = "is not linked to a graph" if corpus.graph is None else "is linked to another graph"
            raise ValueError(
                f"the corpus {corpus.folder} {problem}: build it with 'hornbook corpus build ... --graph GRAPH', with "
                "the graph of the model"
            )


def give_vectors(model: Ernie, request: PretrainRequest) -> None:
    """Sets the entity vectors of a new model; without `vectors` they stay random."""
    if request.vectors is not None:
        model.set_entity_vectors(open_vectors(request.vectors, open_graph(request.graph)).entities)
