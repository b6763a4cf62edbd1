"""The tables of DistilBERT and TinyBERT at our scale: a teacher fine-tuned on several tasks, a student distilled from
it on plain text and then on the task, and ablations of each component, over several seeds.

    hornbook distill BASE --student distilbert --corpus corpus --out GENERAL --set model.num_layers=3 ...
    python benchmarks/distillation.py --base BASE --general GENERAL --data TASKS --out results.json [--seeds 3]
        [--general NAME=OTHER] [--others-as no-task-stage] [--tasks sst-2,mrpc] [--arms full,random-start] [--copies 20]
        [--processes 8] [--set [TASK:]KEY=VALUE]

BASE is the pre-trained model with an MLM head: fine-tuned it is the teacher, and it makes the augmented copies. The
arms leave out components of the task stages; `--general NAME=OTHER` adds an arm whose student was distilled differently
on plain text, as in DistilBERT's table (whose students are only fine-tuned: `--arms no-task-stage --others-as
no-task-stage`). Each task is trained on at most 4,000 examples, the same for every seed and arm, and the last weights
are scored on dev (SQuAD: on at most 2,000 questions). Arms are compared seed by seed, as all arms of a seed share its
teacher and its copies. All seeds start from one student of plain text, whose variation no interval includes. The result
of each run (an arm, a task, a seed) is saved when it is done, and the same command continues with the missing ones,
also in the middle of a run. Teachers come first, then the full arm, whose copies the other arms reuse.
"""

import argparse
import hashlib
import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev

import torch
from finetune_data import PLACES, chosen_data
from jobs import run_jobs
from settings_by_task import overrides_by_task

from hornbook.files import link, num_cores, read_json, write_json
from hornbook.interop.folder import load_folder, save_model
from hornbook.metrics.confidence_intervals import mean_interval
from hornbook.models.distillation_pair import initialize_from_teacher
from hornbook.models.flops import model_flops_per_token, shape_of
from hornbook.report.run_files import STAGES
from hornbook.runs.augmentation.stored_copies import LINES
from hornbook.runs.distillation.distill import distill
from hornbook.runs.distillation.teacher import weights_fingerprint
from hornbook.runs.finetuning.finetune import finetune
from hornbook.runs.finetuning.record import AUGMENTED
from hornbook.runs.model_files import PROJECTIONS_FILE
from hornbook.train.checkpoint import Checkpoints

MEASURES = {
    "cola": "matthews",
    "sst-2": "accuracy",
    "mrpc": "accuracy",
    "rte": "accuracy",
    "sts-b": "spearman",
    "squad2": "f1",
    "conll2003": "entity_f1",
}
SLOWEST_FIRST = ("squad2", "conll2003", "sst-2", "sts-b", "cola", "mrpc", "rte")
TEACHER, FULL = "teacher", "full"
NEVER = 1_000_000_000
MEAN = "mean"


@dataclass(frozen=True)
class Arm:
    """How an arm differs from the full one. `start` is the student after plain text, layers of the base, or random
    weights; without a `teacher` it is fine-tuned on the labels."""

    start: str = "general"
    teacher: bool = True
    copies: bool = True
    overrides: dict = field(default_factory=dict)


ARMS = {
    FULL: Arm(),
    "no-general-stage": Arm(start="layers"),
    "no-task-stage": Arm(teacher=False, copies=False),
    "no-augmentation": Arm(copies=False),
    "no-embeddings": Arm(overrides={"objective.without": "embeddings"}),
    "no-prediction-layer": Arm(overrides={"objective.without": "logits", "objective.hard_label_weight": 1.0}),
    "no-attention": Arm(overrides={"objective.without": "attention"}),
    "no-hidden": Arm(overrides={"objective.without": "hidden"}),
    "neither-attention-nor-hidden": Arm(overrides={"objective.without": "attention,hidden"}),
    "top-layers": Arm(overrides={"objective.layers": "top"}),
    "bottom-layers": Arm(overrides={"objective.layers": "bottom"}),
    "random-start": Arm(start="random"),
    "scores-and-labels": Arm(overrides={"objective.recipe": "distilbert"}),  # one stage, as DistilBERT's on SQuAD
}


@dataclass(frozen=True)
class Job:
    """One run: a teacher, or a student in an arm."""

    arm: str
    way: str  # the arm whose stages it uses: itself unless the student differs
    task: str
    seed: int
    base: str
    general: str
    data: str
    examples: int
    copies: int
    work: str
    overrides: dict
    weights: tuple[str, str]  # fingerprints of the base and of the general student

    @property
    def name(self) -> str:
        return f"{self.task}-{self.seed}"

    @property
    def folder(self) -> Path:
        return Path(self.work) / self.arm / self.name

    @property
    def file(self) -> Path:
        return self.folder.with_suffix(".json")

    def asked(self) -> dict:
        """What must be unchanged for the result of an earlier run to count."""
        return json.loads(json.dumps({k: v for k, v in asdict(self).items() if k not in ("work", "data")}))

    def found(self) -> dict | None:
        if not self.file.exists():
            return None
        written = read_json(self.file)
        if written["asked"] != self.asked():
            raise ValueError(f"{self.file} is of another benchmark: give another --out, or remove it")
        return written


def run_job(job: Job, threads: int) -> dict:
    """Runs in a separate process."""
    began = time.perf_counter()
    forget_other_threads(job, threads)
    result = train(job, {"validation.every_steps": NEVER, "runtime.threads": threads} | job.overrides)
    answer = {
        "arm": job.arm,
        "task": job.task,
        "seed": job.seed,
        "score": 100 * result.scores["dev"][MEASURES[job.task]]["value"],
        "degenerate": result.degenerate,
        **spent(job),
        "training_seconds": result.outcome.seconds,
        "whole_seconds": time.perf_counter() - began,
        "asked": job.asked(),
    }
    write_json(job.file, answer)
    if job.arm != TEACHER:
        keep_copies(job)
        shutil.rmtree(job.folder)
    return answer


def spent(job: Job) -> dict:
    """Training tokens of all stages, and FLOPs in the `model` convention: those of the trained model, and of the
    teacher's forward pass for every token of a stage but the last and once for what is cached for the last one. Making
    copies is not counted."""
    last = read_json(Checkpoints(job.folder).last() / "state.json")
    earlier = [read_json(Checkpoints(f).last() / "state.json") for f in (job.folder / STAGES).glob("*")]
    tokens, in_last = sum(state["tokens"] for state in [last, *earlier]), last["tokens"]
    run = read_json(job.folder / "run.json")
    sequences = last["step"] * run["settings"]["batch_size"]

    def a_token(folder: str | Path) -> float:
        return model_flops_per_token(shape_of(load_folder(folder)[0].config, in_last / sequences, 0.0, "none"))

    flops = tokens * a_token(job.folder)
    if job.arm != TEACHER and ARMS[job.way].teacher:
        flops += (tokens - in_last + in_last / run["settings"]["epochs"]) * a_token(job.base) / 3
    return {"tokens": tokens, "flops": flops}


def forget_other_threads(job: Job, threads: int) -> None:
    """A run resumes with the number of threads that it started with; if that has changed, it starts again, as runs are
    short."""
    record = job.folder / "run.json"
    if record.exists() and read_json(record)["request"]["overrides"].get("runtime.threads") != str(threads):
        shutil.rmtree(job.folder)


def train(job: Job, overrides: dict):
    data = chosen_data(Path(job.data) / PLACES[job.task], job.task, job.examples, None)
    asked = {"seed": job.seed, "resume": True, "log": lambda words: None}
    plain = without_teaching(overrides)
    of_teaching = {name: value for name, value in overrides.items() if name not in plain}
    overrides = plain
    if job.arm == TEACHER:
        return finetune(job.base, data, job.task, job.folder, overrides=overrides, **asked)
    arm = ARMS[job.way]
    student = student_of(job, arm.start)
    if arm.copies and job.copies:
        overrides = overrides | {"augment.copies": job.copies, "augment.model": job.base}
        link_copies(job)
    if not arm.teacher:
        return finetune(student, data, job.task, job.folder, overrides=overrides, **asked)
    teacher = Path(job.work) / TEACHER / job.name
    overrides = {"objective.cache": "logits"} | overrides | of_teaching | arm.overrides
    return distill(teacher, student, job.folder, task=job.task, data=data, overrides=overrides, **asked)


def without_teaching(overrides: dict) -> dict:
    """The settings that a run without a teacher has too."""
    return {name: value for name, value in overrides.items() if not name.startswith(("objective.", "stages."))}


def student_of(job: Job, start: str) -> str:
    """The folder of a student: the given one, or one of the same shape with other initial weights."""
    if start == "general":
        return job.general
    folder = Path(job.work) / "students" / f"{start}-{job.seed}-of-{job.arm}-{job.task}"
    if not (folder / "config.json").exists():
        trained, tokenizer = load_folder(job.general)
        model = type(trained)(trained.config, ())
        model.initialize(torch.Generator().manual_seed(job.seed))
        if start == "layers":
            initialize_from_teacher(model, load_folder(job.base)[0])
        tokenizer.save(folder, model.config.max_positions, model.config.num_segments)
        save_model(folder, model)
    return str(folder)


def link_copies(job: Job) -> None:
    """The copies of the full arm, if they exist already."""
    place = Path(job.work) / "copies" / job.name
    if (place / AUGMENTED).exists() and not (job.folder / AUGMENTED).exists():
        job.folder.mkdir(parents=True, exist_ok=True)
        for name in (LINES, AUGMENTED):
            link(place / name, job.folder / name)


def keep_copies(job: Job) -> None:
    place = Path(job.work) / "copies" / job.name
    if (job.folder / AUGMENTED).exists() and not (place / AUGMENTED).exists():
        place.mkdir(parents=True, exist_ok=True)
        for name in (LINES, AUGMENTED):
            link(job.folder / name, place / name)


def main() -> int:
    args = arguments()
    tasks, general = args.tasks.split(","), general_students(args.general)
    arms = [*filter(None, args.arms.split(",")), *(name for name in general if name != FULL)]
    for name, known in [*((task, MEASURES) for task in tasks), *((arm, ARMS | general) for arm in arms)]:
        if name not in known:
            raise ValueError(f"'{name}' is not one of {', '.join(known)}")
    if "no-general-stage" in arms and not same_shape(args.base, general[FULL]):
        arms.remove("no-general-stage")
        print("no-general-stage is left out: layers of the base do not fit the student, so it would be random-start")
    overrides = overrides_by_task(tasks, args.set)
    threads = max(1, num_cores() // args.processes)
    work = args.out.with_suffix(".jobs")
    done, failed = [], []
    phases = [[TEACHER], [arm for arm in arms if arm == FULL], [arm for arm in arms if arm != FULL]]
    fingerprints = {folder: fingerprint(Path(folder)) for folder in {args.base, *general.values()}}

    def job(arm: str, task: str, seed: int) -> Job:
        student, copies, its_changes = general.get(arm, general[FULL]), args.copies, overrides[task]
        if arm == TEACHER:  # independent of the students: OUT.jobs/teacher may be copied for another table
            student, copies, its_changes = "", 0, without_teaching(its_changes)
        way = args.others_as if arm in general and arm != FULL else arm
        both = (fingerprints[args.base], fingerprints.get(student, ""))
        return Job(
            arm, way, task, seed, args.base, student, args.data, args.examples, copies, str(work), its_changes, both
        )

    for phase in phases:
        jobs = [
            job(arm, task, seed)
            for seed in range(args.seeds)
            for task in sorted(tasks, key=SLOWEST_FIRST.index)
            for arm in phase
        ]
        done += [found for job in jobs if (found := job.found())]
        missing = [(each, threads) for each in jobs if not each.file.exists()]
        for (each, _), answer, error in run_jobs(run_job, missing, args.processes):
            where = f"{each.arm} {each.task} seed {each.seed}"
            if error:  # printed in full once, later errors by their last line
                print(f"{where}: {error.strip().splitlines()[-1] if failed else error}", flush=True)
                failed.append(where)
                continue
            done.append(answer)
            print(f"{where}: {answer['score']:.2f}, {answer['whole_seconds']:.0f} s", flush=True)
        if failed:  # students need their teachers: the same command resumes from here
            break
    rows = summary([TEACHER, *arms], tasks, done)
    write_json(args.out, {"arguments": {k: str(v) for k, v in vars(args).items()}, "rows": rows, "jobs": done})
    print_table(rows, tasks)
    return 1 if failed else 0


def fingerprint(folder: Path) -> str:
    """The fingerprint of the weights, and of the projections that a student learned with them."""
    projections = folder / PROJECTIONS_FILE
    its_own = hashlib.sha256(projections.read_bytes()).hexdigest() if projections.exists() else ""
    return weights_fingerprint(folder) + its_own


def general_students(said: list[str]) -> dict[str, str]:
    """The folder of each arm whose student was distilled differently on plain text, and under `full` that of all
    others."""
    found = {}
    for each in said:
        name, equals, folder = each.rpartition("=")
        found[name if equals else FULL] = folder
    if FULL not in found:
        raise ValueError("--general needs one folder without a name, from which all other arms start")
    return found


def same_shape(base: str, student: str) -> bool:
    configs = [load_folder(folder)[0].config for folder in (base, student)]
    return len({(each.width, each.num_heads, each.inner_width) for each in configs}) == 1


def summary(arms: list[str], tasks: list[str], done: list[dict]) -> list[dict]:
    """A row per arm: for each task the score of each seed and the number of degenerate runs, and for each seed the mean
    over tasks."""
    rows = []
    for arm in arms:
        of_arm = [each for each in done if each["arm"] == arm]
        by_task = {task: {e["seed"]: e["score"] for e in of_arm if e["task"] == task} for task in tasks}
        whole = sorted(set.intersection(*(set(scores) for scores in by_task.values())))
        means = {seed: fmean(by_task[task][seed] for task in tasks) for seed in whole}
        failed = {task: sum(bool(e["degenerate"]) for e in of_arm if e["task"] == task) for task in tasks}
        rows.append({"arm": arm, "scores": by_task, MEAN: means, "learned nothing": failed})
    return rows


def differences(rows: list[dict]) -> tuple[str, dict[str, list[float]]]:
    """The reference arm (the full one or, without it, the first), and for each other arm the differences of its mean
    over tasks to the reference's, seed by seed."""
    means = {row["arm"]: row[MEAN] for row in rows if row["arm"] != TEACHER}
    whole = FULL if FULL in means else next(iter(means), FULL)
    of_whole = means.pop(whole, {})
    return whole, {
        arm: [mean - of_whole[seed] for seed, mean in by_seed.items() if seed in of_whole]
        for arm, by_seed in means.items()
    }


def print_table(rows: list[dict], tasks: list[str]) -> None:
    """Means with standard deviations, the percentage of the teacher kept, and the difference to the full arm; both seed
    by seed."""
    teacher = next(row[MEAN] for row in rows if row["arm"] == TEACHER)
    first, beside = differences(rows)
    print(f"\n| arm | {' | '.join(tasks)} | mean | of the teacher, % | difference to {first} |")
    print("|---" * (len(tasks) + 4) + "|")
    for row in rows:
        cells = [shown(list(row["scores"][task].values()), row["learned nothing"][task]) for task in tasks]
        means = row[MEAN]
        share = [100 * mean / teacher[seed] for seed, mean in means.items() if seed in teacher]
        cells += [with_interval(list(means.values())), with_interval(share) if row["arm"] != TEACHER else ""]
        cells += [with_interval(beside.get(row["arm"], []), "+")]
        print(f"| {row['arm']} | {' | '.join(cells)} |")
    if any(sum(row["learned nothing"].values()) for row in rows):
        print("* so many of the runs give one answer to everything")


def shown(scores: list[float], num_failed: int) -> str:
    if not scores:
        return ""
    spread = f" ± {stdev(scores):.2f}" if len(scores) > 1 else ""
    return f"{fmean(scores):.2f}{spread}" + (f" ({num_failed}*)" if num_failed else "")


def with_interval(values: list[float], sign: str = "") -> str:
    """The mean with its 95% interval over seeds."""
    if not values:
        return ""
    shown_mean = f"{fmean(values):{sign}.2f}"
    if len(values) < 2:
        return shown_mean
    low, high = mean_interval(values)
    return f"{shown_mean} ({low:{sign}.2f} to {high:{sign}.2f})"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="the pre-trained model that becomes the teachers")
    parser.add_argument(
        "--general",
        action="append",
        required=True,
        help="[NAME=]FOLDER: the student that learned on plain text",
    )
    parser.add_argument("--data", required=True, help="the folder with glue, squad and conll2003")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", default=",".join(MEASURES))
    parser.add_argument("--arms", default=",".join(ARMS), help="none, as in --arms '', trains the teachers alone")
    parser.add_argument("--others-as", choices=list(ARMS), default=FULL, help="the arm that other students go through")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=4000, help="to train on, at most")
    parser.add_argument("--copies", type=int, default=20, help="of each text, for augmentation")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="another setting of the runs, [task:]key=value")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
