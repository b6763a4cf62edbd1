"""`run.json`: the request and all resolved settings of a run, from which it is resumed."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

import hornbook
from hornbook import config as configuration
from hornbook.config import LARGEST_SEED, MANY, Typed, setting
from hornbook.data.corpus import Corpus
from hornbook.files import read_json, refusing_damage, write_json
from hornbook.lifecycle.resuming import other_options, other_settings, refuse
from hornbook.runs.distillation.teacher import Teacher
from hornbook.runs.pretraining.assembly import kept_model
from hornbook.runs.pretraining.batches import Corpora, folder_and_weight
from hornbook.runs.pretraining.settings import PretrainSettings, settings_in
from hornbook.train.device import Runtime
from hornbook.train.loop import Job
from hornbook.train.settings import MINUTES_A_YEAR, MOST_BATCH_TOKENS


@dataclass(frozen=True)
class Request(Typed, group="--"):
    """The arguments of the command, as the user gave them."""

    preset: str
    corpora: list[str] = field(default_factory=list)
    base: str | None = None
    steps: int | None = setting(None, "number of optimizer steps", low=1, high=MANY)
    tokens: int | None = setting(None, "training tokens, instead of steps", low=1, high=10**15)
    minutes: float | None = setting(None, "training time in minutes, instead of steps", above=0, high=MINUTES_A_YEAR)
    batch_tokens: int | None = setting(None, "tokens per batch", low=8, high=MOST_BATCH_TOKENS)
    seed: int | None = setting(None, "random seed", low=0, high=LARGEST_SEED)
    teacher: str | None = None
    overrides: dict = field(default_factory=dict)

    def all_overrides(self) -> dict:
        """The overrides by dotted name, including those given by options of their own such as --steps."""
        flags = {"schedule.steps": self.steps, "batch.tokens": self.batch_tokens, "runtime.seed": self.seed}
        return self.overrides | {name: value for name, value in flags.items() if value is not None}

    def named_corpora(self) -> list[tuple[str, float]]:
        return [folder_and_weight(each) for each in self.corpora]


def write_run(
    out: Path,
    request: Request,
    settings: PretrainSettings,
    opened: Corpora,
    runtime: Runtime,
    job: Job,
    baseline: dict,
    teacher: Teacher | None = None,
) -> None:
    corpora = [
        {
            "folder": str(corpus.folder.resolve()),
            "weight": weight,
            "fingerprint": corpus.fingerprint,
            "documents": corpus.num_documents,
            "tokens": corpus.num_tokens,
        }
        for corpus, weight in opened
    ]
    write_json(
        out / "run.json",
        {
            "hornbook": hornbook.__version__,
            "torch": torch.__version__,
            "command": "distill" if teacher else "pretrain",
            **({"teacher": teacher.about()} if teacher else {}),
            "preset": request.preset,
            "family": job.model.family,
            "from": request.base,
            "request": asdict(request) | {"overrides": {name: str(value) for name, value in request.overrides.items()}},
            "parameters": sum(p.numel() for p in job.model.parameters()),
            "kept_parameters": sum(p.numel() for p in kept_model(job.model).parameters()),
            "terms": job.objective.weights,
            "heads": list(job.model.heads),
            "corpora": corpora,
            "frequency_baseline": baseline,
            "planned_flops": settings.planned_flops(teacher=teacher.model.config if teacher else None),
            "runtime": {
                "device": str(runtime.device),
                "threads": runtime.threads,
                "compiles": runtime.compiles,
                "reason": runtime.reason,
            },
            "settings": configuration.to_dict(settings),
            "unused": configuration.unused_names(settings),
        },
    )


def read_run(out: Path, is_distilled: bool = False) -> dict:
    run = read_json(out / "run.json")
    missing = {"preset", "request", "settings", "corpora", "runtime", "heads"} - run.keys()
    if run.get("command") == "distill" and not is_distilled:
        raise ValueError(f"{out} holds a run of 'distill': resume it with that command, or choose another --out")
    if is_distilled and run.get("command") != "distill":
        raise ValueError(f"{out} holds a run of '{run.get('command')}', without a teacher: choose another --out")
    if missing:
        raise ValueError(f"{out / 'run.json'} lacks {sorted(missing)[0]}, so no run wrote it: restore the file")
    with refusing_damage(out / "run.json"):
        Request(**run["request"])
        list(run["terms"])
        for entry in run["corpora"]:
            Path(entry["folder"]), float(entry["weight"]), str(entry["fingerprint"])
        run["runtime"]["threads"], run["runtime"]["compiles"], float(run["planned_flops"])
        run["request"]["overrides"].items()
        settings_in(run)
    return run


def refuse_other_request(out: Path, run: dict, request: Request) -> None:
    """Raises a ValueError if an option of `request` differs from the recorded one; others are skipped."""
    before, settings = run["request"], settings_in(run)
    names = {"preset": "preset", "--from": "base", "--tokens": "tokens", "--minutes": "minutes", "teacher": "teacher"}
    recorded = {option: before.get(name) for option, name in names.items()}
    given = {option: getattr(request, name) for option, name in names.items()}
    folders = [(entry["folder"], entry["weight"]) for entry in run["corpora"]]
    named = [(str(Path(folder).resolve()), weight) for folder, weight in request.named_corpora()]
    if named and named != folders and not _have_moved(named, run["corpora"]):
        recorded["--corpus"], given["--corpus"] = (
            ", ".join(f"{folder}:{weight:g}" for folder, weight in each) for each in (folders, named)
        )
    refuse(out, other_options(recorded, given) + other_settings(settings, before["overrides"], request.all_overrides()))


def _have_moved(named: list[tuple[str, float]], entries: list[dict]) -> bool:
    """Whether these are the corpora of the run at other paths, for example after a copy to another machine."""
    if [weight for _, weight in named] != [entry["weight"] for entry in entries]:
        return False
    pairs = zip(named, entries, strict=True)
    return all(Corpus(folder).fingerprint == entry["fingerprint"] for (folder, _), entry in pairs)


def refuse_other_corpora(run: dict, opened: Corpora) -> None:
    for (corpus, _), entry in zip(opened, run["corpora"], strict=True):
        if corpus.fingerprint != entry["fingerprint"]:
            raise ValueError(
                f"{corpus.folder} is not the corpus that this run was started with: restore it, or start a new run"
            )
