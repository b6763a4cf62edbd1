"""What the tests of distillation on a task share."""

import random as chance
from collections.abc import Callable
from pathlib import Path

QUIET = {"log": lambda words: None}
ONCE = {"runtime.threads": 1, "validation.every_steps": 10_000}
SMALL = {"num_layers": 1, "width": 32, "inner_width": 64}


def rows_of(rule: Callable, number: int, seed: int = 1) -> list[dict]:
    draw = chance.Random(seed)
    return [rule(draw) for _ in range(number)]


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.safetensors")}
