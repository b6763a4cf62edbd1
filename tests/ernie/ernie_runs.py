"""Runs of a small ERNIE of a second."""

from pathlib import Path

from tiny import TINY_MODEL

from hornbook.runs.pretraining.pretrain import pretrain

SIZE = {
    name: value for name, value in TINY_MODEL.items() if not name.startswith("model.") and name != "data.short_length"
}


def quiet(words: str) -> None:
    pass


def pretrain_ernie(out: Path, made: Path, steps: int = 6, **more):
    """A run of `ernie-tiny` from the BERT of the fixtures; `more` are options."""
    base = {"init_from": made / "bert", "graph": made / "graph", "vectors": made / "vectors", "batch_tokens": 512}
    settings = SIZE | {"checkpoint.every_steps": 3, "optimizer.lr": 1e-3} | more.pop("overrides", {})
    options = base | {"log": quiet} | more
    return pretrain("ernie-tiny", made / "corpus", out, steps=steps, overrides=settings, **options)
