"""Fault injection. Too slow for `make test`; run it with `make test-faults`."""

from pathlib import Path

import pytest
from bench import Bench
from commands import make_materials

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.faults)


@pytest.fixture(scope="session")
def given(tmp_path_factory) -> Path:
    """What the commands are given; do not write into it."""
    return make_materials(tmp_path_factory.mktemp("given"))


@pytest.fixture(scope="session")
def bench(given, tmp_path_factory) -> Bench:
    return Bench(given, tmp_path_factory.mktemp("bench"))


@pytest.fixture
def figures(record_property):
    """Writes down what a test tried: shown in a table at the end. Fails the test where anything failed."""

    def write(suite: str, name: str, tried: int, of: int, failed: list[str]) -> None:
        record_property("faults", [suite, name, tried, of, len(failed)])
        assert not failed, f"{len(failed)} of {tried} failed:\n" + "\n".join(failed[:8])

    return write


def pytest_terminal_summary(terminalreporter) -> None:
    reports = [each for kind in ("passed", "failed") for each in terminalreporter.stats.get(kind, [])]
    reports = [each for each in reports if each.when == "call"]
    rows = sorted(value for report in reports for name, value in report.user_properties if name == "faults")
    if not rows:
        return
    terminalreporter.section("faults")
    terminalreporter.write_line(f"{'suite':<12}{'what':<32}{'tried':>7}{'of':>8}{'failed':>8}")
    for suite, what, tried, of, failed in rows:
        terminalreporter.write_line(f"{suite:<12}{what:<32}{tried:>7}{of:>8}{failed:>8}")
    for suite in dict.fromkeys(row[0] for row in rows):
        tried, failed = (sum(row[place] for row in rows if row[0] == suite) for place in (2, 4))
        terminalreporter.write_line(f"{suite}: {tried} tried, {failed} failed")
