"""Does a knowledge graph help an encoder? Entity typing and relation classification with a BERT, with an ERNIE that
starts from it, and with controls that tell where a difference comes from.

    python benchmarks/ernie_scores.py --encoder BERT --sources GRAPH-FILES... --texts TEXTS... --ufet UFET \\
        --semeval SEMEVAL --out OUT [--steps 4000] [--seeds 5] [--processes 4]

| model | what it is |
|---|---|
| plain | the encoder itself |
| text | pre-trained further on the same texts, for as many steps, without entities |
| facts | the same, with the edges of the graph as sentences among the texts: the same knowledge as plain text |
| ernie | ERNIE with the vectors of the graph |
| shuffled | ERNIE with a graph whose edges have other tails: the same entities, without knowledge |
| random | ERNIE with random entity vectors |
| trained | ERNIE whose entity vectors are trained with the rest |
| unfused | ERNIE that predicts entities but does not read them |

`--sources` are those of `hornbook graph build`, `--texts` those of `hornbook corpus build` (files that are linked
already are used as they are). Tasks: UFET, UFET's nine general types (`open-entity`, the types of Open Entity),
SemEval-2010 task 8. Every model is fine-tuned with the same settings and seeds, on the same examples with the same
marks; scores are those of the test split, at the best step on dev. The table has the mean over seeds, and the mean
difference to `plain` by seed, with 95% intervals (Student's t).

Each step is skipped if its folder is complete, so the same command continues after an interruption.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from jobs import run_jobs
from scipy.stats import t as student

import hornbook
from hornbook.files import num_cores, write_json, write_text
from hornbook.graph.graph import Graph
from hornbook.graph.linking import EntityLinker

GENERAL_TYPES = ("person", "group", "organization", "location", "entity", "time", "object", "event", "place")
TASKS = {  # kind or data set, and the measure of the papers
    "open-entity": ("entity-typing", "loose_micro_f1"),
    "ufet": ("ufet", "loose_macro_f1"),
    "semeval": ("semeval2010-task8", "macro_f1"),
}
MODELS = ("plain", "text", "facts", "ernie", "shuffled", "random", "trained", "unfused")
WITH_GRAPH = {name: "graph" for name in ("ernie", "random", "trained", "unfused")} | {"shuffled": "shuffled-graph"}
ABLATIONS = {
    "random": {"model.entity_vectors": "random"},
    "trained": {"model.trains_entities": True},
    "unfused": {"model.fusion": False},
}


def write_open_entity(ufet: Path, out: Path) -> None:
    """UFET's files with the nine general types as labels."""
    for split in ("train", "dev", "test"):
        rows = [json.loads(line) for line in (ufet / f"{split}.json").read_text(encoding="utf-8").splitlines()]
        kept = [row | {"y_str": [each for each in row["y_str"] if each in GENERAL_TYPES]} for row in rows]
        write_text(out / f"{split}.json", "".join(json.dumps(row) + "\n" for row in kept))


def write_shuffled(graph: Graph, out: Path) -> list[Path]:
    """The graph with the tails of each relation permuted, and its names."""
    random, tails = np.random.default_rng(0), np.array(graph.tails)
    for relation in range(graph.num_relations):
        edges = np.flatnonzero(graph.relation_ids == relation)
        tails[edges] = tails[random.permutation(edges)]
    rows = zip(graph.heads, graph.relation_ids, tails, strict=True)
    lines = (f"{graph.entities[h]}\t{graph.relations[r][0]}\t{graph.entities[t]}\n" for h, r, t in rows)
    write_text(out / "shuffled.tsv", "".join(lines))
    names: dict[str, list[str]] = defaultdict(list)
    for entity, name, _ in graph.names:
        names[graph.entities[entity]].append(name)
    found = {key: {"label": several[0], "aliases": several[1:]} for key, several in names.items()}
    write_json(out / "shuffled-names.json", found)
    return [out / "shuffled.tsv", out / "shuffled-names.json"]


def write_facts(graph: Graph, out: Path) -> Path:
    """A sentence for each edge, a document for each head."""
    by_head: dict[int, list[str]] = defaultdict(list)
    for h, r, t in zip(graph.heads.tolist(), graph.relation_ids.tolist(), graph.tails.tolist(), strict=True):
        by_head[h].append(f"{graph.label(h)} {_words(graph.relation_name(r))} {graph.label(t)}.")
    write_text(out / "facts.txt", "\n\n".join("\n".join(each) for each in by_head.values()) + "\n")
    return out / "facts.txt"


def _words(relation: str) -> str:
    """IsA -> is a; place of birth -> place of birth."""
    parts = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in relation)
    return " ".join(parts.replace("_", " ").split())


def prepare(options: argparse.Namespace) -> None:
    """Graphs, vectors, corpora and models, in this order."""
    out, encoder = options.out, options.encoder
    out.mkdir(parents=True, exist_ok=True)
    build = {"workers": options.workers}
    embed = {"model": "transe", "width": options.width, "epochs": options.embed_epochs, "resume": True}
    hornbook.build_graph(options.sources, out / "graph")
    graph = Graph(out / "graph")
    if not (out / "shuffled.tsv").exists():
        write_shuffled(graph, out)
    hornbook.build_graph([out / "shuffled.tsv", out / "shuffled-names.json"], out / "shuffled-graph")
    for name in ("", "shuffled-"):
        print(f"vectors of {name}graph", flush=True)
        hornbook.embed_graph(out / f"{name}graph", out / f"{name}vectors", **embed)
        linker = EntityLinker(out / f"{name}graph")
        found = hornbook.build_corpus(options.texts, encoder, out / f"{name}corpus", linker=linker, **build)
        print(f"{name}corpus: {found['totals']['tokens']:,} tokens, {found['totals']['mentions']:,} mentions")
    if not (out / "facts.txt").exists():
        write_facts(graph, out)
    hornbook.build_corpus(out / "facts.txt", encoder, out / "facts-corpus", **build)
    if not (out / "open-entity" / "test.json").exists():
        (out / "open-entity").mkdir(exist_ok=True)
        write_open_entity(options.ufet, out / "open-entity")
    for name in options.models:
        if name != "plain":
            pretrain(name, options)


def pretrain(name: str, options: argparse.Namespace) -> None:
    """One of the models: all start from the encoder and train for the same steps with the same settings."""
    out, preset, more = options.out, "ernie-base", {}
    settings = {"optimizer.lr": options.lr, "schedule.warmup_fraction": 0.1, "data.length": options.length}
    settings |= {"data.short_fraction": 0.0, "validation.every_steps": max(1, options.steps // 5)}
    corpora = [out / "corpus"]
    if name in WITH_GRAPH:
        kind = "shuffled-" if name == "shuffled" else ""
        corpora = [out / f"{kind}corpus"]
        more = {"graph": out / f"{kind}graph", "vectors": out / f"{kind}vectors"}
        settings |= ABLATIONS.get(name, {})
    else:
        preset = "bert-base"
        corpora += [out / "facts-corpus"] if name == "facts" else []
    size = {"steps": options.steps, "batch_tokens": options.batch_tokens, "seed": 0}
    print(f"pre-training {name}", flush=True)
    hornbook.pretrain(
        preset,
        corpora,
        out / "models" / name,
        init_from=options.encoder,
        overrides=settings,
        resume=True,
        progress=False,
        **size,
        **more,
    )


def score(name: str, task: str, seed: int, out: Path, encoder: str, data: Path, epochs: float, threads: int) -> float:
    """The test score of one run. Runs in a process of its own."""
    kind, measure = TASKS[task]
    model = encoder if name == "plain" else out / "models" / name
    graph = {"graph": out / WITH_GRAPH[name]} if name in WITH_GRAPH else {}
    settings = {"task.max_length": 128, "runtime.threads": threads}
    options = {"epochs": epochs, "seed": seed, "resume": True, "progress": False, "log": lambda message: None}
    result = hornbook.finetune(
        model, data, kind, out / "runs" / f"{name}-{task}-{seed}", overrides=settings, **graph, **options
    )
    return result.scores["test"][measure]["value"]


def interval(values: list[float]) -> str:
    """100 x the mean, with the half width of its 95% interval."""
    half = student.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{100 * fmean(values):.1f} ± {100 * half:.1f}"


def table(scores: dict[str, dict[str, list[float]]], tasks: list[str]) -> str:
    """Markdown: a row for each model, for each task its score and the difference to `plain`."""
    heads = [f"{task} ({TASKS[task][1].replace('_', ' ')}) | {task} - plain" for task in tasks]
    lines = [f"| model | {' | '.join(heads)} |", "|---" * (1 + 2 * len(tasks)) + "|"]
    for name, found in scores.items():
        cells = []
        for task in tasks:
            differences = [a - b for a, b in zip(found[task], scores["plain"][task], strict=True)]
            cells += [interval(found[task]), "" if name == "plain" else interval(differences)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", required=True, help="a BERT: run folder or Hugging Face name")
    parser.add_argument("--sources", nargs="+", required=True, help="triples and names of the graph")
    parser.add_argument("--texts", nargs="+", required=True, help="texts to pre-train on")
    parser.add_argument("--ufet", type=Path, required=True, help="folder with train.json, dev.json and test.json")
    parser.add_argument("--semeval", type=Path, required=True, help="folder with TRAIN_FILE.TXT and TEST_FILE_FULL.TXT")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--tasks", nargs="+", default=["open-entity", "semeval"], choices=TASKS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch-tokens", type=int, default=32_768)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--embed-epochs", type=float, default=100)
    parser.add_argument("--workers", type=int, help="processes that build corpora; defaults to one per core")
    parser.add_argument("--processes", type=int, default=4, help="fine-tunings at the same time")
    options = parser.parse_args()
    if "plain" not in options.models:
        parser.error("--models needs plain, which the others are compared with")
    prepare(options)
    folders = {"open-entity": options.out / "open-entity", "ufet": options.ufet, "semeval": options.semeval}
    jobs = [(name, task, seed) for seed in range(options.seeds) for task in options.tasks for name in options.models]
    found: dict[tuple, float] = {}
    threads = max(1, num_cores() // options.processes)
    asked = [(*job, options.out, options.encoder, folders[job[1]], options.epochs, threads) for job in jobs]
    for (*job, _, _, _, _, _), value, error in run_jobs(score, asked, options.processes):
        if error:
            raise SystemExit(error)
        found[tuple(job)] = value
        print(f"{len(found)} of {len(jobs)}: {tuple(job)} {value:.4f}", flush=True)
    scores = {
        name: {task: [found[name, task, seed] for seed in range(options.seeds)] for task in options.tasks}
        for name in options.models
    }
    write_json(options.out / "scores.json", scores)
    print(table(scores, options.tasks))


if __name__ == "__main__":
    main()
