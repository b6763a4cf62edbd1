"""The commands: results on stdout, one sentence for an error, info, overwriting, stopping."""

import json
import os
import signal
import threading
import time

import pytest


def test_build_and_info(hornbook, tmp_path):
    (tmp_path / "a.tsv").write_text("dog\tIsA\tanimal\nbroken\n")
    said = hornbook("graph", "build", tmp_path / "a.tsv", "--out", tmp_path / "graph")
    assert said.status == 0 and "2 entities, 1 relation, 1 edge" in said.stdout and "line 2" in said.stderr
    assert hornbook("graph", "build", tmp_path / "a.tsv", "--out", tmp_path / "graph", "--json").answer["already_built"]
    assert hornbook("info", tmp_path / "graph", "--json").answer["kind"] == "graph"
    assert "entities" in hornbook("info", tmp_path / "graph").stdout
    (tmp_path / "a.tsv").write_text("cat\tIsA\tanimal\n")
    words = ("graph", "build", tmp_path / "a.tsv", "--out", tmp_path / "graph")
    assert "add --overwrite" in hornbook(*words).error
    assert hornbook(*words, "--overwrite").status == 0


def test_triples_whose_first_column_is_the_relation_get_a_note(hornbook, tmp_path):
    rows = "".join(f"IsA\tdog{i}\tanimal{i % 7}\n" for i in range(100))
    (tmp_path / "a.tsv").write_text(rows)
    words = ("graph", "build", tmp_path / "a.tsv", "--out")
    assert "100 relations in 100 edges" in hornbook(*words, tmp_path / "wrong").stderr
    said = hornbook(*words, tmp_path / "right", "--columns", "relation,head,tail")
    assert "1 relation, 100 edges" in said.stdout and "relations in" not in said.stderr


def test_paths(hornbook, graph_folder):
    said = hornbook("graph", "paths", graph_folder, "plant", "trowel")
    assert said.stdout == "plant --AtLocation--> garden <--UsedFor-- trowel\n" and said.stderr == ""
    answer = hornbook("graph", "paths", graph_folder, "plant", "trowel", "--json").answer
    assert answer["complete"] and answer["paths"][0]["entities"] == ["plant", "garden", "trowel"]
    assert answer["paths"][0]["hops"][1] == {"relations": [], "inverse": ["UsedFor"]}
    assert "no path of at most 2" in hornbook("graph", "paths", graph_folder, "plant", "moon").stderr
    said = hornbook("graph", "paths", graph_folder, "plant", "trwel")
    assert said.status == 2 and "did you mean 'trowel'" in said.error and said.error.count("\n") == 1


def test_link(hornbook, graph_folder, tmp_path):
    said = hornbook("graph", "link", graph_folder, "--text", "Two trowels.", "--json")
    (mention,) = said.answer["results"][0]["mentions"]
    assert (mention["start"], mention["end"], mention["entity"]) == (4, 11, "trowel")
    (tmp_path / "a.txt").write_text("a plant\nnothing\n")
    said = hornbook("graph", "link", graph_folder, tmp_path / "a.txt", "--out", tmp_path / "out.jsonl")
    assert "1 mentions in 2 texts" in said.stdout
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [len(row["mentions"]) for row in rows] == [1, 0]
    again = hornbook("graph", "link", graph_folder, tmp_path / "a.txt", "--out", tmp_path / "out.jsonl")
    assert again.status == 2 and "--overwrite" in again.error
    (tmp_path / "b.csv").write_text("nr,review\n1,a plant\n")
    error = hornbook("graph", "link", graph_folder, tmp_path / "b.csv").error
    assert "(there are: nr, review); give the text column with --text-column" in error
    assert "give either files of texts or --text" in hornbook("graph", "link", graph_folder).error
    assert "plant" in hornbook("graph", "link", graph_folder, tmp_path / "a.txt").stdout


def test_vectors_without_scores_get_a_note(hornbook, tmp_path):
    (tmp_path / "a.tsv").write_text("aspirin\ttreats\tfever\nibuprofen\ttreats\tfever\n")
    hornbook("graph", "build", tmp_path / "a.tsv", "--out", tmp_path / "graph")
    words = ("graph", "embed", tmp_path / "graph", "--width", 4, "--epochs", 1, "--out", tmp_path / "vectors")
    assert "the vectors have no scores; a larger --held-out" in hornbook(*words).stderr


def test_embed_stops_and_resumes(hornbook, graph_folder, tmp_path):
    out = tmp_path / "vectors"
    words = ["graph", "embed", graph_folder, "--out", out, "--width", 4, "--device", "cpu", "--set", "num_negatives=4"]

    def interrupt() -> None:
        began = time.monotonic()
        while not (out / "metrics.jsonl").exists() and time.monotonic() - began < 30:
            time.sleep(0.02)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    said = hornbook(*words, "--epochs", 10_000_000)
    thread.join()
    assert said.status == 130 and "rerun with --resume" in said.stderr
    assert hornbook("info", out, "--json").answer["kind"] == "graph vectors"
    said = hornbook("graph", "embed", graph_folder, "--out", out, "--minutes", 0.001, "--resume", "--json")
    assert said.status == 0 and said.answer["ended"] == "finished" and said.answer["width"] == 4
    assert "entities without a vector" in hornbook("info", out).stdout
    said = hornbook(*words, "--overwrite", "--epochs", 1)
    assert said.status == 0 and "1 epochs" in said.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["paths", "none", "a", "b"], "there is no folder none: make a graph"),
        (["embed", "none", "--out", "v"], "there is no folder none: make a graph"),
        (["build", "none.tsv", "--out", "g"], "none.tsv does not exist"),
    ],
)
def test_errors_are_one_sentence(hornbook, words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = hornbook("graph", *words)
    assert said.status == 2 and message in said.error and said.error.count("\n") == 1
    assert not list(tmp_path.iterdir())
