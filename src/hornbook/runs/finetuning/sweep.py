"""Several runs instead of one: a search over learning rates, and restarts with other seeds, which change the shuffling
and the initialisation of the head. The run with the best dev score is linked to the root of the folder; all runs stay
under OUT/tries."""

import dataclasses
import statistics
from collections.abc import Callable
from pathlib import Path

from hornbook.files import read_json, write_json
from hornbook.report.card import write_card
from hornbook.report.several import write_tries_picture
from hornbook.runs.distillation.teacher import Teacher
from hornbook.runs.finetuning.inputs import Inputs, Log
from hornbook.runs.finetuning.record import FinetuneRequest, folder_of_several
from hornbook.runs.finetuning.run import Finetuned, run_once
from hornbook.runs.finetuning.settings import searched_lrs
from hornbook.train.loop import Outcome, Status

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
    lrs = searched_lrs(inputs.trained.config.width) if search else [None]
    tries: dict[str, Finetuned] = {}
    for lr in lrs:
        variant = request if lr is None else dataclasses.replace(request, lr=lr)
        name = f"seed-{inputs.settings.runtime.seed}" if lr is None else f"lr-{lr:g}"
        stopped = _try(out, name, variant, open_with, teacher, tries, on_progress, log)
        if stopped is not None:
            return stopped
        if search:
            _write(out, "search", tries)
    if restarts > 1:
        best_lr = _best(tries).lr if search else request.lr
        first_seed = inputs.settings.runtime.seed
        # After a search, its best run counts as the first restart; being the best of four, its score is biased high.
        restarted = {f"seed-{first_seed}": _best(tries).result}
        for seed in range(first_seed + 1, first_seed + restarts):
            variant = dataclasses.replace(request, lr=best_lr, seed=seed)
            stopped = _try(out, f"seed-{seed}", variant, open_with, teacher, restarted, on_progress, log)
            if stopped is not None:
                return stopped
            _write(out, "restarts", restarted)
        tries = restarted
    kind = "restarts" if restarts > 1 else "search"
    _write(out, kind, tries)
    write_tries_picture(out)
    best = _best(tries).result
    folder.publish(best.out)
    write_card(out)  # replaces the card of the best try, which names the folder of that try
    return dataclasses.replace(best, out=out)


@dataclasses.dataclass(frozen=True)
class _Try:
    name: str
    result: Finetuned
    lr: float


def _try(
    out: Path,
    name: str,
    request: FinetuneRequest,
    open_with: Callable[[FinetuneRequest], Inputs],
    teacher: Teacher | None,
    tries: dict[str, Finetuned],
    on_progress: OnProgress,
    log: Log,
) -> Outcome | None:
    result = run_once(out / "tries" / name, request, open_with(request), on_progress, log, teacher)
    if isinstance(result, Outcome):
        return result
    tries[name] = result
    wrong = f"; degenerate: {result.degenerate}" if result.degenerate else ""
    log(f"{name}: {result.decided_by} {result.score:.4g}{wrong}")
    return None


def _best(tries: dict[str, Finetuned]) -> _Try:
    """The try with the highest dev score; degenerate runs come last."""
    name = max(tries, key=lambda each: (tries[each].degenerate is None, tries[each].score))
    return _Try(name, tries[name], read_json(tries[name].out / "run.json")["settings"]["optimizer"]["lr"])


def _write(out: Path, kind: str, tries: dict[str, Finetuned]) -> None:
    rows = []
    for name, result in tries.items():
        run = read_json(result.out / "run.json")
        found = result.scores["dev"][result.decided_by]
        rows.append(
            {
                "name": name,
                "folder": str(result.out.relative_to(out)),
                "lr": run["settings"]["optimizer"]["lr"],
                "seed": run["settings"]["runtime"]["seed"],
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
        "decided_by": next(iter(tries.values())).decided_by,
        "tries": rows,
        "best": _best(tries).name,
        "median": statistics.median(scores),
        "spread": statistics.stdev(scores) if len(scores) > 1 else 0.0,
    }
    write_json(out / TRIES, about)
