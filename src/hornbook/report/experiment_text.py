"""An experiment in words and in Markdown: what its page and the fragment for RESULTS.md share."""

from pathlib import Path

from hornbook.files import write_text
from hornbook.report import wording

UNEVEN = 0.02  # of the FLOPs: arms that come out further off are named


def notes(results: dict) -> list[str]:
    """What must be known to read the picture and the scores rightly."""
    shares = ", ".join(f"{share:.4g}" for share in results["checkpoints"][:-1])
    several = len(results["seeds"]) > 1
    said = [f"Every arm gets {results['flops']:.3g} FLOPs, in the model convention: what the network itself asks for."]
    if uneven := [arm for arm in results["arms"].values() if abs(arm["planned_flops"] / results["flops"] - 1) > UNEVEN]:
        each = ", ".join(f"{arm['label']} {arm['planned_flops']:.3g}" for arm in uneven)
        said[0] += f" Steps are whole, and so few here that it is not quite so: {each}."
    if results["minutes_each"]:
        said[0] += f" That is what the slowest does in {results['minutes_each']:g} minutes ({results['device']})."
    if shares:
        said.append(
            f"The points at {shares} of the FLOPs are points of one schedule, not runs that ended there: the rate "
            "falls to 0 only at the end of all of them."
        )
    if several:
        said.append(
            f"Intervals are 95% t intervals over {len(results['seeds'])} pre-training seeds, and of sentence heads "
            f"what theirs cover together. What each arm took is of seed {results['seeds'][0]}."
        )
    else:
        deviation = results["seed_deviation"]
        counted_in = (
            f", a deviation of {deviation:g} points, is counted in by the verdicts, which no difference of less than "
            f"{results['least_reach']:.1f} points from a bound can decide"
            if deviation
            else ""
        )
        said.append(
            "Intervals are 95% t intervals over fine-tuning seeds of one pre-training; how far another pre-training "
            f"seed would come out elsewhere{counted_in or ' is not in them'}."
        )
    said.append("What stands after ± is half of such an interval.")
    said.append("Scores are on dev, of the last weights of each fine-tuning, in points of 100.")
    said.append("Arms stand a little apart in the picture, at one and the same number of FLOPs.")
    return said


def missing(results: dict) -> list[str]:
    left_out = [name for name, task in results["tasks"].items() if not task["has_data"]]
    said = [f"{where}: {wording.counted(number, 'piece')}" for where, number in results["missing"].items()]
    return said + [f"{name} is left out: there was no data for it" for name in left_out]


def points_at(results: dict, arm: str, share: float) -> dict[str, dict]:
    return {row["task"]: row for row in results["scores"] if row["arm"] == arm and row["share"] == share}


def score_words(point: dict | None) -> str:
    """71.3 ± 1.2, half of the 95% interval; a dash where it is not measured yet."""
    if point is None:
        return "–"
    if point["low"] is None:
        return f"{point['score']:.1f} (one seed)"
    return f"{point['score']:.1f} ± {(point['high'] - point['low']) / 2:.1f}"


def interval_words(found: dict, unit: str = "") -> str:
    return f"{found['value']:.1f}{unit} ({found['low']:.1f} to {found['high']:.1f})"


def loss_words(record: dict) -> str:
    """The held-out losses at the end of a pre-training, by their names. Found are so many of the replaced tokens,
    though the record counts both among all."""
    last = dict(list(record["losses"].values())[-1]) if record["losses"] else {}
    last.pop("loss", None)
    if last.get("rtd_replaced"):
        last["rtd_found_of_these"] = last.pop("rtd_found") / last["rtd_replaced"]
    return ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in last.items())


def how_measured(results: dict) -> list[str]:
    """Where the arms were trained, and what their times and memory are of."""
    records = [arm["record"] for arm in results["arms"].values() if arm["record"]]
    devices = sorted({f"{each['device']}; memory: {each['memory']['of']}." for each in records})
    return [*devices, "Tokens a second are those of training alone; the time has validating and saving in it."]


def write_fragment(folder: Path, results: dict) -> Path:
    """`RESULTS-NAME.md`: the tables of the page, to stand in a document of results."""
    path = Path(folder) / f"RESULTS-{results['name']}.md"
    write_text(path, fragment(results))
    return path


def fragment(results: dict) -> str:
    state = "" if results["num_done"] == results["num_pieces"] else " so far"
    parts = [
        f"## {results['title']}",
        results["about"],
        f"{results['num_done']} of {results['num_pieces']} pieces are done{state}. " + " ".join(notes(results)),
        _claims(results),
        _scores(results),
        _sentences(results),
        _resources(results),
        _listed("Missing", missing(results)),
        _listed("Learned nothing, and counts as it is", results["degenerate"]),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _listed(title: str, said: list[str]) -> str:
    return f"{title}: {'; '.join(said)}." if said else ""


def _table(titles: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _claims(results: dict) -> str:
    rows = []
    for claim in results["claims"]:
        decide = f" Would decide it: {claim['would_decide']}." if claim["would_decide"] else ""
        rows.append([claim["words"], f"**{claim['verdict']}**", claim["reason"] + "." + decide, claim["published"]])
    return _table(["claim", "verdict", "why", "published"], rows)


def _scores(results: dict) -> str:
    tasks = [results["mean"], *(name for name, task in results["tasks"].items() if task["has_data"])]
    rows = []
    for name, arm in results["arms"].items():
        for share in results["checkpoints"]:
            points = points_at(results, name, share)
            if points:
                scores = [score_words(points.get(task)) for task in tasks]
                rows.append([arm["label"], f"{share:.4g}", *scores, arm["published"] if share == 1 else ""])
    measures = [f"{task}, {wording.measure(results['tasks'][task]['measure'])}" for task in tasks[1:]]
    return _table(["arm", "share of the FLOPs", "mean", *measures, "published, of other tasks and sizes"], rows)


def _sentences(results: dict) -> str:
    found = {arm["label"]: arm["crossed"] for arm in results["arms"].values() if arm["crossed"]}
    found |= {"counting shared words": results["overlap"]} if results["overlap"] else {}
    rows = [[name, *(interval_words(pairs[kind], "%") for kind in ("nsp", "sop"))] for name, pairs in found.items()]
    return _table(["who answers", "NSP pairs", "SOP pairs"], rows)


def _resources(results: dict) -> str:
    rows = [
        [
            arm["label"],
            wording.amount(record["parameters"]),
            f"{record['steps']:,}",
            wording.amount(record["tokens"]),
            f"{record['flops']:.3g}",
            f"{record['updates_per_second']:.3g}",
            wording.amount(record["tokens_per_second"]),
            wording.duration(record["seconds"]),
            wording.size(record["memory"]["bytes"]),
            loss_words(record),
        ]
        for arm in results["arms"].values()
        if (record := arm["record"])
    ]
    took = ["parameters", "updates", "tokens", "FLOPs", "updates/s", "tokens/s", "time", "peak memory"]
    return _table(["arm", *took, "held-out losses"], rows) + ("\n\n" + " ".join(how_measured(results)) if rows else "")
