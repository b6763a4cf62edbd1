"""The page of `hornbook explain`: for every answer a picture of its heaviest paths, and their weights."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hornbook.files import write_text
from hornbook.metrics.words import cut
from hornbook.report.rendering import render

MAX_DRAWN = 10  # paths of an answer
MAX_LISTED = 30
COLUMN, ROW, BOX_WIDTH, BOX_HEIGHT, MARGIN = 300, 62, 150, 30, 14  # in the units of the picture
LONGEST_NAME = 20


@dataclass(frozen=True)
class Box:
    name: str
    kind: str  # question, middle or answer
    x: float
    y: float


@dataclass(frozen=True)
class Line:
    """An edge between two boxes: from the right end of one to the left end of the next."""

    x1: float
    y1: float
    x2: float
    y2: float
    name: str
    weight: float
    is_backwards: bool

    @property
    def label(self) -> tuple[float, float]:
        """Where its name is written: in the gap before the next column."""
        gap = (COLUMN - BOX_WIDTH) / 2
        return self.x1 + gap, self.y1 + (self.y2 - self.y1) * gap / (self.x2 - self.x1)


@dataclass(frozen=True)
class PathDiagram:
    """The paths of an answer from left to right: concepts of the question, entities between, concepts of the answer."""

    boxes: list[Box]
    lines: list[Line]
    width: float
    height: float


def draw_paths(paths: list[dict[str, Any]]) -> PathDiagram | None:
    """The heaviest paths; an entity has one box in each column. None if there are no paths."""
    paths = paths[:MAX_DRAWN]
    if not paths:
        return None
    last = max(len(each["hops"]) for each in paths)
    columns: list[dict[str, int]] = [{} for _ in range(last + 1)]
    weights: dict[tuple, float] = {}
    for each in paths:
        entities = each["entities"]
        places = [*range(len(entities) - 1), last]  # short paths end in the last column too
        for column, name in zip(places, entities, strict=True):
            columns[column].setdefault(name, len(columns[column]))
        for hop, relation in enumerate(each["hops"]):
            is_backwards = not relation["relations"]
            relations = relation["inverse"] if is_backwards else relation["relations"]
            key = (places[hop], entities[hop], places[hop + 1], entities[hop + 1], "|".join(relations), is_backwards)
            weights[key] = weights.get(key, 0.0) + each["weight"]
    tallest = max(map(len, columns))

    def place(column: int, name: str) -> tuple[float, float]:
        offset = (tallest - len(columns[column])) / 2
        return MARGIN + column * COLUMN, MARGIN + (columns[column][name] + offset) * ROW

    kinds = ["question", *["middle"] * (last - 1), "answer"]
    boxes = [
        Box(cut(name, LONGEST_NAME), kinds[i], *place(i, name)) for i, column in enumerate(columns) for name in column
    ]
    lines = []
    for (first, head, second, tail, name, is_backwards), weight in weights.items():
        (x1, y1), (x2, y2) = place(first, head), place(second, tail)
        half = BOX_HEIGHT / 2
        lines.append(Line(x1 + BOX_WIDTH, y1 + half, x2, y2 + half, name, weight, is_backwards))
    return PathDiagram(boxes, lines, last * COLUMN + BOX_WIDTH + 2 * MARGIN, tallest * ROW + MARGIN)


def with_pictures(found: dict[str, Any]) -> dict[str, Any]:
    """An explanation, as `Explanation.to_dict` has it, with `drawn`: the picture of each answer's paths as plain
    values, None without paths. At most `MAX_LISTED` paths of an answer are kept."""
    sizes = {"box_width": BOX_WIDTH, "box_height": BOX_HEIGHT}
    choices = []
    for each in found["choices"]:
        picture = draw_paths(each["paths"])
        drawn = None
        if picture is not None:
            lines = [asdict(line) | {"label": line.label} for line in picture.lines]
            drawn = asdict(picture) | {"lines": lines} | sizes
        choices.append(each | {"drawn": drawn, "paths": each["paths"][:MAX_LISTED]})
    return found | {"choices": choices}


def write_explanation(path: Path, found: dict[str, Any], run: str) -> Path:
    """Writes the page of an explanation, as `Explanation.to_dict` has it."""
    order = sorted(found["choices"], key=lambda each: -each["probability"])
    answers = [(each, draw_paths(each["paths"]), each["paths"][:MAX_LISTED]) for each in order]
    sizes = {"box_width": BOX_WIDTH, "box_height": BOX_HEIGHT}
    write_text(path, render("explained.html", title=found["answer"], found=found, run=run, answers=answers, **sizes))
    return path
