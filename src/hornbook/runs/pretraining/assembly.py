"""Builds the network of a run, its objective and its training job. The network is a single model, ELECTRA's generator
and discriminator, or a student with its teacher."""

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from torch import nn

from hornbook.batch import Batch
from hornbook.interop.folder import load_folder
from hornbook.interop.vocabulary import extend_vocabulary
from hornbook.models import registry
from hornbook.models.electra import GENERATOR, ElectraPair, generator_config
from hornbook.models.transformer import Transformer, TransformerConfig
from hornbook.objectives.clm import ClmObjective, ClmSettings, HybridObjective
from hornbook.objectives.distillation.objective import CorpusDistillation, DistillationSettings, pair_for
from hornbook.objectives.ernie import ErnieObjective, ErnieSettings
from hornbook.objectives.masking import Masking
from hornbook.objectives.mlm import MlmObjective
from hornbook.objectives.rtd import RtdObjective, RtdSettings
from hornbook.runs.model_files import load_models, save_models, saved_models
from hornbook.runs.pretraining.batches import BatchMaker, Corpora, held_out_batches
from hornbook.runs.pretraining.settings import PretrainSettings
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.job import TrainingJob
from hornbook.train.objective import Objective, TrainingModule
from hornbook.train.randomness import compile_hashing
from hornbook.train.runtime import Runtime
from hornbook.train.validation import validate


@dataclass(frozen=True)
class PreparedRun:
    """A run that can be trained. `held_out` are its validation batches."""

    settings: PretrainSettings
    corpora: Corpora
    runtime: Runtime
    job: TrainingJob
    held_out: list[Batch]

    @classmethod
    def build(
        cls,
        settings: PretrainSettings,
        corpora: Corpora,
        model: nn.Module,
        runtime: Runtime,
        teacher_model: Transformer | None = None,
    ) -> Self:
        tokenizer = corpora[0][0].tokenizer
        objective = objective_of(settings, tokenizer, teacher_model, model)
        if "clm" in model.heads:  # the folder of a GPT adds no special tokens to texts
            tokenizer = tokenizer.without_special_tokens()
        if runtime.compiles:
            model.compile_parts()
            objective.compile()
            compile_hashing()
        save, load = partial(save_models, network=model, tokenizer=tokenizer), partial(load_models, network=model)
        # The learning rate of ELECTRA's generator may differ from that of its discriminator.
        ratio = getattr(settings.objective, "generator_lr_ratio", 1.0)
        lr_multiplier = None if ratio == 1 else lambda name: ratio if name.startswith(f"{GENERATOR}.") else 1.0
        module = TrainingModule(model, objective)
        job = TrainingJob(module, None, None, save, load, lr_multiplier_of=lr_multiplier)  # still without batches
        return cls(settings, corpora, runtime, job, []).with_settings(settings)

    def with_settings(self, settings: PretrainSettings) -> Self:
        """The same model with the training and validation batches of these settings."""
        held_out, data, job = held_out_batches(settings, self.corpora), settings.data, self.job
        job = dataclasses.replace(
            job,
            make_batch=BatchMaker(settings, self.corpora),
            validate=partial(validate, job.module, held_out, self.runtime) if held_out else None,
            new_phase_at=data.num_short_steps(settings.schedule.steps) if data.short_length < data.length else None,
            begin_phase=partial(repeat_positions, job.model, data.short_length) if data.repeat_positions else None,
        )
        return dataclasses.replace(self, settings=settings, job=job, held_out=held_out)

    @property
    def num_held_out_tokens(self) -> int:
        return sum(batch.num_tokens for batch in self.held_out)


def new_network(settings: PretrainSettings, teacher_model: Transformer | None = None) -> nn.Module:
    """The network of a run, without initialised weights."""
    config, objective, model_class = settings.model, settings.objective, registry.model_class_of(settings.model)
    if isinstance(objective, DistillationSettings):
        (recipe,) = objective.stages(is_task=False)
        has_logits = any(match.quantity == "logits" for match in recipe.matches)
        head = model_class.vocabulary_head
        if has_logits and head not in teacher_model.heads:
            raise ValueError(
                f"the teacher has no {head} head, so it has no logits over the vocabulary to learn from: train one "
                "first (pre-train with init_from=), use objective.recipe=tinybert, or set objective.without=logits"
            )
        student = model_class(config, (head,) if has_logits or recipe.hard_label_weight else ())
        return pair_for(recipe, student, teacher_model)
    if isinstance(objective, RtdSettings):
        generator = generator_config(config, objective.generator_size, objective.generator_layers)
        is_adversarial = objective.generator_objective == "adversarial"
        return ElectraPair(config, generator, objective.shared, objective.heads, is_adversarial)
    if isinstance(objective, ClmSettings):
        return model_class(config, ("clm",))
    heads = ("mlm",) if objective.sentence == "none" else ("pooler", "mlm", "sentence")
    if isinstance(objective, ErnieSettings) and objective.entity_weight:
        heads += ("entity",)
    return model_class(config, heads)


def objective_of(
    settings: PretrainSettings,
    tokenizer: Tokenizer,
    teacher_model: Transformer | None = None,
    model: nn.Module | None = None,
) -> Objective:
    """The objective of a run; that of an ERNIE asks its `model` which entities have a vector."""
    objective, masking = settings.objective, None
    if not settings.masks_nothing:
        masking = Masking(settings.masking, tokenizer.vocab_size, tokenizer.mask_id, tokenizer.special_ids)
    if isinstance(objective, DistillationSettings):
        (recipe,) = objective.stages(is_task=False)
        return CorpusDistillation(masking, recipe, settings.model, teacher_model.config, objective.soft_targets)
    if masking is None:
        return ClmObjective()
    if settings.mlm_fraction:
        return HybridObjective(masking, settings.mlm_fraction)
    if isinstance(objective, RtdSettings):
        return RtdObjective(masking, objective)
    if isinstance(objective, ErnieSettings):
        return ErnieObjective(masking, objective, model.has_vector)
    return MlmObjective(masking, objective.sentence, objective.sentence_weight)


def repeat_positions(model: nn.Module, num_trained: int) -> None:
    """Sets the position embeddings from `num_trained` on to repetitions of those before, in every encoder."""
    for encoder in saved_models(model).values():
        encoder.embeddings.repeat_positions(num_trained)


def initialize_from(model: nn.Module, folder: Path, tokenizer: Tokenizer) -> list[str]:
    """Loads the weights of a trained folder into the network, extending the embeddings if `tokenizer` has more tokens.
    Returns the names of the parts that the folder lacks, which stay newly initialised."""
    newly_initialized = []
    for name, encoder in reversed(saved_models(model).items()):
        has_folder = (Path(folder) / name / "config.json").exists()
        trained, old_tokenizer = load_folder(Path(folder) / name if has_folder else folder)
        if not has_folder and not can_generate(trained, encoder.config):
            newly_initialized.append(name)
            continue
        if tokenizer.fingerprint != old_tokenizer.fingerprint:
            trained = extend_vocabulary(trained, old_tokenizer, tokenizer)
        old, new = trained.config, encoder.config
        if (old.width, old.num_layers) != (new.width, new.num_layers):
            raise ValueError(
                f"the generator in {folder} has {old.num_layers} layers of width {old.width}, not {new.num_layers} of "
                f"width {new.width}: set objective.generator_size and objective.generator_layers to the values it was "
                "trained with"
            )
        missing, _ = encoder.load_state_dict(trained.state_dict(), strict=False)
        new_heads = {parameter.partition(".")[0] for parameter in missing} & {*encoder.heads}
        newly_initialized += [f"{head} head" for head in sorted(new_heads)]
        if any(parameter.startswith("blocks.") for parameter in missing):  # a BERT's, which an ERNIE starts from
            newly_initialized.append("the layers that read entities")
    return newly_initialized


def can_generate(trained: Transformer, generator: TransformerConfig) -> bool:
    """Whether a discriminator has the size of this generator and predicts masked tokens."""
    has_size = (trained.config.width, trained.config.num_layers) == (generator.width, generator.num_layers)
    return has_size and "mlm" in trained.heads


def masked_lm_of(model: nn.Module) -> Transformer | None:
    """The encoder that predicts masked tokens, or None (a left-to-right model does not)."""
    network = model.generator if isinstance(model, ElectraPair) else saved_models(model)[""]
    return network if "mlm" in network.heads and network.config.direction == "bidirectional" else None
