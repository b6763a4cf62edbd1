"""The scores of each class and the confusion matrix, as `evaluate` prints them."""

MOST_ROWS = 50  # classes that are printed


def print_tables(tables: dict, part: str) -> None:
    """The scores of each class and the confusion matrix of `Predictor.evaluate`."""
    from hornbook.terminal import log, table

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
        table(rows[:MOST_ROWS], (part, "precision", "recall", "f1", "gold", "predicted"))
        if len(rows) > MOST_ROWS:
            log(f"and {len(rows) - MOST_ROWS} rarer ones (--json has all)")
    if matrix := tables.get("confusion"):
        rows = [(name, *counts) for name, counts in zip(matrix["labels"], matrix["counts"], strict=True)]
        table(rows, ("gold \\ predicted", *matrix["labels"]), f"confusion matrix of {part}, in {matrix['of']}")
