"""Help: every command has a valid example, and a typo is answered with the nearest name."""

import re
import shlex
import subprocess
import sys

import pytest
import typer

from hornbook import __version__
from hornbook.cli.app import app


def commands(group: typer.main.TyperGroup, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """All there are, such as (corpus, build)."""
    found = []
    for name, command in group.commands.items():
        found += commands(command, (*before, name)) if hasattr(command, "commands") else [(*before, name)]
    return found


COMMANDS = commands(typer.main.get_command(app))


def test_commands_are_found():
    assert {("corpus", "build"), ("pretrain",), ("reproduce",)} <= set(COMMANDS) and len(COMMANDS) > 25


def test_every_command_that_takes_columns_takes_a_delimiter_and_an_encoding():
    commands = typer.main.get_command(app).commands
    options = {name: {each.name for each in command.params} for name, command in commands.items()}
    with_columns = {name for name, names in options.items() if {"text", "pair"} <= names}
    assert {
        "finetune",
        "evaluate",
        "predict",
        "features",
        "baseline",
        "probe",
        "label-curve",
        "distill",
    } <= with_columns
    assert all({"delimiter", "encoding"} <= options[name] for name in with_columns)


WITHOUT_FILES = {  # and a word that they print
    **{"plan": "parameters", "fill-mask": "capital", "detect": "chef"},
    **{"show tokens": "vocabulary", "show forms": "classified", "show masking": "expected", "show replaced": "judged"},
    **{"show attention": "head", "show parameters": "projection"},
}


@pytest.mark.parametrize("command", COMMANDS, ids="-".join)
def test_help_has_examples_that_are_understood(hornbook, command, tmp_path, monkeypatch):
    """Every word of them parses; that their files do not exist is what stops them."""
    monkeypatch.chdir(tmp_path)
    said = hornbook(*command, "--help")
    text = re.sub(r"\s+", " ", said.out)
    assert said.status == 0 and f"Example: hornbook {' '.join(command)} " in text
    examples = text.partition("Example: ")[2].split("hornbook ")[1:]
    for example in examples:
        said = hornbook(*shlex.split(example))
        name = " ".join(command)
        if name in WITHOUT_FILES:
            assert said.status == 0 and WITHOUT_FILES[name] in said.out
        else:
            assert said.status == 2
            assert said.error.startswith("hornbook: "), said.error


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        (["corpus", "build"], "FILES..."),
        (["graph", "link"], "GRAPH [TEXTS...]"),
        (["fill-mask"], "[MODEL]... TEXT"),
        (["perplexity"], "MODEL FILE"),
    ],
)
def test_help_shows_flags_without_a_type_and_arguments_in_capitals(hornbook, command, usage):
    out = hornbook(*command, "--help").out
    assert f"Usage: hornbook {' '.join(command)} [OPTIONS] {usage} " in out
    assert "<bool>" not in out and "<bool>" not in hornbook("--help").out
    assert "--device" not in out or "<str>" in out


def test_help_names_the_commands_in_the_order_in_which_they_are_needed(hornbook):
    out = hornbook("--help").out
    way = ["tokenizer", "corpus", "pretrain", "fill-mask", "generate", "finetune", "distill", "evaluate", "export"]
    places = [out.index(f"│ {name} ") for name in [*way, "report", "reproduce"]]
    assert places == sorted(places)
    assert all(f"│ {command[0]} " in out for command in COMMANDS)
    assert hornbook("--version").out.strip()


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["pretrian"], "pretrain"),
        (["fillmask"], "fill-mask"),
        (["tokenizer", "trian"], "train"),
        (["corpus", "bild"], "build"),
        (["fill-mask", "run", "text", "--top-kk", "3"], "--top-k"),
    ],
)
def test_typos_name_the_nearest(hornbook, words, near):
    said = hornbook(*words)
    assert said.status == 2
    assert near in said.error
    assert "Traceback" not in said.error


def test_as_a_module():
    """For where the command is not on the path."""
    found = subprocess.run([sys.executable, "-m", "hornbook", "--help"], capture_output=True, text=True, check=True)
    assert "pretrain" in found.stdout


def test_the_version(hornbook):
    assert hornbook("--version").stdout == hornbook("-V").stdout == f"{__version__}\n"


def test_shells_complete_commands_and_options(hornbook, monkeypatch):
    assert "--install-completion" in hornbook("--help").stdout
    monkeypatch.setenv("_HORNBOOK_COMPLETE", "complete_bash")
    for typed, expected in (("hornbook pretr", "pretrain"), ("hornbook finetune --batch-", "--batch-size")):
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
        assert hornbook().stdout.split() == [expected]


DIALECT = re.compile(
    r"\b(go(es)? on|going on|anew|so many|(not|when|be) said|says?|told|begin it|begun|verbs?|guess(ed)?|part of"
    r"|(a|one a) (line|step|token|second|core))\b",
    re.I,
)


def helps(command) -> list[str]:
    texts = [command.help, *(getattr(option, "help", "") for option in command.params)]
    return [text for text in texts if text] + [
        text for inner in getattr(command, "commands", {}).values() for text in helps(inner)
    ]


def test_help_is_in_the_words_of_the_field():
    texts = helps(typer.main.get_command(app))
    assert len(texts) > 200
    assert [text for text in texts if DIALECT.search(text)] == []


def test_every_option_is_explained():
    for names in COMMANDS:
        command = typer.main.get_command(app)
        for name in names:
            command = command.commands[name]
        assert command.help and all(getattr(option, "help", None) for option in command.params), names
