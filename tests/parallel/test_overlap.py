"""Gradients are summed over the ranks while the backward pass still runs."""

import json

import pytest
from parallel.overlapped import STEPS, order_of_events, sums_of_four
from parallel.rank_processes import run_ranks


@pytest.mark.parametrize("compiles", [False, True])
def test_the_sums_of_the_last_layers_start_before_the_gradients_of_the_first_arrive(compiles, tmp_path):
    run_ranks(2, order_of_events, str(tmp_path), compiles)
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for found in ranks:
        assert found["buckets"] > 10 and not found["unused"]
        for number, events in enumerate(found["steps"]):
            num_gradients = len(set(events) - {"sum"})  # of each micro-batch
            earlier, last = events[:num_gradients], events[num_gradients:]
            assert "sum" not in earlier and last.count("sum") == found["buckets"]
            if number:  # the first step shows that some parameters have no use
                first_layer = next(i for i, event in enumerate(last) if "blocks.0." in event)
                assert last[:first_layer].count("sum") > found["buckets"] / 3
                assert last[-1] != "sum"  # the last gradient starts the last sum
    assert ranks[0]["weights"] == ranks[1]["weights"] and len(ranks[0]["steps"]) == STEPS


def test_parameters_without_gradients_on_some_ranks_and_a_rank_without_memory(tmp_path):
    run_ranks(2, sums_of_four, str(tmp_path))
    for rank, message in ((0, "out of memory on another rank"), (1, "CUDA out of memory")):
        before, failed, after = json.loads((tmp_path / f"{rank}.json").read_text())
        assert before == [[6.0] * 2, [3.0] * 2, [3.0] * 2, None]
        assert failed == message
        assert after == [[12.0] * 2, [6.0] * 2, [6.0] * 2, None]
