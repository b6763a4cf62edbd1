"""Shared by the commands: the application, common options, errors and JSON output."""

import copy
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NoReturn

import typer
from typer.core import TyperGroup

from hornbook.cli.options import as_options
from hornbook.cli.overwriting import RUN, overwriting
from hornbook.lifecycle.stopping import begin_work
from hornbook.terminal import TrainingDisplay, log, set_json, set_quiet, table, wants_json
from hornbook.train.parallel.torchrun import refuse_command

IN_ORDER = """
    tokenizer corpus pretrain plan fill-mask next-sentence detect show generate score perplexity minimal-pairs prompt
    lm-eval check finetune distill evaluate predict explain export compare push report info runs serve embed search
    evaluate-retrieval features probe baseline label-curve glue reproduce graph
"""


ONCE = ("data", "file", "text", "pair", "label")  # options that name the data; with others, the last value counts
_context: ContextVar[typer.Context] = ContextVar("_context")  # of the command that runs


class Commands(TyperGroup):
    def __init__(self, **settings):
        """Adds --json and the application's --quiet to every command."""
        super().__init__(**settings)
        quiet = copy.copy(next(option for option in self.params if option.name == "quiet"))
        quiet.expose_value, quiet.callback = False, lambda ctx, option, value: set_quiet(True) if value else None
        as_json = copy.copy(quiet)
        as_json.name, as_json.opts, as_json.help = "as_json", ["--json"], "Print the result as one JSON object."
        as_json.callback = lambda ctx, option, value: set_json(value)
        for command in _with_subcommands(self):
            if not hasattr(command, "commands"):
                command.params += [quiet] if command.name == "serve" else [as_json, quiet]
                _name_options(command)
                _refuse_repeated_options(command)
            _simplify_help(command)

    def invoke(self, ctx):
        """Reports that a command was stopped, which typer would not."""
        begin_work()
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, ImportError) as error:
            # An interrupt while a module in C++ is imported becomes the cause of an ImportError.
            stop = error.__cause__ if isinstance(error, ImportError) else error
            if not isinstance(stop, KeyboardInterrupt):
                raise
            print_error(str(stop) or "stopped")
            raise typer.Exit(130) from None

    def resolve_command(self, ctx, args):
        """Finds the command; refuses one that several processes cannot run together."""
        name, command, rest = super().resolve_command(ctx, args)
        refuse_command(name)
        return name, command, rest

    def list_commands(self, ctx) -> list[str]:
        """Lists the commands in the order in which they are usually used."""
        return sorted(super().list_commands(ctx), key=IN_ORDER.split().index)


def _with_subcommands(command) -> Iterator:
    """A command and its subcommands, at any depth."""
    yield command
    for subcommand in getattr(command, "commands", {}).values():
        yield from _with_subcommands(subcommand)


def _name_options(command) -> None:
    """Replaces the argument name in "top_k must be ..." by the option, "--top-k". While the command runs,
    `given_options` knows which options were given."""
    options = {param.name: param.opts[0] for param in command.params if param.param_type_name == "option"}
    invoke = command.invoke

    def naming_options(ctx):
        _context.set(ctx)
        try:
            return invoke(ctx)
        except ValueError as error:
            name, must_be, rest = str(error).partition(" must be ")
            if type(error) is ValueError and must_be and name in options:
                error.args = (f"{options[name]}{must_be}{rest}",)
            raise

    command.invoke = naming_options


def _refuse_repeated_options(command) -> None:
    """Refuses `--data a.csv --data b.csv`, of which all but the last would be ignored, where one value is taken."""
    make_parser = command.make_parser

    def make_strict_parser(ctx):
        parser = make_parser(ctx)
        parse_args = parser.parse_args

        def parse_once(args):
            options, rest, order = parse_args(args)
            once = [each for each in order if each.name in ONCE and getattr(each, "multiple", True) is False]
            repeated = next((each for each in once if once.count(each) > 1), None)
            if repeated is not None and not ctx.resilient_parsing:
                ctx.fail(f"{repeated.opts[0]} takes one value, but is given {once.count(repeated)} times: give it once")
            return options, rest, order

        parser.parse_args = parse_once
        return parser

    command.make_parser = make_strict_parser


def _simplify_help(command) -> None:
    """The help of a command shows flags without a type and arguments as FILES... or [FILES...]."""
    all_params = command.get_params  # with --help, which is made when it is needed

    def get_params(ctx) -> list:
        params = all_params(ctx)
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
            elif param.param_type_name == "argument":
                param.metavar = param.metavar or param.name.upper() + ("" if param.nargs == 1 else "...")
                usage = param.metavar if param.required else f"[{param.metavar}]"
                param.get_usage_pieces = lambda ctx, usage=usage: [usage]
        return params

    command.get_params = get_params


def print_error(error: Exception | str) -> None:
    if isinstance(error, OSError) and error.filename and error.strerror:
        error = f"{error.filename}: {error.strerror.lower()}"
    print(f"hornbook: {as_options(str(error))}", file=sys.stderr)


app = typer.Typer(
    name="hornbook",
    cls=Commands,
    help="Pre-train language models from raw text, fine-tune, distil, evaluate and export them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def print_json(value: dict) -> None:
    if wants_json():
        print(json.dumps(value, ensure_ascii=False), flush=True)


def log_problems(problems: dict) -> None:
    from hornbook.data.problems import problem_lines

    for line in problem_lines(problems):
        log(line)


@contextmanager
def report_interruption(out: Path, to_resume: str) -> Iterator[None]:
    """If it is stopped, logs how to resume it and exits with status 130."""
    from hornbook.runs.finetuning.record import START_FILES
    from hornbook.train.job import Stopped

    try:
        yield
    except Stopped as stopped:
        log(f"stopped at step {stopped.outcome.step:,} and saved in {out}; {to_resume}")
        print_json({"out": str(out), **vars(stopped.outcome)})
        sys.stdout.flush()
        raise typer.Exit(130) from None
    except KeyboardInterrupt:  # before training: during augmentation or while teacher outputs are cached
        if not any((out / mark).exists() for mark in START_FILES):
            raise
        log(f"stopped; the progress is saved in {out}: {to_resume}")
        raise typer.Exit(130) from None


@contextmanager
def training(
    out: Path, overwrite: bool, resume: bool = False, to_resume: str = "rerun with --resume"
) -> Iterator[TrainingDisplay]:
    """Wraps the training of a run: --overwrite, progress, and what to do if it is stopped."""
    with overwriting(out, RUN, overwrite, resume), report_interruption(out, to_resume), TrainingDisplay() as display:
        yield display


def given_options(*names: str) -> list[str]:
    """The options, such as `--top-k`, of those parameters of the command that the user gave."""
    context = _context.get()
    options = {param.name: param.opts[0] for param in context.command.params}
    return [options[name] for name in names if context.get_parameter_source(name).name == "COMMANDLINE"]


def refuse_unused_options(why: str, unused: list[str]) -> None:
    """Raises if options are given that would be ignored: `--seed and --stop have no effect with --fill`."""
    if unused:
        has, pronoun = ("has", "it") if len(unused) == 1 else ("have", "them")
        raise ValueError(f"{' and '.join(unused)} {has} no effect {why}: leave {pronoun} out")


def or_recorded(value: str | None, name: str, out: Path | None, resume: bool, command: str) -> str:
    """An argument of the command or, with --resume, that of the run that is resumed."""
    from hornbook.lifecycle.run_folder import recorded

    run = recorded(out) if resume and value is None else {}
    value = run.get("request", {}).get(name) if value is None else value
    if value is None:
        refuse_missing(name.upper(), command, out, resume)
    return value


def refuse_missing(what: str, command: str, out: Path | None, resume: bool) -> NoReturn:
    """Raises a `ValueError` that names the missing argument or option."""
    from hornbook.runs.finetuning.record import START_FILES

    if resume and out is not None and not any((out / file).exists() for file in START_FILES):
        raise ValueError(f"{out} holds no run to resume: to start one, give {what}; see 'hornbook {command} --help'")
    raise ValueError(f"{command} needs {what}; see 'hornbook {command} --help'")


def show_recorded_settings(out: Path | None, resume: bool) -> bool:
    """Prints the settings of the run that --resume would continue; returns False if there is none."""
    from hornbook.lifecycle.run_folder import recorded

    run = recorded(out) if resume else {}
    if not run:
        return False
    if run["command"] == "finetune-text":
        from hornbook.runs.finetuning.finetune_text import settings_in
    elif "task" in run:
        from hornbook.runs.finetuning.record import settings_in
    else:
        from hornbook.runs.pretraining.settings import settings_in
    show_settings(settings_in(run))
    return True


def show_settings(settings, new_model=None, hidden: tuple[str, ...] = ()) -> None:
    """Prints every setting that is used and not `hidden`, with its value and description; those of a `new_model` first,
    where it is not part of the settings."""
    from hornbook.config import iter_settings, unused_names

    unused = {*unused_names(settings), *hidden}
    shown = [] if new_model is None else list(iter_settings(new_model, "model."))
    shown += [setting for setting in iter_settings(settings) if setting.name not in unused]
    table([(name, value, as_options(doc)) for name, value, doc in shown], ("setting", "value", "description"))
    print_json({name: value for name, value, _ in shown})
