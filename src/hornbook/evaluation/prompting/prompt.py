"""Scores a model on a task as text, by number of in-context examples.

OUT/run.json                        the request (model, data, shots, seeds), the task, and fingerprints of the data
OUT/predictions/RUN.jsonl           a finished run: one line per question with its prompt, answer and statistics
OUT/scores.json                     scores with intervals of all finished runs
OUT/report.html, score-by-shots.png

A run is one template with one number of examples and one seed. A finished run is not repeated.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hornbook.config import from_dict, setting
from hornbook.evaluation.prompting.evaluator import PromptEvaluator
from hornbook.evaluation.prompting.scores import PREDICTIONS, read_dictionary, write_scores
from hornbook.files import absolute, hash_of, write_json_lines
from hornbook.inference.decoder import DecoderModel
from hornbook.inference.load import load
from hornbook.interop.folder import weights_fingerprint
from hornbook.interop.hub import model_folder
from hornbook.lifecycle.locking import lock_output_folder
from hornbook.lifecycle.requests import RunRequest, changed_values, option_differences
from hornbook.lifecycle.run_folder import Log, RunFolder, require
from hornbook.metrics.generation import check_sacrebleu
from hornbook.report.page import write_report
from hornbook.tasks.text.definition import AS_WRITTEN, Normalize, TextTask, read_task
from hornbook.tasks.text.metrics import METRICS, TextAnswer
from hornbook.tasks.text.prompts import Prompt, PromptWriter, check_templates, drawn, pool_for
from hornbook.tasks.text.sources import Item, ItemSplits, read_items
from hornbook.train.randomness import sample_of

OnAnswered = Callable[[int, int, str], None]  # answered questions, their total, and the current run


@dataclass(frozen=True)
class PromptRequest(RunRequest):
    """The user's request, except for the task, which is the settings of the run."""

    model: str
    data: str
    shots: tuple[int, ...] = setting((0,), "numbers of examples in the prompt", low=0, high=10_000)
    seeds: int = setting(3, "draws of the examples", low=1, high=1000)
    limit: int | None = setting(None, "number of questions, always the same ones; none: all", low=1)


@dataclass(frozen=True)
class PromptRun:
    variant: str
    shots: int
    seed: int

    @property
    def key(self) -> str:
        start = "" if self.variant == AS_WRITTEN else f"{self.variant}-"
        return f"{start}shots-{self.shots}-seed-{self.seed}"

    @property
    def description(self) -> str:
        variant = "" if self.variant == AS_WRITTEN else f", {self.variant}"
        return f"{self.shots} shots, seed {self.seed}{variant}"

    def file(self, out: Path) -> Path:
        return Path(out) / PREDICTIONS / f"{self.key}.jsonl"


@lock_output_folder
def prompt(
    model: str | Path | None,
    task: str | Path | None,
    data: str | Path | None,
    out: str | Path,
    *,
    shots: Sequence[int] = (0,),
    seeds: int = 3,
    limit: int | None = None,
    normalize: Normalize | None = None,
    dictionary: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    on_progress: OnAnswered | None = None,
    log: Log = print,
) -> dict[str, Any]:
    """Scores a GPT on a shipped task or one from a file, with `shots` examples in the prompt, and returns the content
    of `scores.json`.

    >>> import hornbook
    >>> hornbook.prompt("runs/gpt", "review.toml", "reviews", "runs/shots", shots=[0, 4])  # doctest: +SKIP

    For each number of `shots`, examples are drawn with `seeds` different seeds. `limit` is the number of questions to
    use, always the same ones. With `resume` the run in `out` is resumed; arguments that are None keep their recorded
    values.
    """
    out = Path(out)
    folder = RunFolder(out, "prompt")
    run = folder.read_record(_check) if folder.is_started(resume) else {}
    before, recorded_task = run.get("request", {}), run.get("settings")
    model, data = model or before.get("model"), data or before.get("data")
    limit = before.get("limit") if limit is None else limit
    if model is None or data is None or (task is None and not run):
        raise ValueError("the model, the task or its data is missing: give all three, or resume a run (resume=True)")
    defined = _with_options(task, recorded_task, normalize, dictionary)
    if not shots:
        raise ValueError("shots takes numbers of examples, such as 0,1,8: give at least one")
    path = absolute(data)
    request = PromptRequest(str(model), path, tuple(shots), seeds, limit)
    if "bleu" in defined.metrics:
        check_sacrebleu()
    if defined.baseline.dictionary:
        read_dictionary(defined.baseline.dictionary)  # raises before any data or model is read
    shots = sorted({*request.shots, *before.get("shots", ())})
    request = dataclasses.replace(request, shots=tuple(shots), seeds=max(seeds, before.get("seeds", 0)))
    splits = read_items(defined, data, log)
    check_templates(defined, splits.test[0])
    pool = pool_for(defined, splits, max(shots), log)
    test = splits.test if limit is None else sample_of(splits.test, limit, "limit")
    inputs = _fingerprints(model, test, pool)
    if run:
        task_changes = changed_values(recorded_task, dataclasses.asdict(defined), "task.")
        folder.refuse([*option_differences(before, {"limit": limit}), *task_changes])
        _refuse_other_inputs(folder, run["inputs"], inputs, request)
    runs = _runs_of(defined, shots, request.seeds)
    loaded = _load_decoder(model, device)
    folder.write_record(request.to_dict(), inputs, defined)
    try:
        _answer_all(runs, out, PromptEvaluator(defined, loaded), pool, test, on_progress, log)
    finally:  # also when the run is stopped
        scores = write_scores(out, request, defined, runs, ItemSplits(splits.train, test))
        write_report(out)
    return scores


def _check(run: dict[str, Any]) -> None:
    PromptRequest(**run["request"])
    from_dict(TextTask, run["settings"])
    require(run, "inputs.weights", "inputs.questions", "inputs.examples")


def _with_options(
    name: str | Path | None, recorded: dict[str, Any] | None, normalize: str | None, dictionary: str | Path | None
) -> TextTask:
    """The named or the recorded task with the options `normalize` and `dictionary`, by default the recorded ones."""
    task = from_dict(TextTask, recorded) if name is None else read_task(name)
    if recorded is not None:
        normalize = normalize or (recorded["choices"]["normalize"] if task.choices.is_given else None)
        dictionary = dictionary or recorded["baseline"]["dictionary"] or None
    if normalize is not None:
        if not task.choices.is_given:
            raise ValueError(f"normalize= is for choices, and {task.name} has none: leave it out")
        choices = dataclasses.replace(task.choices, normalize=normalize)
        task = dataclasses.replace(task, choices=choices)
    if dictionary is not None:
        if "dictionary" not in task.baseline.kinds:
            raise ValueError(
                f"dictionary is for tasks with a dictionary baseline, and {task.name} has none: leave it out"
            )
        if not Path(dictionary).is_file():
            raise ValueError(
                f"there is no file {dictionary}: give as dictionary a file with a word and its translation per line"
            )
        path = absolute(dictionary)
        task = dataclasses.replace(task, baseline=dataclasses.replace(task.baseline, dictionary=path))
    return task


def _runs_of(task: TextTask, shots: Sequence[int], seeds: int) -> list[PromptRun]:
    """All runs. Without in-context examples there is one seed only, unless the answers are sampled."""
    return [
        PromptRun(variant, num, seed)
        for num in shots
        for variant in task.templates
        for seed in range(seeds if num or task.draws_answers else 1)
    ]


def _answer_all(
    runs: list[PromptRun],
    out: Path,
    evaluator: PromptEvaluator,
    pool: list[Item],
    test: list[Item],
    on_progress: OnAnswered | None,
    log: Log,
) -> None:
    """Writes the predictions of the runs that are not finished yet."""
    task, tokenizer, context = evaluator.task, evaluator.model.tokenizer, evaluator.model.model.config.max_positions
    remaining = [run for run in runs if not run.file(out).exists()]
    if len(remaining) < len(runs):
        log(f"{len(runs) - len(remaining)} of {len(runs)} runs are already finished")
    for i, run in enumerate(remaining):

        def show(done: int, i: int = i, run: PromptRun = run) -> None:
            if on_progress is not None:
                on_progress(i * len(test) + done, len(remaining) * len(test), run.description)

        shots = [[pool[i] for i in drawn(task, len(pool), run.shots, run.seed, item)] for item in range(len(test))]
        show(0)
        writer = PromptWriter(task, task.templates[run.variant], tokenizer, context)
        prompts = writer.write(test, shots, evaluator.answer_lengths(test))
        _warn(run, prompts, context, log)
        replies = evaluator.ask(test, prompts, run.seed, show)
        write_json_lines(run.file(out), _lines(task, test, prompts, replies))


def _warn(run: PromptRun, prompts: list[Prompt], context: int, log: Log) -> None:
    nums = [prompt.num_examples for prompt in prompts]
    if num_short := sum(num < run.shots for num in nums):
        log(
            f"warning: {run.description}: the examples do not fit the context of {context:,} tokens for "
            f"{num_short:,} of {len(nums):,} questions; {np.mean(nums):.3g} were shown on average, at least {min(nums)}"
        )
    if num_truncated := sum(prompt.is_cut for prompt in prompts):
        log(
            f"warning: {run.description}: {num_truncated:,} of {len(nums):,} questions exceed the context and were "
            "truncated"
        )


def _lines(task: TextTask, items: list[Item], prompts: list[Prompt], replies: list[TextAnswer]) -> list[dict[str, Any]]:
    rows = {name: METRICS[name].rows(replies).tolist() for name in task.metrics}
    return [
        {
            "key": item.key,
            "prompt": prompt.text,
            "examples": prompt.num_examples,
            "cut": prompt.is_cut,
            "answers": list(item.answers),
            "answer": reply.text,
            **reply.extra,
            "statistics": {name: rows[name][i] for name in task.metrics},
        }
        for i, (item, prompt, reply) in enumerate(zip(items, prompts, replies, strict=True))
    ]


def _load_decoder(model: str | Path, device: str) -> DecoderModel:
    loaded = load(model, device=device)
    if not isinstance(loaded, DecoderModel):
        raise ValueError(
            f"{model} is an encoder and cannot continue a prompt: give a GPT, or fine-tune this model on the task "
            "(hornbook finetune)"
        )
    return loaded


def _fingerprints(model: str | Path, test: list[Item], pool: list[Item]) -> dict[str, str | None]:
    return {
        "weights": weights_fingerprint(model_folder(model)),
        "questions": _fingerprint(test),
        "examples": _fingerprint(pool) if pool else None,
    }


def _fingerprint(items: list[Item]) -> str:
    return hash_of([[item.key, item.fields, item.answers, item.choices] for item in items])


def _refuse_other_inputs(
    folder: RunFolder, recorded: dict[str, Any], inputs: dict[str, Any], request: PromptRequest
) -> None:
    """Raises a `ValueError` if the model or the data changed: the scores would mix two runs."""
    names = {
        "weights": f"the model {request.model}",
        "questions": f"the data in {request.data}",
        "examples": f"the set of training examples in {request.data}",
    }
    for name in inputs:
        if name != "examples" or recorded[name] is not None:  # else no examples were used so far
            folder.refuse_other_input(names[name], recorded[name], inputs[name])
