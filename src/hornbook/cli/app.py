"""Shared by the commands: the application, common options, errors and JSON output."""

import copy
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hornbook.lifecycle.requests import as_overrides
from hornbook.lifecycle.stopping import begin_work
from hornbook.terminal import log, set_json, set_quiet, table, wants_json
from hornbook.train.parallel.launched import refuse_command

IN_ORDER = (
    *("tokenizer", "corpus", "pretrain", "plan", "fill-mask", "next-sentence", "detect", "show"),
    *("generate", "score", "perplexity", "minimal-pairs", "prompt", "lm-eval"),
    *(
        "check",
        "finetune",
        "distill",
        "evaluate",
        "predict",
        "explain",
        "export",
        "compare",
        "push",
        "report",
        "info",
        "runs",
    ),
    "serve",
    *("embed", "search", "evaluate-retrieval"),
    *("features", "probe", "baseline", "label-curve", "glue", "reproduce", "graph"),
)


class Commands(TyperGroup):
    def __init__(self, **settings):
        """Adds --json and the application's --quiet to every command."""
        super().__init__(**settings)
        quiet = copy.copy(next(option for option in self.params if option.name == "quiet"))
        quiet.expose_value, quiet.callback = False, lambda ctx, option, value: set_quiet(True) if value else None
        as_json = copy.copy(quiet)
        as_json.name, as_json.opts, as_json.help = "as_json", ["--json"], "Print the result as one JSON object."
        as_json.callback = lambda ctx, option, value: set_json(value)
        _add_option({name: each for name, each in self.commands.items() if name != "serve"}, as_json)
        _add_option(self.commands, quiet)

    def invoke(self, ctx):
        """Reports that a command was stopped, which typer would not."""
        begin_work()
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            print_error(str(stop) or "stopped")
            raise typer.Exit(130) from None

    def resolve_command(self, ctx, args):
        """Finds the command; refuses one that several processes cannot run together."""
        found = super().resolve_command(ctx, args)
        refuse_command(found[0])
        return found

    def list_commands(self, ctx) -> list[str]:
        """Lists the commands in the order in which they are usually used."""
        return sorted(super().list_commands(ctx), key=IN_ORDER.index)


def _add_option(commands: dict, option) -> None:
    for command in commands.values():
        if hasattr(command, "commands"):
            _add_option(command.commands, option)
        else:
            command.params.append(option)


def print_error(error: Exception | str) -> None:
    if isinstance(error, OSError) and error.filename and error.strerror:
        error = f"{error.filename}: {error.strerror.lower()}"
    # Errors of the Python API name arguments (text=); the command line has options (--text).
    text = re.sub(r"\b(text|pair|label|model|vectors)=(?=\W|$)", r"--\1", str(error))
    print(f"hornbook: {text}", file=sys.stderr)


def option(kind: Any, help: str, *names: str, **more: Any) -> Any:
    """The type of a parameter that is an option; `names` if it is not called as the parameter."""
    return Annotated[kind, typer.Option(*names, help=help, **more)]


def flag(name: str, help: str) -> Any:
    return option(bool, help, name)


def argument(kind: Any, help: str, **more: Any) -> Any:
    """The type of a parameter that is an argument."""
    return Annotated[kind, typer.Argument(help=help, **more)]


app = typer.Typer(
    name="hornbook",
    cls=Commands,
    help="Pre-train language models from raw text, fine-tune, distil, evaluate and export them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Device = option(str, "cpu, cuda or cuda:N; defaults to a GPU if there is one.")
Overrides = option(list[str] | None, "Override a setting: key=value; --show lists the keys.", "--set")
Resume = flag("--resume", "Resume the run in --out, or start it.")
Show = flag("--show", "Print all settings with their values and exit.")
Seed = option(int, "Random seed.")
OptionalSeed = option(int | None, "Random seed.")
Overwrite = flag("--overwrite", "Replace what hornbook wrote to --out before.")
MODEL = "A run folder, a transformers folder, a Hugging Face name, or a built-in model (en, ko)."
Model = argument(str, MODEL)


def with_optional_model(last: str, help: str, first: str = "[MODEL]"):
    """The arguments of a command that takes [MODEL] LAST: `split_model` tells them apart."""
    help = f"{help} Before it, a model: {MODEL[0].lower()}{MODEL[1:]} By default en."
    return argument(list[str], help, metavar=f"{first} {last}", show_default=False)


def split_model(arguments: list[str], last: str) -> tuple[str | None, str]:
    """The model, None if there is none, and the last argument."""
    if len(arguments) > 2:
        raise ValueError(f"there are {len(arguments)} arguments, and only a model and {last} are expected: quote texts")
    return (arguments[0] if len(arguments) == 2 else None), arguments[-1]


def print_json(value: dict) -> None:
    if wants_json():
        print(json.dumps(value, ensure_ascii=False), flush=True)


def log_problems(problems: dict) -> None:
    from hornbook.data.problems import problem_lines

    for line in problem_lines(problems):
        log(line)


@contextmanager
def report_interruption(out: Path) -> Iterator[None]:
    """Wraps a run on a task: after Ctrl-C, logs how to resume it and exits with status 130."""
    from hornbook.runs.finetuning.api import Stopped
    from hornbook.runs.finetuning.record import MARKS

    try:
        yield
    except Stopped as stopped:
        log(str(stopped))
        print_json({"out": str(out), **vars(stopped.outcome)})
        sys.stdout.flush()
        raise typer.Exit(130) from None
    except KeyboardInterrupt:  # before training: during augmentation or while teacher outputs are cached
        if not any((out / mark).exists() for mark in MARKS):
            raise
        log(f"stopped; the progress is saved in {out}: run the same command with --resume to resume")
        raise typer.Exit(130) from None


def exit_if_stopped(outcome) -> None:
    """Exits with status 130 if a run was stopped."""
    if outcome.ended == "stopped":
        raise typer.Exit(130)


def check_writable(out: Path) -> None:
    """Raises, before any work is done, if the folder cannot be written."""
    nearest = next(path for path in (out, *out.parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise ValueError(f"{out} cannot be written, as {nearest} is not a writable folder: choose another --out")


def refuse_existing(out: Path, file: str, what: str) -> None:
    if (out / file).exists():
        raise ValueError(f"{out} already holds {what}: add --overwrite to replace it, or choose another --out")


def refuse_unused_options(why: str, given: dict[str, bool]) -> None:
    """Raises if options are given that would be ignored: `--seed and --stop have no effect with --fill`."""
    unused = [option for option, is_given in given.items() if is_given]
    if unused:
        has, pronoun = ("has", "it") if len(unused) == 1 else ("have", "them")
        raise ValueError(f"{' and '.join(unused)} {has} no effect {why}: omit {pronoun}")


def parse_overrides(pairs: list[str] | None, device: str = "auto") -> dict[str, str]:
    """Parses --set and --device into overrides of settings."""
    for pair in pairs or []:
        if "=" not in pair:
            raise ValueError(f"--set takes key=value, such as --set optimizer.lr=3e-4, not '{pair}'")
    overrides = {key.strip(): value.strip() for key, _, value in (pair.partition("=") for pair in pairs or [])}
    return overrides | as_overrides(device=None if device == "auto" else device)


def recorded_settings(out: Path | None, resume: bool):
    """The settings of the run that --resume would continue, or None if there is none."""
    from hornbook.lifecycle.run_folder import recorded

    run = recorded(out) if resume else {}
    if not run:
        return None
    if run["command"] == "finetune-text":
        from hornbook.runs.finetuning.text_run import settings_in
    elif "task" in run:
        from hornbook.runs.finetuning.record import settings_of as settings_in
    else:
        from hornbook.runs.pretraining.settings import settings_in
    return settings_in(run)


def show_settings(settings, new_model=None, hidden: tuple[str, ...] = ()) -> None:
    """Prints every setting that is used and not `hidden`, with its value and description; those of a `new_model` first,
    where it is not part of the settings."""
    from hornbook.config import iter_settings, unused_names

    unused = {*unused_names(settings), *hidden}
    found = [] if new_model is None else list(iter_settings(new_model, "model."))
    found += [each for each in iter_settings(settings) if each.name not in unused]
    table([(each.name, each.value, each.doc) for each in found], ("setting", "value", "description"))
    print_json({each.name: each.value for each in found})
