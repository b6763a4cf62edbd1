"""Fine-tunes a pre-trained model on five tasks of GLUE with several seeds each, and scores the last weights on dev:
CoLA (Matthews), SST-2, MRPC, RTE (accuracy), STS-B (Spearman), and their mean, by which small ELECTRAs are compared.

    python benchmarks/electra_scores.py --model RUN --data GLUE --out scores.json [--seeds 5] [--processes 14]

`--tasks` chooses others: `nsmc` (scored on its test split) and `klue-nli` in the folders of these names, and `mnli-10k`
and `qqp-10k`, which are folders with train.jsonl and dev.jsonl of 10,000 training pairs, as BabyLM publishes them.

Settings are the defaults of `hornbook finetune` for the family of the model, with each pair of MRPC and STS-B in both
orders, as published for ELECTRA. `--set` overrides one, `--set sst-2:optimizer.lr=1e-4` for one task. Settings that
were chosen by scores must be measured with other seeds (`--first-seed`) than those they were chosen with.

Runs (a task and a seed) are distributed over several processes that share the device; each result is saved when it is
done, and the same command continues with the missing ones.
"""

import argparse
import shutil
import time
from math import nan
from pathlib import Path
from statistics import fmean, median, stdev

from jobs import run_jobs
from scipy.stats import t as student
from settings_by_task import overrides_by_task

from hornbook.files import num_cores, read_json, write_json
from hornbook.runs.finetuning.record import FinetuneRequest
from hornbook.runs.finetuning.single_run import open_and_run

FIVE = ("sst-2", "sts-b", "cola", "mrpc", "rte")  # slowest first
FOLDERS = {"sst-2": "SST-2", "sts-b": "STS-B", "cola": "CoLA", "mrpc": "MRPC", "rte": "RTE"}
MEASURES = {"sts-b": "spearman", "cola": "matthews"}  # others: accuracy
KINDS = {"mnli-10k": "classification", "qqp-10k": "classification"}  # others have their own layout
SCORED = {"nsmc": "test"}  # others: dev
TASKS = (*FIVE, "nsmc", "klue-nli", *KINDS)
DOUBLED = ("mrpc", "sts-b")
NEVER = 1_000_000_000


def run_job(model: str, data: str, task: str, seed: int, threads: int, work: str, overrides: dict) -> dict:
    """Runs in a separate process."""
    measure = MEASURES.get(task, "accuracy")
    out = Path(work) / f"{task}-{seed}.run"
    shutil.rmtree(out, ignore_errors=True)
    settings = {
        "task.max_length": 128,
        "task.swapped_pairs": task in DOUBLED,
        "validation.every_steps": NEVER,
        "checkpoint.every_minutes": 0.0,
        "runtime.threads": threads,
    }
    began = time.perf_counter()
    try:
        request = FinetuneRequest(model, KINDS.get(task, task), None, seed=seed, overrides=settings | overrides)
        result = open_and_run(
            out, request, f"{data}/{FOLDERS.get(task, task)}", lambda status: None, lambda words: None
        )
    finally:
        shutil.rmtree(out, ignore_errors=True)
    found = {
        "task": task,
        "seed": seed,
        "score": 100 * result.scores[SCORED.get(task, "dev")][measure]["value"],
        "degenerate": result.degenerate,
        "training_seconds": result.outcome.seconds,
        "whole_seconds": time.perf_counter() - began,
    }
    write_json(Path(work) / f"{task}-{seed}.json", found)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, help="the folder with CoLA, SST-2, MRPC, STS-B and RTE")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", default=",".join(FIVE), help="of " + ", ".join(TASKS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="another setting of the runs, [task:]key=value")
    args = parser.parse_args()
    work = args.out.with_suffix(".jobs")
    work.mkdir(parents=True, exist_ok=True)
    tasks = args.tasks.split(",")
    threads = max(1, num_cores() // args.processes)
    overrides = overrides_by_task(tasks, args.set)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    jobs = [(task, seed) for task in tasks for seed in seeds]
    done = [read_json(file) for task, seed in jobs if (file := work / f"{task}-{seed}.json").exists()]
    missing = [
        (args.model, args.data, task, seed, threads, str(work), overrides[task])
        for task, seed in jobs
        if not (work / f"{task}-{seed}.json").exists()
    ]
    for _, found, error in run_jobs(run_job, missing, args.processes):
        print(error or found, flush=True)
        done += [] if error else [found]
    report(args.out, tasks, done, overrides)
    return 0 if len(done) == len(jobs) else 1


def report(out: Path, tasks: list[str], done: list[dict], overrides: dict[str, dict[str, str]]) -> None:
    by_task = {task: [each["score"] for each in done if each["task"] == task] for task in tasks}
    write_json(out, {"scores": by_task, "jobs": done, "settings": overrides})
    print("\n| task | measure | mean | median | deviation | seeds |\n|---|---|---|---|---|---|")
    for task, scores in by_task.items():
        if scores:
            spread = f"{stdev(scores):.2f}" if len(scores) > 1 else ""
            cells = (task, MEASURES.get(task, "accuracy"), f"{fmean(scores):.2f}", f"{median(scores):.2f}", spread)
            print(f"| {' | '.join(cells)} | {len(scores)} |")
    if all(by_task.values()):
        mean, reach = mean_and_reach(by_task)
        print(f"mean of {len(by_task)}: {mean:.2f}, 95% interval {mean - reach:.2f} to {mean + reach:.2f} over seeds")


def mean_and_reach(by_task: dict[str, list[float]]) -> tuple[float, float]:
    """The mean of the tasks' means, and half of its 95% interval, from the variance of each task over seeds; nan if a
    task has one seed."""
    mean = fmean(map(fmean, by_task.values()))
    if any(len(scores) < 2 for scores in by_task.values()):
        return mean, nan
    error = sum(stdev(scores) ** 2 / len(scores) for scores in by_task.values()) ** 0.5 / len(by_task)
    return mean, float(student.ppf(0.975, sum(len(scores) - 1 for scores in by_task.values()))) * error


if __name__ == "__main__":
    raise SystemExit(main())
