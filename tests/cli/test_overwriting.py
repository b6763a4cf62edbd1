"""--overwrite replaces what hornbook wrote, and nothing else."""

import shutil

import pytest
from tiny import TINY_WORDS

from hornbook.cli.overwriting import overwriting
from hornbook.lifecycle.locking import holds_a_lock, run_lock


@pytest.fixture
def training(tiny_corpus, tmp_path) -> list:
    out = tmp_path / "run"
    return ["pretrain", "bert-tiny", "--corpus", tiny_corpus, "--out", out, *TINY_WORDS, "--steps", 1, "--json"]


def test_a_run_is_replaced(hornbook, complaint, training, tmp_path):
    run = tmp_path / "run"
    hornbook(*training)
    before = (run / "model.safetensors").read_bytes()
    assert "already holds a run" in complaint(*training, "--seed", 5)
    said = hornbook(*training, "--seed", 5, "--overwrite")
    assert said.answer["ended"] == "finished" and (run / "model.safetensors").read_bytes() != before
    assert [path.name for path in tmp_path.iterdir() if path.name != "run"] == []


def test_the_run_that_a_link_names_is_replaced(hornbook, training, tmp_path):
    link, disk = tmp_path / "run", tmp_path / "disk"
    link.symlink_to(disk)
    hornbook(*training)  # also makes the folder of a link that leads nowhere yet
    before = (disk / "model.safetensors").read_bytes()
    hornbook(*training, "--seed", 5, "--overwrite")
    assert link.is_symlink() and (disk / "model.safetensors").read_bytes() != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "run"]


def test_what_fails_at_once_gives_the_old_run_back(hornbook, complaint, training, tmp_path):
    hornbook(*training)
    before = sorted(tmp_path.rglob("*"))
    assert "did you mean" in complaint(*training, "--overwrite", "--set", "optimizer.lrr=1")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_command_that_was_killed_early_loses_nothing(hornbook, complaint, training, tmp_path):
    run, old = tmp_path / "run", tmp_path / ".run.old"
    hornbook(*training)
    run.rename(old)  # as the killed command left it
    assert "already holds a run" in complaint(*training)
    assert (run / "run.json").exists() and not old.exists()
    run.rename(old)
    said = hornbook(*training, "--seed", 5, "--overwrite")
    assert "run is back: the command" in said.stderr.replace("\n", " ") and said.answer["ended"] == "finished"
    assert not old.exists()


def test_the_old_run_is_removed_after_a_kill_once_there_is_a_new_one(hornbook, complaint, training, tmp_path):
    old = tmp_path / ".run.old"
    hornbook(*training)
    shutil.copytree(tmp_path / "run", old)
    with run_lock(old):  # the command still runs
        hornbook(*training, "--resume")
        assert old.exists()
    (old / "notes.txt").write_text("mine")
    assert "notes.txt, which hornbook did not write" in complaint(*training, "--resume")
    (old / "notes.txt").unlink()
    hornbook(*training, "--resume")
    assert not old.exists()


def test_a_signal_during_an_import_gives_the_old_run_back(hornbook, training, tmp_path):
    """The process would otherwise end without unwinding the stack."""
    hornbook(*training)
    with overwriting(tmp_path / "run", {"run"}, overwrite=True):
        assert holds_a_lock()
    assert not holds_a_lock() and (tmp_path / "run/run.json").exists()


def test_what_it_refuses(hornbook, complaint, training, tmp_path, tiny_text_file, tiny_tokenizer):
    run = tmp_path / "run"
    hornbook(*training)
    assert "give only one" in complaint(*training, "--overwrite", "--resume")
    (run / "notes.txt").write_text("mine")
    assert "notes.txt, which hornbook did not write" in complaint(*training, "--overwrite")
    assert (run / "notes.txt").exists() and (run / "run.json").exists()
    (run / "notes.txt").unlink()
    (run / "photo.png").write_bytes(b"mine")
    assert "photo.png, which hornbook did not write" in complaint(*training, "--overwrite")
    (run / "photo.png").rename(run / "curves.png")
    hornbook(*training, "--overwrite")  # a picture of the report
    build = ["corpus", "build", tiny_text_file, "--tokenizer", tiny_tokenizer, "--out", run, "--overwrite"]
    assert "holds a run" in complaint(*build)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "README.md").write_text("mine")
    words = [*training[: training.index("--out")], "--out", mine, *training[training.index("--out") + 2 :]]
    assert "has none of" in complaint(*words, "--overwrite")
    assert (mine / "README.md").exists()


def test_vocabularies_and_corpora(hornbook, complaint, tmp_path, tiny_text_file, tiny_tokenizer):
    train = ["tokenizer", "train", tiny_text_file, "--out", tmp_path / "vocabulary", "--json", "--vocab-size"]
    assert hornbook(*train, 150).answer["vocab_size"] == 150
    assert "--overwrite" in complaint(*train, 140)
    assert hornbook(*train, 140, "--overwrite").answer["vocab_size"] == 140
    (tmp_path / "other.txt").write_text("one document\n\nand another\n")
    for text, overwrite, number in ((tiny_text_file, [], 200), (tmp_path / "other.txt", ["--overwrite"], 2)):
        build = ["corpus", "build", text, "--tokenizer", tiny_tokenizer, "--out", tmp_path / "corpus", "--workers", 0]
        assert hornbook(*build, "--json", *overwrite).answer["totals"]["documents"] == number


def test_files_are_not_overwritten_by_accident(hornbook, complaint, tmp_path, tiny_run):
    (tmp_path / "texts.txt").write_text("a text\n")
    out = tmp_path / "vectors.npy"
    words = ["features", tiny_run, tmp_path / "texts.txt", "--out", out]
    assert hornbook(*words).status == 0
    assert "already exists: add --overwrite" in complaint(*words)
    assert hornbook(*words, "--overwrite").status == 0
