"""Distillation: the losses of a recipe (`objectives/distillation/matching.py`) as a training objective.

The teacher reads the same packed batch as the student, once, without gradients. Every term is a sum over targets whose
count is known before either model runs: all tokens, first tokens, or the targets of the hard-label loss. Micro-batches
therefore change nothing but rounding.

Queries, keys and values are collected from matched layers only, and attention scores are computed from them separately
from the models' own kernels, only where a match needs them.

Shapes: T tokens, N sequences, S longest sequence, K targets, D width, H heads, C head width, V vocabulary.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.config import ValidatedSettings, setting, short_repr
from hornbook.models.distillation_pair import DistillationPair, FixedProjection
from hornbook.models.transformer import Transformer, TransformerConfig
from hornbook.objectives.distillation.losses import QKV_INDEX, relation_sum, row_losses, vector_sum
from hornbook.objectives.distillation.matching import (
    LAYERS_HELP,
    RELATIONS,
    VECTORS,
    Match,
    Projection,
    StageRecipe,
    layer_pairs,
    recipes_in,
)
from hornbook.objectives.masking import Masking
from hornbook.objectives.mlm import VocabularyObjective
from hornbook.train.objective import StepInputs, Targets, all_token_targets, first_token_targets, next_token_targets
from hornbook.train.randomness import token_keys


@dataclass(frozen=True)
class DistillationSettings(ValidatedSettings, group="objective"):
    recipe: str = setting("distilbert", "distilbert, tinybert, patient or minilm; or a custom recipe as JSON")
    without: tuple[str, ...] = setting((), "quantities of the recipe to leave out, such as attention,hidden")
    layers: str | None = setting(None, f"{LAYERS_HELP}; none: as in the recipe")
    projection: Projection | None = setting(None, "direction of the recipe's projections; none: as in the recipe")
    temperature: float | None = setting(None, "temperature of the logits; none: as in the recipe", above=0, high=1e4)
    hard_label_weight: float | None = setting(
        None,
        "weight of the hard-label loss (masked or next tokens, or a task's labels); none: as in the recipe",
        low=0,
        high=1e6,
    )
    soft_targets: Literal["all", "masked"] = setting(
        "all", "tokens whose logits over the vocabulary are matched: all (as in DistilBERT's code) or only masked ones"
    )
    student_init: Literal["teacher", "random"] = setting(
        "teacher", "initialise a new student from layers of a teacher of its shape, or randomly"
    )
    earlier_epochs: float | None = setting(
        None, "epochs of each stage on a task before the last; none: as in the recipe", above=0, high=10_000
    )

    cache: Literal["none", "logits", "all"] = setting(
        "none",
        "on a task, compute the teacher's outputs once and cache them: its logits, or everything the recipe needs",
    )
    cache_gigabytes: float = setting(10.0, "maximum size of the teacher cache on disk", low=0, high=1e6)

    @property
    def sentence(self) -> str:
        """No sentence task."""
        return "none"

    def stages(self, is_task: bool) -> tuple[StageRecipe, ...]:
        """The recipe of each stage, with the overrides of the other settings. Stages that become empty are dropped."""
        if self.cache != "none" and not is_task:
            raise ValueError("objective.cache is for tasks: on plain text different tokens are masked in every epoch")
        recipes = recipes_in(self.recipe, is_task)
        quantities = {match.quantity for recipe in recipes for match in recipe.matches}
        if unknown := [name for name in self.without if name not in quantities]:
            raise ValueError(
                f"objective.without={short_repr(unknown[0])}, but the recipe matches {', '.join(sorted(quantities))}"
            )
        if self.layers is not None and not any(_is_layered(match) for recipe in recipes for match in recipe.matches):
            raise ValueError(
                f"objective.layers={short_repr(self.layers)}, but the recipe matches nothing layer by layer: leave it "
                "out or use another recipe, such as tinybert"
            )
        stages = []
        for recipe in recipes:
            matches = tuple(self._overridden(match) for match in recipe.matches if match.quantity not in self.without)
            is_overridden = self.hard_label_weight is not None and recipe is recipes[-1]
            weight = self.hard_label_weight if is_overridden else recipe.hard_label_weight
            if matches or weight:
                stages.append(dataclasses.replace(recipe, matches=matches, hard_label_weight=weight))
        if not stages:
            raise ValueError(
                "objective.without leaves nothing to learn: leave a quantity in, or set objective.hard_label_weight"
            )
        return tuple(stages)

    def _overridden(self, match: Match) -> Match:
        overrides = {}
        if self.layers is not None and _is_layered(match):
            overrides["layers"] = self.layers
        if self.projection is not None and match.projection != "none":
            overrides["projection"] = self.projection
        if self.temperature is not None and match.quantity == "logits":
            overrides["temperature"] = self.temperature
        return dataclasses.replace(match, **overrides)


def _is_layered(match: Match) -> bool:
    return match.quantity not in ("logits", "embeddings") and match.layers != "last"


@dataclass
class ModelOutputs:
    """The outputs of one model's forward pass: hidden states from the embeddings on, `qkv` of the requested layers, and
    the outputs of the task head, once computed. From a teacher cache, only what is needed."""

    hidden: Sequence[Tensor] | Mapping[int, Tensor]
    qkv: dict[int, Tensor]
    task_logits: Tensor | None = None

    @property
    def x_TD(self) -> Tensor:
        return self.hidden[-1]

    def vectors(self, quantity: str, layer: int) -> Tensor:
        """The vectors of a quantity at a layer, T x D."""
        if quantity in QKV_INDEX:
            return self.qkv[layer][:, QKV_INDEX[quantity]].flatten(1)
        return self.hidden[0 if quantity == "embeddings" else layer]


@dataclass(frozen=True)
class ForwardPass:
    model: DistillationPair
    student: ModelOutputs
    teacher: ModelOutputs
    step_inputs: StepInputs


class Distillation:
    """The objective of a `DistillationPair`. The hard-label loss (`hard_label_term`) and the logits are defined by the
    subclasses `CorpusDistillation` and `TaskDistillation` (`objectives/distillation/task.py`)."""

    is_capturable = True
    hard_label_term: str  # name of the hard-label loss

    def __init__(self, recipe: StageRecipe, student: TransformerConfig, teacher: TransformerConfig):
        self.recipe = recipe
        self.matches = recipe.named()
        self.direction = student.direction
        self.layers = {term: _layers(match, student, teacher) for term, match in self.matches.items()}
        self.weights = {self.hard_label_term: recipe.hard_label_weight} if recipe.hard_label_weight else {}
        self.weights |= {term: match.weight for term, match in self.matches.items()}
        _check_matches(self.matches, student, teacher)

    def loss_sums(
        self, model: DistillationPair, step_inputs: StepInputs, with_metrics: bool = False
    ) -> dict[str, Tensor]:
        teacher = self._teacher_pass(model.teacher, step_inputs)
        forward = ForwardPass(model, self._forward(model.student, step_inputs.batch, 0), teacher, step_inputs)
        sums = {}
        if self.recipe.hard_label_weight or with_metrics:
            sums |= self._hard_label_sums(forward, with_metrics)
        for term, match in self.matches.items():
            if match.quantity == "logits":
                sums[term] = self._logits_sum(term, match, forward)
            else:
                sums[term] = sum(self._layer_sum(term, match, forward, *pair) for pair in self.layers[term])
        return sums

    @torch.no_grad()
    def _teacher_pass(self, teacher: Transformer, step_inputs: StepInputs) -> ModelOutputs:
        return self._forward(teacher, step_inputs.batch, 1)

    def _forward(self, model: Transformer, batch: Batch, side: int) -> ModelOutputs:
        """A forward pass of the student (`side` 0) or the teacher (1), the index into the pairs of matched layers."""
        qkv = {
            pair[side]: None
            for term, match in self.matches.items()
            if match.quantity in RELATIONS or match.quantity in QKV_INDEX
            for pair in self.layers[term]
        }
        hidden: list[Tensor] = []
        model(batch, hidden, qkv=qkv)
        return ModelOutputs(hidden, qkv)

    def _layer_sum(
        self, term: str, match: Match, forward: ForwardPass, student_layer: int, teacher_layer: int
    ) -> Tensor:
        """The loss of one match at one pair of layers, summed over its targets."""
        student, teacher, targets = forward.student, forward.teacher, forward.step_inputs.targets[term]
        if match.quantity in RELATIONS:
            weights_T = _up_to(targets.weights_K, len(student.x_TD))
            student_qkv, teacher_qkv = student.qkv[student_layer], teacher.qkv[teacher_layer]
            return relation_sum(match, student_qkv, teacher_qkv, forward.step_inputs.batch, weights_T, self.direction)
        student_KD = student.vectors(match.quantity, student_layer)
        teacher_KD = teacher.vectors(match.quantity, teacher_layer)
        if match.tokens == "first":
            student_KD, teacher_KD = (each.index_select(0, targets.indices_K) for each in (student_KD, teacher_KD))
            weights_K = targets.weights_K
        else:
            weights_K = _up_to(targets.weights_K, len(student_KD))
        if match.projection == "student-to-teacher":
            student_KD = forward.model.projection(term)(student_KD)
        elif match.projection == "teacher-to-student":
            teacher_KD = forward.model.projection(term)(teacher_KD)
        return vector_sum(match.loss, student_KD, teacher_KD, weights_K)

    def _token_targets(self, batch: Batch) -> dict[str, Targets]:
        """The targets of all matches except those of logits."""
        tokens, firsts = all_token_targets(batch), first_token_targets(batch)
        return {
            term: firsts if match.tokens == "first" else tokens
            for term, match in self.matches.items()
            if match.quantity != "logits"
        }

    def prepare(self, batch: Batch, seed: int) -> StepInputs:
        raise NotImplementedError

    def _hard_label_sums(self, forward: ForwardPass, with_metrics: bool) -> dict[str, Tensor]:
        """The hard-label loss, with metrics also the accuracy, summed over the targets."""
        raise NotImplementedError

    def _logits_sum(self, term: str, match: Match, forward: ForwardPass) -> Tensor:
        """The loss of matched logits, summed over the targets."""
        raise NotImplementedError


class CorpusDistillation(VocabularyObjective, Distillation):
    """Distillation on plain text: the hard-label loss is that of masked tokens (`mlm`) or, without masking, of next
    tokens (`clm`); the logits are those over the vocabulary."""

    compiled = ("summed_loss", "row_losses")
    row_losses = staticmethod(row_losses)

    def __init__(
        self,
        masking: Masking | None,
        recipe: StageRecipe,
        student: TransformerConfig,
        teacher: TransformerConfig,
        soft_targets: Literal["all", "masked"] = "all",
    ):
        self.hard_label_term = "clm" if masking is None else "mlm"
        super().__init__(recipe, student, teacher)
        self.masking = masking
        self.soft_targets = soft_targets

    def prepare(self, batch: Batch, seed: int) -> StepInputs:
        """As in pre-training; the teacher reads the same masked text."""
        if self.masking is None:
            ids_T, hard_labels = batch.ids_T, next_token_targets(batch)
        else:
            ids_T, hard_labels = self.masking.prepare(batch, token_keys(batch, seed))
        targets = {self.hard_label_term: hard_labels} | self._token_targets(batch)
        for term, match in self.matches.items():
            if match.quantity == "logits":
                targets[term] = all_token_targets(batch) if self.soft_targets == "all" else hard_labels
        return StepInputs(batch.with_values("tokens", ids_T=ids_T).with_streams(targets))

    def _hard_label_sums(self, forward: ForwardPass, with_metrics: bool) -> dict[str, Tensor]:
        student, targets = forward.model.student, forward.step_inputs.targets[self.hard_label_term]
        if student.vocabulary_head not in student.heads:
            return {}
        logits_KV = student.vocabulary_logits(forward.student.x_TD.index_select(0, targets.indices_K))
        return self.term_sums(self.hard_label_term, logits_KV, targets, with_metrics)

    def _logits_sum(self, term: str, match: Match, forward: ForwardPass) -> Tensor:
        targets = forward.step_inputs.targets[term]
        student_KD, teacher_KD, weights_K = forward.student.x_TD, forward.teacher.x_TD, targets.weights_K
        if self.soft_targets == "all":
            num = min(len(student_KD), len(weights_K))
            student_KD, teacher_KD, weights_K = student_KD[:num], teacher_KD[:num], weights_K[:num]
        else:
            student_KD, teacher_KD = (each.index_select(0, targets.indices_K) for each in (student_KD, teacher_KD))
        student_logits_KV = forward.model.student.vocabulary_logits(student_KD)
        with torch.no_grad():
            teacher_logits_KV = forward.model.teacher.vocabulary_logits(teacher_KD)
        losses_K = self.row_losses(match.loss, student_logits_KV, teacher_logits_KV, match.temperature)
        return (losses_K * weights_K).sum()


def pair_for(recipe: StageRecipe, student: Transformer, teacher: Transformer) -> DistillationPair:
    """Student and teacher with the projections that a recipe needs, not yet initialised."""
    student_width, teacher_width = student.config.width, teacher.config.width
    projections: dict[str, nn.Module] = {}
    for term, match in recipe.named().items():
        if match.projection == "student-to-teacher":
            projections[term] = nn.Linear(student_width, teacher_width)
        elif match.projection == "teacher-to-student":
            projections[term] = FixedProjection(teacher_width, student_width)
    return DistillationPair(student, teacher, projections)


def _layers(match: Match, student: TransformerConfig, teacher: TransformerConfig) -> list[tuple[int, int]]:
    """The (student, teacher) pairs of layers of a match."""
    if match.quantity == "logits":
        return []
    if match.quantity == "embeddings":
        return [(0, 0)]
    pairs = layer_pairs(match.layers, student.num_layers, teacher.num_layers)
    if not pairs:
        raise ValueError(
            f"{match.quantity} is matched at all layers but the last, and the student has only one layer: give it more "
            f"layers, or set objective.without={match.quantity}"
        )
    return pairs


def _check_matches(matches: dict[str, Match], student: TransformerConfig, teacher: TransformerConfig) -> None:
    """Raises `ValueError` for a match that these models cannot have."""
    for match in matches.values():
        if match.quantity in VECTORS and match.projection == "none" and student.width != teacher.width:
            raise ValueError(
                f"{match.quantity} of a student of width {student.width} cannot be matched with a teacher of width "
                f"{teacher.width}: use a recipe with projection student-to-teacher for it, a student of that width, or "
                f"set objective.without={match.quantity}"
            )
        if match.tokens == "first" and "causal" in (student.direction, teacher.direction):
            raise ValueError(
                f"{match.quantity} is matched at first tokens, which attend to nothing else in a left-to-right model: "
                f"set objective.without={match.quantity}, or use another recipe"
            )
        if match.quantity not in RELATIONS:
            continue
        if any(window is not None for window in (*student.windows, *teacher.windows)):
            raise ValueError(
                f"{match.quantity} is matched over whole sequences, but model.window limits attention: set "
                f"objective.without={match.quantity}"
            )
        if student.direction != teacher.direction:
            raise ValueError(
                f"the student has attention direction '{student.direction}' and the teacher '{teacher.direction}', so "
                f"their attention cannot be matched: set objective.without={match.quantity}"
            )
        if match.heads == "each" and student.num_heads != teacher.num_heads:
            width = max(1, student.width // teacher.num_heads) * teacher.num_heads
            with_width = "" if width == student.width else f" and model.width={width}"
            raise ValueError(
                f"the {student.num_heads} heads of the student and the {teacher.num_heads} of the teacher cannot be "
                f"matched one by one: set model.num_heads={teacher.num_heads}{with_width}, or "
                f"objective.without={match.quantity}, or use a recipe with heads=mean or heads=NUMBER"
            )
        if match.heads.isdigit() and (student.width % int(match.heads) or teacher.width % int(match.heads)):
            raise ValueError(f"heads={match.heads} does not divide both widths, {student.width} and {teacher.width}")


def _up_to(weights_K: Tensor, num_tokens: int) -> Tensor:
    """The weights truncated or padded with zeros to `num_tokens`."""
    return F.pad(weights_K[:num_tokens], (0, max(0, num_tokens - len(weights_K))))
