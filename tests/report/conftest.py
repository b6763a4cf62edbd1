import pytest
from synthetic_runs import write_run


@pytest.fixture
def make_run(tmp_path):
    """Writes a run folder; see `write_run`."""

    def make(*arguments, name="run", **overrides):
        return write_run(tmp_path / name, *arguments, **overrides)

    return make
