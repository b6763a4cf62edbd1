"""`hornbook.check`: reports how fine-tuning would read the data and how long it would take, without training."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hornbook.data.problems import problem_lines
from hornbook.lifecycle.run_folder import Log, ignore
from hornbook.tasks.reading.read import read
from hornbook.tasks.summary import length_quantiles, summarize

if TYPE_CHECKING:
    from hornbook.runs.finetuning.inputs import FinetuneInputs
    from hornbook.runs.finetuning.record import FinetuneRequest

AUTO = "auto"  # the built-in model for the language of the texts


def check(
    data: Any,
    task: str = "classification",
    model: str | Path | None = None,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    epochs: float | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    strict: bool = False,
    overrides: dict | None = None,
    device: str = "auto",
    num_runs: int = 1,
    log: Log = ignore,
) -> dict[str, Any]:
    """Summarizes labelled data as fine-tuning would read it. Writes nothing.

    Args:
        data: A file, a folder, a data frame or a list of dictionaries, as `finetune` takes it.
        task: The kind of task, or the name of a data set.
        model: The model that would be fine-tuned, `auto` for the built-in one: adds lengths in tokens and the expected
            training time.
        text, pair, label: The columns; inferred by default.
        delimiter, encoding: The format of the files; detected by default.
        epochs, lr, batch_size, seed, overrides: Settings of the run, as for `finetune`.
        device: `cpu`, `cuda` or `cuda:1`, on which training would run; defaults to a GPU if there is one.
        strict: Raise a `ValueError` at the first bad row.
        num_runs: Number of planned runs (`seeds` or `lr_search`), for the expected time.
        log: Receives messages about what was inferred and about bad rows.

    Returns:
        A dictionary: `splits` (examples, unlabelled, duplicates, also_in_train with the first of them, characters),
        `columns` with their roles, `classes` or `numbers`, `left_out` rows by reason, `problems`; with a model also
        `tokens` and `training`.

    >>> import hornbook
    >>> rows = [{"text": f"text {i}", "label": "even" if i % 2 else "odd"} for i in range(20)]
    >>> summary = hornbook.check(rows)
    >>> summary["splits"]["train"]["examples"], summary["columns"]
    (18, {'text': 'text', 'label': 'label'})
    """
    columns = {"text": text, "pair": pair, "label": label, "delimiter": delimiter, "encoding": encoding}
    if model is None:
        dataset = read(task, data, **columns, strict=strict, seed=seed or 0)
        for message in (*dataset.messages, *problem_lines(dataset.problems.to_dict())):
            log(message)
        return summarize(dataset)
    from hornbook.runs.finetuning.record import FinetuneRequest

    options = {"epochs": epochs, "lr": lr, "batch_size": batch_size, "seed": seed, "strict": strict}
    name = None if model == AUTO else model
    request = FinetuneRequest.of(name, data, task, **columns, **options, overrides=overrides, device=device)
    return _with_training_time(request, data, num_runs, log)


def _with_training_time(request: "FinetuneRequest", data: Any, num_runs: int, log: Log) -> dict[str, Any]:
    """The summary with the lengths in tokens and the expected training time. It imports torch, which takes seconds."""
    from hornbook.models.transformer import count_parameters
    from hornbook.runs.finetuning.inputs import open_inputs
    from hornbook.runs.finetuning.job import NUM_TIMED, build_job, expected_seconds
    from hornbook.runs.finetuning.single_run import planned
    from hornbook.train.runtime import configure_torch, torch_settings_restored

    inputs = open_inputs(request, data, log)
    settings, runtime = planned(inputs)
    inputs = inputs.replaced(settings=settings)
    num_steps = settings.schedule.steps
    num_timed = min(NUM_TIMED, num_steps)
    with torch_settings_restored():
        configure_torch(runtime)
        job, network = build_job(inputs, runtime, ignore)
        seconds, step_seconds = expected_seconds(job, inputs, runtime, num_steps, num_timed)
    training = {
        "parameters": count_parameters(network),
        "epochs": settings.epochs,
        "steps": num_steps,
        "seconds": seconds * num_runs,
        "seconds_per_step": step_seconds,
        "based_on": f"{num_timed} measured steps on {runtime.description}",
        "runs": num_runs,
    }
    return summarize(inputs.data) | {"tokens": _tokens(inputs), "training": training}


def _tokens(inputs: "FinetuneInputs") -> dict[str, Any]:
    """Sequence lengths including special tokens, each window counted separately."""
    tokens: dict[str, Any] = {}
    for split, encoded in (("train", inputs.encoded_train), ("dev", inputs.encoded_dev)):
        lengths = [len(ids) for ids in encoded.ids]
        tokens[split] = length_quantiles(lengths) | {"total": sum(lengths), "cut": encoded.num_truncated}
    return tokens | {"max_length": inputs.max_length}
