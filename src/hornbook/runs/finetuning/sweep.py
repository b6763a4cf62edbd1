"""A sweep: several runs, its trials, with different learning rates or seeds. The trial with the best dev score is
linked to the root of the folder.

OUT/sweep.json      the request
OUT/trials/NAME/    a trial: a finished run
OUT/trials.json     the score of each trial, and their median and standard deviation
"""

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from hornbook.files import hard_link_files, read_json, write_json
from hornbook.lifecycle.run_folder import RECORD, Log
from hornbook.report.card import write_card
from hornbook.report.trials import TRIALS, draw, read_trials
from hornbook.runs.finetuning.inputs import FinetuneInputs
from hornbook.runs.finetuning.published import searched_lrs
from hornbook.runs.finetuning.record import FinetuneRequest, sweep_folder
from hornbook.runs.finetuning.single_run import FinetuneResult, planned, run_once
from hornbook.train.job import OnProgress
from hornbook.train.parallel.ranks import current_ranks


def run_trials(
    out: Path, inputs: FinetuneInputs, seeds: int, lr_search: bool, on_progress: OnProgress, log: Log
) -> FinetuneResult:
    """Runs the trials that are not finished yet, and returns the best one of all as the run in `out`."""
    request = inputs.request
    folder = sweep_folder(out, request)
    if not folder.has_record:
        planned(inputs)[0].check_run(current_ranks().size)
        folder.write_record(request.to_dict(), {}, seeds=seeds, lr_search=lr_search)
    first_seed, trials = inputs.settings.runtime.seed, {}

    def run_trial(name: str, variant: FinetuneRequest) -> None:
        """Runs a variant of the request and adds it to `trials`."""
        trials[name] = result = run_once(out / "trials" / name, inputs.with_request(variant), on_progress, log)
        note = f"; note: {result.degenerate}" if result.degenerate else ""
        log(f"{name}: {result.metric_for_best} {result.score:.4g}{note}")

    if lr_search:
        for lr in searched_lrs(inputs.pretrained.config.width):
            run_trial(f"lr-{lr:g}", replace(request, lr=lr))
            _write_trials(out, "lr_search", trials)
    else:
        run_trial(f"seed-{first_seed}", request)
    if seeds > 1:
        best = trials[_best(trials)]
        best_lr = _trial_settings(best)["optimizer"]["lr"] if lr_search else request.lr
        # The trial with the best learning rate is that of the first seed: its score, the best of four, is biased high.
        trials = {f"seed-{first_seed}": best}
        for seed in range(first_seed + 1, first_seed + seeds):
            run_trial(f"seed-{seed}", replace(request, lr=best_lr, seed=seed))
            _write_trials(out, "seeds", trials)
    best = trials[_best(trials)]
    if current_ranks().is_main:
        draw(out, read_trials(out))
        hard_link_files(best.out, out)
        write_card(out)  # replaces the card of the best trial, which names the folder of that trial
    return replace(best, out=out)


def _best(trials: dict[str, FinetuneResult]) -> str:
    """The name of the trial with the highest dev score; degenerate ones come last."""
    return max(trials, key=lambda name: (trials[name].degenerate is None, trials[name].score))


def _trial_settings(result: FinetuneResult) -> dict[str, Any]:
    return read_json(result.out / RECORD)["settings"]


def _write_trials(out: Path, kind: str, trials: dict[str, FinetuneResult]) -> None:
    rows = []
    for name, result in trials.items():
        settings = _trial_settings(result)
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
        "trials": rows,
        "best": _best(trials),
        "median": statistics.median(scores),
        "spread": statistics.stdev(scores) if len(scores) > 1 else 0.0,
    }
    write_json(out / TRIALS, summary)
