"""Killed at any file operation, a command resumes to what an unbroken run gives, and leaves nothing behind."""

import pytest
from bench import SIGKILLED, last_line, sampled
from commands import COMMANDS, Command

SECONDS_EACH = 30  # for each command: as many points as fit


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
def test_killed_at_a_file_operation(command: Command, bench, figures):
    whole, points, seconds = bench.unbroken(command)
    chosen = sampled(list(range(len(points))), max(4, int(SECONDS_EACH / (1.6 * seconds))))
    failed = []
    for at in chosen:
        trial = bench.trial(command)
        status = trial.run(fault={"kind": "crash", "at": at})
        if status != SIGKILLED:
            failed.append(f"at {at} ({points[at]}): not killed, status {status}: {last_line(trial.said())}")
        elif wrong := trial.resumed(whole):
            failed.append(f"at {at} ({points[at]}): " + "; ".join(wrong))
        trial.remove()
    figures("crashes", command.name, len(chosen), len(points), failed)
