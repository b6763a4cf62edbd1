"""`hornbook info` for a fine-tuning run and for a folder of several runs."""

from pathlib import Path

from hornbook.report import several, wording
from hornbook.report.finetuned import FinetunedRun


def about_finetuned(run: FinetunedRun) -> dict:
    record, data = run.record, run.data
    return {
        "kind": "fine-tuned run",
        "task": run.name,
        "task_kind": run.kind,
        "what": run.kind_in_words,
        "model": run.model,
        "teacher": run.record.teacher,
        "from_random": run.is_from_scratch,
        "labels": run.labels,
        "parameters": run.run.get("parameters"),
        "trained_parameters": run.run.get("trained_parameters"),
        "finished": run.is_finished,
        "state": run.state_in_words,
        "step": record.step,
        "num_steps": record.num_steps,
        "best_step": (run.best_validation or {}).get("step"),
        "earlier_stages": [stage.in_words for stage in run.earlier_stages],
        "seconds": run.seconds,
        "device": record.device,
        "data": {name: data.get(name) for name in ("path", "files", "examples", "problems")},
        "train_examples": run.train_examples,
        "copies_in_words": run.copies_in_words,
        "decided_by": run.decided_by,
        "scores": run.splits,
        "scores_in_words": {
            split: [f"{wording.measure(name)} {run.interval_in_words(name, each)}" for name, each in found.items()]
            for split, found in run.splits.items()
        },
        "degenerate": run.degenerate,
        "opens_in_transformers": run.is_published,
    }


def finetuned_lines(found: dict) -> list[tuple[str, str]]:
    parameters, trained, data = found["parameters"], found["trained_parameters"], found["data"]
    size = wording.amount(parameters) if parameters else ""
    if parameters and trained is not None and trained != parameters:
        size += f", {wording.amount(trained)} of them trained"
    out = [
        ("task", f"{found['task']}: {found['what']}"),
        ("model", found["model"] + (", trained from random weights" if found["from_random"] else "")),
        ("teacher", found["teacher"] or ""),
        ("parameters", size),
        ("labels", label_words(found["labels"])),
        ("state", found["state"]),
        ("degenerate", found["degenerate"] or ""),
    ]
    out += [(f"stage {number}", text) for number, text in enumerate(found["earlier_stages"], 1)]
    out += [(f"{split} scores", "; ".join(scores)) for split, scores in found["scores_in_words"].items()]
    out.append(("best step", f"{found['best_step']:,}" if found["best_step"] is not None else ""))
    out.append(("data", str(data["path"] or "passed in memory")))
    out += [(f"{split} examples", f"{num:,}") for split, num in (data["examples"] or {}).items()]
    trained_on = f"{found['train_examples']:,} examples" if found["train_examples"] is not None else ""
    out.append(("trained on", " and ".join(filter(None, (trained_on, found["copies_in_words"])))))
    for kind, problem in (data["problems"] or {}).items():
        out.append(("problem", f"{problem.get('count', 0):,} {problem.get('what', kind)}"))
    return [*out, ("time", wording.duration(found["seconds"])), ("device", found["device"])]


def label_words(labels: list[str], most: int = 12) -> str:
    more = f" and {len(labels) - most:,} more" if len(labels) > most else ""
    return f"{len(labels)}: {', '.join(labels[:most])}{more}" if labels else ""


def about_several(folder: Path) -> dict:
    tries, curve = several.read_tries(folder), several.read_curve(folder)
    found: dict = {"kind": "several runs", "tries": None, "curve": None, "in_words": []}
    if tries is not None:
        found |= {"tries": tries.about}
        marks = {True: ", degenerate", False: ""}
        found["in_words"] += [
            (str(row.get("name", "")), tries.interval_words(row) + marks[bool(row.get("degenerate"))])
            for row in tries.rows
        ]
        found["in_words"].append(("best", str(tries.about.get("best") or "")))
    if curve is not None:
        found |= {"curve": curve.about}
        found["in_words"] += [
            (
                f"{several.METHODS.get(row.get('way'), row.get('way'))}, {row['examples']:,} labels",
                curve.interval_words(row),
            )
            for row in curve.rows
        ]
    return found


def several_lines(found: dict) -> list[tuple[str, str]]:
    return found["in_words"]
