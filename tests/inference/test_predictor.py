import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from finetuned import (
    LENGTH,
    asked_questions,
    completed,
    encoder,
    finetuned,
    labelled_texts,
    numbered_pairs,
    tagged_words,
)

import hornbook
from hornbook.files import read_json, read_json_lines
from hornbook.inference.predictor import Predictor, combine, load_predictor
from hornbook.models.head_config import HeadConfig
from hornbook.tasks.kinds import kind_for
from hornbook.tasks.reading.inputs import input_rows
from hornbook.tasks.records import SpanExample
from hornbook.text.tokenizer import Tokenizer

LONG = "the lantern and the river " * 30


@pytest.fixture(scope="module")
def plain_encoder(tmp_path_factory, tiny_tokenizer):
    return encoder(tmp_path_factory.mktemp("encoder"), tiny_tokenizer)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def reviews(folder, plain_encoder):
    return finetuned(folder / "reviews", plain_encoder, "classification", labelled_texts())


@pytest.fixture(scope="module")
def tags(folder, plain_encoder):
    return finetuned(folder / "tags", plain_encoder, "tagging", tagged_words())


@pytest.fixture(scope="module")
def questions(folder, plain_encoder):
    return finetuned(folder / "questions", plain_encoder, "spans-or-none", asked_questions())


# ---- predicting


def test_order_and_number_are_kept_with_empty_and_long_inputs(reviews):
    predictor = load_predictor(reviews)
    items = ["the river", "", LONG, "a lantern", LONG + "bread", "   ", ("a", "b"), {"text": "the bread"}]
    together = predictor.predict(items)
    assert predictor.predict_rows(input_rows(items, "classification")).num_truncated == 2
    alone = [predictor.predict([item])[0] for item in items]
    assert [place for place, each in enumerate(together) if each is None] == [1, 5]  # nothing is said about no text
    together, alone = ([each for each in found if each] for found in (together, alone))
    assert [each.label for each in together] == [each.label for each in alone]
    for one, two in zip(together, alone, strict=True):
        assert one.probabilities == pytest.approx(two.probabilities, abs=1e-5)
        assert sum(one.probabilities.values()) == pytest.approx(1, abs=1e-5)
    assert len({each.probability for each in together}) > 3
    assert predictor.predict([]) == []
    assert predictor.predict("the river") == predictor.predict(["the river"])


def test_a_run_keeps_the_columns_that_it_was_trained_on(reviews, tmp_path):
    predictor = load_predictor(reviews)
    assert predictor.spec.roles == {"text": "text", "label": "label"}
    (tmp_path / "other.csv").write_text("review;label\nthe river;dark\n")
    with pytest.raises(ValueError, match="no column 'text', which the run was trained on"):
        predictor.evaluate(tmp_path / "other.csv")
    assert predictor.evaluate(tmp_path / "other.csv", text="review", label="label")["examples"] == {"dev": 1}


def test_dictionaries_may_use_the_columns_that_the_run_was_trained_on(reviews):
    predictor = load_predictor(reviews)
    expected = predictor.predict(["the river"])
    predictor.spec = dataclasses.replace(predictor.spec, roles={"text": "Ticket text", "label": "Team"})
    assert predictor.predict([{"Ticket text": "the river", "Team": "x"}]) == expected


def test_more_inputs_than_are_held_at_once(reviews, monkeypatch):
    predictor = load_predictor(reviews)
    items = [row["text"] for row in labelled_texts(23)]
    whole = predictor.predict(items)
    monkeypatch.setattr("hornbook.inference.predictor.EXAMPLES_AT_ONCE", 5)
    done = []
    parts = predictor.predict(items, done.append)
    assert [each.label for each in parts] == [each.label for each in whole]
    assert done == sorted(done) and done[-1] == len(items)


def test_rows_of_a_classification(reviews):
    predictor = load_predictor(reviews)
    items = ["the river", ("a lantern", "the bread")]
    rows = predictor.describe(items, predictor.predict(items))
    assert rows[1]["pair"] == "the bread" and "pair" not in rows[0]
    assert set(rows[0]["probabilities"]) == {"dark", "light"}
    assert json.loads(json.dumps(rows)) == rows


def test_an_input_of_a_wrong_shape_is_named(reviews, questions):
    with pytest.raises(ValueError, match=r"input 2 \(3\) is invalid: this model takes a text, a \(text, pair\)"):
        load_predictor(reviews).predict(["fine", 3])
    with pytest.raises(
        ValueError, match=r"input 1 \('no passage'\) is invalid: this model takes a \(question, passage\)"
    ):
        load_predictor(questions).predict(["no passage"])
    with pytest.raises(ValueError, match="input 1"):
        load_predictor(reviews).predict([SpanExample("0", "who", "she")])


def test_tags_come_one_a_word_in_the_scheme_of_the_files(tags):
    predictor = load_predictor(tags)
    assert predictor.spec.scheme == "BIOES"
    items = ["the silver bridge, and a river!", [], "", ["harbour"] * 3 * LENGTH, ("the", "river")]
    predictions = predictor.predict(items)
    assert [each and len(each.tags) for each in predictions] == [8, None, None, 3 * LENGTH, 2]
    rows = predictor.describe(items, predictions)
    assert rows[0]["words"] == ["the", "silver", "bridge", ",", "and", "a", "river", "!"]
    trained = tagged_words()
    rows = predictor.describe([row["words"] for row in trained], predictor.predict([row["words"] for row in trained]))
    marks = {tag[:2] for row in rows for tag in row["tags"]}
    assert "S-" in marks or "E-" in marks
    assert not any("S-" in tag or "E-" in tag for each in predictor.predict(trained) for tag in each.tags)


def test_answers_are_at_their_offsets(questions):
    predictor = load_predictor(questions)
    passage = " ".join(row["passage"] for row in asked_questions())
    items = [("the garden", passage), {"question": "the river", "context": "a bridge"}, ("", ""), ("who", LONG)]
    found = predictor.predict(items)
    assert len(found) == 4
    assert found.pop(2) is None
    for text, each in zip([passage, "a bridge", LONG], found, strict=True):
        assert all(text[answer.start : answer.end] == answer.text for answer in each.n_best)


def test_a_saved_model_predicts_as_before(questions, tmp_path):
    hornbook.load(questions).save(tmp_path)
    before, after = load_predictor(questions), load_predictor(tmp_path)
    assert after.task == before.task and after.task.allows_no_answer and after.max_length == before.max_length


def test_questions_may_have_any_number_of_choices(folder, plain_encoder):
    run = finetuned(folder / "choices", plain_encoder, "choice", completed())
    predictor = load_predictor(run)
    items = [("the river", ["a", "b"]), {"context": "x", "endings": ["a", "b", "c"]}, ("y", ["z"])]
    found = predictor.predict(items)
    assert [len(each.probabilities) for each in found] == [2, 3, 1]
    assert found[0].probabilities == pytest.approx(predictor.predict(items[:1])[0].probabilities, abs=1e-6)
    assert predictor.describe(items, found)[2]["choice_text"] == "z"
    assert predictor.predict([("the river", "a", "b")])[0] == predictor.predict([("the river", ["a", "b"])])[0]
    scores = predictor.evaluate(completed(12))
    right = [
        each.choice == row["label"] for each, row in zip(predictor.predict(completed(12)), completed(12), strict=True)
    ]
    assert scores["splits"]["dev"]["accuracy"]["value"] == pytest.approx(np.mean(right))


# ---- folders


def test_error_for_a_folder_without_a_head(plain_encoder):
    with pytest.raises(ValueError, match=r"without a task head.*hornbook finetune"):
        load_predictor(plain_encoder)


def test_error_for_an_unfinished_run(tmp_path, reviews):
    (tmp_path / "run.json").write_text('{"command": "finetune"}')
    with pytest.raises(ValueError, match=r"is not finished: resume it with 'hornbook finetune --out .* --resume'"):
        load_predictor(tmp_path)
    stopped = shutil.copytree(reviews, tmp_path / "stopped", ignore=shutil.ignore_patterns("task.json", "scores.json"))
    assert (stopped / "config.json").exists()
    with pytest.raises(ValueError, match=r"is not finished: resume it with 'hornbook finetune --out .* --resume'"):
        load_predictor(stopped)


def test_a_run_reads_as_many_tokens_as_it_was_trained_on(tmp_path, questions):
    run = shutil.copytree(questions, tmp_path / "run")
    task = read_json(run / "task.json")
    (run / "task.json").write_text(json.dumps(task | {"max_length": 18}))
    assert (load_predictor(run).max_length, load_predictor(questions).max_length) == (18, LENGTH)


@pytest.fixture(scope="module")
def hf_config(tiny_tokenizer):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    tokenizer = Tokenizer.load(tiny_tokenizer)
    return transformers, transformers.BertConfig(
        vocab_size=tokenizer.vocab_size, max_position_embeddings=LENGTH, **sizes, initializer_range=0.2
    )


def test_a_folder_of_transformers_gives_its_probabilities(hf_config, tiny_tokenizer, tmp_path):
    transformers, config = hf_config
    config.id2label = {0: "no", 1: "perhaps", 2: "yes"}
    config.label2id = {name: number for number, name in config.id2label.items()}
    torch.manual_seed(0)
    theirs = transformers.BertForSequenceClassification(config).eval()
    theirs.save_pretrained(tmp_path)
    Tokenizer.load(tiny_tokenizer).save(tmp_path, LENGTH)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = ["the river", "?", "a silver lantern of the children", LONG]
    encoded = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        wanted = theirs(**encoded).logits.softmax(-1)
    predictor = load_predictor(tmp_path)
    found = predictor.predict(texts)
    np.testing.assert_allclose([list(each.probabilities.values()) for each in found], wanted.numpy(), atol=1e-5)
    assert [each.label for each in found] == [config.id2label[i] for i in wanted.argmax(-1).tolist()]
    assert predictor.predict_rows(input_rows(texts, "classification")).num_truncated == 1
    assert predictor.task.kind == "classification"
    pairs = [("the river", "a bridge"), ("bread", "?")]
    encoded = tokenizer(*map(list, zip(*pairs, strict=True)), padding=True, return_tensors="pt")
    with torch.no_grad():
        wanted = theirs(**encoded).logits.softmax(-1)
    np.testing.assert_allclose(
        [list(each.probabilities.values()) for each in predictor.predict(pairs)], wanted.numpy(), atol=1e-5
    )
    rows = [{"text": text, "label": label} for text, label in zip(texts, ("no", "yes", "no", "perhaps"), strict=True)]
    assert list(predictor.evaluate(rows)["splits"]["dev"]) == ["accuracy", "macro_f1", "matthews"]  # as of a run


def test_a_tagger_of_transformers_in_another_scheme_is_read_as_bio(hf_config, tiny_tokenizer, tmp_path):
    transformers, config = hf_config
    config.id2label = {0: "S-PLACE", 1: "E-PLACE"}
    config.label2id = {name: number for number, name in config.id2label.items()}
    torch.manual_seed(0)
    transformers.BertForTokenClassification(config).save_pretrained(tmp_path)
    Tokenizer.load(tiny_tokenizer).save(tmp_path, LENGTH)
    found = load_predictor(tmp_path).predict(["the river and the bread of children"])[0]
    assert set(found.tags) <= {"B-PLACE", "I-PLACE"} and found.tags[0] == "B-PLACE"


# ---- ensembles


def test_an_ensemble_is_the_mean_of_its_runs(folder, plain_encoder, reviews):
    other = finetuned(folder / "reviews-2", plain_encoder, "classification", labelled_texts(), seed=1)
    items = ["the river", "a lantern", "?", LONG]
    one, two, both = (load_predictor(runs).predict(items) for runs in (reviews, other, [reviews, other]))
    mean = np.mean([[list(each.probabilities.values()) for each in run] for run in (one, two)], 0)
    assert one[0].probability != pytest.approx(two[0].probability)
    np.testing.assert_allclose([list(each.probabilities.values()) for each in both], mean, atol=1e-6)


def test_an_ensemble_of_numbers_and_of_spans(folder, plain_encoder, questions):
    runs = [finetuned(folder / f"pairs-{seed}", plain_encoder, "regression", numbered_pairs(), seed) for seed in (0, 1)]
    pairs = [("the river", "a bridge"), ("the bread", "the bread")]
    one, two, both = (load_predictor(each).predict(pairs) for each in (runs[0], runs[1], runs))
    np.testing.assert_allclose(both, np.mean([one, two], 0), atol=1e-6)
    assert both != one
    other = finetuned(folder / "questions-2", plain_encoder, "spans-or-none", asked_questions(), seed=1)
    asked = [("the garden", asked_questions()[0]["passage"]), ("the river", LONG)]
    both = load_predictor([questions, other])
    thresholds = [load_predictor(each).task.threshold for each in (questions, other)]
    assert both.task.threshold == pytest.approx(np.mean(thresholds))
    twice, once = (load_predictor(each).predict(asked) for each in ([questions, questions], questions))
    assert [each.answer for each in twice] == [each.answer for each in once]
    assert len(both.predict(asked)) == 2


@pytest.mark.parametrize(
    ("head_config", "to_chances"),
    [
        (HeadConfig("sequence", 3), lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
        (HeadConfig("sequence", 3, problem_type="multi_label_classification"), lambda x: 1 / (1 + np.exp(-x))),
        (HeadConfig("tokens", 3), lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    ],
)
def test_combined_answers_decode_to_the_mean(head_config, to_chances, random):
    first, second = random.normal(size=(2, 4, 3)) * 3
    found = combine(kind_for(head_config).build(head_config, {}), [list(first), list(second)])
    wanted = (to_chances(first) + to_chances(second)) / 2
    np.testing.assert_allclose(to_chances(np.stack(found)), wanted, atol=1e-9)


def test_runs_that_differ_cannot_answer_together(reviews, tags, folder, plain_encoder):
    with pytest.raises(ValueError, match=r"differ in their task kind \(classification, and tagging\)"):
        load_predictor([reviews, tags])
    renamed = [row | {"label": row["label"].upper()} for row in labelled_texts()]
    other = finetuned(folder / "capitals", plain_encoder, "classification", renamed)
    with pytest.raises(ValueError, match=r"differ in their labels \(dark, light, and DARK, LIGHT\)"):
        load_predictor([reviews, other])
    member = load_predictor(reviews).members[0]
    spec = dataclasses.replace(member.spec, graph={"folder": "graph", "fingerprint": "abc"})
    with pytest.raises(ValueError, match="differ in the knowledge graph whose entities they read"):
        Predictor([member, dataclasses.replace(member, spec=spec)])


# ---- evaluating


@pytest.mark.parametrize(
    ("task", "rows"),
    [
        ("classification", labelled_texts),
        ("regression", numbered_pairs),
        ("tagging", tagged_words),
        ("spans-or-none", asked_questions),
        ("choice", completed),
    ],
)
def test_the_score_is_the_one_of_the_run(task, rows, folder, plain_encoder, tmp_path):
    for split, chosen in (("train", rows()[:-8]), ("dev", rows()[-8:])):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chosen))
    run = finetuned(folder / f"scored-{task}", plain_encoder, task, tmp_path)
    found = load_predictor(run).evaluate(tmp_path)
    wanted = read_json(run / "scores.json")
    assert set(found["splits"]["dev"]) == set(wanted["splits"]["dev"])
    for metric, value in wanted["splits"]["dev"].items():
        assert found["splits"]["dev"][metric] == pytest.approx(value, abs=1e-5)
    assert found["metric_for_best"] == wanted["metric_for_best"] and found["examples"] == {"dev": 8}


def test_labels_that_the_model_does_not_know_are_missed(reviews, tmp_path):
    predictor = load_predictor(reviews)
    rows = labelled_texts(20)
    said = predictor.predict([row["text"] for row in rows])
    rows = [
        row | {"label": "dim" if number < 5 else each.label}
        for number, (row, each) in enumerate(zip(rows, said, strict=True))
    ]
    rows[9]["label"] = None
    rows[10]["text"] = " "  # has no prediction
    scores = predictor.evaluate(rows)
    assert scores["splits"]["dev"]["accuracy"]["value"] == pytest.approx(13 / 18)
    assert scores["unknown_labels"] == ["dim"] and scores["unlabelled"] == {"dev": 2}


def test_the_path_of_a_file_is_not_a_text(reviews, tmp_path):
    file = tmp_path / "texts.csv"
    file.write_text("text\nthe river\n")
    for path in (file, str(file)):
        with pytest.raises(ValueError, match=r"texts.csv is a file: give its texts as a list or a data frame"):
            load_predictor(reviews).predict(path)
    assert load_predictor(reviews).predict("the river " * 500 + "\0")[0].label


def test_data_that_was_trained_on_is_noted(folder, plain_encoder, tmp_path):
    """A file without a dev split: most of it was trained on, the rest held out."""
    file = tmp_path / "all.jsonl"
    incomplete = [{"text": "no label", "label": ""}, {"text": "", "label": labelled_texts(1)[0]["label"]}]
    file.write_text("".join(json.dumps(row) + "\n" for row in labelled_texts() + incomplete))
    run = finetuned(folder / "from-one-file", plain_encoder, "classification", file)
    num = len(labelled_texts())
    (note,) = load_predictor(run).evaluate(file)["notes"]
    assert f"{num - round(num / 10):,} of these {num:,} examples, so the score does not measure" in note
    label = labelled_texts(1)[0]["label"]
    others = [{"text": f"another river {number}", "label": label} for number in range(5)]
    assert load_predictor(run).evaluate(others)["notes"] == []
    known = read_json_lines(run / "predictions-dev.jsonl")  # which were not trained on
    trained = next(row for row in labelled_texts() if row["text"] not in {each["text"] for each in known})
    (note,) = load_predictor(run).evaluate([*others, trained | {"text": f" {trained['text'].upper()}"}])["notes"]
    assert f"1 of these 6 examples, such as '{trained['text'].upper()}'" in note and "too optimistic" in note


def test_parts_to_evaluate(reviews, tmp_path):
    predictor, rows = load_predictor(reviews), labelled_texts(20)
    splits = {"train": rows[:10], "test": rows[10:]}
    assert list(predictor.evaluate(splits)["splits"]) == ["test"]
    assert list(predictor.evaluate(splits, split="train")["splits"]) == ["train"]
    with pytest.raises(ValueError, match="no split 'dev'; it has train, test"):
        predictor.evaluate(splits, split="dev")
    with pytest.raises(ValueError, match="there are no labels in test"):
        predictor.evaluate({"test": [{"text": "the river"}]})
    file = tmp_path / "mine.csv"
    file.write_text("text,label\nthe river,dark\n,dark\n")
    assert predictor.evaluate(file)["examples"] == {"dev": 1}  # without the empty text


def test_mnli_has_two_dev_parts_and_the_diagnostic(folder, plain_encoder, tmp_path):
    labels = ("contradiction", "entailment", "neutral")
    lines = "sentence1\tsentence2\tgold_label\n" + "".join(
        f"the river {n}\ta bridge\t{labels[n % 3]}\n" for n in range(12)
    )
    for name in ("train", "dev_matched", "dev_mismatched"):
        (tmp_path / f"{name}.tsv").write_text(lines)
    run = finetuned(folder / "mnli", plain_encoder, "mnli", tmp_path)
    predictor = load_predictor(run)
    assert list(predictor.evaluate(tmp_path)["splits"]) == ["dev", "dev-mismatched"]
    diagnostic = tmp_path / "diagnostic"
    diagnostic.mkdir()
    (diagnostic / "diagnostic.tsv").write_text("index\tsentence1\tsentence2\n0\tthe river\ta bridge\n")
    spec, data = predictor.read(diagnostic)
    assert spec.name == "diagnostic" and len(data.splits["test"]) == 1
    full = diagnostic / "diagnostic-full.tsv"
    full.write_text(
        "Logic\tPremise\tHypothesis\tLabel\n\tthe river\ta bridge\tneutral\n\tbread\tthe bread\tentailment\n"
    )
    scores = predictor.evaluate(full)
    assert scores["metric_for_best"] == "matthews" and set(scores["splits"]["dev"]) == {"matthews", "accuracy"}
