"""The smallest experiment: two tiny models, two steps, one task, two seeds."""

from pathlib import Path

SMALLEST = """
name = "smallest"
title = "The smallest"

[equal]
flops = 1.2e8
checkpoints = [0.5, 1.0]
seed_deviation = 0.5

[equal.pretraining]
model.num_layers = 1
model.width = 32
model.num_heads = 2
model.inner_width = 64
data.short_length = 32
data.length = 32
data.layout = "pairs"
data.held_out_fraction = 0.2
batch.tokens = 512
optimizer.lr = 1e-3
checkpoint.every_steps = 1
runtime.threads = 1

[equal.finetuning]
epochs = 1.0
runtime.threads = 1

[[arms]]
name = "nsp"
preset = "bert-tiny"
settings.objective.sentence = "nsp"

[[arms]]
name = "detecting"
preset = "electra-small"
settings.objective.generator_size = 0.5
settings.schedule.warmup_steps = 1

[[tasks]]
name = "reviews"
task = "classification"
paths = ["reviews", "reviews.csv"]
metric = "accuracy"
seeds = [0, 1]

[sentences]
pairs = 64
fit_pairs = 64

[[claims]]
name = "better"
description = "Detecting is better."
would_decide = "more steps"
[[claims.conditions]]
description = "its mean score is higher"
arm = "detecting"
minus = "nsp"
min = 0.0
"""


def write_smallest(folder: Path, old: str = "", new: str = "") -> Path:
    """The file of the experiment, perhaps with one thing put in place of another."""
    assert old in SMALLEST
    path = folder / "smallest.toml"
    path.write_text(SMALLEST.replace(old, new, 1) if old else SMALLEST, encoding="utf-8")
    return path


def write_reviews(folder: Path) -> Path:
    """The folder of tasks that it names."""
    words = (("bridge", "good"), ("silver", "bad"))
    lines = [f"{word} river number {i},{label}" for i in range(20) for word, label in words]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reviews.csv").write_text("\n".join(["text,label", *lines]), encoding="utf-8")
    return folder
