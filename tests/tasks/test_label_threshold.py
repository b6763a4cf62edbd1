"""The threshold of multi-label tasks: chosen on dev, saved, and used by every way to predict."""

import json
import random as chance

import numpy as np
import one_call_scores
import pytest
from finetuned import encoder, finetuned, words

from hornbook.inference.predictor import load_predictor
from hornbook.models.head_config import HeadConfig
from hornbook.report.card import write_card
from hornbook.report.rendering import Table, render
from hornbook.tasks.kinds.classification import MIN_DEV_EXAMPLES, THRESHOLDS, MultiLabel
from hornbook.tasks.kinds.marked import EntityTyping
from hornbook.tasks.records import MarkedExample, TextExample
from hornbook.tasks.spec import TaskSpec, load_task, save_task

LABELS = ("a", "b", "c", "d")
OUTPUT = HeadConfig("sequence", 4, LABELS, "multi_label_classification")
TASK = MultiLabel(OUTPUT, MultiLabel.default_metrics)


def noisy(random: np.random.Generator, num: int = 200) -> tuple[list[TextExample], list[np.ndarray]]:
    """Examples, and logits that are too low, as those of rare labels are."""
    holds = random.random((num, 4)) < 0.3
    logits = 2.0 * holds - 2.5 + random.normal(size=(num, 4))
    labels = [tuple(name for name, held in zip(LABELS, row, strict=True) if held) for row in holds]
    return [TextExample(str(i), "", None, each) for i, each in enumerate(labels)], list(logits)


def test_it_has_the_best_score_of_all(random):
    examples, logits = noisy(random)
    tuned = TASK.with_best_threshold(examples, TASK.decode(logits, None, examples))
    chances = 1 / (1 + np.exp(-np.stack(logits)))
    scores = {}
    for threshold in THRESHOLDS:
        found = [tuple(name for name, p in zip(LABELS, row, strict=True) if p >= threshold) for row in chances]
        scores[threshold] = one_call_scores.multi_label_f1([each.label for each in examples], found, LABELS)["micro_f1"]
    assert scores[tuned.threshold] == max(scores.values()) > scores[0.5] + 0.05
    found = tuned.scorer(examples, tuned.decode(logits, None, examples))()["micro_f1"]
    assert found == pytest.approx(scores[tuned.threshold])
    assert tuned.apply_threshold(TASK.decode(logits, None, examples)) == tuned.decode(logits, None, examples)


def test_it_is_for_the_first_measure(random):
    examples, logits = noisy(random)
    tasks = [MultiLabel(OUTPUT, metrics) for metrics in (("micro_f1",), ("exact_match",))]
    for_f1, for_exact = (each.with_best_threshold(examples, each.decode(logits, None, examples)) for each in tasks)
    exact = [
        each.scorer(examples, each.decode(logits, None, examples))()["exact_match"] for each in (for_f1, for_exact)
    ]
    assert for_f1.threshold < for_exact.threshold and exact[0] < exact[1]


def test_it_stays_without_a_reason_or_with_few_examples(random):
    examples, logits = noisy(random)
    certain = [np.where([name in each.label for name in LABELS], 9.0, -9.0) for each in examples]
    assert TASK.with_best_threshold(examples, TASK.decode(certain, None, examples)).threshold == 0.5
    few = examples[: MIN_DEV_EXAMPLES - 1]
    assert TASK.with_best_threshold(few, TASK.decode(logits[: MIN_DEV_EXAMPLES - 1], None, few)) is TASK
    assert TASK.with_best_threshold(examples, TASK.decode(logits, None, examples)).threshold < 0.5


def test_a_mention_keeps_at_least_one_type(random):
    examples, logits = noisy(random)
    mentions = [MarkedExample(each.key, "a", ((0, 1),), each.label or ("a",)) for each in examples]
    task = EntityTyping(OUTPUT, ("loose_macro_f1",))
    tuned = task.with_best_threshold(mentions, task.decode(logits, None, mentions))
    assert tuned.threshold < 0.5
    (unsure,) = tuned.decode([np.array([-9.0, -8.0, -7.0, -9.5])], None, mentions[:1])
    assert unsure.label == ("c",)


def test_programs_and_comparisons_use_it(capsys):
    task = MultiLabel(OUTPUT, ("micro_f1",), 0.2)
    logits = np.array([[-1.0, -1.5, 0.5, -3.0], [-2.0] * 4])
    names = ("task_name", "family", "format", "inputs", "outputs", "is_grouped", "padding", "max_length", "texts")
    page = render("exported.md", task=task, max_positions=8, measured=Table((), []), **dict.fromkeys(names, ""))
    program = next(line for line in page.splitlines() if line.startswith("print("))
    exec(program, {"numpy": np, "logits": logits, "labels": LABELS})
    assert capsys.readouterr().out.strip() == "[['a', 'c'], []]"
    assert [each.label for each in task.decode(list(logits), None, [])] == [("a", "c"), ()]
    assert task.decision(logits[0]).tolist() == [True, False, True, False]
    both = MultiLabel.ensembled([task, MultiLabel(OUTPUT, ("micro_f1",), 0.4)])
    assert both.threshold == pytest.approx(0.3)


def test_it_is_saved(tmp_path):
    spec = TaskSpec("multi-label", MultiLabel(OUTPUT, ("micro_f1",), 0.15))
    save_task(tmp_path, spec)
    assert load_task(tmp_path, OUTPUT) == spec
    details = json.loads((tmp_path / "task.json").read_text())
    del details["threshold"]  # as written by earlier versions
    (tmp_path / "task.json").write_text(json.dumps(details))
    assert load_task(tmp_path, OUTPUT).task.threshold == 0.5
    (tmp_path / "task.json").write_text(json.dumps(details | {"threshold": 1.5}))
    with pytest.raises(ValueError, match="between 0 and 1"):
        load_task(tmp_path, OUTPUT)


def rare(num: int, seed: int) -> list[dict]:
    """Texts whose labels follow from their words, but only in one of three."""
    draw = chance.Random(seed)
    rows = []
    for _ in range(num):
        text = words(draw, 6)
        found = [name for name in ("river", "garden", "bread", "teacher") if name in text and draw.random() < 0.35]
        rows.append({"text": text, "labels": "|".join([*found, *["any"] * (draw.random() < 0.3)]) or "none"})
    return rows


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_tokenizer):
    folder = tmp_path_factory.mktemp("rare")
    data = {"train": rare(160, 1), "dev": rare(220, 2), "test": rare(220, 3)}
    return finetuned(folder / "run", encoder(folder / "encoder", tiny_tokenizer), "multi-label", data)


def test_a_run_predicts_with_it(run):
    threshold = json.loads((run / "task.json").read_text())["threshold"]
    assert threshold in THRESHOLDS and threshold != 0.5
    predictor = load_predictor(run)
    for each in predictor.predict([row["text"] for row in rare(20, 4)]):
        assert each.label == tuple(name for name, p in each.probabilities.items() if p >= threshold)
    scores = json.loads((run / "scores.json").read_text())["splits"]
    for name, seed in (("dev", 2), ("test", 3)):
        found = predictor.evaluate({name: rare(220, seed)})["splits"][name]["micro_f1"]["value"]
        assert found == pytest.approx(scores[name]["micro_f1"]["value"])
    best = max(json.loads(line).get("micro_f1", 0) for line in (run / "metrics.jsonl").read_text().splitlines())
    assert best == pytest.approx(scores["dev"]["micro_f1"]["value"])


def test_the_card_names_it(run):
    threshold = json.loads((run / "task.json").read_text())["threshold"]
    text = write_card(run).read_text()
    assert f"from a probability of {threshold:g} (`threshold` in `task.json`)" in text
