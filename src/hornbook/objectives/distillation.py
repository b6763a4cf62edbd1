"""Learning from a teacher: the losses of a recipe (`objectives/matching.py`) as an objective of the one loop.

The teacher reads the same packed batch as the student, once, without gradients. Every term is a sum over targets whose
count is known before either runs: tokens, first tokens, or what the objective's own loss looks at. So micro-batches
change nothing but rounding.

Queries, keys and values are kept of matched layers only, and scores of attention are computed from them beside the
model's own kernels, only where a match asks for them.

Shapes: T tokens, N sequences, S longest sequence, K targets, D width, H heads, C width of a head, V vocabulary.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.config import Typed, setting, shown
from hornbook.models.pair import DistillationPair, FixedProjection
from hornbook.models.transformer import Transformer, TransformerConfig
from hornbook.objectives.clm import tokens_after
from hornbook.objectives.masking import Masking
from hornbook.objectives.matched_losses import PLACES, relation_sum, row_losses, vector_sum
from hornbook.objectives.matching import RELATIONS, VECTORS, Match, Projection, Recipe, layer_pairs, recipes_in
from hornbook.objectives.mlm import every_token, summed_loss
from hornbook.train.objective import StepInputs, Targets


@dataclass(frozen=True)
class DistillationSettings(Typed, group="objective"):
    recipe: str = setting("distilbert", "distilbert, tinybert, patient or minilm; or a recipe of your own as JSON")
    without: tuple[str, ...] = setting((), "quantities of the recipe that are left out, such as attention,hidden")
    layers: str | None = setting(None, "uniform, top, bottom or numbers such as 3,6,9,12; none: as the recipe says")
    projection: Projection | None = setting(None, "of vectors, where the recipe projects; none: as it says")
    temperature: float | None = setting(None, "of the matched logits; none: as the recipe says", above=0, high=1e4)
    hard_label_weight: float | None = setting(
        None, "of masked or next tokens, or of a task's labels; none: as the recipe says", low=0, high=1e6
    )
    soft_targets: Literal["all", "masked"] = setting(
        "all", "tokens whose scores over the vocabulary are matched: all as in DistilBERT's code, or the masked ones"
    )
    start: Literal["teacher", "random"] = setting(
        "teacher", "first weights of a new student: layers of a teacher of its shape, or random ones"
    )
    earlier_epochs: float | None = setting(
        None, "epochs of each stage on a task before the last; none: as the recipe says", above=0, high=10_000
    )

    cache: Literal["none", "logits", "all"] = setting(
        "none",
        "what of the teacher is computed once and kept, on a task: what its head answers, or all that is needed",
    )
    cache_gigabytes: float = setting(10.0, "the most that may be kept of the teacher on disk", low=0, high=1e6)

    @property
    def sentence(self) -> str:
        """No sentence task."""
        return "none"

    def stages(self, is_task: bool) -> tuple[Recipe, ...]:
        """The recipe of each stage, with what the other settings change in it. A stage that nothing is left of drops
        out."""
        if self.cache != "none" and not is_task:
            raise ValueError("objective.cache is for tasks: on plain text other tokens are masked in every epoch")
        found = recipes_in(self.recipe, is_task)
        named = {match.quantity for recipe in found for match in recipe.matches}
        if unknown := [name for name in self.without if name not in named]:
            raise ValueError(
                f"objective.without={shown(unknown[0])}, but the recipe matches {', '.join(sorted(named))}"
            )
        if self.layers is not None and not any(_is_layered(match) for recipe in found for match in recipe.matches):
            raise ValueError(
                f"objective.layers={shown(self.layers)}, but the recipe matches nothing layer by layer: leave it out "
                "or take another recipe, such as tinybert"
            )
        changed = []
        for number, recipe in enumerate(found):
            matches = tuple(self._changed(match) for match in recipe.matches if match.quantity not in self.without)
            is_last = number == len(found) - 1
            own = recipe.hard_label_weight if self.hard_label_weight is None or not is_last else self.hard_label_weight
            if matches or own:
                changed.append(dataclasses.replace(recipe, matches=matches, hard_label_weight=own))
        if not changed:
            raise ValueError("objective.without leaves nothing to learn: leave a quantity in, or set hard_label_weight")
        return tuple(changed)

    def _changed(self, match: Match) -> Match:
        changes = {}
        if self.layers is not None and _is_layered(match):
            changes["layers"] = self.layers
        if self.projection is not None and match.projection != "none":
            changes["projection"] = self.projection
        if self.temperature is not None and match.quantity == "logits":
            changes["temperature"] = self.temperature
        return dataclasses.replace(match, **changes)


def _is_layered(match: Match) -> bool:
    return match.quantity not in ("logits", "embeddings") and match.layers != "last"


@dataclass
class Pass:
    """What one network made of a batch: hidden states from the embeddings on, `qkv` of the layers asked for, and what
    a task's head answers, once it was asked. Of what was kept earlier, only what is asked for is there."""

    hidden: Sequence[Tensor] | Mapping[int, Tensor]
    qkv: dict[int, Tensor]
    answers: Tensor | None = None

    @property
    def x_TD(self) -> Tensor:
        return self.hidden[-1]

    def vectors(self, quantity: str, layer: int) -> Tensor:
        """T x D."""
        if quantity in PLACES:
            return self.qkv[layer][:, PLACES[quantity]].flatten(1)
        return self.hidden[0 if quantity == "embeddings" else layer]


class Distillation:
    """The objective of a `DistillationPair`. What the objective's own loss is, and what its logits are, is said in
    `CorpusDistillation` and `objectives/task_distillation.py`."""

    is_capturable = True
    own_term: str

    def __init__(self, recipe: Recipe, student: TransformerConfig, teacher: TransformerConfig):
        self.recipe = recipe
        self.matches = recipe.named()
        self.direction = student.direction
        self.layers = {term: _layers(match, student, teacher) for term, match in self.matches.items()}
        self.weights = {self.own_term: recipe.hard_label_weight} if recipe.hard_label_weight else {}
        self.weights |= {term: match.weight for term, match in self.matches.items()}
        _refuse_what_does_not_fit(self.matches, student, teacher)

    def sums(self, model: DistillationPair, step_inputs: StepInputs) -> dict[str, Tensor]:
        return self._sums(model, step_inputs)[0]

    def evaluate(self, model: DistillationPair, step_inputs: StepInputs) -> dict[str, Tensor]:
        sums, student = self._sums(model, step_inputs)
        return sums | self._own_hits(model.student, student, step_inputs)

    def _sums(self, model: DistillationPair, step_inputs: StepInputs) -> tuple[dict[str, Tensor], Pass]:
        teacher = self._teacher_pass(model.teacher, step_inputs)
        student = self._look(model.student, step_inputs.batch, 0)
        sums = {}
        if self.recipe.hard_label_weight:
            sums[self.own_term] = self._own_sum(model.student, student, step_inputs)
        for term, match in self.matches.items():
            if match.quantity == "logits":
                sums[term] = self._logits_sum(term, match, model, student, teacher, step_inputs)
            else:
                sums[term] = sum(
                    self._layer_sum(term, match, model, (student, of_student), (teacher, of_teacher), step_inputs)
                    for of_student, of_teacher in self.layers[term]
                )
        return sums, student

    @torch.no_grad()
    def _teacher_pass(self, teacher: Transformer, step_inputs: StepInputs) -> Pass:
        return self._look(teacher, step_inputs.batch, 1)

    def _look(self, encoder: Transformer, batch: Batch, side: int) -> Pass:
        """`side` 0 is the student's of each pair of layers, 1 the teacher's."""
        asked = {
            pair[side]: None
            for term, match in self.matches.items()
            if match.quantity in RELATIONS or match.quantity in PLACES
            for pair in self.layers[term]
        }
        hidden: list[Tensor] = []
        encoder(batch, hidden, qkv=asked)
        return Pass(hidden, asked)

    def _layer_sum(
        self,
        term: str,
        match: Match,
        model: DistillationPair,
        of_student: tuple[Pass, int],
        of_teacher: tuple[Pass, int],
        step_inputs: StepInputs,
    ) -> Tensor:
        targets = step_inputs.targets[term]
        (student, number), (teacher, their_number) = of_student, of_teacher
        if match.quantity in RELATIONS:
            weights_T = _up_to(targets.weights_K, len(student.x_TD))
            ours, theirs = student.qkv[number], teacher.qkv[their_number]
            return relation_sum(match, ours, theirs, step_inputs.batch, weights_T, self.direction)
        ours, theirs = student.vectors(match.quantity, number), teacher.vectors(match.quantity, their_number)
        if match.tokens == "first":
            ours, theirs = (each.index_select(0, targets.positions_K) for each in (ours, theirs))
            weights_K = targets.weights_K
        else:
            weights_K = _up_to(targets.weights_K, len(ours))
        if match.projection == "student-to-teacher":
            ours = model.projection(term)(ours)
        elif match.projection == "teacher-to-student":
            theirs = model.projection(term)(theirs)
        return vector_sum(match.loss, ours, theirs, weights_K)

    def _token_targets(self, batch: Batch) -> dict[str, Targets]:
        """Of all matches but those of logits."""
        tokens, firsts = every_token(batch), first_tokens(batch)
        return {
            term: firsts if match.tokens == "first" else tokens
            for term, match in self.matches.items()
            if match.quantity != "logits"
        }

    def prepare(self, batch: Batch, generator: torch.Generator) -> StepInputs:
        raise NotImplementedError

    def _own_sum(self, student: Transformer, seen: Pass, step_inputs: StepInputs) -> Tensor:
        raise NotImplementedError

    def _own_hits(self, student: Transformer, seen: Pass, step_inputs: StepInputs) -> dict[str, Tensor]:
        raise NotImplementedError

    def _logits_sum(
        self, term: str, match: Match, model: DistillationPair, student: Pass, teacher: Pass, step_inputs: StepInputs
    ) -> Tensor:
        raise NotImplementedError


class CorpusDistillation(Distillation):
    """On plain text: the objective's own loss is that of masked tokens (`mlm`) or, without masking, of next tokens
    (`clm`); logits are scores over the vocabulary."""

    def __init__(
        self,
        masking: Masking | None,
        recipe: Recipe,
        student: TransformerConfig,
        teacher: TransformerConfig,
        soft_targets: Literal["all", "masked"] = "all",
    ):
        self.own_term = "clm" if masking is None else "mlm"
        super().__init__(recipe, student, teacher)
        self.masking = masking
        self.soft_targets = soft_targets
        self.summed_loss, self.row_losses = summed_loss, row_losses

    def compile(self) -> None:
        """Fuses what goes over the scores of the whole vocabulary."""
        self.summed_loss = torch.compile(summed_loss, dynamic=True)
        self.row_losses = torch.compile(row_losses, dynamic=True)

    def prepare(self, batch: Batch, generator: torch.Generator) -> StepInputs:
        """As in pre-training; the teacher reads the masked text too."""
        ids_T, own = (
            (batch.ids_T, tokens_after(batch)) if self.masking is None else self.masking.prepare(batch, generator)
        )
        targets = {self.own_term: own} | self._token_targets(batch)
        for term, match in self.matches.items():
            if match.quantity == "logits":
                targets[term] = every_token(batch) if self.soft_targets == "all" else own
        return StepInputs(dataclasses.replace(batch, ids_T=ids_T), targets)

    def _logits(self, network: Transformer, x_KD: Tensor) -> Tensor:
        """Scores over the vocabulary."""
        return network.clm_logits(x_KD) if self.own_term == "clm" else network.mlm_logits(x_KD)

    def _own_logits(self, student: Transformer, seen: Pass, step_inputs: StepInputs) -> Tensor:
        return self._logits(student, seen.x_TD.index_select(0, step_inputs.targets[self.own_term].positions_K))

    def _own_sum(self, student: Transformer, seen: Pass, step_inputs: StepInputs) -> Tensor:
        own = step_inputs.targets[self.own_term]
        return self.summed_loss(self._own_logits(student, seen, step_inputs), own.values_K, own.weights_K)

    def _own_hits(self, student: Transformer, seen: Pass, step_inputs: StepInputs) -> dict[str, Tensor]:
        if student.vocabulary_head not in student.heads:
            return {}
        own, logits_KV = step_inputs.targets[self.own_term], self._own_logits(student, seen, step_inputs)
        return {
            self.own_term: summed_loss(logits_KV, own.values_K, own.weights_K),
            f"{self.own_term}_accuracy": ((logits_KV.argmax(-1) == own.values_K) * own.weights_K).sum(),
        }

    def _logits_sum(
        self, term: str, match: Match, model: DistillationPair, student: Pass, teacher: Pass, step_inputs: StepInputs
    ) -> Tensor:
        targets = step_inputs.targets[term]
        if self.soft_targets == "all":
            num = min(len(student.x_TD), len(targets.weights_K))
            ours, theirs, weights_K = student.x_TD[:num], teacher.x_TD[:num], targets.weights_K[:num]
        else:
            ours, theirs = (each.x_TD.index_select(0, targets.positions_K) for each in (student, teacher))
            weights_K = targets.weights_K
        with torch.no_grad():
            theirs_KV = self._logits(model.teacher, theirs)
        losses_K = self.row_losses(match.loss, self._logits(model.student, ours), theirs_KV, match.temperature)
        return (losses_K * weights_K).sum()


def pair_for(recipe: Recipe, student: Transformer, teacher: Transformer) -> DistillationPair:
    """The two networks with the layers between their widths that a recipe asks for, whose weights are not drawn yet."""
    ours, theirs = student.config.width, teacher.config.width
    made: dict[str, nn.Module] = {}
    for term, match in recipe.named().items():
        if match.projection == "student-to-teacher":
            made[term] = nn.Linear(ours, theirs)
        elif match.projection == "teacher-to-student":
            made[term] = FixedProjection(theirs, ours)
    return DistillationPair(student, teacher, made)


def _layers(match: Match, student: TransformerConfig, teacher: TransformerConfig) -> list[tuple[int, int]]:
    if match.quantity == "logits":
        return []
    if match.quantity == "embeddings":
        return [(0, 0)]
    pairs = layer_pairs(match.layers, student.num_layers, teacher.num_layers)
    if not pairs:
        raise ValueError(
            f"{match.quantity} is matched at all layers but the last, and the student has only that one: give it more "
            f"layers, or leave it out by objective.without={match.quantity}"
        )
    return pairs


def _refuse_what_does_not_fit(
    matches: dict[str, Match], student: TransformerConfig, teacher: TransformerConfig
) -> None:
    for match in matches.values():
        if match.quantity in VECTORS and match.projection == "none" and student.width != teacher.width:
            raise ValueError(
                f"{match.quantity} of a student {student.width} wide cannot be matched with a teacher {teacher.width} "
                "wide as they are: take projection student-to-teacher for it in a recipe of your own, a student of "
                f"that width, or leave it out by objective.without={match.quantity}"
            )
        if match.tokens == "first" and "left" in (student.direction, teacher.direction):
            raise ValueError(
                f"{match.quantity} is matched at first tokens, which see nothing of the text where attention goes to "
                f"the left: leave it out by objective.without={match.quantity}, or take another recipe"
            )
        if match.quantity not in RELATIONS:
            continue
        if any(window is not None for window in (*student.windows, *teacher.windows)):
            raise ValueError(
                f"{match.quantity} is matched over whole sequences, and model.window hides part of them: leave it out "
                f"by objective.without={match.quantity}"
            )
        if student.direction != teacher.direction:
            raise ValueError(
                f"the student attends to '{student.direction}' and the teacher to '{teacher.direction}': their "
                f"attention is not alike; leave it out by objective.without={match.quantity}"
            )
        if match.heads == "each" and student.num_heads != teacher.num_heads:
            raise ValueError(
                f"a student of {student.num_heads} heads and a teacher of {teacher.num_heads} have no heads to match "
                f"one by one: take a student of {teacher.num_heads} heads (of a preset, model.num_heads="
                f"{teacher.num_heads}), leave {match.quantity} out by objective.without={match.quantity}, or take "
                "heads=mean, or a number to resplit into, in a recipe of your own"
            )
        if match.heads.isdigit() and (student.width % int(match.heads) or teacher.width % int(match.heads)):
            raise ValueError(f"heads={match.heads} does not divide widths {student.width} and {teacher.width}")


def first_tokens(batch: Batch) -> Targets:
    """One target a sequence, at its first token."""
    num_real = batch.num_real_sequences
    starts = batch.starts[:num_real].long()
    starts_host = (torch.arange(batch.num_sequences + 1).clamp(max=num_real)).numpy()
    return Targets(starts, torch.zeros_like(starts), torch.ones_like(starts, dtype=torch.float32), starts_host)


def _up_to(weights_K: Tensor, num_tokens: int) -> Tensor:
    """Weights of tokens from the first on, cut or with zeros to so many."""
    return F.pad(weights_K[:num_tokens], (0, max(0, num_tokens - len(weights_K))))
