"""The HTTP API answers what the Python API answers."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import pytest
from fastapi.testclient import TestClient
from served_api import SETTINGS, TEXTS, ask, refusal

import hornbook as library
from hornbook.serve.models import open_models
from hornbook.serve.server import build_app
from hornbook.show.attention import show_all_attention
from hornbook.show.parameters import show_parameters


def test_models_and_what_they_can_do(client):
    found = {each["name"]: each for each in client.get("/models").json()["models"]}
    assert list(found) == ["first", "texts", "tags", "answers", "choices", "numbers", "alike", "gpt"]
    assert {"fill-mask", "next-sentence", "embed", "masking", "attention"} <= set(found["first"]["abilities"])
    assert found["texts"]["abilities"]["predict"] == "classification" and "generate" in found["gpt"]["abilities"]
    assert "fill-mask" not in found["gpt"]["abilities"] and "fill-mask" not in found["texts"]["abilities"]
    assert found["texts"]["task"] == {"kind": "classification", "labels": ["dark", "light"], "has_pairs": False}
    assert [each["id"] for each in client.get("/v1/models").json()["data"]] == list(found)


def test_masks(client, folders):
    model = library.load(folders["first"])
    found = ask(client, "/fill-mask", text="the [MASK] of the [MASK]", top_k=3)
    expected = [[asdict(guess) for guess in guesses] for guesses in model.fill_mask("the [MASK] of the [MASK]", 3)]
    for ours, theirs in zip(found["masks"], expected, strict=True):
        assert [each["word"] for each in ours] == [each["word"] for each in theirs]
    several = ask(client, "/fill-mask", text=["the [MASK]", "a [MASK] of the river"])
    assert len(several["texts"]) == 2 and len(several["texts"][0][0]) == 5


def test_next_sentence(client, folders):
    expected = library.load(folders["first"]).next_sentence("the river", "a garden")
    assert ask(client, "/next-sentence", first="the river", second="a garden")["is_next"] == pytest.approx(expected)


def test_predictions(client, folders):
    predictor = library.load_predictor(folders["texts"])
    expected = predictor.describe(TEXTS, predictor.predict(TEXTS))
    found = ask(client, "/predict", model="texts", inputs=TEXTS)["predictions"]
    assert [each["label"] for each in found] == [each["label"] for each in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours["probabilities"] == pytest.approx(theirs["probabilities"], abs=1e-5)
    assert ask(client, "/predict", model="texts", inputs=TEXTS[0])["predictions"][0]["label"] == found[0]["label"]
    pair = ask(client, "/predict", model="texts", inputs=[["the river", "bread"]])["predictions"][0]
    assert pair["pair"] == "bread"


def test_answers_and_tags(client, folders):
    predictor = library.load_predictor(folders["answers"])
    found = ask(client, "/answer", question="the garden", passage="the river and a bridge")
    expected = predictor.predict([("the garden", "the river and a bridge")])[0]
    assert (found["answer"], found["start"], found["end"]) == (expected.answer, expected.start, expected.end)
    assert found["has_answer"] == bool(expected.answer)
    tagged = ask(client, "/tag", text="the silver bridge")
    assert tagged["model"] == "tags" and tagged["words"] == ["the", "silver", "bridge"] and len(tagged["tags"]) == 3


def test_choices_numbers_and_similarity(client, folders):
    question = {"context": "the river", "choices": ["a garden", "bread", "the lantern"]}
    for name, item in (("choices", question), ("numbers", ["the river", "bread"]), ("alike", ["a river", "bread"])):
        predictor = library.load_predictor(folders[name])
        asked = tuple(item) if isinstance(item, list) else item
        (expected,) = predictor.describe([asked], predictor.predict([asked]))
        (found,) = ask(client, "/predict", model=name, inputs=[item])["predictions"]
        for key in ("probabilities", "value", "similarity"):
            assert key not in expected or found[key] == pytest.approx(expected[key], abs=1e-5)
        assert found.keys() == expected.keys()


def test_the_same_answer_alone_as_in_a_batch(client, folders):
    """Requests from many clients at once, which share batches, against each text alone."""
    model, predictor = library.load(folders["first"]), library.load_predictor(folders["texts"])
    texts = [f"{text} {word}" for text in TEXTS for word in ("", "the garden", "of letters and windows")]
    with ThreadPoolExecutor(12) as clients:
        vectors = list(clients.map(lambda text: ask(client, "/v1/embeddings", model="first", input=text), texts))
        labels = list(clients.map(lambda text: ask(client, "/predict", model="texts", inputs=[text]), texts))
    for text, vector, label in zip(texts, vectors, labels, strict=True):
        assert vector["data"][0]["embedding"] == pytest.approx(model.embed(text, normalize=True)[0], abs=1e-5)
        expected = predictor.predict([text])[0].probabilities
        assert label["predictions"][0]["probabilities"] == pytest.approx(expected, abs=1e-5)


def test_pictures(client):
    assert [cell["text"] for cell in ask(client, "/show/tokens", text="the river")["token_rows"][0]["cells"]][
        1
    ] == "the"
    assert len(ask(client, "/show/masking", text="the river of bread", num=3, unit="word")["token_rows"]) == 3
    assert ask(client, "/show/attention", model="gpt", text="the river")["attention"]["num_layers"] == 2
    assert ask(client, "/show/answer", question="the", passage="the river")["tables"][0]["headings"][1] == "start"
    texts = {"text": "the river", "pair": "bread"}
    for name, first, last in (("first", "[CLS]", "[SEP]"), ("gpt", "_start_", "_classify_")):
        cells = ask(client, "/show/forms", model=name, **texts)["token_rows"][1]["cells"]
        assert (cells[0]["text"], cells[-1]["text"]) == (first, last)


@pytest.mark.parametrize("name", ["first", "texts", "gpt"])
def test_the_parameters_of_a_served_model(client, folders, name):
    expected = show_parameters(folders[name])
    found = ask(client, "/show/parameters", model=name)
    assert found["title"] == f"Parameters of {name}" and found["notes"] == expected.notes
    assert [table["rows"] for table in found["tables"]] == [list(map(list, table.rows)) for table in expected.tables]


def test_the_parameters_of_int8_weights(folders):
    expected = show_parameters(folders["gpt"]).tables[-1].rows[0][1]
    (served,) = open_models([str(folders["gpt"])], weights="int8").values()
    assert served.show_parameters("en")["tables"][-1]["rows"][0][1] == expected


def test_attention_is_that_of_hornbook_show(client, folders):
    for name in ("first", "gpt"):
        found = ask(client, "/show/attention", model=name, text="the river", pair="bread")
        models = [(name, library.load(folders[name]))]
        assert found["attention"] == show_all_attention(models, "the river", "bread").attention


def test_pictures_in_korean(client):
    """Every text of a picture but the tokens."""
    for path, body in (
        ("/show/tokens", {"text": "the ☃ river"}),
        ("/show/masking", {"text": "the river of bread", "probability": 0.5}),
        ("/show/attention", {"text": "the river"}),
        ("/show/answer", {"question": "the", "passage": "the river"}),
        ("/show/forms", {"text": "the river", "pair": "bread"}),
        ("/show/forms", {"text": "the river", "pair": "bread", "model": "gpt"}),
        ("/show/parameters", {}),
    ):
        found = ask(client, path, language="ko", **body)
        headings = [each for table in found["tables"] for each in table["headings"] if each]
        labels = [token_row["label"] for token_row in found["token_rows"]]
        labels += [table["title"] for table in found["tables"] if table["title"]]
        labels += [row[0] for table in found["tables"] for row in table["rows"] if path == "/show/parameters"]
        for text in (found["title"], *found["notes"], *headings, *labels, *found["legend"].values()):
            assert re.search("[가-힣]", text), (path, text)
    assert "literal_error" not in refusal(client, "/show/tokens", 422, text="a", language="fr")


def num_generated(client) -> float:
    found = re.search(r'hornbook_generated_tokens_total{model="gpt"} ([\d.]+)', client.get("/metrics").text)
    return float(found[1]) if found else 0.0


def test_status_pages(client):
    assert client.get("/health").json() == {"status": "alive"} and client.get("/ready").json() == {"ready": True}
    ask(client, "/v1/embeddings", model="first", input="the river")
    before = num_generated(client)
    completion = {"model": "gpt", "prompt": "the river", "max_tokens": 3, "temperature": 0}
    num_tokens = ask(client, "/v1/completions", **completion)["usage"]["completion_tokens"]
    assert client.post("/v1/completions", json=completion | {"stream": True}).text.endswith("data: [DONE]\n\n")
    assert num_generated(client) == before + 2 * num_tokens > before
    metrics = client.get("/metrics").text
    assert 'hornbook_requests_total{path="/v1/embeddings",status="200"}' in metrics
    assert (
        'hornbook_batch_tokens_sum{model="first"}' in metrics and 'hornbook_waiting_requests{model="gpt"} 0' in metrics
    )


def test_the_description_lists_every_route(client):
    paths = client.get("/openapi.json").json()["paths"]
    expected = {"/predict", "/fill-mask", "/answer", "/tag", "/detect", "/next-sentence", "/show/attention"}
    assert expected | {"/v1/embeddings", "/v1/completions", "/health", "/ready", "/metrics"} <= set(paths)
    assert all(route.get("description") for methods in paths.values() for route in methods.values())


def test_names_of_models(folders, tmp_path):
    (tmp_path / "first").symlink_to(folders["first"])
    names = [str(folders["first"]), str(tmp_path / "first"), str(folders["gpt"])]
    assert list(open_models(names)) == [names[0], names[1], "gpt"]
    with pytest.raises(ValueError, match="is given twice"):
        open_models([names[2], names[2]])


def test_paths_behind_an_answer(client, kagnet):
    assert "no model here can do explain" in refusal(client, "/explain", 422, question="what?", choices=["a", "b"])
    asked = {"question": "With what?", "choices": ["trowel", "excavator"], "context": "They dug the ground."}
    with TestClient(build_app(open_models([str(kagnet)]), SETTINGS)) as served:
        found = ask(served, "/explain", **asked)
        assert "at least 2 items" in refusal(served, "/explain", 422, question="what?", choices=["a"])
    expected = library.explain(kagnet, asked["question"], asked["choices"], asked["context"])
    assert (found["answer"], found["question"]) == (expected.answer, expected.question)
    for ours, theirs in zip(found["choices"], expected.choices, strict=True):
        assert ours["probability"] == pytest.approx(theirs.probability, abs=1e-6)
        assert [each["text"] for each in ours["paths"]] == [str(each.path) for each in theirs.paths]
        concepts = set(re.findall(r'class="concept"[^>]*>([^<]*)</text>', ours["drawn"]))
        assert concepts >= {"ground", ours["text"]} and "<svg" in ours["drawn"]
