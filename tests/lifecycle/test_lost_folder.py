"""A run folder that is removed, moved or replaced while it is written: the run stops, and writes nothing more."""

import shutil

import pytest
import tiny_runs

from hornbook.files import write_text
from hornbook.lifecycle.locking import FolderLost, run_lock


def lose(run, how: str) -> None:
    if how == "removed":
        shutil.rmtree(run)
    else:
        run.rename(run.with_name("elsewhere"))
    if how == "replaced":
        run.mkdir()


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
@pytest.mark.parametrize("tensorboard", [False, True])
def test_training_stops(tmp_path, tiny_corpus, how, tensorboard):
    run = tmp_path / "run"

    def on_progress(status) -> None:
        if status.step == 5:
            lose(run, how)

    with pytest.raises(FolderLost, match=f"{run} was removed, moved or replaced"):
        tiny_runs.run(run, tiny_corpus, overrides={"runtime.tensorboard": tensorboard}, on_progress=on_progress)
    assert not run.exists() or list(run.iterdir()) == []
    if how != "removed":
        shutil.rmtree(run, ignore_errors=True)
        (tmp_path / "elsewhere").rename(run)
        assert tiny_runs.run(run, tiny_corpus, resume=True).ended == "finished"


def test_nothing_is_written_into_a_lost_folder(tmp_path):
    run = tmp_path / "run"
    with run_lock(run):
        write_text(run / "inner" / "a.txt", "a")
        lose(run, "removed")
        with pytest.raises(FolderLost):
            write_text(run / "inner" / "b.txt", "b")
        write_text(tmp_path / "beside.txt", "c")
    assert [path.name for path in tmp_path.iterdir()] == ["beside.txt"]
