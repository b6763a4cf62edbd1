"""From web pages to a folder of texts: five stages of datatrove tasks, on this machine, on Slurm or on Ray.

pages      read, keep those with votes, extract the text, filter; write texts and MinHash signatures
buckets    find the pairs of near duplicates, one task per band
clusters   choose one document of each group of near duplicates
texts      write the documents that are left
publish    sum the counts of all tasks and move the texts into place

The tasks of a stage share out the input files in order, so that neither their number nor the number of workers changes
the result. Each task leaves a file when it is complete; the same call resumes with the others.
"""

import contextlib
import hashlib
import importlib
import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal

from hornbook import __version__
from hornbook.config import checked
from hornbook.data.problems import Problems
from hornbook.data.shards import write_array
from hornbook.data.web.inputs import PageFile, find_pages, read_links
from hornbook.data.worker_pool import WorkerPool, explaining_interruptions
from hornbook.extras import import_extra
from hornbook.files import num_cores, read_json, refusing_damage, write_json
from hornbook.lifecycle.locking import run_lock
from hornbook.lifecycle.requests import changed_values
from hornbook.lifecycle.stopping import interruptible

RECORD, WORK, REQUEST = "web.json", "work", "request.json"
PACKAGES = ("datatrove", "trafilatura", "py3langid", "warcio", "orjson", "xxhash", "regex")
Executor = Literal["local", "slurm", "ray"]
PRESETS: dict[str, dict[str, Any]] = {
    # Radford et al. 2019: links with 3 karma or more, English, without Wikipedia, which evaluation sets are made of
    "webtext": {"min_votes": 3, "language": "en", "exclude_hosts": ["wikipedia.org"]},
}
TASK_BYTES = 16 << 20
MAX_TASKS = 800  # the tasks of `buckets` open a file per task of `pages`
PROGRESS_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class WebProgress:
    """What is done: pages read, bytes of the input files and tasks of the current stage."""

    stage: str
    tasks: int
    tasks_total: int
    pages: int
    bytes_read: int
    bytes_total: int
    seconds: float


def build_web_corpus(
    paths: Sequence[str | Path] | str | Path,
    out: str | Path,
    *,
    links: Sequence[str | Path] = (),
    preset: str | None = None,
    min_votes: int | None = None,
    language: str | None = None,
    exclude_hosts: Sequence[str] = (),
    quality: bool = True,
    keep_near_duplicates: bool = False,
    executor: Executor = "local",
    workers: int | None = None,
    sbatch: Mapping[str, str] | None = None,
    on_progress: Callable[[WebProgress], None] | None = None,
) -> dict:
    """Extracts the texts of web pages into the folder `out`/texts, which `build_corpus` reads, and returns the record.

    `paths` are WARC archives, HTML files or folders of them, also at URLs. With `links` (files of URLs and votes), only
    pages that have `min_votes` (3) are kept. `language` is a code such as "en". With `quality`, the filters of Gopher
    (Rae et al. 2021, arXiv 2112.11446) drop repetitive and odd texts; near duplicates are dropped too (MinHash).
    The preset "webtext" stands for 3 votes, English, without Wikipedia (GPT-2). The same call resumes an interrupted
    one. With the executor "slurm", `sbatch` has the options of the jobs (partition and time at least); the call returns
    when they are submitted, with `submitted` set in the record, and the last job finishes `out`.

    >>> import hornbook
    >>> hornbook.build_web_corpus("crawl", "web", links=["links.tsv"], preset="webtext")  # doctest: +SKIP
    """
    for name in PACKAGES:
        import_extra(name, "web", "web pages need")
    with _quiet():  # all imports happen before there is anything that an interruption could leave
        for name in ("datatrove.executor", "datatrove.pipeline.writers", "hornbook.data.web.steps"):
            importlib.import_module(name)
    if preset is not None and preset not in PRESETS:
        raise ValueError(f"there is no preset {preset!r} for web pages: the known ones are {', '.join(PRESETS)}")
    checked(executor, Executor, "executor")
    checked(min_votes, int | None, "min_votes", low=1)
    arguments = {"min_votes": min_votes, "language": language, "exclude_hosts": list(exclude_hosts)}
    overrides = {name: value for name, value in arguments.items() if value}
    settings = {**arguments, **PRESETS.get(preset or "", {}), **overrides}
    links = [str(path) for path in ([links] if isinstance(links, str | Path) else links)]
    if settings["min_votes"] and not links:
        raise ValueError("votes are read from lists of links: give links=")
    if links and not settings["min_votes"]:
        settings["min_votes"] = 3
    if settings["language"] is not None:
        _check_language(settings["language"])
    workers = checked(num_cores() if workers is None else workers, int, "workers", low=1, high=100_000)
    settings |= {"links": links, "quality": quality, "keep_near_duplicates": keep_near_duplicates}
    out = Path(out).absolute()
    files = find_pages([paths] if isinstance(paths, str | Path) else list(map(str, paths)))
    request = {"hornbook_version": __version__, "settings": settings, "inputs": _fingerprint(files, links)}
    with run_lock(out), interruptible(), explaining_interruptions():
        if record := _already_built(out, request):
            return {**record, "already_built": True}
        work = out / WORK
        num_tasks = _prepare(out, work, files, links, settings, request)
        stages = _stages(out, work, settings, request, num_tasks)
        if executor == "slurm":
            return _submit(work, stages, workers, dict(sbatch or {}))
        start = time.perf_counter()
        if executor == "ray":
            _run_on_ray(work, stages, workers)
        else:
            _run_locally(work, stages, workers, sum(file.bytes for file in files), on_progress)
        record = read_json(out / RECORD)
        if not record["texts"]["documents"]:
            counts = ", ".join(f"{each['name']} {each['pages']:,}" for each in record["filters"])
            raise ValueError(
                f"no page is left ({counts}): relax the filter that drops them, and use another folder than {out}"
            )
        shutil.rmtree(work)
        return {**record, "seconds": round(time.perf_counter() - start, 3)}


def _check_language(language: str) -> None:
    from hornbook.data.web.steps import language_identifier

    known = sorted(map(str, language_identifier(language).nb_classes))
    if language not in known:
        raise ValueError(f"the language {language!r} is not known: give one of {', '.join(known)}")


def _fingerprint(files: list[PageFile], links: list[str]) -> dict:
    pages = hashlib.sha256(repr([astuple(file) for file in files]).encode()).hexdigest()[:16]
    lists = [[path, os.path.getsize(path), os.stat(path).st_mtime_ns] for path in links if os.path.isfile(path)]
    return {"files": len(files), "bytes": sum(file.bytes for file in files), "pages": pages, "links": lists}


def _already_built(out: Path, request: dict) -> dict | None:
    """The record if `out` holds the finished texts of this request; raises a `ValueError` if it was started with
    another one."""
    for file in (out / RECORD, out / WORK / REQUEST):
        if not file.exists():
            continue
        record = read_json(file)
        with refusing_damage(file, f"remove {out} and start again"):
            for name, before, now in changed_values({name: record[name] for name in request}, request):
                reason = f"{name} was {before!r} and is now {now!r}"
                raise ValueError(f"{out} was started with other inputs ({reason}): choose another folder, or remove it")
            if file.name == RECORD and record["texts"]["documents"]:
                shutil.rmtree(out / WORK, ignore_errors=True)
                return record
    return None


def _prepare(out: Path, work: Path, files: list[PageFile], links: list[str], settings: dict, request: dict) -> int:
    """Writes what the tasks read, unless an interrupted call did: the files of each task, the links with votes. Returns
    the number of tasks."""
    if (work / REQUEST).exists():
        return len(list((work / "inputs").iterdir()))
    if work.exists():
        shutil.rmtree(work)
    elif any(each for each in out.iterdir() if not each.name.startswith(".")):
        raise ValueError(f"{out} is not empty: choose another folder for the texts")
    problems = Problems()
    work.mkdir(parents=True)
    if links:
        write_array(work / "links.npy", read_links(links, settings["min_votes"], problems))
    write_json(work / "links.json", problems.to_dict())
    tasks = _split_into_tasks(files)
    for rank, task_files in enumerate(tasks):
        write_json(work / "inputs" / f"{rank:05d}.json", [astuple(file) for file in task_files])
    write_json(work / REQUEST, request)
    return len(tasks)


def _split_into_tasks(files: list[PageFile]) -> list[list[PageFile]]:
    """Consecutive files for each task, of about the same size in bytes."""
    total = sum(file.bytes for file in files)
    num_tasks = max(1, min(len(files), MAX_TASKS, -(-total // TASK_BYTES)))
    tasks: list[list[PageFile]] = [[] for _ in range(num_tasks)]
    bytes_before = 0
    for file in files:
        tasks[min(num_tasks - 1, bytes_before * num_tasks // max(total, 1))].append(file)
        bytes_before += file.bytes
    return [task for task in tasks if task]


def _stages(out: Path, work: Path, settings: dict, request: dict, num_tasks: int) -> list[tuple[str, list, int]]:
    """(name, datatrove pipeline, number of tasks) of each stage."""
    with _quiet():
        from datatrove.pipeline.dedup import (
            MinhashConfig,
            MinhashDedupBuckets,
            MinhashDedupCluster,
            MinhashDedupSignature,
        )
        from datatrove.pipeline.writers import JsonlWriter

        from hornbook.data.web import steps

        words, config = steps.Words(), MinhashConfig()
        pages: list = [steps.ReadPages(work)]
        if settings["links"]:
            pages.append(steps.HasVotes(work))
        if settings["exclude_hosts"]:
            pages.append(steps.NotOnHosts(tuple(settings["exclude_hosts"])))
        pages.append(steps.ExtractText(work))
        if settings["language"]:
            pages.append(steps.InLanguage(settings["language"]))
        if settings["quality"]:
            # The rules on stop words and short words are for English: words of Korean have two or three syllables.
            is_other = settings["language"] not in (None, "en")
            english_rules = {"min_stop_words": None, "min_avg_word_length": None} if is_other else {}
            pages += [steps.NotRepetitive(language=words), steps.HasQuality(language=words, **english_rules)]
        pages.append(JsonlWriter(str(work / "pages")))
        texts: list = [steps.ReadKept(str(work / "pages"), add_file_path=False)]
        duplicates = []
        if not settings["keep_near_duplicates"]:
            signatures, pairs, removed = (str(work / name) for name in ("signatures", "pairs", "removed"))
            pages.append(MinhashDedupSignature(signatures, config, language=words))
            duplicates = [
                ("buckets", [MinhashDedupBuckets(signatures, pairs, config=config)], config.num_buckets),
                ("clusters", [MinhashDedupCluster(pairs, removed, config=config)], 1),
            ]
            texts.append(steps.NotNearDuplicate(removed))
        texts.append(JsonlWriter(str(work / "texts")))
        publish = [steps.Publish(out, work, request)]
    return [("pages", pages, num_tasks), *duplicates, ("texts", texts, num_tasks), ("publish", publish, 1)]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Context in which datatrove's log goes nowhere but to the files of the tasks."""
    with contextlib.redirect_stderr(io.StringIO()):
        from datatrove.utils.logging import setup_default_logger

        setup_default_logger()
        yield


def _run_locally(
    work: Path, stages: list, workers: int, bytes_total: int, on_progress: Callable[[WebProgress], None] | None
) -> None:
    """Runs the tasks of datatrove's local executor in processes that end with this one. The executor's own pool starts
    a server process, which would stay when this one is killed."""
    import dill

    start = time.perf_counter()
    with WorkerPool(workers) as pool:
        for name, pipeline, tasks in stages:
            with _quiet():
                from datatrove.executor import LocalPipelineExecutor

                executor = LocalPipelineExecutor(pipeline, tasks=tasks, logging_dir=str(work / "logs" / name))
                ranks, pickled = executor.get_incomplete_ranks(), dill.dumps(executor)
            pending = {pool.submit(_run_task, pickled, rank) for rank in ranks}
            while pending:
                done, pending = wait(pending, PROGRESS_SECONDS, FIRST_COMPLETED)
                for future in done:
                    future.result()
                if on_progress is not None:
                    num_done, seconds = tasks - len(pending), time.perf_counter() - start
                    on_progress(WebProgress(name, num_done, tasks, *_num_read(work), bytes_total, seconds))


def _num_read(work: Path) -> tuple[int, int]:
    """(pages, bytes) that all tasks have read."""
    pages = num_bytes = 0
    with contextlib.suppress(OSError):
        for file in (work / "progress").glob("*.json"):
            counts = read_json(file)
            pages, num_bytes = pages + counts["pages"], num_bytes + counts["bytes"]
    return pages, num_bytes


def _run_task(pickled: bytes, rank: int) -> None:
    import dill

    with _quiet():
        dill.loads(pickled)._run_for_rank(rank, local_rank=1)


def _run_on_ray(work: Path, stages: list, workers: int) -> None:
    try:
        import ray  # noqa: F401
    except ImportError:
        raise ValueError("the executor ray needs the package ray: pip install ray") from None
    with _quiet():
        from datatrove.executor import RayPipelineExecutor

        for name, pipeline, tasks in stages:
            logs = str(work / "logs" / name)
            RayPipelineExecutor(pipeline, tasks=tasks, workers=min(workers, tasks), logging_dir=logs).run()


def _submit(work: Path, stages: list, workers: int, sbatch: dict[str, str]) -> dict:
    """Submits the stages as array jobs that wait for each other, unless earlier ones are still in the queue."""
    if shutil.which("sbatch") is None:
        raise ValueError("the executor slurm needs the command sbatch: run hornbook on a machine of the cluster")
    if missing := {"partition", "time"} - set(sbatch):
        raise ValueError(f"Slurm needs a {min(missing)}: add {min(missing)}=... to sbatch=")
    submitted = work / "submitted.json"
    jobs = read_json(submitted)["jobs"] if submitted.exists() else []
    queue = ["squeue", "--noheader", "--me", "--format=%A"]
    if jobs and set(jobs) & set(subprocess.run(queue, capture_output=True, text=True, check=False).stdout.split()):
        complete = len(list((work / "logs").glob("*/completions/*")))
        return {"submitted": jobs, "tasks": [complete, sum(tasks for _, _, tasks in stages)], "is_running": True}
    options = {"kill-on-invalid-dep": "yes"}  # the jobs after one that failed leave the queue
    options |= {name: value for name, value in sbatch.items() if name not in ("partition", "time", "qos")}
    previous, jobs = None, []
    with _quiet():
        from datatrove.executor import SlurmPipelineExecutor

        for name, pipeline, tasks in stages:
            previous = SlurmPipelineExecutor(
                pipeline,
                tasks=tasks,
                time=sbatch["time"],
                partition=sbatch["partition"],
                qos=sbatch.get("qos", ""),
                workers=min(workers, tasks),
                job_name=f"hornbook-{name}",
                env_command=f'export PATH="{Path(sys.executable).parent}:$PATH"',
                sbatch_args=options,
                logging_dir=str(work / "logs" / name),
                depends=previous,
            )
            previous.launch_job()
            if previous.job_id != -1:  # a stage that an earlier job has completed
                jobs.append(str(previous.job_id))
    write_json(submitted, {"jobs": jobs})
    return {"submitted": jobs, "tasks": [0, sum(tasks for _, _, tasks in stages)]}
