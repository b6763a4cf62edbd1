"""Texts of an experiment: the sentences on its page, and the Markdown fragment for RESULTS.md."""

from pathlib import Path

from hornbook.files import write_text
from hornbook.report import wording

UNEVEN = 0.02  # arms whose FLOPs deviate by more than this fraction are listed


def notes(results: dict) -> list[str]:
    """Notes on how to read the plot and the scores."""
    shares = ", ".join(f"{share:.4g}" for share in results["checkpoints"][:-1])
    several = len(results["seeds"]) > 1
    lines = [f"Every arm gets {results['flops']:.3g} FLOPs in the model convention: those of the network itself."]
    if uneven := [arm for arm in results["arms"].values() if abs(arm["planned_flops"] / results["flops"] - 1) > UNEVEN]:
        each = ", ".join(f"{arm['label']} {arm['planned_flops']:.3g}" for arm in uneven)
        lines[0] += f" Rounding to whole steps makes some arms deviate: {each}."
    if results["minutes_each"]:
        lines[0] += f" That is what the slowest arm does in {results['minutes_each']:g} minutes ({results['device']})."
    if shares:
        lines.append(
            f"The points at {shares} of the FLOPs are checkpoints of one schedule, not separate runs: the learning "
            "rate decays to 0 only at the full FLOPs."
        )
    if several:
        lines.append(
            f"Intervals are 95% t intervals over {len(results['seeds'])} pre-training seeds; those of sentence heads "
            f"are the union over seeds. Training cost is that of seed {results['seeds'][0]}."
        )
    else:
        deviation = results["seed_deviation"]
        seed_note = (
            f"The verdicts add a standard deviation of {deviation:g} points between pre-training seeds, so a "
            f"difference within {results['least_reach']:.1f} points of a bound cannot be decided."
            if deviation
            else "They do not include the variation between pre-training seeds."
        )
        lines.append(f"Intervals are 95% t intervals over fine-tuning seeds of one pre-training run. {seed_note}")
    lines.append("The number after ± is half the width of the interval.")
    lines.append("Scores are on dev, with the last weights of each fine-tuning run, in points out of 100.")
    lines.append("Arms are slightly offset in the plot; their FLOPs are the same.")
    return lines


def missing(results: dict) -> list[str]:
    left_out = [name for name, task in results["tasks"].items() if not task["has_data"]]
    lines = [f"{where}: {wording.counted(number, 'piece')}" for where, number in results["missing"].items()]
    return lines + [f"{name} is left out: no data was found for it" for name in left_out]


def points_at(results: dict, arm: str, share: float) -> dict[str, dict]:
    return {row["task"]: row for row in results["scores"] if row["arm"] == arm and row["share"] == share}


def score_words(point: dict | None) -> str:
    """Score ± half the width of its 95% interval, such as 71.3 ± 1.2; a dash if it is not measured yet."""
    if point is None:
        return "–"
    if point["low"] is None:
        return f"{point['score']:.1f} (one seed)"
    return f"{point['score']:.1f} ± {(point['high'] - point['low']) / 2:.1f}"


def interval_words(found: dict, unit: str = "") -> str:
    return f"{found['value']:.1f}{unit} ({found['low']:.1f} to {found['high']:.1f})"


def loss_words(record: dict) -> str:
    """The held-out losses at the end of pre-training. `rtd_found` is reported as a fraction of the replaced tokens; the
    record has both as fractions of all tokens."""
    last = dict(list(record["losses"].values())[-1]) if record["losses"] else {}
    last.pop("loss", None)
    if last.get("rtd_replaced"):
        last["rtd_found_of_replaced"] = last.pop("rtd_found") / last["rtd_replaced"]
    return ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in last.items())


def how_measured(results: dict) -> list[str]:
    """The devices that the arms were trained on, and what their times and memory include."""
    records = [arm["record"] for arm in results["arms"].values() if arm["record"]]
    devices = sorted({f"{each['device']}; memory: {each['memory']['of']}." for each in records})
    return [*devices, "Tokens per second are of training only; the time includes validation and saving."]


def write_fragment(folder: Path, results: dict) -> Path:
    """Writes `RESULTS-NAME.md`, the tables of the page in Markdown; returns its path."""
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
        _list("Missing pieces", missing(results)),
        _list("Degenerate fine-tuning runs (their scores count)", results["degenerate"]),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _list(title: str, items: list[str]) -> str:
    return f"{title}: {'; '.join(items)}." if items else ""


def _table(titles: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _claims(results: dict) -> str:
    rows = []
    for claim in results["claims"]:
        decide = f" To decide it: {claim['would_decide']}." if claim["would_decide"] else ""
        rows.append([claim["words"], f"**{claim['verdict']}**", claim["reason"] + "." + decide, claim["published"]])
    return _table(["claim", "verdict", "reason", "published"], rows)


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
    return _table(["arm", "fraction of the FLOPs", "mean", *measures, "published (other tasks and model sizes)"], rows)


def _sentences(results: dict) -> str:
    found = {arm["label"]: arm["crossed"] for arm in results["arms"].values() if arm["crossed"]}
    found |= {"shared-word classifier": results["overlap"]} if results["overlap"] else {}
    rows = [[name, *(interval_words(pairs[kind], "%") for kind in ("nsp", "sop"))] for name, pairs in found.items()]
    return _table(["classifier", "NSP pairs", "SOP pairs"], rows)


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
    costs = ["parameters", "updates", "tokens", "FLOPs", "updates/s", "tokens/s", "time", "peak memory"]
    return _table(["arm", *costs, "held-out losses"], rows) + ("\n\n" + " ".join(how_measured(results)) if rows else "")
