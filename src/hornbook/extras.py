"""Optional dependencies: packages that `pip install 'hornbook[EXTRA]'` installs."""

import importlib
from types import ModuleType


def import_extra(module: str, extra: str, use: str) -> ModuleType:
    """Imports a module that belongs to an extra. `use` names what needs it, with its verb, in the error that is raised
    if a package is missing.

    >>> import_extra("no_such_package", "search", "this needs")
    Traceback (most recent call last):
    ValueError: this needs the package no_such_package, which is not installed: pip install 'hornbook[search]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = (error.name or module).partition(".")[0]
        if package == "hornbook":
            raise
        raise ValueError(
            f"{use} the package {package}, which is not installed: pip install 'hornbook[{extra}]'"
        ) from None
