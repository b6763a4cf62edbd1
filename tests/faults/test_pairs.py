"""Two processes that start at the same moment on one folder: one wins undisturbed, the other is refused."""

import pytest
from bench import differences, ended, is_one_sentence, last_line, tree
from commands import COMMANDS, Command

NUM_PAIRS = 3


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
def test_two_at_the_same_moment(command: Command, bench, figures):
    whole, _, seconds = bench.unbroken(command)
    num = NUM_PAIRS if seconds < 5 else 1
    failed = [wrong for wrong in (_of_a_pair(command, bench, whole) for _ in range(num)) if wrong]
    figures("pairs", command.name, num, num, failed)


def _of_a_pair(command: Command, bench, whole: dict) -> str:
    """What is wrong with the files that two processes left; empty if nothing is."""
    trial = bench.trial(command)
    logs, processes = [trial.beside / "log-1", trial.beside / "log-2"], []
    for trial.log in logs:
        processes.append(trial.begin(start=trial.beside / "start"))
    (trial.beside / "start").touch()
    statuses = [ended(process) for process in processes]
    said = [log.read_text(encoding="utf-8", errors="replace") for log in logs]
    refused = [each for each, status in zip(said, statuses, strict=True) if status == 2]
    are_right = sorted(statuses) == [0, 2] or (command.repeats and statuses == [0, 0])
    wrong = differences(whole, tree(trial.work))
    trial.remove()
    if not are_right or not all(map(is_one_sentence, refused)):
        return f"statuses {statuses}: {' / '.join(map(last_line, said))}"
    return "; ".join(wrong[:3])
