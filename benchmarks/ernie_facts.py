"""Facts outside the text: cloze questions from T-REx, answered by models of which some have read a knowledge graph.

    python benchmarks/ernie_facts.py split TREX --known codex-m/train.txt --out facts
    python benchmarks/ernie_scores.py --sources codex-m facts/graph --texts facts/texts ... --out scores
    python benchmarks/ernie_facts.py ask facts --models scores

A question is the template of a relation with the object masked: "Allan Peiper was born in [MASK] ." There are three
groups of facts, chosen by their id:

| group | in the texts | in the graph |
|---|---|---|
| stated | yes | yes |
| graph only | no | yes |
| unseen | no | no |

Sentences about the subject and the object of a fact of the last two groups are in no text. Each fact is asked alone,
and as a control after a sentence that states it. A model ranks the objects of the relation that are one token; its
score is how often the right one is first (P@1). `most frequent` always answers with the object that is most frequent in
the stated facts of the relation. Intervals are over questions, of one pre-training seed.
"""

import argparse
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from ernie_scores import MODELS

import hornbook
from hornbook.files import write_json
from hornbook.graph.graph import Graph
from hornbook.metrics.confidence_intervals import interval
from hornbook.models.ernie import Ernie

STATED, GRAPH_ONLY, UNSEEN = "stated", "graph only", "unseen"
FREQUENT = "most frequent"
MAX_CHARACTERS = 800  # of a sentence before a question


def rows_of(path: Path) -> Iterator[dict]:
    with open(path, encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def group_of(fact: dict) -> str:
    """By a hash of the id: 70% stated, 15% graph only, 15% unseen."""
    share = zlib.crc32(fact["uuid"].encode()) % 100
    return STATED if share < 70 else GRAPH_ONLY if share < 85 else UNSEEN


def split(trex: Path, known: list[Path], out: Path) -> None:
    """Writes `texts` and `graph` (T-REx files) and `questions.jsonl`."""
    triples = {tuple(line.split()) for path in known for line in path.read_text(encoding="utf-8").split("\n")}
    templates = {row["relation"]: row["template"] for row in rows_of(trex / "relations.jsonl")}
    facts: dict[str, list[dict]] = defaultdict(list)
    for path in sorted(trex.glob("P*.jsonl")):
        for row in rows_of(path):
            group = group_of(row)
            if group == UNSEEN and (row["sub_uri"], row["predicate_id"], row["obj_uri"]) in triples:
                group = GRAPH_ONLY
            facts[path.name].append(row | {"group": group})
    everything = [row for rows in facts.values() for row in rows]
    hidden = {(row["sub_uri"], row["obj_uri"]) for row in everything if row["group"] != STATED}
    untold = {(row["sub_uri"], row["obj_uri"]) for row in everything if row["group"] == UNSEEN}
    for name in ("texts", "graph"):
        (out / name).mkdir(parents=True, exist_ok=True)
    for name, rows in facts.items():
        read = [row for row in rows if (row["sub_uri"], row["obj_uri"]) not in hidden]
        linked = [row for row in rows if (row["sub_uri"], row["obj_uri"]) not in untold]
        write_rows(out / "texts" / name, read)
        write_rows(out / "graph" / name, linked)
    write_rows(out / "questions.jsonl", [question(row, templates[row["predicate_id"]]) for row in everything])
    print(Counter(row["group"] for row in everything))


def question(fact: dict, template: str) -> dict:
    masked = template.replace("[X]", fact["sub_label"]).replace("[Y]", "[MASK]")
    sentence = fact["evidences"][0]["masked_sentence"].replace("[MASK]", fact["obj_label"])
    return {
        "group": fact["group"],
        "relation": fact["predicate_id"],
        "subject": fact["sub_uri"],
        "object": fact["obj_label"],
        "start": template.index("[X]"),
        "end": template.index("[X]") + len(fact["sub_label"]),
        "question": masked,
        "sentence": sentence,
    }


def write_rows(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def ask(facts: Path, scores: Path, names: list[str]) -> None:
    questions = list(rows_of(facts / "questions.jsonl"))
    tokenizer = hornbook.load(scores / "models" / names[0]).tokenizer
    tokens = {each["object"]: tokenizer.encode(each["object"]).ids[1:-1] for each in questions}
    questions = [
        each for each in questions if len(tokens[each["object"]]) == 1 and len(each["sentence"]) <= MAX_CHARACTERS
    ]
    answers = [tokens[each["object"]][0] for each in questions]
    choices: dict[str, list[int]] = defaultdict(list)
    stated: dict[str, Counter] = defaultdict(Counter)
    for each, answer in zip(questions, answers, strict=True):
        choices[each["relation"]].append(answer)
        if each["group"] == STATED:
            stated[each["relation"]][answer] += 1
    found = {FREQUENT: [[stated[each["relation"]].most_common(1)[0][0] for each in questions]] * 2}
    for name in names:
        found[name] = [answers_of(scores, name, questions, choices, in_context) for in_context in (False, True)]
    groups = {
        group: [i for i, each in enumerate(questions) if each["group"] == group]
        for group in (STATED, GRAPH_ONLY, UNSEEN)
    }
    heads = [f"{group} ({len(its):,})" for group, its in groups.items()]
    lines = [f"| model | {' | '.join(heads)} | {' | '.join(f'{group}, after a sentence' for group in groups)} |"]
    lines.append("|---" * (1 + 2 * len(groups)) + "|")
    results: dict[str, list] = {}
    for name, both in found.items():
        cells = []
        for given in both:
            is_right = np.array([a == b for a, b in zip(given, answers, strict=True)], float)
            for its in groups.values():
                values = is_right[its]
                low, high = interval(lambda picked, values=values: float(values[picked].mean()), len(values))
                cells.append(f"{100 * values.mean():.1f} ({100 * low:.1f} to {100 * high:.1f})")
        results[name] = cells
        lines.append(f"| {name} | {' | '.join(cells)} |")
    write_json(scores / "facts.json", results)
    print("\n".join(lines))


def answers_of(
    scores: Path, name: str, questions: list[dict], choices: dict[str, list[int]], in_context: bool
) -> list[int]:
    """The object that the model finds likeliest, for each question."""
    model = hornbook.load(scores / "models" / name)
    graph = None
    if isinstance(model.model, Ernie):
        graph = Graph(scores / ("shuffled-graph" if name == "shuffled" else "graph"))
    texts, mentions = [], []
    for each in questions:
        before = f"{each['sentence']} " if in_context else ""
        texts.append(before + each["question"])
        place = len(before)
        numbers = [] if graph is None else list(graph.candidates(each["subject"])[:1])
        mentions.append([(place + each["start"], place + each["end"], number) for number in numbers])
    chosen = []
    for first in range(0, len(texts), 512):
        part = slice(first, first + 512)
        masked = model.mask_probabilities(texts[part], None if graph is None else mentions[part])
        for each, found in zip(questions[part], masked, strict=True):
            among = np.unique(choices[each["relation"]])
            chosen.append(int(among[found.probabilities_KV[-1].numpy()[among].argmax()]))
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    splitting, asking = commands.add_parser("split"), commands.add_parser("ask")
    splitting.add_argument("trex", type=Path)
    splitting.add_argument("--known", type=Path, nargs="*", default=[], help="triples that the graph has in any case")
    splitting.add_argument("--out", type=Path, required=True)
    asking.add_argument("facts", type=Path)
    asking.add_argument("--models", type=Path, required=True, help="the folder --out of ernie_scores.py")
    asking.add_argument("--names", nargs="+", default=MODELS[1:])
    options = parser.parse_args()
    if options.command == "split":
        split(options.trex, options.known, options.out)
    else:
        ask(options.facts, options.models, options.names)


if __name__ == "__main__":
    main()
