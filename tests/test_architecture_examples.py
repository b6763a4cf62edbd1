"""The worked examples of `docs/architecture.md` run as they are printed."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (How to add [^\n]+)\n(.*?)(?=^##+ )", TEXT, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("title", ["How to add a family", "How to add an objective", "How to add a stream"])
def test_the_example_runs(title):
    code = "".join(re.findall(r"```python\n(.*?)```", SECTIONS[title], re.DOTALL))
    assert len(code.splitlines()) > 10 and len(SECTIONS[title].splitlines()) < 100
    exec(compile(code, title, "exec"), {"__name__": "example"})
