import contextlib
import os
import signal
import subprocess
import sys
from multiprocessing import active_children

import numpy as np
import pytest
import torch
from numbered import numbered_corpus, random_lengths

from hornbook.data.loader import batches
from hornbook.data.sequences import SequenceSampler

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def sampler(tmp_path_factory, tokenizer_folder):
    lengths = random_lengths(np.random.default_rng(0), 2, 100, 20)
    corpus = numbered_corpus(tmp_path_factory.mktemp("loader") / "corpus", tokenizer_folder, lengths)
    return SequenceSampler([(corpus, 1.0)], 32, seed=0, layout="nsp")


def contents(batch) -> list:
    tensors = (batch.ids_T, batch.positions_T, batch.segments_T, batch.word_starts_T, batch.offsets, batch.labels_N)
    return [*(t.tolist() for t in tensors), batch.offsets_host.tolist(), batch.max_length, batch.num_padding_sequences]


class Maker:
    """Batch k of eight pairs, or an error at one number."""

    def __init__(self, sampler: SequenceSampler, bad: int = -1):
        self.sampler, self.bad = sampler, bad

    def __call__(self, number: int):
        if number == self.bad:
            raise ValueError(f"no batch {number}")
        return self.sampler.batch(number, 8)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_any_number_of_workers_gives_the_same_batches(sampler):
    expected = [contents(sampler.batch(number, 8)) for number in range(20)]
    assert expected[3] != expected[4]
    for num_workers in (0, 1, 4):
        for first in (0, 7):
            made = batches(Maker(sampler), range(first, 20), num_workers, CPU)
            assert [contents(batch) for batch in made] == expected[first:]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_in_a_worker_is_raised_here(num_workers, sampler):
    made = batches(Maker(sampler, bad=2), range(5), num_workers, CPU)
    assert [next(made).num_sequences for _ in range(2)] == [8, 8]
    with pytest.raises(ValueError, match="no batch 2"):
        next(made)


def test_a_process_that_fails_ends(tmp_path):
    """The workers ignore SIGTERM, with which `multiprocessing` ends them."""
    script = tmp_path / "fails.py"
    script.write_text(
        "import torch\n"
        "from hornbook.data.loader import batches\n"
        "def make(number):\n"
        "    raise KeyError(number)\n"
        "made = batches(make, range(9), 2, torch.device('cpu'))\n"
        "next(made)\n"
    )
    with open(tmp_path / "stderr", "w") as stderr:
        process = subprocess.Popen([sys.executable, script], stderr=stderr, start_new_session=True)
    try:
        assert process.wait(timeout=60) == 1
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert (tmp_path / "stderr").read_text().rstrip().endswith("KeyError: 0")


def test_leaving_early_ends_the_workers(sampler):
    before = set(active_children())
    made = batches(Maker(sampler), range(10**9), 2, CPU)
    next(made)
    workers = set(active_children()) - before
    assert len(workers) == 2
    made.close()
    for worker in workers:
        worker.join(10)
        assert not worker.is_alive()
