"""Imported by the server that processes are forked from: everything that a command would import by itself."""

import importlib
import pkgutil

import hornbook

OTHERS = ("matplotlib.pyplot", "onnxruntime", "onnxscript", "pydantic.types", "sklearn.linear_model", "typer._adapters")

for name in (*OTHERS, *(each.name for each in pkgutil.walk_packages(hornbook.__path__, "hornbook."))):
    if not name.endswith(("__main__", "harness_model")):
        importlib.import_module(name)
