"""In-context learning by model size: GPTs are trained on text that is full of small tasks, then tested on tasks that
they have not seen.

    python benchmarks/in_context.py --out DIR [--sizes 2x64,4x128,6x256] [--seeds 3] [--steps 4000]

A document is one task given only by examples, `bako lemi = lemi ; duro nasi = nasi ; ...`. There are seven kinds of
tasks over 240 invented words in 12 groups, each with parameters sampled per document: which labels the groups get,
which position counts, the offset of the answer within the group. Some parameter values are held out of the training
text, and the tests use only those. A model is given 0 to 15 examples and a question that is not among them; its answer
is the greedy continuation up to the semicolon and must match exactly.

The text, each model and each score are kept in --out, and the same command continues with what is missing.
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import hornbook
from hornbook.files import read_json, write_json
from hornbook.metrics.confidence_intervals import interval
from hornbook.report.plots.drawing import BLUE, GREEN, ORANGE, in_style, new_plot, render_png, show_legend
from hornbook.text.training import train_tokenizer

NUM_GROUPS, GROUP_SIZE, NUM_DICTIONARIES = 12, 20, 6
NUM_EXAMPLES = 16  # in a document; the last is the question of a test
SHOTS = (0, 1, 2, 4, 8, 15)
HELD_OUT_EVERY = 8  # one in this many parameter values of a kind is held out for tests


def _words() -> list[list[str]]:
    draw = random.Random(0)
    syllables = [c + v for c in "bdfghklmnprstvz" for v in "aeiou"]
    words = draw.sample([a + b for a in syllables for b in syllables if a != b], NUM_GROUPS * GROUP_SIZE)
    return [words[GROUP_SIZE * g : GROUP_SIZE * (g + 1)] for g in range(NUM_GROUPS)]


GROUPS = _words()
WORDS = [word for group in GROUPS for word in group]
DICTIONARIES = [
    dict(zip(WORDS, random.Random(1 + d).sample(WORDS, len(WORDS)), strict=True)) for d in range(NUM_DICTIONARIES)
]


# Each kind: a generator of (parameters, function from a random generator to a question and its answer).


def by_group(draw: random.Random):
    """Words of two groups, each group with its own label."""
    groups, labels = draw.sample(range(NUM_GROUPS), 2), draw.sample(WORDS, 2)

    def example(chance):
        which = chance.randrange(2)
        return chance.choice(GROUPS[groups[which]]), labels[which]

    return (*groups, *labels), example


def by_place(draw: random.Random):
    """One of three words, chosen by position, with a fixed word before the answer."""
    place, before = draw.randrange(3), draw.choice(WORDS)

    def example(chance):
        words = chance.sample(WORDS, 3)
        return " ".join(words), f"{before} {words[place]}"

    return (place, before), example


def further_on(draw: random.Random):
    """The word at a fixed offset in its group, whose order is fixed."""
    group, by = draw.randrange(NUM_GROUPS), draw.randint(1, 8)

    def example(chance):
        at = chance.randrange(GROUP_SIZE)
        return GROUPS[group][at], GROUPS[group][(at + by) % GROUP_SIZE]

    return (group, by), example


def translated(draw: random.Random):
    """Translation by one of a few dictionaries, with a fixed word after it."""
    which, after = draw.randrange(NUM_DICTIONARIES), draw.choice(WORDS)

    def example(chance):
        word = chance.choice(WORDS)
        return word, f"{DICTIONARIES[which][word]} {after}"

    return (which, after), example


def reordered(draw: random.Random):
    """Three words in another order, or one of them twice."""
    order = tuple(draw.randrange(3) for _ in range(3))

    def example(chance):
        words = chance.sample(WORDS, 3)
        return " ".join(words), " ".join(words[place] for place in order)

    return order, example


def of_group(draw: random.Random):
    """Which of three words belongs to a given group, after a fixed word."""
    group, before = draw.randrange(NUM_GROUPS), draw.choice(WORDS)

    def example(chance):
        others = [g for g in range(NUM_GROUPS) if g != group]
        words = [chance.choice(GROUPS[group]), *(chance.choice(GROUPS[g]) for g in chance.sample(others, 2))]
        chance.shuffle(words)
        return " ".join(words), f"{before} {next(word for word in words if word in GROUPS[group])}"

    return (group, before), example


def same_or_not(draw: random.Random):
    """Whether two words belong to the same group: one label if so, another if not."""
    labels = draw.sample(WORDS, 2)

    def example(chance):
        is_same = chance.random() < 0.5
        first = chance.randrange(NUM_GROUPS)
        second = first if is_same else chance.choice([g for g in range(NUM_GROUPS) if g != first])
        return f"{chance.choice(GROUPS[first])} {chance.choice(GROUPS[second])}", labels[0 if is_same else 1]

    return tuple(labels), example


KINDS = (by_group, by_place, further_on, translated, reordered, of_group, same_or_not)


def is_held_out(kind, step_inputs: tuple) -> bool:
    return random.Random(f"{kind.__name__} {step_inputs}").randrange(HELD_OUT_EVERY) == 0


def tasks(seed: int, held_out: bool) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """(name of the kind, examples), without end; the kinds alternate."""
    number = 0
    while True:
        kind, chance = KINDS[number % len(KINDS)], random.Random(f"{seed} {held_out} {number}")
        step_inputs, example = kind(chance)
        while is_held_out(kind, step_inputs) != held_out:
            step_inputs, example = kind(chance)
        yield kind.__name__, [example(chance) for _ in range(NUM_EXAMPLES)]
        number += 1


def as_document(examples: list[tuple[str, str]]) -> str:
    return "".join(f"{question} = {answer} ; " for question, answer in examples)


def write_text(folder: Path, num_documents: int) -> Path:
    """The text, a vocabulary of whole words and the corpus."""
    corpus = folder / "corpus"
    if not (corpus / "manifest.json").exists():
        texts = [
            as_document(examples).strip()
            for (_, examples), _ in zip(tasks(0, False), range(num_documents), strict=False)
        ]
        (folder / "text.txt").write_text("\n\n".join(texts) + "\n")
        train_tokenizer(texts[:20_000], kind="bpe", vocab_size=1000, cased=True).save(folder / "tokenizer")
        hornbook.build_corpus([folder / "text.txt"], folder / "tokenizer", corpus)
    return corpus


def trained(folder: Path, corpus: Path, size: str, seed: int, steps: int) -> Path:
    out = folder / f"{size}-{seed}"
    num_layers, width = map(int, size.split("x"))
    overrides = {
        "model.num_layers": num_layers,
        "model.width": width,
        "model.num_heads": max(1, width // 32),
        "model.inner_width": 4 * width,
        "model.max_positions": 256,
        "model.dropout": 0.0,
        "model.attention_dropout": 0.0,
        "model.embedding_dropout": 0.0,
        "data.length": 256,
        "optimizer.lr": 1e-3,
        "schedule.warmup_steps": steps // 20,
        "schedule.steps": steps,
        "batch.tokens": 16_384,
        "runtime.tensorboard": False,
        "checkpoint.every_steps": 0,
    }
    has_started = (out / "run.json").exists()
    options = {"steps": steps, "seed": seed, "recipe": "published", "overrides": overrides, "resume": has_started}
    try:
        hornbook.pretrain("gpt2-small", [corpus], out, **options)
    except hornbook.Stopped as stopped:
        raise SystemExit(f"{out.name}: {stopped}; run the same command to resume") from None
    return out


def scored(model_folder: Path, num_tests: int) -> dict:
    """For each number of examples and each test: 1 if the answer is right."""
    kept = model_folder / "shots.json"
    if kept.exists():
        return read_json(kept)
    model = hornbook.load(model_folder)
    fresh = (task for task in tasks(1, True) if task[1][-1][0] not in dict(task[1][:-1]))
    tests = [task for task, _ in zip(fresh, range(num_tests), strict=False)]
    found = {"kinds": [kind for kind, _ in tests], "parameters": sum(p.numel() for p in model.model.parameters())}
    for shots in SHOTS:
        # The question is the same with any number of examples before it.
        prompts = [as_document(examples[-1 - shots : -1]) + f"{examples[-1][0]} =" for _, examples in tests]
        written = model.generate(prompts, max_new_tokens=6, temperature=0, stop_strings=" ;")
        answers = [each[0].text.strip() for each in written]
        found[str(shots)] = [
            int(answer == examples[-1][1]) for answer, (_, examples) in zip(answers, tests, strict=True)
        ]
        print(model_folder.name, f"{shots} shots: {np.mean(found[str(shots)]):.3f}", flush=True)
    write_json(kept, found)
    return found


def summary(by_size: dict[str, list[dict]]) -> dict:
    """For each size and number of shots: the mean over seeds and tests, with its interval over tests."""
    rows = {}
    for size, found in by_size.items():
        for shots in SHOTS:
            right_ST = np.array([each[str(shots)] for each in found], float)
            right_T = right_ST.mean(0)
            low, high = interval(lambda chosen, right_T=right_T: float(right_T[chosen].mean()), len(right_T))
            seeds = right_ST.mean(1).tolist()
            rows[f"{size} {shots}"] = {"mean": float(right_T.mean()), "low": low, "high": high, "seeds": seeds}
    return rows


@in_style
def draw(rows: dict, by_size: dict[str, list[dict]], out: Path) -> None:
    figure, axes = new_plot("Tasks never seen before, right answers by examples in context", 6.4, 3.8)
    colours = ("#9bb7e3", BLUE, "#1b3a70", ORANGE, GREEN)
    places = range(len(SHOTS))
    for colour, (size, found) in zip(colours, by_size.items(), strict=False):
        of_size = [rows[f"{size} {shots}"] for shots in SHOTS]
        means = [row["mean"] for row in of_size]
        size_in_words = f"{found[0]['parameters'] / 1e6:.1f}M parameters"
        axes.plot(places, means, color=colour, marker="o", markersize=4, label=size_in_words)
        axes.fill_between(
            places, [r["low"] for r in of_size], [r["high"] for r in of_size], color=colour, alpha=0.2, lw=0
        )
    axes.set_xticks(list(places), [str(shots) for shots in SHOTS])
    axes.set_ylim(0, 1)
    axes.set_xlabel("examples before the question")
    axes.set_ylabel("share of right answers")
    show_legend(axes)
    render_png(figure, "", out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sizes", default="2x64,4x128,6x256", help="layers x width of each")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--tests", type=int, default=700)
    parser.add_argument("--text-only", action="store_true", help="make the corpus and stop")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    corpus = write_text(args.out, args.documents)
    if args.text_only:
        return
    by_size = {
        size: [scored(trained(args.out, corpus, size, seed, args.steps), args.tests) for seed in range(args.seeds)]
        for size in args.sizes.split(",")
    }
    rows = summary(by_size)
    write_json(args.out / "in_context.json", rows)
    draw(rows, by_size, args.out / "in_context.png")
    print("| size | parameters | " + " | ".join(f"{shots} shots" for shots in SHOTS) + " |")
    print("|---" * (2 + len(SHOTS)) + "|")
    for size, found in by_size.items():
        cells = [rows[f"{size} {shots}"] for shots in SHOTS]
        shown = [f"{100 * c['mean']:.1f} ({100 * c['low']:.1f} to {100 * c['high']:.1f})" for c in cells]
        print(f"| {size} | {found[0]['parameters'] / 1e6:.2f}M | " + " | ".join(shown) + " |")


if __name__ == "__main__":
    main()
