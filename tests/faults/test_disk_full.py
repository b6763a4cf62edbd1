"""A full disk is one sentence; with room again, the command resumes to what an unbroken run gives."""

import pytest
from bench import is_one_sentence, last_line, sampled
from commands import COMMANDS, Command
from injection import FILLING

NUM_POINTS = 5


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
def test_the_disk_is_full(command: Command, bench, figures):
    whole, points, seconds = bench.unbroken(command)
    filling = [at for at, each in enumerate(points) if each.split()[0] in FILLING]
    chosen = sampled(filling, NUM_POINTS if seconds < 5 else 2, seed=1)
    failed = []
    for at in chosen:
        trial = bench.trial(command)
        status, said = trial.run(fault={"kind": "full", "at": at}), trial.said()
        is_cache = "/chunks/" in points[at]  # what cannot be kept there is made again, and only later writes fail
        if (status, is_one_sentence(said)) != (2, True) and not (is_cache and status == 0):
            failed.append(f"at {at} ({points[at]}): status {status}: {last_line(said)}")
        elif wrong := trial.resumed(whole):
            failed.append(f"at {at} ({points[at]}): " + "; ".join(wrong))
        trial.remove()
    figures("full disk", command.name, len(chosen), len(filling), failed)
