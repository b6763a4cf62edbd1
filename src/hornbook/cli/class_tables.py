"""Prints the per-class scores and the confusion matrix of `evaluate`."""

from hornbook.terminal import log, table

MAX_ROWS = 50  # classes that are printed


def print_tables(tables: dict, split: str) -> None:
    """Prints the per-class scores and the confusion matrix of one split, from `Predictor.evaluate`."""
    if classes := tables.get("classes"):
        rows = [
            (
                name,
                *(f"{each[measure]:.3f}" for measure in ("precision", "recall", "f1")),
                each["gold"],
                each["predicted"],
            )
            for name, each in classes.items()
        ]
        table(rows[:MAX_ROWS], (split, "precision", "recall", "f1", "gold", "predicted"))
        if len(rows) > MAX_ROWS:
            log(f"and {len(rows) - MAX_ROWS} rarer classes (--json has all)")
    if matrix := tables.get("confusion"):
        rows = [(name, *counts) for name, counts in zip(matrix["labels"], matrix["counts"], strict=True)]
        table(rows, ("gold \\ predicted", *matrix["labels"]), f"confusion matrix of {split}, in {matrix['of']}")
