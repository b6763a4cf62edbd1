"""An experiment, from its `results.json`, also while jobs are missing: its description, its report page (verdicts,
score against FLOPs, all scores next to the published ones, cost of each arm), and the same tables in Markdown."""

from pathlib import Path

from hornbook.files import read_json, write_text
from hornbook.report import formatting
from hornbook.report.rendering import Table, render, write_page

RESULTS, PLOT_FILE = "results.json", "score-by-flops.png"
BADGES = {"holds": "finished", "does not hold at this scale": "unfinished"}
UNEVEN = 0.02  # arms whose FLOPs deviate by more than this fraction are listed


def write_experiment_page(folder: str | Path) -> Path:
    """Writes `report.html`, the plot and the Markdown version `RESULTS-NAME.md`; returns the path of the page."""
    from hornbook.report.plots.drawing import render_png
    from hornbook.report.plots.scores import score_figure

    folder = Path(folder)
    results = read_json(folder / RESULTS)
    image, is_whole = None, results["num_done"] == results["num_jobs"]
    if results["scores"]:
        image = render_png(score_figure(results), "Score against FLOPs, one line per arm", folder / PLOT_FILE)
    both = {
        "results": results,
        "notes": notes(results),
        "scores": _scores(results),
        "costs": _costs(results),
        "has_published": any(arm["published"] for arm in results["arms"].values()),
        "sentences": _sentences(results),
        "how_measured": how_measured(results),
        "missing": missing(results),
    }
    write_text(folder / f"RESULTS-{results['name']}.md", render("experiment.md", claims=_claims(results), **both))
    return write_page(
        folder,
        "experiment.html",
        results["title"],
        state="finished" if is_whole else f"{results['num_done']} of {results['num_jobs']} jobs",
        badges=BADGES,
        plot=image,
        **both,
    )


def notes(results: dict) -> list[str]:
    """Notes on how to read the plot and the scores."""
    shares = " and ".join(f"{100 * share:.4g}%" for share in results["checkpoints"][:-1])
    if words := results.get("words"):
        read = ", ".join(f"{arm['label']} {arm['planned_words']:,.0f}" for arm in results["arms"].values())
        lines = [f"Every arm reads at most {words:,.0f} words, separated by white space, counting repetitions: {read}."]
        timed = [arm for arm in results["arms"].values() if arm["minutes"] is not None]
        if timed:
            minutes = ", ".join(f"{arm['label']} {arm['minutes']:.1f}" for arm in timed)
            lines.append(f"Minutes of training and scoring together, of the slowest seed: {minutes}.")
    else:
        lines = [f"Every arm gets {results['flops']:.3g} FLOPs in the model convention: those of the network itself."]
    planned = {} if words else results["arms"]
    if uneven := [arm for arm in planned.values() if abs(arm["planned_flops"] / results["flops"] - 1) > UNEVEN]:
        flops = ", ".join(f"{arm['label']} {arm['planned_flops']:.3g}" for arm in uneven)
        lines[0] += f" Rounding to whole steps makes some arms deviate: {flops}."
    if results["minutes_each"]:
        lines[0] += f" That is what the slowest arm does in {results['minutes_each']:g} minutes ({results['device']})."
    if shares:
        lines.append(
            f"The points at {shares} of the FLOPs are checkpoints of one schedule, not separate runs: the learning "
            "rate decays to 0 only at the full FLOPs."
        )
    if len(results["seeds"]) > 1:
        has_heads = any(arm["sentence_head"] for arm in results["arms"].values())
        heads = "; those of sentence heads are the union over seeds" if has_heads else ""
        lines.append(
            f"Intervals are 95% t intervals over {len(results['seeds'])} pre-training seeds{heads}. "
            f"Training cost is that of seed {results['seeds'][0]}."
        )
    else:
        deviation = results["seed_deviation"]
        seed_note = (
            f"The verdicts add a standard deviation of {deviation:g} points between pre-training seeds, so a "
            f"difference within {results['min_half_width']:.1f} points of a bound cannot be decided."
            if deviation
            else "They do not include the variation between pre-training seeds."
        )
        lines.append(f"Intervals are 95% t intervals over fine-tuning seeds of one pre-training run. {seed_note}")
    lines.append("The number after ± is half the width of the interval.")
    if any(task["metric"] != "accuracy" or task["seeds"] > 1 for task in results["tasks"].values()):
        lines.append("Scores are on dev, with the last weights of each fine-tuning run, in points out of 100.")
    else:
        lines.append("Scores are accuracies of the pre-trained models as they are, in points out of 100.")
    if not words and len(results["checkpoints"]) > 1:
        lines.append("Arms are slightly offset in the plot; their FLOPs are the same.")
    return lines


def missing(results: dict) -> list[str]:
    left_out = [name for name, task in results["tasks"].items() if not task["has_data"]]
    lines = [f"{where}: {formatting.counted(count, 'job')}" for where, count in results["missing"].items()]
    return lines + [f"{name} is left out: no data was found for it" for name in left_out]


def format_score(point: dict | None) -> str:
    """Score ± half the width of its 95% interval, such as 71.3 ± 1.2; a dash if it is not measured yet."""
    if point is None:
        return "–"
    if point["low"] is None:
        return f"{point['score']:.1f} (one seed)"
    return f"{point['score']:.1f} ± {(point['high'] - point['low']) / 2:.1f}"


def format_losses(record: dict) -> str:
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


# ---- tables


def _claims(results: dict) -> Table:
    rows = []
    for claim in results["claims"]:
        decide = f" To decide it: {claim['would_decide']}." if claim["would_decide"] else ""
        rows.append(
            (claim["description"], f"**{claim['verdict']}**", f"{claim['reason']}.{decide}", claim["published"])
        )
    if not any(published for *_, published in rows):
        return Table(("claim", "verdict", "reason"), [row[:-1] for row in rows])
    return Table(("claim", "verdict", "reason", "published"), rows)


def _tasks(results: dict) -> list[str]:
    return [name for name, task in results["tasks"].items() if task["has_data"]]


def _scores(results: dict) -> Table:
    """The scores of every arm at every checkpoint, with the published ones below the arm."""
    rows = []
    for name, arm in results["arms"].items():
        for share in results["checkpoints"]:
            if cells := _score_cells(results, name, share):
                note = f"published: {arm['published']}" if share == 1 and arm["published"] else ""
                rows.append(((arm["label"], note), f"{share:.4g}", *cells))
    metrics = {task: formatting.metric_label(results["tasks"][task]["metric"]) for task in _tasks(results)}
    return Table(("arm", "fraction of the FLOPs", "mean", *map(", ".join, metrics.items())), rows)


def final_scores(results: dict) -> Table:
    """The scores of every arm at the full FLOPs, for the terminal."""
    titles, rows = _scores(results)
    return Table((titles[0], *titles[2:]), [(arm, *cells) for (arm, _), share, *cells in rows if share == "1"])


def _score_cells(results: dict, arm: str, share: float) -> list[str]:
    points = {row["task"]: row for row in results["scores"] if row["arm"] == arm and row["share"] == share}
    return [format_score(points.get(task)) for task in (results["mean"], *_tasks(results))] if points else []


def _sentences(results: dict) -> Table:
    classifiers = {arm["label"]: arm["sentence_head"] for arm in results["arms"].values()}
    classifiers["shared-word classifier"] = results["shared_words"]
    rows = [
        (name, *("{value:.1f}% ({low:.1f} to {high:.1f})".format(**accuracies[task]) for task in ("nsp", "sop")))
        for name, accuracies in classifiers.items()
        if accuracies
    ]
    return Table(("classifier", "next sentence (NSP)", "sentence order (SOP)"), rows)


def _costs(results: dict) -> Table:
    """The training cost of every arm that was trained, with its held-out losses below the arm."""
    rows = [
        (
            (arm["label"], f"held-out losses: {format_losses(record)}"),
            formatting.amount(record["parameters"]),
            f"{record['steps']:,}",
            formatting.amount(record["tokens"]),
            f"{record['flops']:.3g}",
            f"{record['updates_per_second']:.3g}",
            formatting.amount(record["tokens_per_second"]),
            formatting.duration(record["seconds"]),
            formatting.size(record["memory"]["bytes"]),
        )
        for arm in results["arms"].values()
        if (record := arm["record"])
    ]
    titles = ("parameters", "updates", "tokens", "FLOPs", "updates/s", "tokens/s", "time", "peak memory")
    return Table(("arm", *titles), rows)


# ---- hornbook info


def describe_experiment(folder: Path) -> dict:
    """Describes an experiment from its results.json or, before that exists, from run.json."""
    if (folder / RESULTS).is_file():
        results = read_json(folder / RESULTS)
        info = {name: results[name] for name in ("title", "flops", "seeds", "num_done", "num_jobs")}
        info |= {"words": results.get("words", 0), "arms": [arm["label"] for arm in results["arms"].values()]}
        info["claims"] = {claim["description"]: claim["verdict"] for claim in results["claims"]}
    else:
        record = read_json(folder / "run.json")
        experiment, equal = record["settings"], record["settings"]["equal"]
        info = {"title": experiment["title"], "flops": record["flops"], "seeds": equal["seeds"]}
        info |= {"num_done": 0, "num_jobs": None, "words": equal.get("words", 0)}
        info |= {"arms": [arm["label"] or arm["name"] for arm in experiment["arms"]], "claims": {}}
    num_done, num_jobs, words = (info[name] for name in ("num_done", "num_jobs", "words"))
    of = f" of {formatting.counted(num_jobs, 'job')}" if num_jobs else " jobs"
    how_to_resume = "" if num_done == num_jobs else "; run the same command with --resume to continue"
    lines = [
        ("title", info["title"]),
        ("state", f"{num_done}{of} done{how_to_resume}"),
        ("arms", "; ".join(info["arms"])),
        ("words per arm", f"{words:,.0f}") if words else ("FLOPs per arm", f"{info['flops']:.3g}"),
        ("pre-training seeds", ", ".join(map(str, info["seeds"]))),
        *((verdict, claim) for claim, verdict in info["claims"].items()),
    ]
    result = f"{num_done} of {num_jobs or '?'} jobs"
    return {"kind": "experiment", **info, "finished": num_done == num_jobs, "result": result, "lines": lines}
