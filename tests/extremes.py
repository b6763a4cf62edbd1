"""Extreme values for every setting and every numeric option, and commands that end within a time limit."""

import contextlib
import io
import multiprocessing
import os
import sys
import traceback
import typing
from collections.abc import Callable, Iterator
from typing import Any

import typer

from hornbook import cli
from hornbook.config import iter_settings

EXTREMES = ("0", "-1", "1e18", "-1e18", "inf", "nan", "1e-300", "", "none", "true", "x", "9" * 5000)
NUMBERS = ("0", "-1", "1", "1000000000000000000", "99999999999", "1e18", "inf", "-inf", "nan", "1e-300", "", "x")
FORKED = multiprocessing.get_context("fork")


def cases(settings: object) -> Iterator[tuple[str, str]]:
    """Every setting with every extreme value."""
    for each in iter_settings(settings):
        for value in EXTREMES:
            yield each.name, value


def numeric_options() -> dict[str, list[str]]:
    """The options of each command that take a number."""
    found: dict[str, list[str]] = {}

    def walk(app: typer.Typer, path: tuple[str, ...]) -> None:
        for group in app.registered_groups:
            walk(group.typer_instance, (*path, group.name))
        for each in app.registered_commands:
            hints = typing.get_type_hints(each.callback, include_extras=True)
            options = [_option(name, *typing.get_args(hint)) for name, hint in hints.items() if name != "return"]
            if numeric := [option for option in options if option]:
                found[" ".join((*path, each.name))] = numeric

    walk(cli.app, ())
    return found


def _option(name: str, kind: Any, about: Any) -> str | None:
    kinds = typing.get_args(kind) or (kind,)
    is_option = type(about).__name__ == "OptionInfo" and (int in kinds or float in kinds)
    return next(iter(about.param_decls or ()), f"--{name.replace('_', '-')}") if is_option else None


def fault_of(work: Callable[[], object], seconds: float) -> str | None:
    """What is wrong with how `work` ends in a process of its own: a traceback, a hang, a death; None where it ends well
    or is refused in one sentence."""
    here, there = FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=_reported, args=(work, there))
    process.start()
    there.close()
    fault = "hangs"
    if here.poll(seconds):
        try:
            fault = here.recv()
        except EOFError:
            process.join(5)
            fault = f"died with status {process.exitcode}"
    process.kill()
    process.join()
    return fault


def _reported(work: Callable[[], object], there) -> None:
    os.setsid()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        fault = refusal_fault(work)
    there.send(fault)
    there.close()
    os._exit(0)


def refusal_fault(work: Callable[[], object]) -> str | None:
    try:
        work()
    except ValueError as refused:
        return _fault_of_sentence(str(refused))
    except RuntimeError as error:  # such as a loss that diverges, which is ours; torch's is not
        return None if type(error).__module__.startswith("hornbook.") else traceback.format_exc(limit=-3)
    except OSError:  # such as a file name that is too long
        return None
    except Exception:
        return traceback.format_exc(limit=-3)
    return None


def _fault_of_sentence(words: str) -> str | None:
    foreign = ("invalid literal", "could not convert", "cannot convert", "array is too big", "Maximum allowed")
    if "\n" in words or len(words) > 600 or any(each in words for each in foreign):
        return f"is no sentence of ours: {words[:300]}"
    return None


def command(*words: object, succeeds: bool = False) -> Callable[[], None]:
    """Runs `hornbook` with some words; raises where it shows a traceback, where it refuses them in no sentence of ours,
    and where it has to succeed and does not."""

    def run() -> None:
        sys.argv = ["hornbook", *map(str, words)]
        errors, status = io.StringIO(), 0
        with contextlib.redirect_stderr(errors):
            try:
                cli.main()
            except SystemExit as ended:
                status = ended.code or 0
        said = errors.getvalue()
        if "Traceback" in said or (succeeds and status):
            raise AssertionError(said[-500:])
        _, is_refused, refusal = said.strip().rpartition("hornbook: ")
        if is_refused and (fault := _fault_of_sentence(refusal)):
            raise AssertionError(fault)

    return run
