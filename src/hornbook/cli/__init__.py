"""The command line. Each command parses its options, calls one function and prints the result; slow imports happen
inside the commands."""

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
    graphs,
    language,
    pretraining,
    prompting,
    retrieval,
    runs,
    serving,
    showing,
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
    "graphs",
    "language",
    "main",
    "pretraining",
    "prompting",
    "retrieval",
    "runs",
    "serving",
    "showing",
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
    """Runs a command. Errors of the user are printed as one sentence, with exit status 2 and no traceback."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        app(prog_name="hornbook")
    except (ValueError, OSError, RuntimeError) as error:
        if os.environ.get("HORNBOOK_TRACEBACK") or not _is_for_the_user(error):
            raise
        print_error(error)
        sys.exit(2)


def _is_for_the_user(error: Exception) -> bool:
    """False for a RuntimeError from another library: that is a bug, and its traceback helps."""
    return not isinstance(error, RuntimeError) or type(error).__module__.startswith("hornbook.")
