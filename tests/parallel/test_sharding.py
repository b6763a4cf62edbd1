"""Weights spread over ranks: the same learning, the same folder."""

import json

import pytest
import torch
import transformers
from finetuned import encoder, labelled_texts
from parallel.rank_processes import ended, run_ranks, start_ranks
from parallel.shards import CASES, STEPS, local_sizes, resumed_otherwise, steps
from tiny_runs import weights

from hornbook.train.checkpoint import Checkpoints, read_checkpoint


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny_corpus, tiny_tokenizer):
    """The same runs with whole and with sharded weights, on two ranks."""
    folder = tmp_path_factory.mktemp("shards")
    model = encoder(folder / "encoder", tiny_tokenizer)
    texts = [row["text"] for row in labelled_texts(24)]
    rows = [{"anchor": text, "positive": " ".join(reversed(text.split()))} for text in texts]
    started = []
    for name, shard in (("whole", False), ("sharded", True)):
        (folder / name).mkdir()
        started += start_ranks(2, steps, str(folder / name), str(tiny_corpus), str(model), rows, shard)
    assert set(ended(started)) == {0}
    return folder / "whole", folder / "sharded"


@pytest.mark.parametrize("name", [*CASES, "similarity"])
def test_sharding_changes_nothing_but_rounding(folders, name):
    whole, sharded = (json.loads((folder / "curves.json").read_text())[name] for folder in folders)
    assert len(whole) >= 4 and sharded == pytest.approx(whole, rel=1e-9)


def test_the_folder_of_a_sharded_run_is_as_any_other(folders):
    whole, sharded = (folder / "post-norm, lamb" for folder in folders)
    found, expected = weights(sharded), weights(whole)
    assert found.keys() == expected.keys()
    assert all(torch.allclose(found[name], expected[name], atol=1e-9) for name in expected)
    transformers.BertForPreTraining.from_pretrained(sharded)
    (ours, _), (theirs, _) = (read_checkpoint(Checkpoints(each).last()) for each in (sharded, whole))
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-9) for name in theirs)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_a_sharded_run_resumes_without_sharding_and_back(before, after, tiny_corpus, tmp_path):
    """On one rank the same run is not sharded."""
    for out, size, last in (("whole", 1, STEPS), ("other", before, 3), ("other", after, STEPS)):
        run_ranks(size, resumed_otherwise, str(tmp_path / out), str(tiny_corpus), last)
    found, expected = weights(tmp_path / "other"), weights(tmp_path / "whole")
    assert all(torch.allclose(found[name], expected[name], atol=1e-4) for name in expected)


def test_each_rank_keeps_its_part_only(tiny_corpus, tmp_path):
    run_ranks(2, local_sizes, str(tmp_path), str(tiny_corpus))
    for rank in range(2):
        sizes = json.loads((tmp_path / f"{rank}.json").read_text())
        assert sizes["weights"] < 0.6 * sizes["whole"] and sizes["held"] < 0.65 * sizes["whole"]
        assert sizes["state"] < 2 * 0.6 * sizes["whole"] + 100
