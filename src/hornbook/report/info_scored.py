"""`hornbook info` for folders with scores but no model: baselines, probes, comparisons and experiments."""

from pathlib import Path

from hornbook.files import read_json
from hornbook.report import comparison, wording
from hornbook.tasks.kind import TaskKind
from hornbook.tasks.kinds import KINDS

SCORES, RESULTS = "scores.json", "results.json"


def about_plain(folder: Path) -> dict:
    """Describes a baseline or a probe."""
    run = read_json(folder / "run.json")
    request, data = run.get("request", {}), run.get("inputs", {}).get("data", {})
    scores = read_json(folder / SCORES) if (folder / SCORES).is_file() else None
    in_percent = KINDS.get(str(run.get("kind")), TaskKind).in_percent
    splits = {} if scores is None else scores["parts"]
    return {
        "kind": run["command"],
        "way": request.get("baseline") or request.get("way"),
        "model": request.get("model") or None,
        "task": request.get("task"),
        "data": data.get("path"),
        "finished": scores is not None,
        "scores": splits,
        "scores_in_words": {
            split: [
                f"{wording.measure(name)} {wording.score_with_interval(name, each, in_percent)}"
                for name, each in found.items()
            ]
            for split, found in splits.items()
        },
    }


def plain_lines(found: dict) -> list[tuple[str, str]]:
    return [
        ("method", found["way"] or ""),
        ("task", found["task"] or ""),
        ("model", found["model"] or ""),
        ("data", str(found["data"] or "passed in memory")),
        ("state", "finished" if found["finished"] else "no scores yet; run the same command again"),
        *((f"{split} scores", "; ".join(scores)) for split, scores in found["scores_in_words"].items()),
    ]


def about_comparison(folder: Path) -> dict:
    found = read_json(folder / comparison.FILE)
    _, *titles = comparison.headings(found)
    in_words = [
        (name, "; ".join(f"{title} {cell}" for title, cell in zip(titles, cells, strict=True)))
        for name, *cells in comparison.cells(found)
    ]
    return {"kind": "comparison", **found, "in_words": [*in_words, ("data", str(found["data"] or ""))]}


def comparison_lines(found: dict) -> list[tuple[str, str]]:
    return found["in_words"]


def about_experiment(folder: Path) -> dict:
    """Describes an experiment from its results.json or, before that exists, from run.json."""
    if (folder / RESULTS).is_file():
        results = read_json(folder / RESULTS)
        kept = ("title", "flops", "seeds", "num_done", "num_pieces")
        claims = {claim["words"]: claim["verdict"] for claim in results["claims"]}
        arms = [arm["label"] for arm in results["arms"].values()]
        return {"kind": "experiment", **{name: results[name] for name in kept}, "arms": arms, "claims": claims}
    decided = read_json(folder / "run.json")
    experiment = decided["settings"]
    about = {"title": experiment["title"], "flops": decided["flops"], "seeds": experiment["equal"]["seeds"]}
    arms = [arm["label"] or arm["name"] for arm in experiment["arms"]]
    return {"kind": "experiment", **about, "num_done": 0, "num_pieces": None, "arms": arms, "claims": {}}


def experiment_lines(found: dict) -> list[tuple[str, str]]:
    of = f" of {wording.counted(found['num_pieces'], 'piece')}" if found["num_pieces"] else " pieces"
    is_finished = found["num_done"] == found["num_pieces"]
    how_to_resume = "" if is_finished else "; run the same command with --resume to continue"
    return [
        ("title", found["title"]),
        ("state", f"{found['num_done']}{of} done{how_to_resume}"),
        ("arms", "; ".join(found["arms"])),
        ("FLOPs per arm", f"{found['flops']:.3g}"),
        ("pre-training seeds", ", ".join(map(str, found["seeds"]))),
        *((verdict, words) for words, verdict in found["claims"].items()),
    ]
