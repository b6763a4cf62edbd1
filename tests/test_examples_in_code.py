"""Examples in docstrings are true."""

import doctest
import importlib
from pathlib import Path

import pytest

import hornbook

ROOT = Path(hornbook.__file__).parent
WITH_EXAMPLES = sorted(
    str(file.relative_to(ROOT.parent).with_suffix("")).replace("/", ".").removesuffix(".__init__")
    for file in ROOT.rglob("*.py")
    if ">>> " in file.read_text(encoding="utf-8")
)


def test_there_are_some():
    assert "hornbook.experiments.verdicts" in WITH_EXAMPLES and len(WITH_EXAMPLES) > 20


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_are_true(name):
    found = doctest.testmod(importlib.import_module(name), report=False)
    assert found.failed == 0
