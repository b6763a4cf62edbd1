"""CommonsenseQA with and without a knowledge graph: a plain model, KagNet, its ablations, and controls.

    hornbook graph build assertions.tsv --out graph
    hornbook graph embed graph --out vectors --model transe --width 100 --minutes 30
    python benchmarks/kagnet_scores.py --data commonsenseqa --graph graph --vectors vectors --model MODEL --out scores

The in-house split of Lin et al. 2019: 8,500 questions of the training file to train on (`inhouse_split_qids.txt`), its
other 1,241 to test on, the published validation file to choose the step. All arms have the same encoder, epochs and
learning rate. Intervals of differences are over questions and seeds together, both resampled, and paired: the same
questions and the same seeds. Every run is a process of its own, `--processes` at a time; finished ones are not run
again.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from hornbook.files import read_json, write_json
from hornbook.metrics.confidence_intervals import crossed_intervals

PLAIN, KAGNET, AS_TEXT = "plain", "kagnet", "paths-as-text"
REASONING = {
    KAGNET: {},
    "no-convolution": {"reason.convolution": "false"},
    "no-lstm": {"reason.lstm": "false"},
    "no-attention": {"reason.attention": "false"},
    "shuffled-graph": {"reason.control": "shuffled-graph"},
    "random-vectors": {"reason.control": "random-vectors"},
}
ARMS = (PLAIN, *REASONING, AS_TEXT)
MAX_AS_TEXT = 5  # paths that are added to an answer as text
FILES = {"train": "train_rand_split.jsonl", "dev": "dev_rand_split.jsonl"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "graph", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--model", default="en")
    parser.add_argument("--arms", default=",".join(ARMS), help="of " + ", ".join(ARMS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=float, default=5)
    parser.add_argument("--lr", type=float, help="of the encoder; by default that of hornbook finetune")
    parser.add_argument("--examples", type=int, help="train on so many questions only")
    parser.add_argument("--processes", type=int, default=1, help="runs at a time")
    parser.add_argument("--threads", type=int, default=2, help="of a run")
    parser.add_argument(
        "--set", action="append", default=[], help="another setting of every run, as hornbook finetune has it"
    )
    parser.add_argument("--one", nargs=2, metavar=("ARM", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run_one(options, options.one[0], int(options.one[1]))
        return
    arms = options.arms.split(",")
    if unknown := set(arms) - set(ARMS):
        parser.error(f"unknown arms {', '.join(unknown)}: give some of {', '.join(ARMS)}")
    write_splits(options.data, options.out / "data")
    if AS_TEXT in arms:
        write_paths_as_text(options)
    jobs = [(arm, seed) for seed in range(options.seeds) for arm in arms]
    with ThreadPoolExecutor(options.processes) as pool:
        list(pool.map(lambda job: started(options, *job), jobs))
    lines = table(options.out, arms, options.seeds)
    print("\n".join(lines))
    (options.out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_rows(path: Path) -> list[dict]:
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def write_rows(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_splits(data: Path, out: Path) -> None:
    """The in-house split in the layout of CommonsenseQA."""
    if (out / "dev.jsonl").exists():
        return
    chosen = set((data / "inhouse_split_qids.txt").read_text(encoding="utf-8").split())
    rows = read_rows(data / FILES["train"])
    write_rows(out / "train.jsonl", [row for row in rows if row["id"] in chosen])
    write_rows(out / "test.jsonl", [row for row in rows if row["id"] not in chosen])
    write_rows(out / "dev.jsonl", read_rows(data / FILES["dev"]))


def write_paths_as_text(options: argparse.Namespace) -> None:
    """The same questions, each answer followed by its best paths: "trowel. plant at location garden. ..."."""
    from hornbook.reasoning.grounding import open_grounder
    from hornbook.reasoning.settings import KagnetSettings
    from hornbook.tasks.records import ChoiceExample

    out = options.out / "data-as-text"
    if (out / "test.jsonl").exists():
        return
    vectors = None if options.vectors is None else str(options.vectors)
    grounder = open_grounder(KagnetSettings(method="kagnet", graph=str(options.graph), vectors=vectors))
    for split in ("train", "dev", "test"):
        rows = read_rows(options.out / "data" / f"{split}.jsonl")
        asked = [
            ChoiceExample(
                row["id"], row["question"]["stem"], tuple(each["text"] for each in row["question"]["choices"])
            )
            for row in rows
        ]
        schema, number = grounder.schema_graphs(asked), 0
        for row in rows:
            for choice in row["question"]["choices"]:
                scores = schema.scores_K[schema.path_offsets[number] : schema.path_offsets[number + 1]]
                paths = grounder.builder.paths_of(schema, number)
                best = [paths[i] for i in np.argsort(-scores, kind="stable")[:MAX_AS_TEXT]]
                choice["text"] = ". ".join([choice["text"], *map(as_text, best)])
                number += 1
        write_rows(out / f"{split}.jsonl", rows)


def as_text(path) -> str:
    """A path in words: "plant at location garden, trowel used for garden"."""
    parts = []
    for before, hop, after in zip(path.entities, path.hops, path.entities[1:], strict=False):
        head, tail, relations = (before, after, hop.relations) if hop.relations else (after, before, hop.inverse)
        words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in relations[0]).strip()
        parts.append(f"{head} {words} {tail}")
    return ", ".join(parts)


def result_of(out: Path, arm: str, seed: int) -> Path:
    return out / "results" / f"{arm}-{seed}.json"


def started(options: argparse.Namespace, arm: str, seed: int) -> None:
    """Runs an arm with a seed in a process of its own."""
    if result_of(options.out, arm, seed).exists():
        return
    subprocess.run([sys.executable, __file__, *sys.argv[1:], "--one", arm, str(seed)], check=True)
    print(f"{arm}, seed {seed}: test {read_json(result_of(options.out, arm, seed))['test']:.4f}", flush=True)


def run_one(options: argparse.Namespace, arm: str, seed: int) -> None:
    import hornbook
    from hornbook.tasks.reading.read import read

    out = options.out / "runs" / f"{arm}-{seed}"
    settings = {"runtime.threads": options.threads} | dict(each.split("=", 1) for each in options.set)
    settings |= {} if options.examples is None else {"examples": options.examples}
    data = options.out / ("data-as-text" if arm == AS_TEXT else "data")
    reasoning = {}
    if arm in REASONING:
        settings |= REASONING[arm]
        reasoning = {"reason": "kagnet", "graph": options.graph, "vectors": options.vectors}
    run = hornbook.finetune(
        options.model,
        data,
        "commonsenseqa",
        out,
        epochs=options.epochs,
        lr=options.lr,
        seed=seed,
        overrides=settings,
        resume=out.exists(),
        progress=False,
        log=lambda message: None,
        **reasoning,
    )
    examples = read("commonsenseqa", data).splits["test"]
    predictions = run.predictor.predict_examples([each.without_label() for each in examples])
    correct = [int(each.label == found.choice) for each, found in zip(examples, predictions, strict=True)]
    result = {
        "dev": run.score,
        "test": statistics.mean(correct),
        "seconds": run.outcome.seconds,
        "correct": correct,
        "degenerate": run.degenerate,
    }
    path = result_of(options.out, arm, seed)
    path.parent.mkdir(exist_ok=True)
    write_json(path, result)


def table(out: Path, arms: list[str], num_seeds: int) -> list[str]:
    """A Markdown table: means over seeds, and paired differences from the plain model and from KagNet."""
    found = {arm: [read_json(result_of(out, arm, seed)) for seed in range(num_seeds)] for arm in arms}
    lines = [
        f"| arm | dev | test | test: difference from {PLAIN} | test: difference from {KAGNET} | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for arm, runs in found.items():
        means = {name: statistics.mean(each[name] for each in runs) for name in ("dev", "test", "seconds")}
        spread = f" ± {statistics.stdev(each['test'] for each in runs):.4f}" if num_seeds > 1 else ""
        cells = [arm, f"{means['dev']:.4f}", f"{means['test']:.4f}{spread}", *differences(found, arm)]
        lines.append(f"| {' | '.join(cells)} | {means['seconds']:.0f} |")
    return lines


def differences(found: dict[str, list[dict]], arm: str) -> Iterator[str]:
    for other in (PLAIN, KAGNET):
        if arm == other or other not in found:
            yield "–"
            continue
        ours, theirs = (np.array([each["correct"] for each in found[name]], float) for name in (arm, other))
        differences_SN = ours - theirs  # seeds x questions

        def mean(seed: int, questions: np.ndarray, values: np.ndarray = differences_SN) -> dict[str, float]:
            return {"": float(values[seed, questions].mean())}

        low, high = crossed_intervals(mean, *differences_SN.shape)[""]
        yield f"{differences_SN.mean():+.4f} ({low:+.4f} to {high:+.4f})"


if __name__ == "__main__":
    main()
