"""The verbs. Each parses, calls one function and prints; nothing heavy is imported before a verb needs it."""

import os
import sys
from typing import Annotated

import typer

from hornbook.cli import (
    checking,
    comparing,
    deployment,
    distilling,
    experiments,
    language,
    pretraining,
    prompting,
    tasks,
    texts,
    use,
)
from hornbook.cli.app import app, complain

__all__ = [
    "app",
    "checking",
    "comparing",
    "deployment",
    "distilling",
    "experiments",
    "language",
    "main",
    "pretraining",
    "prompting",
    "tasks",
    "texts",
    "use",
]


@app.callback(invoke_without_command=True)
def hornbook(
    version: Annotated[bool, typer.Option("--version", help="Print the version, and stop.")] = False,
) -> None:
    if version:
        from hornbook import __version__

        print(__version__)
        raise typer.Exit


def main() -> None:
    """Runs a verb. What a person did wrong is one sentence and exit status 2, never a traceback."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        app()
    except (ValueError, OSError, RuntimeError) as error:
        if os.environ.get("HORNBOOK_TRACEBACK") or not _is_for_the_user(error):
            raise
        complain(error)
        sys.exit(2)


def _is_for_the_user(error: Exception) -> bool:
    """Everything but a RuntimeError that is not ours: that is a fault of the program, and its traceback helps."""
    return not isinstance(error, RuntimeError) or type(error).__module__.startswith("hornbook.")
