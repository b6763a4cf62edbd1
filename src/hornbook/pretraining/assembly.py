"""What a run trains, by its family: one model, or ELECTRA's generator and discriminator together, or a student beside
its teacher; with which objective; and how it lies on disk. ELECTRA's folder is the discriminator's, with the generator
in a folder within it. A student's is its own, with the projections in a file beside it.
"""

from collections.abc import Callable
from pathlib import Path

from torch import nn

from hornbook.files import read_json
from hornbook.interop.folder import load_folder, load_weights, read_weights, save_model
from hornbook.interop.projections import load_projections, save_projections
from hornbook.interop.vocabulary import grown
from hornbook.models import registry
from hornbook.models.electra import GENERATOR, ElectraPair, generator_config
from hornbook.models.pair import DistillationPair
from hornbook.models.transformer import Transformer
from hornbook.objectives.clm import ClmObjective, ClmSettings
from hornbook.objectives.distillation import CorpusDistillation, DistillationSettings, pair_for
from hornbook.objectives.masking import Masking
from hornbook.objectives.mlm import MlmObjective
from hornbook.objectives.rtd import RtdObjective, RtdSettings
from hornbook.pretraining.settings import PretrainSettings
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.objective import Objective


def new_network(settings: PretrainSettings, teacher: Transformer | None = None) -> nn.Module:
    """The network of a run, its weights not drawn yet."""
    config, objective = settings.model, settings.objective
    if isinstance(objective, DistillationSettings):
        (recipe,) = objective.stages(is_task=False)
        has_logits = any(match.quantity == "logits" for match in recipe.matches)
        head = registry.family_of(config).vocabulary_head
        if has_logits and head not in teacher.heads:
            raise ValueError(
                f"the teacher has no {head} head, so it has no scores over the vocabulary to learn from: train one "
                "first (hornbook pretrain --from), take objective.recipe=tinybert, or leave them out by "
                "objective.without=logits"
            )
        student = registry.family_of(config)(config, (head,) if has_logits or recipe.hard_label_weight else ())
        return pair_for(recipe, student, teacher)
    if isinstance(objective, RtdSettings):
        smaller = generator_config(config, objective.generator_size, objective.generator_layers)
        is_adversarial = objective.generator_learns == "adversarial"
        return ElectraPair(config, smaller, objective.shared, objective.heads, is_adversarial)
    if isinstance(objective, ClmSettings):
        return registry.family_of(config)(config, ("clm",))
    heads = ("mlm",) if objective.sentence == "none" else ("pooler", "mlm", "sentence")
    return registry.family_of(config)(config, heads)


def objective_of(settings: PretrainSettings, tokenizer: Tokenizer, teacher: Transformer | None = None) -> Objective:
    if settings.predicts_next and not settings.is_distilled:
        return ClmObjective()
    masking = None
    if not settings.predicts_next:
        masking = Masking(settings.masking, tokenizer.vocab_size, tokenizer.mask_id, tokenizer.special_ids)
    if isinstance(settings.objective, DistillationSettings):
        (recipe,) = settings.objective.stages(is_task=False)
        soft_targets = settings.objective.soft_targets
        return CorpusDistillation(masking, recipe, settings.model, teacher.config, soft_targets)
    if isinstance(settings.objective, RtdSettings):
        return RtdObjective(masking, settings.objective)
    return MlmObjective(masking, settings.objective.sentence, settings.objective.sentence_weight)


def rates(settings: PretrainSettings) -> Callable[[str], float] | None:
    """Of a parameter, by its name, the share of the learning rate that it gets; None where all get the whole."""
    if not isinstance(settings.objective, RtdSettings) or settings.objective.generator_lr_ratio == 1:
        return None
    return lambda name: settings.objective.generator_lr_ratio if name.startswith(f"{GENERATOR}.") else 1.0


def save_trained(folder: Path, model: nn.Module, tokenizer: Tokenizer) -> None:
    """Every encoder with its tokenizer; the one that is kept and fine-tuned last."""
    save_projections(folder, model)
    if "clm" in model.heads:
        tokenizer = tokenizer.without_special_tokens()
    for name, encoder in reversed(_encoders(model).items()):
        tokenizer.save(Path(folder) / name, encoder.config.max_positions, encoder.config.num_segments)
        save_model(Path(folder) / name, encoder)


def load_trained(folder: Path, model: nn.Module) -> None:
    """Weights that `save_trained` wrote."""
    for name, encoder in reversed(_encoders(model).items()):
        load_weights(encoder, read_weights(Path(folder) / name), Path(folder) / name)
    load_projections(folder, model)


def initialise_from(model: nn.Module, folder: Path, tokenizer: Tokenizer) -> list[str]:
    """Puts the weights of a trained folder into the network, for a vocabulary that may have grown; which parts it does
    not hold, and which therefore start anew."""
    newly_initialised = []
    for name, encoder in reversed(_encoders(model).items()):
        if not (Path(folder) / name / "config.json").exists():
            newly_initialised.append(name)
            continue
        trained, old_tokenizer = load_folder(Path(folder) / name)
        if tokenizer.fingerprint != old_tokenizer.fingerprint:
            trained = grown(trained, old_tokenizer, tokenizer)
        if trained.config.width != encoder.config.width or trained.config.num_layers != encoder.config.num_layers:
            found = trained.config
            raise ValueError(
                f"the generator in {folder} has {found.num_layers} layers and is {found.width} wide, not "
                f"{encoder.config.num_layers} and {encoder.config.width}: set objective.generator_size and "
                "objective.generator_layers as it was trained with"
            )
        missing, _ = encoder.load_state_dict(trained.state_dict(), strict=False)
        newly_initialised += sorted({f"{part.partition('.')[0]} head" for part in missing})
    return newly_initialised


def generator_size_in(folder: Path, settings: PretrainSettings, asked: dict) -> dict[str, float]:
    """The size of the generator beside a trained discriminator, as settings, where a person did not ask for another."""
    file = Path(folder) / GENERATOR / "config.json"
    names = {"objective.generator_size", "objective.generator_layers"}
    if not isinstance(settings.objective, RtdSettings) or not file.exists() or names & asked.keys():
        return {}
    outside = read_json(file)
    return {
        "objective.generator_size": outside["hidden_size"] / settings.model.width,
        "objective.generator_layers": outside["num_hidden_layers"],
    }


def kept_model(model: nn.Module) -> Transformer:
    """The one that is fine-tuned and used afterwards."""
    return _encoders(model)[""]


def mask_filler(model: nn.Module) -> Transformer | None:
    """The encoder that fills in masks, if there is one; a left-to-right model does not."""
    filler = model.generator if isinstance(model, ElectraPair) else kept_model(model)
    return filler if "mlm" in filler.heads and filler.config.direction == "both" else None


def _encoders(model: nn.Module) -> dict[str, Transformer]:
    """By the folder that each is saved in, within that of the run."""
    if isinstance(model, DistillationPair):
        return {"": model.student}
    return {"": model.discriminator, GENERATOR: model.generator} if isinstance(model, ElectraPair) else {"": model}
