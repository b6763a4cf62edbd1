"""Several runs instead of one: a search over learning rates, and runs with other seeds, which change the shuffling
and the initialisation of the head. The run with the best dev score is linked to the root of the folder; all runs stay
under OUT/trials."""

import dataclasses
import statistics
from functools import partial
from pathlib import Path
from typing import Any

from hornbook.files import link_files, read_json, write_json
from hornbook.report.card import write_card
from hornbook.report.trials import TRIALS, draw, read_trials
from hornbook.runs.finetuning.finetune import FinetuneResult, run_once
from hornbook.runs.finetuning.inputs import Inputs, Log
from hornbook.runs.finetuning.record import FinetuneRequest, sweep_folder
from hornbook.runs.finetuning.settings import searched_lrs
from hornbook.train.job import OnProgress, Outcome
from hornbook.train.parallel.ranks import current_ranks


def run_many(
    out: Path, inputs: Inputs, seeds: int, lr_search: bool, on_progress: OnProgress, log: Log
) -> FinetuneResult | Outcome:
    """The best of several runs, or an `Outcome` if one was stopped. Finished runs are not run again."""
    request = inputs.request
    folder = sweep_folder(out, request)
    if not folder.has_record:
        folder.write_record(request.to_dict(), {}, seeds=seeds, lr_search=lr_search)
    first_seed, trials = inputs.settings.runtime.seed, {}
    write = partial(_write, out, inputs.spec.task.in_percent)

    def run_trial(name: str, variant: FinetuneRequest) -> Outcome | None:
        """Runs a variant of the request and adds it to `trials`; an `Outcome` if it was stopped."""
        result = run_once(out / "trials" / name, inputs.with_request(variant), on_progress, log)
        if isinstance(result, Outcome):
            return result
        trials[name] = result
        note = f"; degenerate: {result.degenerate}" if result.degenerate else ""
        log(f"{name}: {result.metric_for_best} {result.score:.4g}{note}")
        return None

    for lr in searched_lrs(inputs.pretrained.config.width) if lr_search else ():
        if stopped := run_trial(f"lr-{lr:g}", dataclasses.replace(request, lr=lr)):
            return stopped
        write("lr_search", trials)
    if not lr_search and (stopped := run_trial(f"seed-{first_seed}", request)):
        return stopped
    if seeds > 1:
        best = trials[_best(trials)]
        best_lr = _settings(best)["optimizer"]["lr"] if lr_search else request.lr
        # After a search, its best run counts as the first restart; being the best of four, its score is biased high.
        trials = {f"seed-{first_seed}": best}
        for seed in range(first_seed + 1, first_seed + seeds):
            if stopped := run_trial(f"seed-{seed}", dataclasses.replace(request, lr=best_lr, seed=seed)):
                return stopped
            write("seeds", trials)
    write("seeds" if seeds > 1 else "lr_search", trials)
    best = trials[_best(trials)]
    if current_ranks().is_main:
        draw(out, read_trials(out))
        link_files(best.out, out)
        write_card(out)  # replaces the card of the best trial, which names the folder of that trial
    return dataclasses.replace(best, out=out)


def _best(trials: dict[str, FinetuneResult]) -> str:
    """The name of the trial with the highest dev score; degenerate runs come last."""
    return max(trials, key=lambda name: (trials[name].degenerate is None, trials[name].score))


def _settings(result: FinetuneResult) -> dict[str, Any]:
    return read_json(result.out / "run.json")["settings"]


def _write(out: Path, in_percent: bool, kind: str, trials: dict[str, FinetuneResult]) -> None:
    rows = []
    for name, result in trials.items():
        settings = _settings(result)
        score = result.scores["dev"][result.metric_for_best]
        rows.append(
            {
                "name": name,
                "folder": str(result.out.relative_to(out)),
                "lr": settings["optimizer"]["lr"],
                "seed": settings["runtime"]["seed"],
                "score": score["value"],
                "low": score["low"],
                "high": score["high"],
                "degenerate": result.degenerate,
                "seconds": result.outcome.seconds,
            }
        )
    scores = [row["score"] for row in rows]
    summary = {
        "kind": kind,
        "metric_for_best": next(iter(trials.values())).metric_for_best,
        "in_percent": in_percent,
        "trials": rows,
        "best": _best(trials),
        "median": statistics.median(scores),
        "spread": statistics.stdev(scores) if len(scores) > 1 else 0.0,
    }
    write_json(out / TRIALS, summary)
