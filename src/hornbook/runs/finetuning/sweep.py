"""Several runs instead of one: a search over learning rates, and restarts with other seeds, which change the shuffling
and the initialisation of the head. The run with the best dev score is linked to the root of the folder; all runs stay
under OUT/tries."""

import dataclasses
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hornbook.files import read_json, write_json
from hornbook.report.card import write_card
from hornbook.report.several import draw, read_tries
from hornbook.runs.distillation.teacher import Teacher
from hornbook.runs.finetuning.inputs import Inputs, Log
from hornbook.runs.finetuning.record import FinetuneRequest, folder_of_several
from hornbook.runs.finetuning.run import Finetuned, run_once
from hornbook.runs.finetuning.settings import searched_lrs
from hornbook.train.job import Outcome, Status
from hornbook.train.parallel.ranks import current_ranks

TRIES = "tries.json"
OnProgress = Callable[[Status], None]


def run_many(
    out: Path,
    request: FinetuneRequest,
    open_with: Callable[[FinetuneRequest], Inputs],
    teacher: Teacher | None = None,
    *,
    restarts: int,
    search: bool,
    on_progress: OnProgress,
    log: Log,
) -> Finetuned | Outcome:
    """The best of several runs, or an `Outcome` if one was stopped. Finished runs are not run again."""
    inputs = open_with(request)
    folder = folder_of_several(out, request)
    if not folder.has_record:
        folder.write_record(request.to_dict(), {}, restarts=restarts, search=search)
    first_seed, tries = inputs.settings.runtime.seed, {}
    write = partial(_write, out, inputs.spec.task.in_percent)

    def run_try(name: str, variant: FinetuneRequest) -> Outcome | None:
        """Runs a variant of the request and adds it to `tries`; an `Outcome` if it was stopped."""
        result = run_once(out / "tries" / name, variant, open_with(variant), on_progress, log, teacher)
        if isinstance(result, Outcome):
            return result
        tries[name] = result
        wrong = f"; degenerate: {result.degenerate}" if result.degenerate else ""
        log(f"{name}: {result.metric_for_best} {result.score:.4g}{wrong}")
        return None

    for lr in searched_lrs(inputs.pretrained.config.width) if search else ():
        if stopped := run_try(f"lr-{lr:g}", dataclasses.replace(request, lr=lr)):
            return stopped
        write("search", tries)
    if not search and (stopped := run_try(f"seed-{first_seed}", request)):
        return stopped
    if restarts > 1:
        best = tries[_best(tries)]
        best_lr = _settings(best)["optimizer"]["lr"] if search else request.lr
        # After a search, its best run counts as the first restart; being the best of four, its score is biased high.
        tries = {f"seed-{first_seed}": best}
        for seed in range(first_seed + 1, first_seed + restarts):
            if stopped := run_try(f"seed-{seed}", dataclasses.replace(request, lr=best_lr, seed=seed)):
                return stopped
            write("restarts", tries)
    write("restarts" if restarts > 1 else "search", tries)
    best = tries[_best(tries)]
    if current_ranks().is_main:
        draw(out, read_tries(out))
        folder.publish(best.out)
        write_card(out)  # replaces the card of the best try, which names the folder of that try
    return dataclasses.replace(best, out=out)


def _best(tries: dict[str, Finetuned]) -> str:
    """The name of the try with the highest dev score; degenerate runs come last."""
    return max(tries, key=lambda each: (tries[each].degenerate is None, tries[each].score))


def _settings(result: Finetuned) -> dict[str, Any]:
    return read_json(result.out / "run.json")["settings"]


def _write(out: Path, in_percent: bool, kind: str, tries: dict[str, Finetuned]) -> None:
    rows = []
    for name, result in tries.items():
        settings = _settings(result)
        found = result.scores["dev"][result.metric_for_best]
        rows.append(
            {
                "name": name,
                "folder": str(result.out.relative_to(out)),
                "lr": settings["optimizer"]["lr"],
                "seed": settings["runtime"]["seed"],
                "score": found["value"],
                "low": found["low"],
                "high": found["high"],
                "degenerate": result.degenerate,
                "seconds": result.outcome.seconds,
            }
        )
    scores = [row["score"] for row in rows]
    about = {
        "kind": kind,
        "metric_for_best": next(iter(tries.values())).metric_for_best,
        "in_percent": in_percent,
        "tries": rows,
        "best": _best(tries),
        "median": statistics.median(scores),
        "spread": statistics.stdev(scores) if len(scores) > 1 else 0.0,
    }
    write_json(out / TRIES, about)
