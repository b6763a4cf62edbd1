"""Fine-tuning for similarity: losses, in-batch negatives of the whole batch, exact resume, folders for others."""

import dataclasses
import json
import random as chance
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from finetuned import encoder
from scipy.stats import spearmanr
from tiny_runs import same

import hornbook
from hornbook.inference.load import load
from hornbook.inference.predictor import load_predictor
from hornbook.interop.sentence_transformers import EmbeddingSettings, write_embedding_settings
from hornbook.models.bert import Bert, BertConfig
from hornbook.models.head_config import HeadConfig
from hornbook.objectives.similarity import (
    SimilarityDistillation,
    SimilarityObjective,
    in_batch_losses,
    relation_losses,
)
from hornbook.runs.finetuning import inputs
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.kinds.similarity import Similarity, ranked
from hornbook.tasks.reading.read import read
from hornbook.train.objective import TrainingModule
from hornbook.train.optimizer import make_optimizer
from hornbook.train.settings import OptimizerSettings
from hornbook.train.step import Stepper
from train.small import CPU

WORDS = ["river", "teacher", "lantern", "bridge", "morning", "letters"]
WORDS += ["windows", "children", "harbour", "garden", "silver", "bread"]
QUIET = {"progress": False, "log": lambda message: None}


def pairs(num: int = 96, seed: int = 0) -> list[dict]:
    """Two words in both orders, among others."""
    draw = chance.Random(seed)
    rows = []
    for _ in range(num):
        a, b, c, d = draw.sample(WORDS, 4)
        rows.append({"anchor": f"the {a} and {b}", "positive": f"{b} of {a}", "negative": f"{c} of {d}"})
    return rows


def scored(num: int = 96) -> list[dict]:
    rows = pairs(num)
    return [
        {"sentence1": row["anchor"], "sentence2": row["positive" if i % 2 else "negative"], "score": 5 * (i % 2)}
        for i, row in enumerate(rows)
    ]


DATA = {
    "triplets": pairs(),
    "pairs": [{name: row[name] for name in ("anchor", "positive")} for row in pairs()],
    "scored pairs": scored(),
    "single texts": [{"text": f"{row['anchor']} {row['negative']}"} for row in pairs()],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory, tiny_tokenizer) -> Path:
    return encoder(tmp_path_factory.mktemp("model") / "model", tiny_tokenizer)


def trained(model, data, out, **options):
    overrides = {"runtime.threads": 1, "optimizer.lr": 3e-3} | options.pop("overrides", {})
    return hornbook.finetune(model, data, "similarity", out, batch_size=16, overrides=overrides, **QUIET | options)


# ---- losses


def unit(random, *shape) -> torch.Tensor:
    return F.normalize(torch.from_numpy(random.standard_normal(shape)), dim=-1)


def test_loss_by_hand(random):
    vectors, texts = unit(random, 5, 2, 8), torch.arange(10).view(5, 2)
    losses, is_right = in_batch_losses(vectors, texts, 0.1)
    cosines = vectors[:, 0] @ vectors[:, 1].T / 0.1
    right = torch.arange(5)
    expected = (F.cross_entropy(cosines, right) + F.cross_entropy(cosines.T, right)) / 2
    assert torch.allclose(losses.mean(), expected)
    assert is_right.tolist() == (cosines.argmax(1) == right).tolist()


def test_hard_negatives_are_candidates(random):
    vectors, texts = unit(random, 5, 3, 8), torch.arange(15).view(5, 3)
    losses, _ = in_batch_losses(vectors, texts, 0.1)
    forward = vectors[:, 0] @ torch.cat([vectors[:, 1], vectors[:, 2]]).T / 0.1
    backward = vectors[:, 1] @ vectors[:, 0].T / 0.1
    right = torch.arange(5)
    assert torch.allclose(losses.mean(), (F.cross_entropy(forward, right) + F.cross_entropy(backward, right)) / 2)


@pytest.mark.parametrize("texts", [[[0, 1], [0, 2]], [[0, 1], [2, 1]], [[0, 1], [1, 0]], [[0, 1], [0, 1]]], ids=str)
def test_equal_texts_are_not_negatives(random, texts):
    """With only such candidates left, nothing is to be told apart: the loss is 0."""
    losses, _ = in_batch_losses(unit(random, 2, 2, 8), torch.tensor(texts), 0.05)
    assert losses.tolist() == pytest.approx([0, 0], abs=1e-6)


def test_scored_pairs(model, tiny_tokenizer):
    from hornbook.text.tokenizer import Tokenizer

    examples = read("similarity", DATA["scored pairs"]).splits["train"]
    task = Similarity(HeadConfig("vectors", problem_type="regression"), ("spearman",), (0.0, 5.0))
    encoded = task.encode(examples, Tokenizer.load(tiny_tokenizer), 24)
    assert encoded.group_size == 2 and set(encoded.labels.tolist()) == {0.0, 1.0}


# ---- the whole batch


def stepper(
    micro_tokens: int, problem_type: str = "single_label_classification", kind=SimilarityObjective, dropout: float = 0.0
) -> Stepper:
    config = BertConfig(
        64, num_layers=1, width=16, num_heads=2, inner_width=32, dropout=dropout, attention_dropout=dropout
    )
    head_config = HeadConfig("vectors", problem_type=problem_type, pooling="mean")
    model = Bert(config, (), head_config)
    model.initialize(torch.Generator().manual_seed(0))
    module = TrainingModule(model.double(), kind(head_config))
    return Stepper(module, make_optimizer(model, OptimizerSettings()), CPU, 0, 0.0, micro_tokens)


def made_up(group_size: int, random, num: int = 12) -> EncodedExamples:
    ids = [random.integers(4, 64, int(n)) for n in random.integers(3, 12, num * group_size)]
    example_ids = np.repeat(np.arange(num), group_size)
    labels = np.arange(num * group_size) % 31  # some texts are equal
    return EncodedExamples(
        ids, [np.zeros(len(each), np.int64) for each in ids], example_ids, num, labels, group_size=group_size
    )


def gradients(one: Stepper, batch) -> tuple[dict, float]:
    caught = {}
    one.optimizer.step = lambda: caught.update({n: p.grad.clone() for n, p in one.model.named_parameters()})
    return caught, float(one.train_step(batch, 0, 1e-3).loss)


@pytest.mark.parametrize("group_size", [2, 3])
def test_negatives_do_not_depend_on_the_micro_batch(random, group_size):
    batch = made_up(group_size, random).batch(range(12))
    assert len(stepper(60).objective.prepare(batch, 0).split(60)) >= 3
    (whole, loss), (split, split_loss) = (gradients(stepper(tokens), batch) for tokens in (4096, 60))
    assert split_loss == pytest.approx(loss, rel=1e-9)
    assert max(each.abs().max() for each in whole.values()) > 1e-3
    for name, gradient in whole.items():
        assert torch.allclose(split[name], gradient, rtol=1e-7, atol=1e-11), name


def test_the_vectors_of_both_passes_have_the_same_dropout_masks(random):
    one, computed = stepper(60, dropout=0.3), []
    vectors_of = one.objective.vectors
    one.objective.vectors = lambda *given: computed.append(vectors_of(*given)) or computed[-1]
    one.model.train()
    one.train_step(made_up(2, random).batch(range(12)), 0, 1e-3)
    num = len(computed) // 2
    assert num >= 3
    for kept, again in zip(computed[:num], computed[num:], strict=True):
        assert torch.equal(kept, again)
    assert any(not torch.allclose(each[0], each[1]) for each in computed)


def test_similarities_of_a_teacher_by_hand(random):
    student, teacher = (F.normalize(torch.from_numpy(random.standard_normal((3, 2, n))), dim=-1) for n in (4, 6))
    losses, _ = relation_losses(student, teacher)
    for group in range(3):
        expected = []
        for text in range(2):
            others = [(k, g) for k in range(3) for g in range(2) if (k, g) != (group, text)]
            errors = [student[group, text] @ student[i] - teacher[group, text] @ teacher[i] for i in others]
            expected.append(sum(error**2 for error in errors) / 5)
        assert float(losses[group]) == pytest.approx(float(sum(expected) / 2))


def test_learning_from_a_teacher_does_not_depend_on_the_micro_batch(random):
    encoded = made_up(2, random)
    vectors = F.normalize(torch.from_numpy(random.standard_normal((24, 5))), dim=-1).numpy()
    batch = dataclasses.replace(encoded, labels=vectors).batch(range(12))
    (whole, loss), (split, split_loss) = (
        gradients(stepper(tokens, kind=SimilarityDistillation), batch) for tokens in (4096, 60)
    )
    assert split_loss == pytest.approx(loss, rel=1e-9)
    assert max(each.abs().max() for each in whole.values()) > 1e-4
    for name, gradient in whole.items():
        assert torch.allclose(split[name], gradient, rtol=1e-7, atol=1e-11), name


def test_padding_to_a_bucket_changes_nothing(random):
    from hornbook.train.step import bucketed

    batch, one = made_up(2, random).batch(range(12)), stepper(4096)
    step_inputs = one.objective.prepare(batch, 0)
    plain, padded = (one.module(each)["task"] for each in (step_inputs, bucketed(step_inputs, 128, 16)))
    assert torch.allclose(plain, padded)


# ---- runs


@pytest.mark.parametrize("form", DATA)
def test_runs(form, model, tmp_path):
    data, logged = DATA[form], []
    result = trained(model, data, tmp_path / "run", epochs=2, log=logged.append)
    assert any(f"(train: {form})" in line for line in logged)
    metric = "spearman" if form == "scored pairs" else "mrr"
    assert set(result.scores["dev"]) == {metric, "pearson" if metric == "spearman" else "accuracy"}
    run = hornbook.load(tmp_path / "run")
    assert run.embedding.normalize and run.embedding.max_length == 24 and not run.embedding.is_default
    a, b = "the river and bread", "bread of river"
    assert result.predict([(a, b)])[0].similarity == pytest.approx(run.similarity(a, b), abs=1e-5)
    if form == "triplets":  # a page with the nearest wrong results
        assert "Nearest wrong results" in hornbook.write_report(tmp_path / "run").read_text(encoding="utf-8")


def test_single_texts_get_dropout_if_the_model_has_none(model, tmp_path):
    """Without dropout, the two vectors of a text are equal and there is nothing to learn."""
    without = shutil.copytree(model, tmp_path / "without")
    config = json.loads((without / "config.json").read_text())
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (without / "config.json").write_text(json.dumps(config | rates))
    logged = []
    trained(without, DATA["single texts"], tmp_path / "run", epochs=1, log=logged.append)
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert settings["layers"]["dropout"] == 0.02 and any("layers.dropout=0.02" in line for line in logged)
    with pytest.raises(ValueError, match=r"leave out layers\.dropout=0"):
        trained(model, DATA["single texts"], tmp_path / "no", overrides={"layers.dropout": 0.0})


@pytest.fixture(scope="module")
def learned(model, tmp_path_factory):
    """A longer run on pairs; do not write into its folder."""
    return trained(model, DATA["pairs"] * 2, tmp_path_factory.mktemp("learned") / "run", epochs=6)


def test_learning(model, learned):
    before, after = (hornbook.load(folder).embed for folder in (model, learned.out))
    rows = pairs(60, seed=5)

    def found(embed) -> float:
        texts, others = (embed([row[name] for row in rows], normalize=True) for name in ("anchor", "positive"))
        return float(((texts @ others.T).argmax(1) == np.arange(60)).mean())

    assert found(after) > found(before) + 0.1 and learned.degenerate is None


@pytest.mark.parametrize("form", ["single texts", "pairs"])
def test_a_student_learns_the_similarities_of_its_teacher(form, model, learned, tmp_path):
    teacher = hornbook.load(learned.out)
    overrides = {"task.embedding_teacher": str(learned.out), "optimizer.lr": 1e-3}
    trained(model, DATA[form] * 2, tmp_path / "student", epochs=4, overrides=overrides)
    texts = [row["anchor"] for row in pairs(40, seed=7)]

    def distance(folder) -> float:
        return float(
            np.square(hornbook.load(folder).similarity(texts, texts) - teacher.similarity(texts, texts)).mean()
        )

    assert distance(tmp_path / "student") < 0.5 * distance(model)


def test_the_teacher_is_on_the_device_of_the_run(model, learned, tmp_path, monkeypatch):
    devices = []

    def load(folder, device="auto"):
        devices.append(device)
        return hornbook.load(folder, device=device)

    monkeypatch.setattr(inputs, "load", load)
    overrides = {"task.embedding_teacher": str(learned.out), "runtime.device": "cpu"}
    trained(model, DATA["pairs"][:20], tmp_path / "student", epochs=1, overrides=overrides)
    assert devices == ["cpu"]


def test_a_teacher_is_refused_where_it_is_not_used(model, tmp_path):
    overrides = {"task.embedding_teacher": str(model)}
    with pytest.raises(ValueError, match=r"rows have scores, which a task\.embedding_teacher replaces"):
        trained(model, DATA["scored pairs"], tmp_path / "run", overrides=overrides)
    rows = [{"text": f"the {word}", "label": str(i % 2)} for i, word in enumerate(WORDS)]
    with pytest.raises(ValueError, match=r"task\.embedding_teacher is for the task similarity"):
        hornbook.finetune(model, data=rows, out=tmp_path / "run", overrides=overrides, **QUIET)


def test_the_folder_prescribes_the_length(model, tmp_path):
    base = shutil.copytree(model, tmp_path / "base")
    write_embedding_settings(base, EmbeddingSettings("max", max_length=9), 32)
    trained(base, DATA["pairs"], tmp_path / "run", epochs=1, overrides={"task.max_length": None})
    found = hornbook.load(tmp_path / "run").embedding
    assert (found.pooling, found.max_length) == ("max", 9)
    write_embedding_settings(base, EmbeddingSettings(lower_case=True), 32)
    with pytest.raises(ValueError, match="lower-cases texts before its tokenizer"):
        trained(base, DATA["pairs"], tmp_path / "no", epochs=1)
    with pytest.raises(ValueError, match="lower-cases texts before its tokenizer"):
        load_predictor(base)


def test_opens_in_sentence_transformers(model, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    overrides = {"task.pooling": "cls", "task.max_length": 12}
    trained(model, DATA["pairs"], tmp_path / "run", epochs=1, overrides=overrides)
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "run"), device="cpu")
    texts = ["the river", "silver bread " * 20]
    assert theirs.max_seq_length == 12
    assert np.abs(theirs.encode(texts) - hornbook.load(tmp_path / "run").embed(texts)).max() < 1e-5


def test_stopping_and_resuming_gives_the_same_weights(model, tmp_path):
    options = {"epochs": 2, "overrides": {"batch.micro_tokens": 128}}  # several micro-batches per step
    trained(model, DATA["pairs"], tmp_path / "whole", **options)

    def stop_at_four(status):
        return status.step == 4

    with pytest.raises(RuntimeError, match="stopped at step 4"):
        trained(model, DATA["pairs"], tmp_path / "stopped", on_progress=stop_at_four, **options)
    trained(model, DATA["pairs"], tmp_path / "stopped", resume=True, **options)
    assert same(tmp_path / "whole", tmp_path / "stopped")


def test_a_run_is_searched_and_evaluated(hornbook, model, tmp_path):
    file, run = tmp_path / "pairs.csv", tmp_path / "run"
    rows = [f"{row['anchor']},{row['positive']}" for row in pairs()]
    file.write_text("\n".join(["anchor,positive", *rows]))
    words = ["finetune", model, "--task", "similarity", "--data", file, "--out", run, "--epochs", 1, "--json"]
    assert hornbook(*words, "--set", "runtime.threads=1").answer["scores"]["dev"].keys() == {"mrr", "accuracy"}
    assert hornbook("predict", run, "the river ||| river", "--json").answer["predictions"][0]["similarity"] <= 1.0001
    assert "mrr" in hornbook("evaluate", run, "--data", file, "--json").answer["splits"]["dev"]
    scores = tmp_path / "scored.jsonl"
    scores.write_text("\n".join(map(json.dumps, scored(20))))
    assert "spearman" in hornbook("evaluate", run, "--data", scores, "--json").answer["splits"]["dev"]
    hornbook("embed", file, "--text", "positive", "--model", run, "--out", tmp_path / "index")
    assert hornbook("search", tmp_path / "index", "the river and bread", "--json").status == 0


def test_a_pair_is_found_among_all_pairs_of_the_split(model, monkeypatch):
    predictor = load_predictor(model, task="similarity")
    whole = predictor.evaluate(pairs())["splits"]
    monkeypatch.setattr("hornbook.inference.predictor.EXAMPLES_AT_ONCE", 5)
    assert predictor.evaluate(pairs())["splits"] == whole and whole["dev"]["mrr"]["value"] < 0.5


def test_a_long_text_takes_no_memory_for_the_others(random):
    texts, vectors = ["a" * 100_000, *map(str, range(499))], random.standard_normal((500, 2))
    tracemalloc.start()
    ranked(vectors, vectors, texts, texts, texts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def test_vectors_that_are_no_numbers_find_nothing():
    vectors, texts, others = np.full((3, 2), np.nan, np.float32), ["a", "b", "c"], ["d", "e", "f"]
    assert min(each.rank for each in ranked(vectors, vectors, texts, others, others)) >= 3


def test_a_model_that_was_not_fine_tuned_is_evaluated(hornbook, model, tmp_path):
    file = tmp_path / "scored.jsonl"
    rows = scored(20)
    file.write_text("\n".join(map(json.dumps, rows)))
    found = hornbook("evaluate", model, "--task", "similarity", "--data", file, "--json").answer["splits"]["dev"]
    loaded = load(model)
    cosines = [loaded.similarity(row["sentence1"], row["sentence2"]) for row in rows]
    assert found["spearman"]["value"] == pytest.approx(spearmanr(cosines, [row["score"] for row in rows]).statistic)
    said = hornbook("evaluate", model, "--data", file)
    assert said.status == 2 and "evaluate it with --task similarity" in said.error
    said = hornbook("evaluate", model, "--task", "sst-2", "--data", file)
    assert said.status == 2 and "only similarity needs no training" in said.error


def test_commands_that_do_not_support_it_refuse(hornbook, model, tmp_path):
    file, run, out = tmp_path / "pairs.jsonl", tmp_path / "run", tmp_path / "out"
    file.write_text("\n".join(map(json.dumps, DATA["pairs"])))
    trained(model, file, run, epochs=1)
    options = ["--task", "similarity", "--data", file, "--out", out]
    for words, message in (
        (["distill", run, "--student", model, *options], "hornbook distill does not support similarity"),
        (["baseline", "tfidf", *options], "there are no baselines and probes for similarity"),
        (["probe", model, *options], "there are no baselines and probes for similarity"),
        (["label-curve", model, *options], "there are no baselines and probes for similarity"),
        (["export", run, "--format", "onnx", "--out", out], "export of embedding models is not supported"),
    ):
        said = hornbook(*words)
        assert said.status == 2 and message in said.error, said


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"text": "a b"}, {"text": "a b"}] * 5, "all training rows have the same texts"),
        (
            [{"sentence1": "a b", "sentence2": "c d", "label": "x"}] * 5,
            "the score, in column 'label': 'x' is not a number",
        ),
        ([{"sentence1": f"a {i}", "sentence2": "c d", "score": 1} for i in range(40)], "all scores of train are 1, so"),
    ],
)
def test_bad_data(model, tmp_path, data, message):
    with pytest.raises(ValueError, match=message):
        trained(model, data, tmp_path / "run")


def test_columns():
    from hornbook.tasks.reading.reader import RequestedColumns
    from hornbook.tasks.reading.rows import Row, RowTable
    from hornbook.tasks.reading.similarity import find_columns

    def found(requested=None, **row):
        table = RowTable("t", list(row), [Row("row 1", row), Row("row 2", row)])
        columns = find_columns(table, requested or RequestedColumns())
        return columns.text, columns.pair, columns.negative, columns.score

    assert found(question="a", answer="b", votes="3") == ("question", "answer", None, None)
    assert found(query="a", positive="b", negative="c") == ("query", "positive", "negative", None)
    assert found(sentence1="a", sentence2="b", score="3") == ("sentence1", "sentence2", None, "score")
    assert found(RequestedColumns("x", "y"), x="a", y="b", z="c") == ("x", "y", None, None)
    with pytest.raises(ValueError, match="no column 'q' for the pair"):
        found(RequestedColumns("x", "q"), x="a", y="b")
