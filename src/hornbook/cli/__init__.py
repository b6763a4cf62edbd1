"""The command line. Each command parses its options, calls one function and prints the result; slow imports happen
inside the commands."""

import os
import sys

import typer

from hornbook.cli import (  # noqa: F401  they register their commands
    corpora,
    deployment,
    evaluation,
    finetuning,
    graphs,
    language,
    prediction,
    pretrained,
    pretraining,
    retrieval,
    runs,
    showing,
)
from hornbook.cli.app import app, print_error
from hornbook.cli.options import as_options, option
from hornbook.terminal import set_json, set_quiet, set_rewriting
from hornbook.train.parallel import torchrun

__all__ = ["app", "main"]


@app.callback(invoke_without_command=True)
def hornbook(
    version: option(bool, "Print the version and exit.", "--version", "-V") = False,
    quiet: option(bool, "Print only the result and errors.", "--quiet", "-q") = False,
) -> None:
    set_quiet(quiet or torchrun.rank() > 0)
    set_json(False)
    set_rewriting(as_options)
    if version:
        from hornbook import __version__

        print(__version__)
        raise typer.Exit


def main() -> None:
    """Runs a command. Errors of the user are printed as one sentence, with exit status 2 and no traceback."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    if torchrun.rank() > 0:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        app(prog_name="hornbook")
    except (ValueError, OSError, RuntimeError) as error:
        if os.environ.get("HORNBOOK_TRACEBACK") or not _is_for_the_user(error):
            raise
        print_error(f"rank {torchrun.rank()}: {error}" if torchrun.rank() else error)
        sys.exit(2)


def _is_for_the_user(error: Exception) -> bool:
    """False for a RuntimeError from another library: that is a bug, and its traceback helps."""
    return not isinstance(error, RuntimeError) or type(error).__module__.startswith("hornbook.")
