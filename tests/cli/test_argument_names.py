"""The library names Python arguments in its messages; the command line names its options instead."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.main

import hornbook as library
from hornbook import cli, terminal
from hornbook.cli.options import OPTION_OF, PHRASES, as_options

SOURCE = Path(cli.__file__).parents[1]
COMMAND = re.compile(r"hornbook [^'(),;]*")  # a command shown whole, with its options
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
ALLOWED = {  # options of commands, and marks that look like them
    "data/web/build.py": {"--noheader", "--me", "--format"},  # squeue
    "demo.py": {"--top-k", "--data", "--out", "--vocab-size", "--tokenizer", "--corpus", "--minutes"},
    "graph/graph.py": {"--x--"},  # an edge
    "report/experiment.py": {"--resume"},  # "the same command with --resume"
    "report/finetuned.py": {"--file"},
    "report/page.py": {"--x"},  # CSS
    "report/prompting.py": {"--resume"},
    "report/run_files.py": {"--task", "--data", "--corpus", "--student", "--out", "--resume"},
    "serve/api.py": {"--task"},
    "train/parallel/ranks.py": {"--nproc-per-node"},  # torchrun
}


@cache
def texts(file: Path) -> list[str]:
    """The strings of a module without docstrings, with x in place of the values of f-strings."""
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    inner |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    found = []
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            found.append("".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            found.append(node.value)
    return found


def test_no_option_in_the_library():
    found = {}
    for file in SOURCE.rglob("*.py"):
        name = file.relative_to(SOURCE).as_posix()
        if not name.startswith("cli/"):
            options = {option for text in texts(file) for option in OPTION.findall(COMMAND.sub("", text))}
            found[name] = options
    assert {name: options for name, options in found.items() if options} == ALLOWED


def test_every_argument_in_a_message_has_its_option():
    argument = re.compile(r"(?<![\w./'\"=-])([a-z_.]+)=(?:True\b|(?=[\s,;:)'\"]|$))")
    named = {name for file in SOURCE.rglob("*.py") for text in texts(file) for name in argument.findall(text)}
    roles = {"x"}  # a column: text, pair or label
    in_programs = {"function_to_apply", "truncation"}  # arguments of pipelines, shown on model cards
    assert named - set(OPTION_OF) == roles | in_programs


def options_of(command) -> Iterator[str]:
    for each in getattr(command, "commands", {}).values():
        yield from options_of(each)
    yield from (option for parameter in command.params for option in parameter.opts)


def test_every_option_exists():
    there = set(options_of(typer.main.get_command(cli.app)))
    named = set(OPTION_OF.values()) | {option for phrase in PHRASES.values() for option in OPTION.findall(phrase)}
    assert named <= there


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("name it with text= (columns: a, b)", "name it with --text (columns: a, b)"),
        ("leave out text=, pair= and label=", "leave out --text, --pair and --label"),
        ("columns= must name head", "--columns must name head"),
        ("add resume=True to resume it", "add --resume to resume it"),
        ("such as text='Ticket text' and pair=\"it's\"", "such as --text 'Ticket text' and --pair 'it'\"'\"'s'"),
        ("recipe='published' keeps them", "--recipe published keeps them"),
        ("give corpora=: use id_column='none' or init_from=", "give --corpus: use --id none or --from"),
        ("leave out task.pair_encoding=", "leave out --pair-encoding"),
        ("remove the folder, or choose another one", "add --overwrite, or choose another one"),
    ],
)
def test_arguments_become_options(message, shown):
    assert as_options(message) == shown


@pytest.mark.parametrize(
    "message",
    [
        "runs/lr=0.01,seed=3/label=/data=True does not exist",
        "lr=0.01 already holds a run",
        "label=1.csv has no row",
        "--set model.width=64 and model.graph= are settings",
        "there is no setting 'text='",
        "a file=, the context= and subtext= are not arguments",
        "text==1",
        "--where lang=en",
    ],
)
def test_text_of_the_user_is_kept(message):
    assert as_options(message) == message


def test_python_shows_arguments_and_the_command_options(hornbook, tmp_path):
    table = tmp_path / "data.csv"
    table.write_text("text,note\n" + "a film,\n" * 9, encoding="utf-8")
    with pytest.raises(ValueError, match=r"name it with label= \(columns"):
        library.check(table)
    assert "name it with --label (columns" in hornbook("check", table).error


def test_inferred_values(hornbook, tmp_path):
    table = tmp_path / "data.csv"
    table.write_text("text;label\n" + "good film;yes\nbad film;no\n" * 5, encoding="utf-8")
    assert any("(detected; delimiter= overrides it)" in line for line in library.check(table)["inferred"])
    assert "(detected; --delimiter overrides it)" in hornbook("check", table).out


def test_log_is_rewritten_only_by_the_command_line(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "_rewritten", str)
    terminal.log("use more minutes=")
    terminal.set_rewriting(as_options)
    terminal.log("use more minutes=")
    assert capsys.readouterr().err == "use more minutes=\nuse more --minutes\n"


def test_descriptions_of_settings(hornbook):
    assert "(--vectors)" in hornbook("pretrain", "ernie-base", "--show").out
