"""Measuring a model on a task as text, by number of examples shown.

OUT/prompt.json                     what was asked, resolved: model, task, data, shots, seeds
OUT/predictions/PIECE.jsonl         a finished piece: a line a question, with its whole prompt, answer and statistics
OUT/scores.json                     scores with intervals, of as many pieces as there are
OUT/report.html, score-by-shots.png

A piece is one template, one number of examples and one seed. One that is there is never run again.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hornbook.config import checked, from_dict, to_dict
from hornbook.files import read_json, replacing, sha256, write_json
from hornbook.infer.decoder import DecoderModel
from hornbook.infer.opening import load
from hornbook.infer.sampling import Sampling
from hornbook.interop.hub import model_folder
from hornbook.lifecycle.locking import locks_out
from hornbook.lifecycle.resuming import Difference, other_options, refuse
from hornbook.metrics.bleu import check_sacrebleu
from hornbook.prompting.asking import Asker, Reply
from hornbook.prompting.baselines import read_dictionary
from hornbook.prompting.definition import AS_WRITTEN, Normalise, TextTask, read_task
from hornbook.prompting.measures import MEASURES
from hornbook.prompting.prompts import Prompt, PromptWriter, check_templates, drawn, pool_for
from hornbook.prompting.scores import write_scores
from hornbook.prompting.sources import Item, Parts, read_items
from hornbook.report.page import write_report
from hornbook.train.randomness import seed_of

ASKED, PREDICTIONS = "prompt.json", "predictions"
Log = Callable[[str], None]
OnProgress = Callable[[int, int, str], None]  # questions done, of how many, what is being done


@dataclass(frozen=True)
class Piece:
    variant: str
    shots: int
    seed: int

    @property
    def key(self) -> str:
        start = "" if self.variant == AS_WRITTEN else f"{self.variant}-"
        return f"{start}shots-{self.shots}-seed-{self.seed}"

    def file(self, out: Path) -> Path:
        return Path(out) / PREDICTIONS / f"{self.key}.jsonl"


@locks_out
def prompt(
    model: str | Path | None,
    task: str | Path | None,
    data: str | Path | None,
    out: str | Path,
    *,
    shots: Sequence[int] = (0,),
    seeds: int = 3,
    limit: int | None = None,
    normalise: Normalise | None = None,
    dictionary: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    on_progress: OnProgress | None = None,
    log: Log = print,
) -> dict[str, Any]:
    """Scores a GPT on a task that is shipped or in a file, with `shots` examples in the prompt, and returns what
    `scores.json` holds.

    >>> import hornbook
    >>> hornbook.prompt("runs/gpt", "review.toml", "reviews", "runs/shots", shots=[0, 4])  # doctest: +SKIP

    `seeds` draws of examples are made for each number of `shots`; `limit` asks only so many questions, always the same.
    With `resume` the run in `out` is resumed: what is None is as it was started with.
    """
    out = Path(out)
    before = _started(out, resume)
    if before:
        model, data = model or before["model"], data or before["data"]
        limit = before["limit"] if limit is None else limit
    if model is None or data is None or (task is None and not before):
        raise ValueError("a model, a task and its data are needed, unless a run is resumed that has them")
    defined = _started_task(before["task"]) if task is None else read_task(task)
    if before and defined.choices.is_there:
        normalise = normalise or before["task"]["choices"]["normalise"]
    dictionary = dictionary or (before["task"]["baseline"]["dictionary"] if before else None) or None
    defined = changed_task(defined, normalise, dictionary)
    check_request(defined, shots, seeds, limit)
    shots = sorted({*shots, *before.get("shots", ())})
    parts = read_items(defined, data, log)
    check_templates(defined, parts.test[0])
    pool, test = pool_for(defined, parts, max(shots), log), limited(parts.test, limit)
    asked = {
        "model": str(model),
        "weights": _weights(model),
        "task": to_dict(defined),
        "data": str(Path(data).expanduser().resolve()),
        "questions": _fingerprint(test),
        "examples": _fingerprint(pool) if pool else None,
        "shots": shots,
        "seeds": max(seeds, before.get("seeds", 0)),
        "limit": limit,
    }
    _refuse_another(out, before, asked)
    pieces = pieces_of(defined, shots, asked["seeds"])
    loaded = opened(model, device)
    write_json(out / ASKED, asked)
    try:
        _run_pieces(pieces, out, Asker(defined, loaded), pool, test, on_progress, log)
    finally:  # also of a run that is stopped
        found = write_scores(out, asked, defined, pieces, Parts(parts.train, test))
        write_report(out)
    return found


def _started_task(record: dict[str, Any]) -> TextTask:
    return from_dict(TextTask, record)


def changed_task(task: TextTask, normalise: str | None, dictionary: str | Path | None) -> TextTask:
    if normalise is not None:
        if not task.choices.is_there:
            raise ValueError(f"--normalise is for choices, and {task.name} has none: leave it out")
        choices = dataclasses.replace(task.choices, normalise=normalise)
        task = dataclasses.replace(task, choices=choices)
    if dictionary is not None:
        if "dictionary" not in task.baseline.kinds:
            raise ValueError(f"--dictionary is for tasks with a dictionary beside them, and {task.name} has none")
        if not Path(dictionary).is_file():
            raise ValueError(f"{dictionary} is no file: --dictionary takes one with a word and its translation a line")
        path = str(Path(dictionary).resolve())
        task = dataclasses.replace(task, baseline=dataclasses.replace(task.baseline, dictionary=path))
    return task


def check_request(task: TextTask, shots: Sequence[int], seeds: int, limit: int | None) -> None:
    """Before anything is read or opened."""
    if not shots:
        raise ValueError("--shots takes numbers of examples from 0 on, such as 0,1,8")
    checked(tuple(shots), tuple[int, ...], "--shots", low=0, high=10_000)
    checked(seeds, int, "--seeds", low=1, high=1000)
    checked(limit, int | None, "--limit", low=1)
    Sampling(task.writing.temperature, task.writing.top_k, task.writing.top_p)
    if "bleu" in task.measures:
        check_sacrebleu()
    if task.baseline.dictionary:
        read_dictionary(task.baseline.dictionary)


def limited(test: list[Item], limit: int | None) -> list[Item]:
    """So many of them, spread over the file, always the same."""
    if limit is None or limit >= len(test):
        return test
    chosen = np.random.default_rng(seed_of("limit")).permutation(len(test))[:limit]
    return [test[i] for i in sorted(chosen)]


def opened(model: str | Path, device: str = "auto") -> DecoderModel:
    loaded = load(model, device=device)
    if not isinstance(loaded, DecoderModel):
        raise ValueError(
            f"{model} is an encoder, which reads in both directions and cannot go on with a prompt: give a GPT, or "
            "fine-tune this one on the task (hornbook finetune)"
        )
    return loaded


def pieces_of(task: TextTask, shots: Sequence[int], seeds: int) -> list[Piece]:
    """Fewer seeds where nothing is drawn: without examples, one, unless the answers are drawn."""
    return [
        Piece(variant, num, seed)
        for num in shots
        for variant in task.templates
        for seed in range(seeds if num or task.draws_answers else 1)
    ]


def words_of(piece: Piece) -> str:
    variant = "" if piece.variant == AS_WRITTEN else f", {piece.variant}"
    return f"{piece.shots} shots, seed {piece.seed}{variant}"


def _run_pieces(
    pieces: list[Piece],
    out: Path,
    asker: Asker,
    pool: list[Item],
    test: list[Item],
    on_progress: OnProgress | None,
    log: Log,
) -> None:
    left = [piece for piece in pieces if not piece.file(out).exists()]
    if len(left) < len(pieces):
        log(f"{len(pieces) - len(left)} of {len(pieces)} pieces are there already")
    for place, piece in enumerate(left):

        def show(done: int, place: int = place, piece: Piece = piece) -> None:
            if on_progress is not None:
                on_progress(place * len(test) + done, len(left) * len(test), words_of(piece))

        _run_piece(piece, out, asker, pool, test, show, log)


def _run_piece(
    piece: Piece,
    out: Path,
    asker: Asker,
    pool: list[Item],
    test: list[Item],
    progress: Callable[[int], None],
    log: Log,
) -> None:
    task, model = asker.task, asker.model
    writer = PromptWriter(task, task.templates[piece.variant], model.tokenizer, model.model.config.max_positions)
    shown = [[pool[i] for i in drawn(task, len(pool), piece.shots, piece.seed, number)] for number in range(len(test))]
    progress(0)
    prompts = writer.write(test, shown, asker.rooms(test))
    _warn(piece, prompts, writer.context, log)
    replies = asker.ask(test, prompts, piece.seed, progress)
    lines = _lines(task, test, prompts, replies)
    with replacing(piece.file(out)) as temporary:
        temporary.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), encoding="utf-8")


def _warn(piece: Piece, prompts: list[Prompt], context: int, log: Log) -> None:
    nums = [prompt.num_examples for prompt in prompts]
    if num_short := sum(num < piece.shots for num in nums):
        log(
            f"warning: {words_of(piece)}: the examples do not fit the context of {context:,} tokens for "
            f"{num_short:,} of {len(nums):,} questions; {np.mean(nums):.3g} were shown on average, at least {min(nums)}"
        )
    if num_cut := sum(prompt.is_cut for prompt in prompts):
        log(f"warning: {words_of(piece)}: {num_cut:,} of {len(nums):,} questions are too long for it and were cut")


def _lines(task: TextTask, items: list[Item], prompts: list[Prompt], replies: list[Reply]) -> list[dict[str, Any]]:
    rows = {name: MEASURES[name].rows([reply.answered for reply in replies]).tolist() for name in task.measures}
    return [
        {
            "key": item.key,
            "prompt": asked.text,
            "examples": asked.num_examples,
            "cut": asked.is_cut,
            "answers": list(item.answers),
            "answer": reply.answered.text,
            **reply.about,
            "statistics": {name: rows[name][number] for name in task.measures},
        }
        for number, (item, asked, reply) in enumerate(zip(items, prompts, replies, strict=True))
    ]


def _weights(model: str | Path) -> str | None:
    file = model_folder(model) / "model.safetensors"
    return sha256(file) if file.is_file() else None


def _fingerprint(items: list[Item]) -> str:
    told = json.dumps([[item.key, item.fields, item.answers, item.choices] for item in items], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()


def _started(out: Path, resume: bool) -> dict[str, Any]:
    """What a run that is gone on with was asked; nothing where it is a new one."""
    if (out / ASKED).exists():
        if not resume:
            raise ValueError(f"{out} already holds a run: add --resume to go on with it, or choose another --out")
        return read_json(out / ASKED)
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} exists and holds something else: choose another --out, or empty it")
    return {}


def _refuse_another(out: Path, before: dict[str, Any], asked: dict[str, Any]) -> None:
    """More shots and more seeds may be asked for; anything else would mix two runs in one table."""
    now = json.loads(json.dumps(asked))
    words = {"weights": "another model", "questions": "other data", "examples": "other training examples"}
    if before:
        refuse(out, other_options(before, {"limit": now["limit"]}) + _other_task(before["task"], now["task"]))
    for name in ("weights", "questions", "examples") if before else ():
        is_new = name == "examples" and before[name] is None  # none were shown so far
        if before[name] != now[name] and not is_new:
            raise ValueError(f"{out} was started with {words[name]}: choose another --out")


def _other_task(before: dict[str, Any], now: dict[str, Any], prefix: str = "task") -> list[Difference]:
    """Where two definitions of a task differ, by dotted name."""
    found = []
    for name, value in now.items():
        if isinstance(value, dict) and isinstance(before.get(name), dict):
            found += _other_task(before[name], value, f"{prefix}.{name}")
        elif before.get(name) != value:
            found.append(Difference(f"{prefix}.{name}", before.get(name), value))
    return found
