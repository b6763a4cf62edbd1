"""`samples.json` of a pre-training run: held-out sentences with a masked word, and the model's predictions for it."""

import json
import math
from pathlib import Path

from hornbook.files import read_json_if_exists, refusing_damage


def read_samples(folder: Path) -> list[dict]:
    """The samples of a run as they are stored; none if it wrote none."""
    path = Path(folder) / "samples.json"
    if not path.is_file():
        return []
    with refusing_damage(path, "delete it; the report does not need it"):
        return [dict(sample) for sample in json.loads(path.read_text(encoding="utf-8"))]


def split_sample(sample: dict, mask: str) -> dict:
    """The text split at the mask, the masked word, and (token, probability) of each prediction.

    >>> guesses = [{"token": "river", "probability": 0.5}]
    >>> split_sample({"text": "the [MASK] is wide", "answer": "river", "guesses": guesses}, "[MASK]")
    {'parts': ['the ', ' is wide'], 'answer': 'river', 'guesses': [('river', 0.5)]}
    """
    guesses = [
        (_bare(guess["token"]), guess["probability"] if math.isfinite(guess["probability"]) else 0.0)
        for guess in sample["guesses"]
    ]
    return {"parts": sample["text"].split(mask), "answer": _bare(sample["answer"]), "guesses": guesses}


def mask_token(folder: Path) -> str:
    """The mask token in the samples of a run."""
    token = read_json_if_exists(Path(folder) / "tokenizer_config.json").get("mask_token")
    return (token.get("content") if isinstance(token, dict) else token) or "[MASK]"


def _bare(token: str) -> str:
    """A token without the word-boundary marker (Ġ or ▁) of some tokenizers."""
    return token.lstrip("Ġ▁ ").rstrip() or token
