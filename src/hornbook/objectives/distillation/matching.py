"""Distillation recipes as data: a recipe is a list of matches, and a match is a quantity of student and teacher, the
layers at which it is compared, and the loss.

    Match("hidden", "mse", layers="uniform", projection="student-to-teacher")

| quantity | what it is | shape |
|---|---|---|
| `logits` | logits over the vocabulary, or outputs of the task head | of the head |
| `embeddings` | input of the first block | T x D |
| `hidden` | output of a block | T x D |
| `queries`, `keys`, `values` | of a block, all heads concatenated | T x D |
| `attention` | q k / sqrt(C) of a block, before the softmax | H x S x S of each sequence |
| `query-relations`, `key-relations`, `value-relations` | q q, k k, v v / sqrt(C) of a block | the same |

| loss | per token |
|---|---|
| `mse` | mean of the squared differences; for `attention` and relations, over heads and attended tokens |
| `cosine` | 1 - cosine similarity, for vectors |
| `kl` | sum of p_teacher (log p_teacher - log p_student); p is the softmax of scores / temperature; x temperature^2 |
| `soft-cross-entropy` | `kl` without the entropy of the teacher, which is constant |

Layers are counted from 1. The losses of all layers of a match are summed.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Literal

from hornbook import config as configuration
from hornbook.config import setting

Quantity = Literal[
    "logits",
    "embeddings",
    "hidden",
    "queries",
    "keys",
    "values",
    "attention",
    "query-relations",
    "key-relations",
    "value-relations",
]
MatchLoss = Literal["mse", "cosine", "kl", "soft-cross-entropy"]
Projection = Literal["none", "student-to-teacher", "teacher-to-student"]
VECTORS = ("embeddings", "hidden", "queries", "keys", "values")
RELATIONS = ("attention", "query-relations", "key-relations", "value-relations")
LOSSES_OF = {
    "logits": ("kl", "soft-cross-entropy", "mse"),
    **dict.fromkeys(VECTORS, ("mse", "cosine")),
    **dict.fromkeys(RELATIONS, ("mse", "kl", "soft-cross-entropy")),
}
LAYER_WORDS = ("uniform", "uniform-but-last", "top", "bottom", "last")
LAYERS_HELP = "uniform, uniform-but-last, top, bottom, last, or a teacher layer per student layer, as 3,6,9,12"


@dataclass(frozen=True)
class Match(configuration.ValidatedSettings, group="match"):
    quantity: Quantity = setting("logits", "the quantity that is matched")
    loss: MatchLoss = setting("mse", "the loss")
    weight: float = setting(1.0, "weight of the loss", above=0, high=1e6)
    layers: str = setting("uniform", LAYERS_HELP)
    temperature: float = setting(1.0, "logits are divided by it before the softmax", above=0, high=1e4)
    projection: Projection = setting("none", "projection to the other's width; that of the teacher is not trained")
    tokens: Literal["all", "first"] = setting("all", "match vectors of all tokens, or of each sequence's first token")
    heads: str = setting("each", "attention and relations: match each head, the mean, or resplit into this number")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss not in LOSSES_OF[self.quantity]:
            losses = ", ".join(LOSSES_OF[self.quantity])
            raise ValueError(f"the loss of {self.quantity} must be one of {losses}, not '{self.loss}'")
        if self.heads not in ("each", "mean") and not (self.heads.isdigit() and int(self.heads) > 0):
            raise ValueError(f"heads of a match must be each, mean or a number, not '{self.heads}'")
        if self.projection != "none" and self.quantity not in VECTORS:
            raise ValueError(f"projection is for {', '.join(VECTORS)}, not for {self.quantity}: leave it out")


@dataclass(frozen=True)
class StageRecipe(configuration.ValidatedSettings, group="recipe"):
    """Matches, and the weight of the hard-label loss: that of masked or next tokens, or of the labels of a task.

    `settings` are the published settings of a stage on a task, by dotted name; their learning rate is for a base model.
    """

    matches: tuple[Match, ...] = ()
    hard_label_weight: float = setting(0.0, "weight of the hard-label loss", low=0, high=1e6)
    settings: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.matches and not self.hard_label_weight:
            raise ValueError("the recipe is empty: add a match, or set objective.hard_label_weight above 0")

    def named(self) -> dict[str, Match]:
        """The matches by the name of their loss term: the quantity, numbered if there are several of the same."""
        terms: dict[str, Match] = {}
        for match in self.matches:
            same = sum(each.quantity == match.quantity for each in terms.values())
            terms[f"{match.quantity}-{same + 1}" if same else match.quantity] = match
        return terms


@dataclass(frozen=True)
class PublishedRecipes:
    """A published method: the recipe on plain text (None if it has none), and the stages on a task."""

    general: StageRecipe | None
    task: tuple[StageRecipe, ...]


_LAYER_BY_LAYER = StageRecipe(
    (
        Match("embeddings", "mse", projection="student-to-teacher"),
        Match("hidden", "mse", projection="student-to-teacher"),
        Match("attention", "mse"),
    )
)
_PREDICTION = StageRecipe((Match("logits", "soft-cross-entropy"),))
PUBLISHED: dict[str, PublishedRecipes] = {
    # Sanh et al. 2019, arXiv 1910.01108; weights and temperature from its code
    "distilbert": PublishedRecipes(
        StageRecipe((Match("logits", "kl", 5.0, temperature=2.0), Match("hidden", "cosine", layers="last")), 2.0),
        (StageRecipe((Match("logits", "kl", 0.5, temperature=2.0),), 0.5),),
    ),
    # Jiao et al. 2019, arXiv 1909.10351
    "tinybert": PublishedRecipes(
        _LAYER_BY_LAYER,
        (
            replace(_LAYER_BY_LAYER, settings={"epochs": 20.0, "optimizer.lr": 5e-5, "batch_size": 32}),
            replace(_PREDICTION, settings={"epochs": 3.0, "optimizer.lr": 3e-5, "batch_size": 32}),
        ),
    ),
    # Sun et al. 2019, arXiv 1908.09355: squared distance of unit vectors at [CLS], which is 2 (1 - cosine)
    "patient": PublishedRecipes(
        None,
        (
            StageRecipe(
                (
                    Match("logits", "kl", 0.5, temperature=5.0),
                    Match("hidden", "cosine", 0.25, layers="uniform-but-last", tokens="first"),
                ),
                0.5,
            ),
        ),
    ),
    # Wang et al. 2020, arXiv 2002.10957
    "minilm": PublishedRecipes(
        StageRecipe((Match("attention", "kl", layers="last"), Match("value-relations", "kl", layers="last"))),
        (_PREDICTION,),
    ),
}


def layer_pairs(layers: str, num_student: int, num_teacher: int) -> list[tuple[int, int]]:
    """The (student layer, teacher layer) pairs that are matched.

    >>> layer_pairs("uniform", 4, 12), layer_pairs("top", 2, 6), layer_pairs("2,6", 2, 6)
    ([(1, 3), (2, 6), (3, 9), (4, 12)], [(1, 5), (2, 6)], [(1, 2), (2, 6)])
    """
    student_layers = range(1, num_student + 1)
    if layers in ("uniform", "uniform-but-last"):
        pairs = [(m, -(-m * num_teacher // num_student)) for m in student_layers]
        return pairs[:-1] if layers == "uniform-but-last" else pairs
    if layers == "last":
        return [(num_student, num_teacher)]
    if layers in ("top", "bottom"):
        if num_student > num_teacher:
            raise ValueError(f"layers={layers} needs a teacher of at least {num_student} layers, not {num_teacher}")
        return [(m, m + (num_teacher - num_student if layers == "top" else 0)) for m in student_layers]
    try:
        teacher_layers = [int(part) for part in layers.split(",")]
    except ValueError:
        names = ", ".join(LAYER_WORDS)
        raise ValueError(
            f"layers must be one of {names}, or numbers such as 3,6,9,12, not {configuration.short_repr(layers)}"
        ) from None
    if len(teacher_layers) != num_student or not all(1 <= number <= num_teacher for number in teacher_layers):
        raise ValueError(
            f"layers={layers} must name a layer of the teacher, 1 to {num_teacher}, for each of the student's "
            f"{num_student} layers"
        )
    return list(zip(student_layers, teacher_layers, strict=True))


def recipes_in(text: str, is_task: bool) -> tuple[StageRecipe, ...]:
    """The stages of a recipe given by name or as JSON; on plain text there is always one.

    >>> hidden = '{"matches": [{"quantity": "hidden", "loss": "cosine"}], "hard_label_weight": 1}'
    >>> recipes_in(hidden, False)[0].hard_label_weight
    1.0
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            stages = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"the recipe is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
            ) from None
        stages = stages if isinstance(stages, list) else [stages]
        stages = tuple(configuration.from_dict(StageRecipe, stage, "recipe.") for stage in stages)
        if not stages or (len(stages) > 1 and not is_task):
            raise ValueError(f"the recipe has {len(stages)} stages; on plain text it must have one")
        return stages
    if text not in PUBLISHED:
        raise ValueError(
            f"there is no recipe {configuration.short_repr(text)}: use {', '.join(PUBLISHED)}, or the name of a JSON "
            "file"
        )
    plan = PUBLISHED[text]
    if not is_task and plan.general is None:
        general = ", ".join(name for name, each in PUBLISHED.items() if each.general)
        raise ValueError(f"the recipe {text} is for tasks: add task= and data=, or use {general}")
    return plan.task if is_task else (plan.general,)
