import pytest
from made_up_tasks import KINDS, write_task_run
from synthetic_runs import write_run


@pytest.fixture
def make_run(tmp_path):
    """Writes a run folder; see `write_run`."""

    def make(*arguments, name="run", **overrides):
        return write_run(tmp_path / name, *arguments, **overrides)

    return make


@pytest.fixture
def make_task_run(tmp_path):
    def make(kind="classification", **overrides):
        return write_task_run(tmp_path / kind, kind, **(KINDS.get(kind, {}) | overrides))

    return make
