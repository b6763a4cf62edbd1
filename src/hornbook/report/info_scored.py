"""What `hornbook info` says of folders with scores and no model: baselines and probes, comparisons, experiments."""

from pathlib import Path

from hornbook.files import read_json
from hornbook.report import comparison, wording

SCORES, RESULTS = "scores.json", "results.json"
IN_PERCENT = "spans"  # the kind of task whose scores are in percent already


def about_plain(folder: Path) -> dict:
    """A baseline or a probe."""
    run = read_json(folder / "run.json")
    request, data = run.get("request", {}), run.get("data", {})
    scores = read_json(folder / SCORES) if (folder / SCORES).is_file() else None
    in_percent = run.get("kind") == IN_PERCENT
    parts = {} if scores is None else scores["parts"]
    return {
        "kind": run["command"],
        "way": request.get("baseline") or request.get("way"),
        "model": request.get("model") or None,
        "task": request.get("task"),
        "data": data.get("path"),
        "finished": scores is not None,
        "scores": parts,
        "scores_in_words": {
            part: [
                f"{wording.measure(name)} {wording.score_with_interval(name, each, in_percent)}"
                for name, each in found.items()
            ]
            for part, found in parts.items()
        },
    }


def plain_lines(found: dict) -> list[tuple[str, str]]:
    return [
        ("way", found["way"] or ""),
        ("task", found["task"] or ""),
        ("model", found["model"] or ""),
        ("data", str(found["data"] or "handed over in memory")),
        ("state", "finished" if found["finished"] else "no scores yet: the same command gives them"),
        *((f"{part} scores", "; ".join(words)) for part, words in found["scores_in_words"].items()),
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
    """By its results, or by what was decided where it has none yet."""
    if (folder / RESULTS).is_file():
        results = read_json(folder / RESULTS)
        kept = ("title", "flops", "seeds", "num_done", "num_pieces")
        claims = {claim["words"]: claim["verdict"] for claim in results["claims"]}
        arms = [arm["label"] for arm in results["arms"].values()]
        return {"kind": "experiment", **{name: results[name] for name in kept}, "arms": arms, "claims": claims}
    decided = read_json(folder / "experiment.json")
    experiment = decided["experiment"]
    about = {"title": experiment["title"], "flops": decided["flops"], "seeds": experiment["equal"]["seeds"]}
    arms = [arm["label"] or arm["name"] for arm in experiment["arms"]]
    return {"kind": "experiment", **about, "num_done": 0, "num_pieces": None, "arms": arms, "claims": {}}


def experiment_lines(found: dict) -> list[tuple[str, str]]:
    of = f" of {wording.counted(found['num_pieces'], 'piece')}" if found["num_pieces"] else " pieces"
    is_finished = found["num_done"] == found["num_pieces"]
    goes_on = "" if is_finished else "; the same command with --resume goes on"
    return [
        ("title", found["title"]),
        ("state", f"{found['num_done']}{of} done{goes_on}"),
        ("arms", "; ".join(found["arms"])),
        ("FLOPs of each", f"{found['flops']:.3g}"),
        ("pre-training seeds", ", ".join(map(str, found["seeds"]))),
        *((verdict, words) for words, verdict in found["claims"].items()),
    ]
