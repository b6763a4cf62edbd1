"""Declares options and those that commands share, and rewrites messages of the library with the names of options."""

import functools
import inspect
import os
import re
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hornbook.interop.hub import BUILTIN_MODELS
from hornbook.lifecycle.requests import with_device
from hornbook.terminal import log

if TYPE_CHECKING:
    from hornbook.inference.decoder import DecoderModel
    from hornbook.inference.encoder import EncoderModel


def option(kind: Any, help: str, *names: str, **kwargs: Any) -> Any:
    """The type of a parameter that is an option; `names` if it is not called as the parameter."""
    return Annotated[kind, typer.Option(*names, help=help, **kwargs)]


def flag(name: str, help: str) -> Any:
    return option(bool, help, name)


def argument(kind: Any, help: str, **kwargs: Any) -> Any:
    """The type of a parameter that is an argument."""
    return Annotated[kind, typer.Argument(help=help, **kwargs)]


Device = option(str, "cpu, cuda or cuda:N; defaults to a GPU if there is one.")
Overrides = option(list[str] | None, "Override a setting: key=value; --show lists the keys.", "--set")
Resume = flag("--resume", "Resume the run in --out, or start it.")
Show = flag("--show", "Print all settings with their values and exit.")
Seed = option(int, "Random seed.", min=0)
OptionalSeed = option(int | None, "Random seed.")
Overwrite = flag("--overwrite", "Replace what hornbook wrote to --out before.")
OverwriteFile = flag("--overwrite", "Replace the file --out.")
Join = flag("--join", "Share the runs with other processes that have the same --out and --join.")
Documents = option(str, "How documents are separated in a .txt: blank-line or file.")
MODEL = "A run folder, a transformers folder, a Hugging Face name, or a built-in model (en, ko)."
Model = argument(str, MODEL)
FOLDER_OR_NAME = "a run folder, a transformers folder or a Hugging Face name."
Gpt = argument(str, f"A GPT: {FOLDER_OR_NAME}")


def with_optional_model(last: str, help: str, first: str = "[MODEL]"):
    """The arguments of a command that takes [MODEL] LAST: `split_model` or `split_model_and_texts` tells them apart."""
    help = f"{help} Before it, a model: {MODEL[0].lower()}{MODEL[1:]} By default en."
    return argument(list[str], help, metavar=f"{first} {last}", show_default=False)


def split_model(arguments: list[str], last: str) -> tuple[str | None, str]:
    """The model, None if there is none, and the last argument."""
    if len(arguments) > 2:
        raise ValueError(f"there are {len(arguments)} arguments, and only a model and {last} are expected: quote texts")
    if len(arguments) == 1:
        refuse_folder(arguments[0], last)
    return (arguments[0] if len(arguments) == 2 else None), arguments[-1]


def split_model_and_texts(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The model, None if there is none, and the texts.

    >>> split_model_and_texts(["en", "One.", "Two."]), split_model_and_texts(["A text.", "Another."])
    (('en', ['One.', 'Two.']), (None, ['A text.', 'Another.']))
    """
    if len(arguments) == 1:
        refuse_folder(arguments[0], "a text")
    is_model = len(arguments) > 1 and may_be_model(arguments[0])
    return (arguments[0], arguments[1:]) if is_model else (None, arguments)


def may_be_model(argument: str) -> bool:
    """A folder, or one word, as the names of models are."""
    return os.path.isdir(argument) or len(argument.split()) == 1


def open_model(name: str, weights: str = "float", device: str = "auto") -> "EncoderModel | DecoderModel":
    """`hornbook.load`, with a note if the model is a pre-training run that is not finished."""
    import hornbook
    from hornbook.train.checkpoint import unfinished_note

    loaded = hornbook.load(name, weights, device)
    if note := unfinished_note(loaded.folder):
        log(note)
    return loaded


def refuse_folder(argument: str, last: str) -> None:
    """Raises if the only argument, which is read as the last one, is a folder: a model after which it was forgotten."""
    if os.path.isdir(argument):  # Path.is_dir raises if a text is too long for the name of a file
        raise ValueError(f"{argument} is a folder: give {last} after it")


def parse_overrides(pairs: list[str] | None, device: str = "auto") -> dict[str, str]:
    """Parses --set and --device into overrides of settings."""
    given = named_values(pairs, "--set takes key=value, such as --set optimizer.lr=3e-4")
    return with_device({name: value.strip() for name, value in given}, device)


def named_values(pairs: list[str] | None, form: str) -> list[tuple[str, str]]:
    """(name, value) of each NAME=VALUE of an option that may be repeated; `form` tells in errors what the option takes.

    >>> named_values(["lang=en", "lang=de"], "--where takes column=value")
    [('lang', 'en'), ('lang', 'de')]
    """
    values = []
    for pair in pairs or []:
        name, sign, value = pair.partition("=")
        if not sign:
            raise ValueError(f"{form}, not '{pair}'")
        values.append((name.strip(), value))
    return values


def comma_separated(text: str | None) -> list[str] | None:
    """The parts of an option such as `a, b`; None if the option is not given.

    >>> comma_separated("a, b")
    ['a', 'b']
    """
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


Reading = dict[str, Any]  # an argument that `with_reading_options` fills
READING_OPTIONS: dict[str, tuple[Any, Any]] = {  # (type, default)
    "text": (option(str | None, "Column of the text; inferred when omitted."), None),
    "pair": (option(str | None, "Column of the second text."), None),
    "label": (option(str | None, "Column of the label."), None),
    "delimiter": (option(str | None, "Field separator, such as ';' or tab; detected when omitted."), None),
    "encoding": (option(str | None, "File encoding, such as cp949; detected when omitted."), None),
    "strict": (flag("--strict", "Stop at the first bad row."), False),
}


def with_reading_options(*left_out: str) -> Callable[[Callable], Callable]:
    """Decorator of a command: its argument `reading` becomes the options `READING_OPTIONS`, except those left out. The
    command receives them in one dictionary, by their names."""
    names = [name for name in READING_OPTIONS if name not in left_out]

    def decorate(command: Callable) -> Callable:
        parameters: dict[str, inspect.Parameter] = {}
        for name, parameter in inspect.signature(command).parameters.items():
            if name != "reading":
                parameters[name] = parameter
                continue
            for option_name in names:
                annotation, default = READING_OPTIONS[option_name]
                parameters[option_name] = parameter.replace(name=option_name, annotation=annotation, default=default)

        @functools.wraps(command)
        def call(**kwargs: Any) -> None:
            command(reading={name: kwargs.pop(name) for name in names}, **kwargs)

        call.__signature__ = inspect.Signature(list(parameters.values()))
        call.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
        return call

    return decorate


# The library names Python arguments (text=, resume=True, recipe='tinybert') in errors, log lines and descriptions of
# settings, and the command line its options.
SAME_NAME = """
    add_prefix_space api_key append batch_tokens choices clean columns data delimiter device direction dtype encoding
    exclude executor flops graph held_out host join kind label layers links lr lr_search method minutes
    minutes_each model near_duplicates normalize num_beams pair pooling processes reason recipe resume sbatch seeds
    shots slide steps stop_after stride strict task text text_column texts tokens vectors where within_word word_vectors
"""
OPTION_OF = {name: f"--{name.replace('_', '-')}" for name in SAME_NAME.split()} | {
    "augment.model": "--augment-model",
    "corpora": "--corpus",
    "init_from": "--from",
    "id_column": "--id",
    "task.head": "--head",
    "task.pair_encoding": "--pair-encoding",
    "tflops": "--device-tflops",
}
PHRASES = {  # what has no argument
    "remove the folder": "add --overwrite",
    "model.fill(text)": "--fill",
    "a (text, pair)": "'text ||| pair'",
    "a (question, passage)": "'question ||| passage'",
    "a (context, choices), a (context, choice, choice, …)": "'context ||| choice ||| choice'",
}
# A name as a word of its own, then True, a quoted value, or no value. So paths and settings (model.width=64) are kept.
NAMES = "|".join(map(re.escape, OPTION_OF))
ARGUMENT = re.compile(rf"(?<![\w./'\"=-])({NAMES})=(?:True\b|(['\"])(.*?)\2|(?=[\s,;:)]|$))")


def as_options(text: str) -> str:
    """A message of the library in the words of the command line.

    >>> as_options("use recipe='tinybert' or a smaller batch_tokens=, or remove the folder")
    'use --recipe tinybert or a smaller --batch-tokens, or add --overwrite'
    >>> as_options("this model takes a (question, passage)")
    "this model takes 'question ||| passage'"
    """

    def option(match: re.Match) -> str:
        return OPTION_OF[match[1]] + ("" if match[3] is None else f" {shlex.quote(match[3])}")

    text = ARGUMENT.sub(option, text).replace(f"{BUILTIN_MODELS}{os.sep}", "")  # built-in models by their names
    for phrase, of_command in PHRASES.items():
        text = text.replace(phrase, of_command)
    return text
