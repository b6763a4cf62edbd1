"""The commands. Each parses, calls one function and prints; nothing heavy is imported before a command needs it."""

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
    runs,
    tasks,
    texts,
    use,
)
from hornbook.cli.app import app, print_error

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
    "runs",
    "tasks",
    "texts",
    "use",
]


@app.callback(invoke_without_command=True)
def hornbook(
    version: Annotated[bool, typer.Option("--version", "-V", help="Print the version and exit.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result and errors.")] = False,
) -> None:
    from hornbook.terminal import set_json, set_quiet

    set_quiet(quiet)
    set_json(False)
    if version:
        from hornbook import __version__

        print(__version__)
        raise typer.Exit


def main() -> None:
    """Runs a verb. What a person did wrong is one sentence and exit status 2, never a traceback."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        app(prog_name="hornbook")
    except (ValueError, OSError, RuntimeError) as error:
        if os.environ.get("HORNBOOK_TRACEBACK") or not _is_for_the_user(error):
            raise
        print_error(error)
        sys.exit(2)


def _is_for_the_user(error: Exception) -> bool:
    """Everything but a RuntimeError that is not ours: that is a fault of the program, and its traceback helps."""
    return not isinstance(error, RuntimeError) or type(error).__module__.startswith("hornbook.")
