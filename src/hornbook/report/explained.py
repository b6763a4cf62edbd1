"""The page of `hornbook explain`: for every answer a picture of its heaviest paths, and their weights."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from hornbook.files import write_text
from hornbook.metrics.formatting import cut
from hornbook.report.rendering import render

MAX_DRAWN = 10  # paths of an answer
MAX_LISTED = 30
COLUMN, ROW, BOX_WIDTH, BOX_HEIGHT, MARGIN = 300, 62, 150, 30, 14  # in the units of the picture
LONGEST_NAME = 20


def _layout(paths: list[dict[str, Any]]) -> dict[str, Any]:
    """The boxes and lines of a picture of paths, from left to right: concepts of the question, entities between,
    concepts of the answer. An entity has one box in each column; a line is an edge from the right end of one box to the
    left end of the next, and `label` is where its name is written, in the gap before the next column."""
    last = max(len(path["hops"]) for path in paths)
    columns: list[dict[str, int]] = [{} for _ in range(last + 1)]  # the row of each entity
    weights: Counter[tuple] = Counter()
    for path in paths:
        # (column, entity) of each node; short paths end in the last column too.
        nodes = list(zip([*range(len(path["hops"])), last], path["entities"], strict=True))
        for column, name in nodes:
            columns[column].setdefault(name, len(columns[column]))
        for (head, tail), hop in zip(pairwise(nodes), path["hops"], strict=True):
            is_backwards = not hop["relations"]
            relations = "|".join(hop["inverse"] if is_backwards else hop["relations"])
            weights[head, tail, relations, is_backwards] += path["weight"]
    tallest = max(map(len, columns))

    def corner(column: int, name: str) -> tuple[float, float]:
        """The upper left corner of an entity's box."""
        offset = (tallest - len(columns[column])) / 2
        return MARGIN + column * COLUMN, MARGIN + (columns[column][name] + offset) * ROW

    kinds = ["question", *["middle"] * (last - 1), "answer"]
    boxes = []
    for i, column in enumerate(columns):
        for name in column:
            x, y = corner(i, name)
            boxes.append({"name": cut(name, LONGEST_NAME), "kind": kinds[i], "x": x, "y": y})
    lines, gap = [], (COLUMN - BOX_WIDTH) / 2
    for (head, tail, name, is_backwards), weight in weights.items():
        (x1, y1), (x2, y2) = corner(*head), corner(*tail)
        x1, y1, y2 = x1 + BOX_WIDTH, y1 + BOX_HEIGHT / 2, y2 + BOX_HEIGHT / 2
        label = (x1 + gap, y1 + (y2 - y1) * gap / (x2 - x1))
        ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
        lines.append({**ends, "name": name, "weight": weight, "is_backwards": is_backwards, "label": label})
    sizes = {"width": last * COLUMN + BOX_WIDTH + 2 * MARGIN, "height": tallest * ROW + MARGIN}
    return {"boxes": boxes, "lines": lines, **sizes, "box_width": BOX_WIDTH, "box_height": BOX_HEIGHT}


def with_drawn_paths(explanation: dict[str, Any]) -> dict[str, Any]:
    """An explanation, as `Explanation.to_dict` has it, whose answers have `drawn`, their paths as SVG (None without
    paths), and `num_paths`; at most `MAX_LISTED` of their paths remain."""
    choices = [
        choice
        | {
            "drawn": render("paths.html", **_layout(paths[:MAX_DRAWN])) if (paths := choice["paths"]) else None,
            "num_paths": len(choice["paths"]),
            "paths": choice["paths"][:MAX_LISTED],
        }
        for choice in explanation["choices"]
    ]
    return explanation | {"choices": choices}


def write_explanation(path: Path, explanation: dict[str, Any], run: str) -> Path:
    """Writes the page of an explanation, as `Explanation.to_dict` has it."""
    found = with_drawn_paths(explanation)
    write_text(path, render("explained.html", title=found["answer"], found=found, run=run))
    return path
