"""The command `prompt`, and `finetune` with several tasks as text."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from hornbook.cli.app import app, exit_if_stopped, print_json, show_settings
from hornbook.cli.options import Device, Overwrite, argument, flag, option
from hornbook.cli.overwriting import RUN, overwriting
from hornbook.terminal import TrainingDisplay, answering_display, log, print_result, table

EXAMPLE = "Example: hornbook prompt runs/gpt --task sst-2-question --data glue/SST-2 --shots 0,1,8 --out runs/sst-shots"


@app.command("prompt", epilog=EXAMPLE)
def prompt_command(
    model: argument(str | None, "A GPT: a run folder, a folder, or a Hugging Face name.") = None,
    task: option(str | None, "A shipped task (see --list), or your own .toml file.") = None,
    data: option(str | None, "Folder or file with the task's examples.") = None,
    out: option(Path | None, "Folder for predictions, scores and report.") = None,
    shots: option(str, "Numbers of few-shot examples, such as 0,1,8.") = "0",
    seeds: option(int, "Number of few-shot samples drawn per --shots value.") = 3,
    limit: option(int | None, "Ask only this many questions, always the same ones.") = None,
    normalize: option(str | None, "Length normalisation of choices: token, byte, sum or answer.") = None,
    dictionary: option(
        Path | None, "Dictionary of the word-by-word baseline: a word and its translation per line."
    ) = None,
    resume: flag("--resume", "Resume what is in --out, or start it.") = False,
    is_list: flag("--list", "List the shipped tasks and exit.") = False,
    show: flag("--show", "Print the prompt of one question and exit.") = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Evaluate a GPT on a task by prompting, by number of few-shot examples. Ctrl-C saves; --resume resumes."""
    if is_list:
        _list()
        return
    is_resumed = resume and out is not None and (out / "run.json").exists()
    if (task is None or data is None) and (show or not is_resumed):
        missing = "task" if task is None else "data"
        raise ValueError(f"prompt needs --{missing}; --list names the shipped tasks")
    num_shots = _numbers(shots)
    if show:
        _show(task, data, num_shots)
        return
    if out is None or (model is None and not is_resumed):
        missing = "--out" if out is None else "a model"
        raise ValueError(f"prompt needs {missing}; see 'hornbook prompt --help'")
    from hornbook.evaluation.prompting.prompt import prompt
    from hornbook.report.formatting import metric_label
    from hornbook.report.prompting import degenerate_note, rows_of

    replaced = overwriting(out, frozenset({"prompted task"}), overwrite, resume)
    with replaced, answering_display() as on_progress, _explain_how_to_resume(out):
        result = prompt(
            model,
            task,
            data,
            out,
            shots=num_shots,
            seeds=seeds,
            limit=limit,
            normalize=normalize,
            dictionary=dictionary,
            resume=resume,
            device=device,
            on_progress=on_progress,
            log=log,
        )
    rows = [(name, num, *(text for _, text in cells), note) for name, num, cells, note in rows_of(result)]
    table(rows, ("model", "examples", *map(metric_label, result["metrics"]), ""))
    for name, metric in result["metrics"].items():
        print_result(f"{metric_label(name)}: {metric['words']}")
    if reason := degenerate_note(result):
        log(f"note: {reason}")
    print_result(f"{result['interval']}; {result['questions']:,} questions; {out / 'report.html'}")
    print_json({"out": str(out), "points": result["points"], "baselines": result["baselines"]})


@contextlib.contextmanager
def _explain_how_to_resume(out: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; the answers are saved in {out}: rerun with --resume") from None


def _numbers(shots: str) -> list[int]:
    parts = [part.strip() for part in shots.split(",")]
    if not all(part.isdigit() for part in parts):
        raise ValueError(f"--shots takes comma-separated numbers from 0, such as 0,1,8, not '{shots}'")
    return [int(part) for part in parts]


def _list() -> None:
    from hornbook.tasks.text.definition import read_task, shipped

    tasks = [read_task(name) for name in shipped()]
    rows = [(task.name, ", ".join(task.metrics), task.about) for task in tasks]
    table(rows, ("task", "metrics", "description"), is_prose=True)
    print_json({task.name: task.about for task in tasks})


def _show(task: str, data: str, shots: list[int]) -> None:
    """Prints the prompt of the first question, regardless of the context length of any model."""
    from hornbook.tasks.text.definition import AS_WRITTEN, read_task
    from hornbook.tasks.text.prompts import shown_prompts

    prompts = shown_prompts(read_task(task), data, shots)
    for shown in prompts:
        variant = "" if shown["variant"] == AS_WRITTEN else f", {shown['variant']}"
        print_result(f"--- examples: {shown['shots']}{variant}\n{shown['prompt']}")
        print_result(f"--- answers: {' |'.join(shown['answers'])}")
    print_json({"prompts": prompts})


def finetune_as_text(
    model: str, data: str | None, out: Path | None, overrides: dict, resume: bool, overwrite: bool, show: bool
) -> None:
    """`finetune --task text`: fine-tunes a GPT on all tasks that the .toml file `data` names."""
    from hornbook.runs.finetuning.finetune_text import finetune_text, resolve_settings

    if show:
        show_settings(resolve_settings(model, data, overrides, log))
        return
    if out is None or (data is None and not resume):
        raise ValueError(f"finetune --task text needs --{'out' if out is None else 'data'}; --data is a .toml file")
    with overwriting(out, RUN, overwrite, resume), TrainingDisplay() as display:
        outcome = finetune_text(model, data, out, overrides=overrides, resume=resume, on_progress=display, log=log)
    if outcome.ended == "stopped":
        log(f"stopped at step {outcome.step:,} and saved in {out}; rerun with --resume")
    else:
        print_result(f"{out}: {outcome.ended}")
        log(f"  hornbook prompt {out} --task NAME --data PATH --shots 0 --out SCORES")
    print_json({"out": str(out), **vars(outcome)})
    exit_if_stopped(outcome)
