"""The files of a corpus build: found in order, never all in memory, and compared with those of an earlier build."""

import json
from dataclasses import asdict

import pytest

from hornbook.data import problems as counted
from hornbook.data import sources
from hornbook.data.build import build_corpus
from hornbook.data.problems import Problem, Problems
from hornbook.data.sources import find_sources, summary_of

NAMES = ("a/z.txt", "a-b/y.txt", "a.b/x.txt", "a0.txt", "b/c/d.txt", "B/e.txt", "ä/f.txt")


@pytest.fixture
def folder(tmp_path):
    for name in NAMES:
        (tmp_path / "text" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "text" / name).write_text(f"The text in {name}.")
    return tmp_path / "text"


def test_files_are_sorted_by_path_and_no_folder_is_visited_twice(folder):
    (folder / "b" / "loop").symlink_to(folder)
    assert [source.path for source in find_sources(folder)] == sorted(str(folder / name) for name in NAMES)


def test_hidden_files_and_folders_are_left_out(folder):
    for name in (".git/description.txt", "b/.a.txt", ".DS_Store"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("Nobody's text.")
    problems = Problems()
    assert len(list(find_sources(folder, problems))) == len(NAMES) and not problems.to_dict()


def test_a_file_is_found_before_the_next_one_is_looked_at(folder, monkeypatch):
    looked_at, from_path = [], sources.Source.from_path
    monkeypatch.setattr(sources.Source, "from_path", lambda path: looked_at.append(path) or from_path(path))
    for number, _ in enumerate(find_sources(folder), 1):
        assert len(looked_at) == number


def test_neither_manifest_nor_problems_grow_with_the_number_of_files(folder, tokenizer_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(counted, "FILES_PER_KIND", 3)
    for name in NAMES:
        (folder / name).with_suffix(".pdf").write_text("")
    manifest = build_corpus(folder, tokenizer_folder, tmp_path / "out", workers=0)
    assert manifest["sources"] == summary_of(find_sources(folder)) and len(manifest["sources"]) == 3
    skipped = manifest["problems"]["unknown_extension"]
    assert skipped["count"] == len(NAMES) and len(skipped["files"]) == 3
    listed = [json.loads(line) for line in (tmp_path / "out" / "sources.ndjson").read_text().splitlines()]
    assert listed == [asdict(source) for source in find_sources(folder)]


def test_changed_files_without_a_list_of_the_earlier_ones(folder, tokenizer_folder, tmp_path):
    build_corpus(folder, tokenizer_folder, tmp_path / "out", workers=0)
    (tmp_path / "out" / "sources.ndjson").unlink()
    (folder / "a0.txt").unlink()
    with pytest.raises(ValueError, match="the files differ"):
        build_corpus(folder, tokenizer_folder, tmp_path / "out", workers=0)


def test_problems_of_many_files_are_merged_within_the_limit(monkeypatch):
    monkeypatch.setattr(counted, "FILES_PER_KIND", 2)
    one, other = Problems(), Problems()
    for number in range(4):
        one.add(Problem("nul_character", f"{number}.txt"))
        other.add(Problem("nul_character", f"{number + 1}.txt", count=2))
    one.merge(other)
    assert one.count("nul_character") == 12
    assert one.to_dict()["nul_character"]["files"] == {"0.txt": 1, "1.txt": 3}
