"""The options of how data is read, declared once for all commands that read labelled data or texts."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from hornbook.cli.app import flag, option

Reading = dict[str, Any]  # an argument that `reads_data` fills
OPTIONS: dict[str, tuple[Any, Any]] = {  # (type, default)
    "text": (option(str | None, "Column of the text; inferred when omitted."), None),
    "pair": (option(str | None, "Column of the second text."), None),
    "label": (option(str | None, "Column of the label."), None),
    "delimiter": (option(str | None, "Field separator, such as ';' or tab; detected when omitted."), None),
    "encoding": (option(str | None, "File encoding, such as cp949; detected when omitted."), None),
    "strict": (flag("--strict", "Stop at the first bad row instead of skipping it."), False),
}


def reads_data(*left_out: str) -> Callable[[Callable], Callable]:
    """Decorator of a command: its argument `reading` becomes the options above, except those left out. The command
    receives them in one dictionary, by their names."""
    names = [name for name in OPTIONS if name not in left_out]

    def decorate(command: Callable) -> Callable:
        parameters: dict[str, inspect.Parameter] = {}
        for name, parameter in inspect.signature(command).parameters.items():
            for each in names if name == "reading" else ():
                annotation, default = OPTIONS[each]
                parameters[each] = parameter.replace(name=each, annotation=annotation, default=default)
            if name != "reading":
                parameters[name] = parameter

        @functools.wraps(command)
        def call(**given: Any) -> None:
            command(reading={name: given.pop(name) for name in names}, **given)

        call.__signature__ = inspect.Signature(list(parameters.values()))
        call.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
        return call

    return decorate
