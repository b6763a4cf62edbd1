"""The model card of a fine-tuning run: `README.md` with a YAML header for the Hugging Face Hub, written from the files
of the run only."""

import math
import re
from pathlib import Path

from hornbook.files import write_text
from hornbook.report import usage, wording
from hornbook.report.finetuned import FinetunedRun
from hornbook.report.run import number

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
SHOWN_SETTINGS = (
    ("epochs", "epochs"),
    ("batch_size", "batch size"),
    ("optimizer.name", "optimizer"),
    ("optimizer.lr", "learning rate"),
    ("schedule.steps", "steps"),
    ("schedule.warmup_fraction", "warmup fraction"),
    ("schedule.warmup_steps", "warmup steps"),
    ("optimizer.weight_decay", "weight decay"),
    ("task.head", "head"),
    ("task.pair_encoding", "pair encoding"),
    ("task.max_length", "max sequence length"),
    ("task.no_answer", "no-answer method"),
    ("task.class_weights", "class weights"),
    ("layers.head_lr_ratio", "head learning rate, multiple of the base"),
    ("layers.decay", "layer-wise learning-rate decay"),
    ("layers.decay_from", "layer-wise decay starts at"),
    ("layers.frozen", "frozen layers"),
    ("layers.dropout", "dropout"),
    ("runtime.seed", "seed"),
)


def write_card(folder: str | Path) -> Path:
    """Writes `README.md` into the folder of a finished fine-tuning run, and returns its path."""
    run = FinetunedRun.load(folder)
    if not run.is_finished:
        raise ValueError(f"{folder} has no scores.json yet: finish the run, then write its model card")
    path = run.folder / "README.md"
    write_text(path, card(run))
    return path


def card(run: FinetunedRun) -> str:
    sections = [
        f"---\n{_head(run)}---\n",
        f"# {_plain(run.name)}\n\n{_opening(run)}",
        _degenerate(run),
        f"## Scores\n\n{_scores(run)}",
        f"## Data\n\n{_data(run)}",
        f"## Settings\n\n{_settings(run)}",
        f"## Hardware\n\n{_hardware(run)}",
        f"## How to use it\n\n{_usage(run)}",
        f"## Limits\n\n{_limits(run)}",
    ]
    return "\n\n".join(each.strip() for each in sections if each) + "\n"


def quoted(text: str) -> str:
    """The text as a YAML string in double quotes, with special characters escaped.

    >>> quoted('a: "b"')
    '"a: \\\\"b\\\\""'
    """
    out = []
    for each in text:
        code = ord(each)
        if each in '"\\':
            out.append("\\" + each)
        elif 0xD800 <= code <= 0xDFFF:  # an unpaired surrogate, which UTF-8 cannot encode
            out.append("\\uFFFD")
        elif code < 0x20 or 0x7F <= code <= 0xA0 or code in (0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF):
            out.append(f"\\u{code:04X}")
        else:
            out.append(each)
    return f'"{"".join(out)}"'


def _head(run: FinetunedRun) -> str:
    lines = ["library_name: transformers"] if run.is_published else []
    if run.task_kind.pipeline:
        lines.append(f"pipeline_tag: {run.task_kind.pipeline}")
    if is_hub_name(run.model) and not run.is_from_scratch:
        lines.append(f"base_model: {quoted(run.model)}")
    tags = ["hornbook", run.config.get("model_type"), run.name, run.kind]
    lines += ["tags:", *(f"- {quoted(str(tag))}" for tag in dict.fromkeys(filter(None, tags)))]
    if "dev" in run.splits:
        lines += ["metrics:", *(f"- {quoted(name)}" for name in run.splits["dev"])]
    return "\n".join(lines) + "\n"


def is_hub_name(model: str) -> bool:
    """True if `model` looks like a repository name on the Hub and no local folder has that name."""
    return bool(HUB_NAME.fullmatch(model)) and not Path(model).exists()


def _opening(run: FinetunedRun) -> str:
    model = _code(run.model)
    how = f"The architecture of {model}, trained from random weights" if run.is_from_scratch else f"{model}, fine-tuned"
    examples = run.train_examples
    on = f" on {examples:,} examples" if examples is not None else ""
    on += f" and {run.copies_in_words}" if on and run.copies_in_words else ""
    on += f", distilled from the teacher {_code(run.record.teacher)}," if run.record.teacher else ""
    score = f" Dev score used for model selection: {run.dev_score_in_words}." if run.dev_score_in_words else ""
    version = f" Made with hornbook {run.run['hornbook']}." if "hornbook" in run.run else ""
    return f"{how}{on} for the task {_code(run.name)} ({run.kind_in_words}).{score}{version}"


def _degenerate(run: FinetunedRun) -> str:
    if not run.degenerate:
        return ""
    return f"> **This run is degenerate**: {_plain(str(run.degenerate))}. Do not use it for anything but comparison."


def _scores(run: FinetunedRun) -> str:
    if not run.splits:
        return "No split of the data has labels to score on."
    rows = [
        (_plain(split), wording.measure(name), run.interval_in_words(name, found))
        for split, scores in run.splits.items()
        for name, found in scores.items()
    ]
    note = "Intervals are 95% bootstrap intervals over the examples of the split."
    best, chosen = run.best_validation, ""
    if best is not None:
        chosen = (
            f" The weights are from the step with the best {wording.measure(run.decided_by)} on dev (step "
            f"{best['step']:,}), so the dev scores are slightly optimistic."
        )
    tuned = " The no-answer threshold was also chosen on dev." if run.or_none else ""
    return _table(("split", "metric", "value (95% interval)"), rows) + f"\n\n{note}{chosen}{tuned}"


def _data(run: FinetunedRun) -> str:
    data, lines = run.data, []
    files = data.get("files") or []
    lines += [f"- file: {_code(str(file))}" for file in files]
    if not files:
        lines.append(f"- data: {_code(str(data['path'])) if data.get('path') else 'passed in memory'}")
    lines += [f"- {_plain(split)}: {num:,} examples" for split, num in (data.get("examples") or {}).items()]
    in_train = (data.get("examples") or {}).get("train")
    if run.train_examples is not None and run.train_examples != in_train:
        lines.append(f"- trained on {run.train_examples:,} of them")
    if run.labels:
        lines.append(f"- labels: {', '.join(map(_code, run.labels))}")
    if data.get("fingerprint"):
        lines.append(f"- SHA-256 over all examples: {_code(str(data['fingerprint']))}")
    lines += [f"- {_plain(str(message))}" for message in data.get("said") or []]
    for split, num in (run.run.get("cut_texts") or {}).items():
        if num:
            lines.append(f"- {num:,} texts of {_plain(split)} were longer than the maximum length and were truncated")
    problems = data.get("problems") or {}
    for kind, problem in problems.items():
        lines.append(f"- problem: {problem.get('count', 0):,} {_plain(str(problem.get('what', kind)))}")
    return "\n".join(lines if problems else [*lines, "- no problems found in the data"])


def _settings(run: FinetunedRun) -> str:
    rows = []
    left_out = set() if run.task_kind.has_threshold else {"task.no_answer"}
    left_out |= set() if run.is_pair else {"task.pair_encoding"}
    schedule, layers = (run.record.settings.get(group) or {} for group in ("schedule", "layers"))
    left_out |= set() if schedule.get("warmup_steps") is None else {"schedule.warmup_fraction"}
    left_out |= {"layers.decay_from"} if layers.get("decay", 1) == 1 else set()
    for path, label in SHOWN_SETTINGS:
        if path in left_out:
            continue
        value: object = run.record.settings
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            value = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
            rows.append((label, f"{value:g}" if isinstance(value, float) else _plain(str(value))))
    before = "".join(f" Earlier stage {stage.number}: {stage.in_words}." for stage in run.earlier_stages)
    return _table(("setting", "value"), rows) + f"\n\nAll settings are in `run.json`.{before}"


def _hardware(run: FinetunedRun) -> str:
    runtime, record = run.run.get("runtime") or {}, run.record
    parts = [
        f"Device: {_code(record.device)}" + (f" ({_plain(str(runtime['reason']))})" if "reason" in runtime else "")
    ]
    if run.seconds:
        steps = record.step + sum(stage.record.step for stage in run.earlier_stages)
        stages = f" in {run.num_stages} stages" if run.earlier_stages else ""
        parts.append(f"{wording.duration(run.seconds)} for {steps:,} steps{stages}, validation included")
    if "torch" in run.run:
        parts.append(f"torch {run.run['torch']}")
    return "; ".join(parts) + "."


def _usage(run: FinetunedRun) -> str:
    parts = [
        f"```sh\n{usage.predict_command(run)}\n```",
        f"```python\n{usage.python_code(run)}\n```",
    ]
    if code := usage.transformers_code(run):
        parts.append(f"```python\n{code}\n```")
    else:
        parts.append("`transformers` has no class for this head: the model loads in hornbook only.")
    return "\n\n".join(parts)


def _limits(run: FinetunedRun) -> str:
    lines = []
    if run.degenerate:
        lines.append(f"The run is degenerate: {_plain(str(run.degenerate))}.")
    others = [split for split in run.splits if split != "dev"]
    if not any(split.startswith("test") for split in others):
        lines.append("The model was not scored on a test split, only on data used to choose its weights.")
    low, high = (number(run.dev_score.get(end)) for end in ("low", "high"))
    num_dev = (run.data.get("examples") or {}).get("dev")
    if math.isfinite(low) and math.isfinite(high) and num_dev:
        span = f"{run.score_in_words(run.decided_by, low)} to {run.score_in_words(run.decided_by, high)}"
        lines.append(f"Dev has {num_dev:,} examples: differences within {span} may be due to chance.")
    seed = (run.record.settings.get("runtime") or {}).get("seed")
    lines.append(
        f"The scores come from one run{'' if seed is None else f' (seed {seed})'}; other seeds may score differently."
    )
    lines.append("Texts from other sources, other languages, and social bias were not tested.")
    if run.or_none and run.is_published:
        lines.append(
            "The no-answer threshold is in `task.json`; `transformers` does not read it and uses its own rule."
        )
    return "\n".join(f"- {line}" for line in lines)


def _table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [titles, tuple("---" for _ in titles), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def _plain(text: str) -> str:
    """The text on one line, with Markdown special characters escaped."""
    text = " ".join(text.encode("utf-8", "replace").decode().split())
    return re.sub(r"([\\`*_\[\]<>#])", r"\\\1", text)


def _code(text: str) -> str:
    """The text on one line, as Markdown inline code."""
    text = " ".join(text.encode("utf-8", "replace").decode().split())
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"
