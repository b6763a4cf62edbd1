"""Rank, number of processes and restarts of this process, from torchrun's environment variables. Needs no torch."""

import os

COMMANDS = ("pretrain", "finetune", "distill")  # that several processes can run together


def num_processes() -> int:
    """The number of processes of the run; 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def rank() -> int:
    """The number of this process; the main one, which writes and prints, is 0."""
    return int(os.environ["RANK"]) if num_processes() > 1 else 0


def num_restarts() -> int:
    """How often torchrun has started the processes again after a failure (`--max-restarts`)."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def refuse_command(name: str | None) -> None:
    """Raises a ValueError if several processes run a command that only one can run."""
    if num_processes() > 1 and name not in COMMANDS:
        raise ValueError(f"torchrun is for {', '.join(COMMANDS)}: run hornbook {name or ''} without it")


def as_restarted(resume: bool, overwrite: bool) -> tuple[bool, bool]:
    """The options --resume and --overwrite: a restarted run resumes, and only the main process moves an old folder."""
    if num_restarts():
        return True, False
    return resume, overwrite and rank() == 0
