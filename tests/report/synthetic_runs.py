"""Run folders such as a training leaves, made up."""

import json
import math
import random

TOKENS_A_STEP = 8192


def train_lines(num_steps, sentence="nsp", every=10):
    """Lines such as a run writes: a loss that falls from ln(8,000) towards 3.4, with noise."""
    generator = random.Random(0)
    lines = []
    for step in range(every, num_steps + 1, every):
        mlm = 3.4 + 5.6 * math.exp(-step / (0.12 * num_steps)) + generator.gauss(0, 0.12)
        terms = {"mlm": mlm} | ({sentence: 0.25 + 0.44 * math.exp(-step / (0.3 * num_steps))} if sentence else {})
        rate = min(step / (0.1 * num_steps), 1 - step / num_steps)
        numbers = {"grad_norm": 1.0, "lr": 5e-4 * rate, "tokens": step * TOKENS_A_STEP}
        speed = {"tokens_per_second": 21_000 + generator.gauss(0, 600), "seconds": step * TOKENS_A_STEP / 21_000}
        lines.append({"kind": "train", "step": step, "loss": sum(terms.values()), **terms, **numbers, **speed})
    return lines


def validation_lines(num_steps, sentence="nsp", times=20):
    lines = []
    for step in range(num_steps // times, num_steps + 1, max(1, num_steps // times)):
        mlm = 3.5 + 5.3 * math.exp(-step / (0.12 * num_steps))
        found = {"mlm": mlm, "mlm_accuracy": 0.42 * (1 - math.exp(-step / (0.2 * num_steps)))}
        if sentence:
            judged = {sentence: 0.69 - 0.4 * step / num_steps, f"{sentence}_accuracy": 0.5 + 0.38 * step / num_steps}
            found |= judged
        loss = mlm + found.get(sentence, 0.0)
        lines.append({"kind": "validation", "step": step, "loss": loss, **found, "best": True})
    return lines


RUN = {
    "hornbook": "0.1.0",
    "command": "pretrain",
    "preset": "bert-mini",
    "from": None,
    "parameters": 11_171_074,
    "inputs": {
        "corpora": [
            {"folder": "/data/books", "weight": 1.0, "documents": 5210, "tokens": 9_600_000},
            {"folder": "/data/news", "weight": 3.0, "documents": 48_000, "tokens": 21_000_000},
        ]
    },
    "unigram_baseline": {"mlm": 6.61, "mlm_accuracy": 0.052},
    "runtime": {"device": "cpu", "threads": 2, "reason": "no GPU was found"},
    "settings": {
        "model": {"num_layers": 4, "width": 256},
        "optimizer": {"lr": 5e-4},
        "schedule": {"steps": 3000, "warmup_fraction": 0.1},
    },
}
SAMPLES = [
    {
        "text": "the old man walked down to the [MASK] and looked at the boats .",
        "answer": "river",
        "guesses": [{"token": "sea", "probability": 0.31}, {"token": "river", "probability": 0.22}],
    },
    {
        "text": "<script>alert('text')</script> & the [MASK] <b>bold</b>",
        "answer": "<script>alert('answer')</script>",
        "guesses": [{"token": "<script>alert('guess')</script>", "probability": 0.9}],
    },
]


def write_run(folder, metrics=(), samples=None, steps=3000, state=None, **overrides):
    """A run folder: `steps` planned, the metrics given, and what else a test wants changed."""
    folder.mkdir(parents=True)
    settings = RUN["settings"] | {"schedule": {"steps": steps, "warmup_fraction": 0.1}}
    (folder / "run.json").write_text(json.dumps(RUN | {"settings": settings} | overrides))
    if metrics:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    if samples is not None:
        (folder / "samples.json").write_text(json.dumps(samples))
    if state is not None:
        checkpoint = folder / "checkpoints" / f"step-{state['step']:08d}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "state.json").write_text(json.dumps(state))
    return folder
