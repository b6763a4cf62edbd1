"""Fine-tuning compared with the recipes of `transformers`: the same model, data, epochs, batch, learning rate, seeds
and lengths.

    python benchmarks/finetune.py scores --data TASKS --model FOLDER --out results.json [--tasks mrpc,rte] [--seeds 5]
    python benchmarks/finetune.py speed-gpu --data GLUE --vocabulary FOLDER [--preset bert-base]
    python benchmarks/finetune.py speed-cpu --data GLUE --model FOLDER [--examples 640]

`scores` trains on at most 4,000 examples of each task, the same ones for every seed and side, and scores the last
weights of both sides on dev with the same official scorer (SQuAD: trained on some articles of the development set,
scored on others; the no-answer threshold is the best on dev on both sides). Runs (a task, a seed, a side) are
distributed over several processes that share the device, so their times are those of a shared device; each result is
saved when it is done, and the same command continues with the missing ones.

The sides differ only where their own recipes differ: theirs splits long passages into windows that overlap by 128
tokens (ours starts one every 128, as published), has an AdamW epsilon of 1e-8 (ours 1e-6), and truncates sentences that
are too long to tag (ours reads them in windows).
"""

import argparse
import dataclasses
import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev

import finetune_ours
import finetune_speed
import finetune_theirs
import torch
from finetune_data import PLACES, Recipe, chosen_data, recipe_for
from jobs import run_jobs

from hornbook.files import num_cores, read_json, write_json
from hornbook.metrics.confidence_intervals import difference_interval
from hornbook.tasks.datasets import find_task

SLOWEST_FIRST = ("squad", "squad2", "commonsenseqa", "conll2003", "ud-pos", "rte")


@dataclass(frozen=True)
class Job:
    side: str
    recipe: Recipe
    data: str
    examples: int
    scored: int | None
    trainer: str
    work: str

    @property
    def file(self) -> Path:
        return Path(self.work) / f"{self.recipe.task}-{self.recipe.seed}-{self.side}.json"

    def asked(self) -> dict:
        """What must be unchanged for the result of an earlier run to count."""
        return json.loads(
            json.dumps({"recipe": dataclasses.asdict(self.recipe), "examples": self.examples, "scored": self.scored})
        )

    def found(self) -> dict | None:
        """The result that an earlier run saved."""
        if not self.file.exists():
            return None
        written = read_json(self.file)
        if written["asked"] != self.asked():
            raise ValueError(f"{self.file} is of another benchmark: give another --work, or remove it")
        return written


def run_job(job: Job) -> dict:
    """Runs in a separate process."""
    answer = {"task": job.recipe.task, "seed": job.recipe.seed, "side": job.side, "asked": job.asked()}
    began = time.perf_counter()
    out = job.file.with_suffix(".run")
    shutil.rmtree(out, ignore_errors=True)  # left by a killed run
    try:
        data = chosen_data(Path(job.data) / PLACES[job.recipe.task], job.recipe.task, job.examples, job.scored)
        if job.recipe.device == "cuda":
            torch.zeros(1, device="cuda")  # initialise the device before either side is timed
        if job.side == "ours":
            answer |= finetune_ours.fine_tune(job.recipe, data, out)
        else:
            answer |= finetune_theirs.fine_tune(job.recipe, data, job.trainer)
    finally:
        shutil.rmtree(out, ignore_errors=True)
    answer |= {
        "train_examples": len(data.splits["train"]),
        "scored_examples": len(data.splits["dev"]),
        "whole_seconds": time.perf_counter() - began,
    }
    write_json(job.file, answer)
    return answer


def scores(args: argparse.Namespace) -> int:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    threads = args.threads or max(1, num_cores() // args.processes)
    work = args.work or args.out.with_suffix(".jobs")
    work.mkdir(parents=True, exist_ok=True)
    tasks = args.tasks.split(",")
    if unknown := [task for task in tasks if task not in PLACES]:
        raise ValueError(f"'{unknown[0]}' is not one of the tasks {', '.join(PLACES)}")
    jobs = [
        Job(
            side,
            recipe_for(str(args.model), task, seed, threads, device, epochs=args.epochs, lr=args.lr),
            str(args.data),
            args.examples,
            args.scored,
            args.trainer,
            str(work),
        )
        for seed in range(args.seeds)
        for task in sorted(tasks, key=lambda task: SLOWEST_FIRST.index(task) if task in SLOWEST_FIRST else 99)
        for side in args.sides.split(",")
    ]
    done = [found for job in jobs if (found := job.found())]
    missing = [job for job in jobs if not job.file.exists()]
    print(f"{len(jobs)} jobs, {len(done)} done before; {args.processes} processes, {threads} threads each, {device}")
    failed = []
    for (job,), answer, error in run_jobs(run_job, [(job,) for job in missing], args.processes):
        where = f"{job.recipe.task} seed {job.recipe.seed} {job.side}"
        if error:
            failed.append(where)
            print(f"{where} failed:\n{error}", flush=True)
            continue
        done.append(answer)
        shown = ", ".join(f"{name} {answer['scores'][name]:.4g}" for name in find_task(answer["task"]).metrics)
        words = f"{shown}; {answer['training_seconds']:.1f} s training, {answer['startup_seconds']:.1f} s start-up"
        print(f"[{len(done)}/{len(jobs)}] {where}: {words}", flush=True)
    rows = [row for task in tasks for row in summary(task, [each for each in done if each["task"] == task])]
    shared = finetune_speed.versions(device) | {"processes": args.processes, "threads": threads, "failed": failed}
    write_json(args.out, shared | {"rows": rows, "jobs": sorted(done, key=lambda each: (each["task"], each["seed"]))})
    print_scores(rows, done, shared)
    return 1 if failed else 0


def summary(task: str, done: list[dict]) -> list[dict]:
    """A row per official measure of a task."""
    rows = []
    for measure in find_task(task).metrics:
        row: dict = {"task": task, "metric": measure}
        for side in ("ours", "theirs"):
            mine = [each for each in done if each["side"] == side]
            values = [100 * each["scores"][measure] for each in mine]
            if not values:
                continue
            row[side] = {
                "scores": values,
                "mean": fmean(values),
                "deviation": stdev(values) if len(values) > 1 else 0.0,
                "training_seconds": median(each["training_seconds"] for each in mine),
                "startup_seconds": median(each["startup_seconds"] for each in mine),
                "examples_per_second": median(each["examples_per_second"] for each in mine),
            }
        if "ours" in row and "theirs" in row:
            row["difference"] = row["ours"]["mean"] - row["theirs"]["mean"]
            if min(len(row[side]["scores"]) for side in ("ours", "theirs")) > 1:
                row["interval"] = difference_interval(row["ours"]["scores"], row["theirs"]["scores"])
            row["times_faster"] = row["theirs"]["training_seconds"] / row["ours"]["training_seconds"]
        rows.append(row)
    return rows


def print_scores(rows: list[dict], done: list[dict], shared: dict) -> None:
    print(f"\n{shared['device']}; torch {shared['torch']}, transformers {shared['transformers']}")
    for side in ("ours", "theirs"):
        print(f"{side}: {'; '.join(sorted({each['how'] for each in done if each['side'] == side}))}")
    print("\n| task | measure | ours | theirs | difference (95% interval) | ours s | theirs s | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        shown = {
            side: f"{row[side]['mean']:.2f} ± {row[side]['deviation']:.2f}" if side in row else ""
            for side in ("ours", "theirs")
        }
        seconds = {side: f"{row[side]['training_seconds']:.1f}" if side in row else "" for side in ("ours", "theirs")}
        difference = f"{row['difference']:+.2f}" if "difference" in row else ""
        if "interval" in row:
            low, high = row["interval"]
            difference += f" ({low:+.2f} to {high:+.2f})"
        ratio = f"{row['times_faster']:.2f} x" if "times_faster" in row else ""
        print(
            f"| {row['task']} | {row['metric']} | {shown['ours']} | {shown['theirs']} | {difference} "
            f"| {seconds['ours']} | {seconds['theirs']} | {ratio} |"
        )
    judged = [row for row in rows if "interval" in row]
    if judged:
        apart = [
            f"{row['task']} {row['metric']}" for row in judged if not row["interval"][0] <= 0 <= row["interval"][1]
        ]
        print(f"\n{len(judged) - len(apart)} of {len(judged)} intervals hold 0; not: {', '.join(apart) or 'none'}")
    if unlearned := [f"{each['task']} seed {each['seed']}" for each in done if each.get("degenerate")]:
        print(f"degenerate runs of ours: {', '.join(unlearned)}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    of_scores = commands.add_parser("scores", help="official scores of both sides over several seeds")
    on_gpu = commands.add_parser("speed-gpu", help="examples per second and whole runs on one GPU")
    on_cpu = commands.add_parser("speed-cpu", help="examples per second on the cores of a CPU")

    of_scores.add_argument("--data", type=Path, required=True, help="the folder with glue, squad, conll2003 ...")
    of_scores.add_argument("--tasks", default=",".join(PLACES))
    of_scores.add_argument("--seeds", type=int, default=5)
    of_scores.add_argument("--examples", type=int, default=4000, help="to train on, at most")
    of_scores.add_argument("--scored", type=int, help="dev examples, at most; SQuAD: never more than 2,000")
    of_scores.add_argument("--processes", type=int, default=8)
    of_scores.add_argument("--sides", default="ours,theirs")
    of_scores.add_argument("--lr", type=float, help="instead of our default for the width of the model")
    of_scores.add_argument("--work", type=Path, help="folder for the results of runs; defaults to one next to --out")
    of_scores.add_argument("--out", type=Path, required=True)
    of_scores.add_argument("--epochs", type=int, help="instead of the published number")

    on_gpu.add_argument("--preset", default="bert-base")
    on_gpu.add_argument("--vocabulary", required=True, help="a folder with vocab.txt or tokenizer.json")
    on_gpu.add_argument("--sides", default="ours,eager,compiled")
    on_gpu.add_argument("--steady-epochs", type=int, default=4, help="epochs that are timed after warming up")
    on_gpu.add_argument("--epochs", type=int, default=3, help="of a whole run")
    on_cpu.add_argument("--examples", type=int, default=640)
    on_cpu.add_argument("--epochs", type=int, default=1)
    for each in (of_scores, on_cpu):
        each.add_argument("--model", type=Path, required=True, help="the folder of a pre-trained encoder")
    for each in (on_gpu, on_cpu):
        each.add_argument("--data", type=Path, required=True, help="the folder of GLUE, or MRPC in it")
        each.add_argument("--repeats", type=int, default=2, help="turns of each side")
        each.add_argument("--out", type=Path, help="write the numbers as JSON here")
    for each in (of_scores, on_gpu, on_cpu):
        each.add_argument("--threads", type=int, default=0, help="of each process; 0: the cores there are")
        each.add_argument("--trainer", choices=("auto", "trainer", "loop"), default="auto", help="who trains theirs")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    if args.command == "scores":
        return scores(args)
    (finetune_speed.on_gpu if args.command == "speed-gpu" else finetune_speed.on_cpu)(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
