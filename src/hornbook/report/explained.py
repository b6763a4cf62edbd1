"""The page of `hornbook explain`: for every answer a picture of its heaviest paths, and their weights."""

from pathlib import Path
from typing import Any

from hornbook.files import write_text
from hornbook.metrics.words import cut
from hornbook.report.rendering import render

MAX_DRAWN = 10  # paths of an answer
MAX_LISTED = 30
COLUMN, ROW, BOX_WIDTH, BOX_HEIGHT, MARGIN = 300, 62, 150, 30, 14  # in the units of the picture
LONGEST_NAME = 20


def draw_paths(paths: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The heaviest paths from left to right, as plain values: concepts of the question, entities between, concepts of
    the answer. An entity has one box in each column; a line is an edge from the right end of one box to the left end of
    the next, and `label` is where its name is written, in the gap before the next column. None if there are no
    paths."""
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
    boxes = []
    for i, column in enumerate(columns):
        for name in column:
            x, y = place(i, name)
            boxes.append({"name": cut(name, LONGEST_NAME), "kind": kinds[i], "x": x, "y": y})
    lines, gap = [], (COLUMN - BOX_WIDTH) / 2
    for (first, head, second, tail, name, is_backwards), weight in weights.items():
        (x1, y1), (x2, y2) = place(first, head), place(second, tail)
        x1, y1, y2 = x1 + BOX_WIDTH, y1 + BOX_HEIGHT / 2, y2 + BOX_HEIGHT / 2
        about = {"name": name, "weight": weight, "is_backwards": is_backwards}
        label = (x1 + gap, y1 + (y2 - y1) * gap / (x2 - x1))
        lines.append({"x1": x1, "y1": y1, "x2": x2, "y2": y2, **about, "label": label})
    sizes = {"width": last * COLUMN + BOX_WIDTH + 2 * MARGIN, "height": tallest * ROW + MARGIN}
    return {"boxes": boxes, "lines": lines, **sizes, "box_width": BOX_WIDTH, "box_height": BOX_HEIGHT}


def with_pictures(found: dict[str, Any]) -> dict[str, Any]:
    """An explanation, as `Explanation.to_dict` has it, with `drawn`: the picture of each answer's paths, None without
    paths. At most `MAX_LISTED` paths of an answer are kept."""
    choices = [
        each | {"drawn": draw_paths(each["paths"]), "paths": each["paths"][:MAX_LISTED]} for each in found["choices"]
    ]
    return found | {"choices": choices}


def write_explanation(path: Path, found: dict[str, Any], run: str) -> Path:
    """Writes the page of an explanation, as `Explanation.to_dict` has it."""
    order = sorted(found["choices"], key=lambda each: -each["probability"])
    answers = [(each, draw_paths(each["paths"]), each["paths"][:MAX_LISTED]) for each in order]
    write_text(path, render("explained.html", title=found["answer"], found=found, run=run, answers=answers))
    return path
