"""Folders such as fine-tuning leaves, one for each kind of task, made up by hand."""

import json

SCRIPT = "<script>alert('x')</script>"
PICTURES = ("metrics.jsonl", "attention.json")  # what takes time to draw


def scores(to_either_side=0.05, **values):
    """Each score with an interval."""
    return {
        name: {"value": value, "low": value - to_either_side, "high": value + to_either_side}
        for name, value in values.items()
    }


def metrics(metric_for_best="accuracy", start=0.5, num_steps=60):
    lines = []
    for step in range(10, num_steps + 1, 10):
        seconds = {"tokens": 1000 * step, "tokens_per_second": 900.0, "seconds": 1.5 * step}
        lines.append({"kind": "train", "step": step, "loss": 1.2 - step / 100, "lr": 1e-4, **seconds})
        if step % 20 == 0:
            score = start + (0.3 if step == 40 else 0.1)
            best = step != 60
            lines.append({"kind": "validation", "step": step, "loss": 0.9, metric_for_best: score, "best": best})
    return lines


def write_task_run(folder, kind, rows, found, labels=(), config=None, degenerate=None, leave_out=(), **overrides):
    """`rows` are the dev predictions and `found` the dev scores, of which the first decides."""
    folder.mkdir()
    metric_for_best = next(iter(found))
    run = {
        "hornbook": "0.1.0",
        "torch": "2.0",
        "command": "finetune",
        "model": "owner/small-encoder",
        "task": "reviews",
        "kind": kind,
        "labels": list(labels),
        "request": {"from_scratch": False},
        "inputs": {
            "data": {
                "path": "/data/reviews",
                "files": ["/data/reviews/train.csv"],
                "fingerprint": "abc",
                "examples": {"train": 4000, "dev": 321},
                "messages": ["columns: text = 'review', label = 'stars'"],
                "problems": {
                    "empty_text": {
                        "count": 7,
                        "what": "empty texts",
                        "examples": [{"file": "train.csv", "place": "row 9"}],
                    }
                },
            }
        },
        "runtime": {"device": "cpu", "threads": 2, "reason": "no GPU was found"},
        "parameters": 22_716_290,
        "trained_parameters": 22_716_290,
        "metric_for_best": metric_for_best,
        "train_examples": 1500,
        "truncated_texts": {"train": 11, "dev": 0},
        "settings": {
            "epochs": 3.0,
            "batch_size": 32,
            "task": {"head": "linear", "pair_encoding": "joint", "no_answer": "span", "class_weights": False},
            "optimizer": {"lr": 2e-4},
            "schedule": {"steps": 60},
            "runtime": {"seed": 3},
        },
    }
    task = {"task": "reviews", "kind": kind, "metrics": list(found)} | overrides.pop("task_details", {})
    files = {
        "run.json": json.dumps(run | overrides),
        "scores.json": json.dumps(
            {"metric_for_best": metric_for_best, "degenerate": degenerate, "splits": {"dev": found}}
        ),
        "task.json": json.dumps(task),
        "config.json": json.dumps({"model_type": "bert", "architectures": ["BertFor" + HEADS[kind]]} | (config or {})),
        "predictions-dev.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "metrics.jsonl": "".join(json.dumps(line) + "\n" for line in metrics(metric_for_best)),
        "attention.json": json.dumps(ATTENTION),
    }
    for name, text in files.items():
        if name not in leave_out:
            (folder / name).write_text(text, encoding="utf-8")
    checkpoint = folder / "checkpoints" / "step-00000060"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text(json.dumps({"step": 60, "seconds": 95.0, "ended_early": False}))
    return folder


HEADS = {
    "multi-label": "SequenceClassification",
    "classification": "SequenceClassification",
    "regression": "SequenceClassification",
    "spans": "QuestionAnswering",
    "tagging": "TokenClassification",
    "choice": "MultipleChoice",
}
ATTENTION = {
    "tokens": ["[CLS]", SCRIPT, "[SEP]"],
    "layer": 6,
    "num_layers": 6,
    "mean": [[0.2, 0.3, 0.5], [0.1, 0.8, 0.1], [0.4, 0.4, 0.2]],
    "heads": [[[0.2, 0.3, 0.5], [0.1, 0.8, 0.1], [0.4, 0.4, 0.2]]] * 4,
}


def class_row(key, right, said, probability, text=None, **more):
    others = {name: (1 - probability) / 2 for name in ("good", "bad", SCRIPT)}
    row = {"key": str(key), "gold": right, "text": text or f"text {key}", "label": said, "probability": probability}
    return row | {"probabilities": others | {said: probability}} | more


CLASS_ROWS = [
    *(class_row(i, "good", "good", 0.9) for i in range(6)),
    *(class_row(10 + i, "bad", "bad", 0.8) for i in range(3)),
    class_row(20, "bad", "good", 0.97, text="surely wrong " + SCRIPT),
    class_row(21, "bad", "good", 0.55, text="hardly wrong"),
    class_row(22, SCRIPT, "bad", 0.7),
]
CLASSES = ("good", "bad", SCRIPT)
REGRESSION_ROWS = [
    {"key": "a", "gold": 1.0, "text": "near", "pair": "by", "value": 1.25},
    {"key": "b", "gold": 0.0, "text": "far", "pair": "off", "value": 4.5},
    {"key": "c", "gold": 5.0, "text": "even", "pair": "so", "value": 4.0},
]
TAG_ROWS = [
    {"key": "0", "gold": ["B-PER", "I-PER", "O"], "words": ["Ada", "King", "wrote"], "tags": ["B-PER", "I-PER", "O"]},
    {"key": "1", "gold": ["B-LOC", "O", "B-PER"], "words": ["Rome", SCRIPT, "Bo"], "tags": ["B-PER", "B-LOC", "B-PER"]},
    {"key": "2", "gold": ["B-LOC", "B-LOC"], "words": ["Oslo", "Bergen"], "tags": ["B-LOC", "O"]},
]
TAG_LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
SPAN_ROWS = [
    {"key": "1", "gold": ["the red house"], "question": "which?", "answer": "red house", "probability": 0.9},
    {"key": "2", "gold": ["Paris", "in Paris"], "question": "where?", "answer": "the Rome", "probability": 0.95},
    {"key": "3", "gold": [], "question": "why <b>?", "answer": "because", "probability": 0.4},
    {"key": "4", "gold": ["Monday"], "question": "when?", "answer": "", "probability": 0.3},
    {"key": "5", "gold": [], "question": "who?", "answer": "", "probability": 0.2},
]
CHOICE_ROWS = [
    {
        "key": "1",
        "gold": 0,
        "context": "It rained",
        "choice": 0,
        "choice_text": "so",
        "probability": 0.9,
        "probabilities": [],
    },
    {
        "key": "2",
        "gold": 2,
        "context": "He slept",
        "choice": 1,
        "choice_text": "and swam",
        "probability": 0.6,
        "probabilities": [0.1, 0.6, 0.3],
    },
]
KINDS = {
    "classification": {"rows": CLASS_ROWS, "found": scores(accuracy=0.75, f1=0.5), "labels": CLASSES},
    "regression": {"rows": REGRESSION_ROWS, "found": scores(pearson=0.61, spearman=0.6)},
    "tagging": {"rows": TAG_ROWS, "found": scores(entity_f1=0.6, tag_accuracy=0.7), "labels": TAG_LABELS},
    "spans": {
        "rows": SPAN_ROWS,
        "found": scores(f1=0.6, exact=0.5, HasAns_f1=0.4, NoAns_f1=0.7),
        "task_details": {"allows_no_answer": True, "threshold": -1.25},
    },
    "choice": {"rows": CHOICE_ROWS, "found": scores(accuracy=0.5)},
}
