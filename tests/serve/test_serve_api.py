"""The HTTP API answers what the Python API answers, and refuses in one sentence."""

import asyncio
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import pytest
from fastapi.testclient import TestClient

import hornbook as library
from hornbook.serve.api import ServeSettings
from hornbook.serve.models import open_models
from hornbook.serve.run_curves import list_runs
from hornbook.serve.server import build_app
from hornbook.show.attention import show_all_attention
from hornbook.show.parameters import show_parameters

SETTINGS = ServeSettings(timeout=20.0, max_bytes=50_000)
JSON = {"Content-Type": "application/json"}
TEXTS = ["the river", "a lantern of the teacher and the garden", "bread", "the silver bridge of the harbour"]


@pytest.fixture(scope="module")
def client(folders):
    with TestClient(build_app(open_models([str(folder) for folder in folders.values()]), SETTINGS)) as client:
        yield client


def ask(client, path, status=200, **body):
    found = client.post(path, json=body)
    assert found.status_code == status, found.text
    return found.json()


def refusal(client, path, status, **body):
    return ask(client, path, status, **body)["error"]["message"]


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
    assert [cell["text"] for cell in ask(client, "/show/tokens", text="the river")["strips"][0]["cells"]][1] == "the"
    assert len(ask(client, "/show/masking", text="the river of bread", num=3, unit="word")["strips"]) == 3
    assert ask(client, "/show/attention", model="gpt", text="the river")["attention"]["num_layers"] == 2
    assert ask(client, "/show/answer", question="the", passage="the river")["tables"][0]["headings"][1] == "start"
    texts = {"text": "the river", "pair": "bread"}
    for name, first, last in (("first", "[CLS]", "[SEP]"), ("gpt", "_start_", "_classify_")):
        cells = ask(client, "/show/forms", model=name, **texts)["strips"][1]["cells"]
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
        labels = [strip["label"] for strip in found["strips"]]
        labels += [table["title"] for table in found["tables"] if table["title"]]
        labels += [row[0] for table in found["tables"] for row in table["rows"] if path == "/show/parameters"]
        for text in (found["title"], *found["notes"], *headings, *labels, *found["legend"].values()):
            assert re.search("[가-힣]", text), (path, text)
    assert "literal_error" not in refusal(client, "/show/tokens", 422, text="a", language="fr")


def test_refusals_are_one_sentence(client, folders):
    assert refusal(client, "/fill-mask", 422, text="no mask").startswith("the text has no mask")
    assert refusal(client, "/fill-mask", 404, text="[MASK]", model="other").startswith("there is no model 'other'")
    assert "the model gpt cannot do fill-mask" in refusal(client, "/fill-mask", 422, text="[MASK]", model="gpt")
    assert refusal(client, "/fill-mask", 422, text="[MASK]", topp=3) == (
        "the request is invalid: topp: Extra inputs are not permitted; its fields are model, text, top_k"
    )
    assert "no model here can do detect" in refusal(client, "/detect", 422, text="the river")
    long = refusal(client, "/fill-mask", 422, text="the [MASK] " * 300)
    assert "more than the model's maximum" in long
    wrong = refusal(client, "/predict", 422, model="answers", inputs=["only a text"])
    assert "this model takes a (question, passage)" in wrong
    deep = "the river"
    for _ in range(10):
        deep = [deep]
    assert "nested too deeply" in refusal(client, "/predict", 422, inputs=[deep])
    surrogate = client.post("/fill-mask", content=b'{"text": "[MASK] \\ud800"}', headers=JSON)
    assert surrogate.status_code == 422
    for path, body in (
        ("/predict", b"[" * 40_000),
        ("/predict", b"{"),
        ("/predict", b"[]"),
        ("/predict", b"\xff"),
        ("/fill-mask", b""),
    ):
        found = client.post(path, content=body, headers=JSON)
        assert found.status_code in (400, 422) and found.json()["error"]["message"]
    unfinished = client.post("/predict", content=b'{"text": "the', headers=JSON).json()["error"]["message"]
    assert unfinished == "the body is not valid JSON at character 10: Unterminated string"
    assert client.get("/nothing").status_code == 404 and client.get("/predict").status_code == 405


def test_no_path_of_a_request_reaches_the_file_system(client, folders):
    for name in (str(folders["first"]), "../first", "/etc", "en"):
        assert refusal(client, "/fill-mask", 404, text="[MASK]", model=name).startswith("there is no model")
    for path in ("/../api.py", "/page/../api.py", "/%2e%2e/api.py", "/page/app.js"):
        assert client.get(path).status_code == 404
    message = refusal(client, "/fill-mask", 422, text="[MASK]", model="gpt")
    assert str(folders["gpt"].parent) not in message


def test_large_bodies_are_refused(client):
    assert "larger than 50,000 bytes" in refusal(client, "/fill-mask", 413, text="x" * 60_000)

    def pieces():
        for _ in range(100):
            yield b" " * 1000

    found = client.post("/fill-mask", content=pieces(), headers={"Content-Type": "application/json"})
    assert found.status_code == 413


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


def test_an_unknown_field_is_refused_with_the_names_of_the_known_ones(client):
    message = refusal(client, "/predict", 422, model="texts", texts=["the river"], inputs=["the river"])
    assert message == "the request is invalid: texts: Extra inputs are not permitted; its fields are model, inputs"


def test_embeddings_take_texts_only(client):
    assert "send texts" in refusal(client, "/v1/embeddings", 422, model="first", input=[1, 2])
    assert "have 32 dimensions" in refusal(client, "/v1/embeddings", 422, model="first", input="a", dimensions=8)
    assert "give 1 to 2048" in refusal(client, "/v1/embeddings", 422, model="first", input=[])


def test_completions_refuse_what_they_would_ignore(client):
    for name, value in (("logprobs", 3), ("suffix", "x"), ("best_of", 4), ("presence_penalty", 0.5)):
        message = refusal(client, "/v1/completions", 422, model="gpt", prompt="the", **{name: value})
        assert message == f"{name} is not supported: leave it out"
    many = refusal(client, "/v1/completions", 422, model="gpt", prompt="the", stop=["x"] * 17)
    assert "List should have at most 16 items" in many
    assert "lower n" in refusal(client, "/v1/completions", 422, model="gpt", prompt=["the"] * 20, n=10)
    assert "set n to 1" in refusal(client, "/v1/completions", 422, model="gpt", prompt="the", n=2, temperature=0)
    assert "more than the model's context" in refusal(client, "/v1/completions", 422, model="gpt", prompt="the " * 3000)


class Blocked:
    """Holds the thread of a model until it is released."""

    def __init__(self, monkeypatch, model):
        self.started, self.released = threading.Event(), threading.Event()
        embed = model.loaded.embed

        def slow(texts):
            self.started.set()
            assert self.released.wait(20)
            return embed(texts)

        monkeypatch.setattr(model.loaded, "embed", slow)


def test_a_full_queue_answers_429(folders, monkeypatch):
    models = open_models([str(folders["first"])])
    blocked = Blocked(monkeypatch, models["first"])
    with TestClient(build_app(models, ServeSettings(max_queue=1))) as client, ThreadPoolExecutor(4) as clients:
        running = clients.submit(ask, client, "/v1/embeddings", model="first", input="the river")
        assert blocked.started.wait(20)
        waiting = clients.submit(ask, client, "/v1/embeddings", model="first", input="bread")
        while not models["first"].engine.waiting:
            pass
        refused = client.post("/v1/embeddings", json={"model": "first", "input": "more"})
        assert refused.status_code == 429 and int(refused.headers["Retry-After"]) >= 1
        assert "try again in" in refused.json()["error"]["message"]
        blocked.released.set()
        assert running.result()["data"] and waiting.result()["data"]


def test_a_request_ends_after_its_time(folders, monkeypatch):
    models = open_models([str(folders["first"])])
    blocked = Blocked(monkeypatch, models["first"])
    with TestClient(build_app(models, ServeSettings(timeout=0.2))) as client:
        assert "took longer than 0.2 s" in refusal(client, "/v1/embeddings", 504, model="first", input="the river")
        assert "took longer" in refusal(client, "/v1/embeddings", 504, model="first", input="waits behind it")
        assert not models["first"].engine.waiting or models["first"].engine.waiting[0].is_cancelled
        blocked.released.set()


def test_a_stream_ends_after_its_time(folders, monkeypatch):
    """The time until the first token counts."""
    models = open_models([str(folders["gpt"])])
    calls, step = [], models["gpt"].loaded.model.next_token_logits

    def slow(x):
        time.sleep(0.1 if calls else 1.6)
        calls.append(x)
        return step(x)

    monkeypatch.setattr(models["gpt"].loaded.model, "next_token_logits", slow)
    asked = {"model": "gpt", "prompt": "the", "max_tokens": 400, "stream": True}
    with TestClient(build_app(models, ServeSettings(timeout=2.0))) as client:
        started = time.monotonic()
        found = client.post("/v1/completions", json=asked).text
        assert time.monotonic() - started < 3.2
    assert "took longer than 2 s" in found.strip().splitlines()[-1]


def test_a_stream_that_fails_ends_with_an_error(folders, monkeypatch, caplog):
    models = open_models([str(folders["gpt"])])
    calls, step = [], models["gpt"].loaded.model.next_token_logits

    def fail_at_fourth(x):
        calls.append(x)
        if len(calls) == 4:
            time.sleep(1)  # the stream has begun by then
            raise RuntimeError("something of the inside")
        return step(x)

    monkeypatch.setattr(models["gpt"].loaded.model, "next_token_logits", fail_at_fourth)
    asked = {"model": "gpt", "prompt": "the river", "max_tokens": 40, "stream": True}
    with TestClient(build_app(models, SETTINGS)) as client:
        found = client.post("/v1/completions", json=asked)
    error = json.loads(found.text.strip().splitlines()[-1].removeprefix("data: "))["error"]
    assert error["code"] == 500 and error["message"] == "the server failed on this request: its log has the reason"
    assert "something of the inside" in caplog.text and "of the inside" not in found.text


def test_a_key_is_needed_where_one_is_set(folders):
    with TestClient(build_app(open_models([str(folders["first"])]), ServeSettings(api_key="secret"))) as client:
        assert "the API key is missing or wrong" in refusal(client, "/fill-mask", 401, text="the [MASK]")
        for key in ("Bearer wrong", "Bearer sécret", "secret2"):
            headers = {"Authorization": key.encode("latin-1")}
            assert client.get("/models", headers=headers).status_code == 401
        for scheme in ("Bearer", "bearer"):
            headers = {"Authorization": f"{scheme} secret"}
            assert client.get("/models", headers=headers).status_code == 200
        assert client.get("/metrics").status_code == 401 and client.get("/openapi.json").status_code == 401
        assert all(client.get(path).status_code == 200 for path in ("/", "/app.js", "/health", "/ready"))


def test_a_key_that_is_not_ascii(folders):
    with TestClient(build_app(open_models([str(folders["first"])]), ServeSettings(api_key="비밀"))) as client:
        assert client.get("/models", headers={"Authorization": "Bearer 비밀".encode()}).status_code == 200


def test_texts_are_logged_only_if_asked(folders, capfd):
    for log in (None, []):
        settings = ServeSettings(log_text=None if log is None else log.append)
        with TestClient(build_app(open_models([str(folders["first"])]), settings)) as client:
            ask(client, "/fill-mask", text="a secret [MASK]")
            for path in ("/show/tokens", "/show/attention", "/show/forms"):
                ask(client, path, text="the secret", pair="bread", language="ko")
        assert log in (None, ["a secret [MASK]", *["the secret", "bread"] * 3])
    assert "secret" not in "".join(capfd.readouterr())


def test_other_names_of_this_machine_are_refused(folders):
    """A page elsewhere could otherwise reach the server by a name that resolves to this machine."""
    settings = ServeSettings(hosts=("localhost", "127.0.0.1", "[::1]"))
    with TestClient(build_app(open_models([str(folders["first"])]), settings), base_url="http://localhost") as client:
        assert client.get("/models").status_code == 200
        assert client.get("/models", headers={"Host": "[::1]:8000"}).status_code == 200
        refused = client.get("/models", headers={"Host": "elsewhere.example"})
        assert refused.status_code == 400 and "not known by this name" in refused.json()["error"]["message"]


def test_pages_of_other_sites_are_refused(folders):
    settings = ServeSettings(hosts=("localhost", "127.0.0.1", "[::1]"))
    with TestClient(
        build_app(open_models([str(folders["first"])]), settings), base_url="http://localhost:8000"
    ) as client:
        body = b'{"text": "the [MASK]"}'
        for origin in ("https://elsewhere.example", "http://localhost:3000", "null"):
            refused = client.post("/fill-mask", content=body, headers={"Origin": origin} | JSON)
            assert refused.status_code == 403 and "other sites" in refused.json()["error"]["message"]
        assert client.post("/fill-mask", content=body).status_code == 422  # as a page sends a blob without a type
        own = {"Origin": "http://localhost:8000"} | JSON
        assert client.post("/fill-mask", content=body, headers=own).status_code == 200


def test_a_client_that_leaves_before_its_body_is_counted_as_gone(folders):
    app = build_app(open_models([str(folders["first"])]), SETTINGS)
    scope = {"type": "http", "method": "POST", "path": "/fill-mask", "headers": []}

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        pass

    with TestClient(app) as client:
        asyncio.run(app(scope, receive, send))
        assert 'hornbook_requests_total{path="other",status="499"} 1.0' in client.get("/metrics").text


def test_names_of_models(folders, tmp_path):
    (tmp_path / "first").symlink_to(folders["first"])
    names = [str(folders["first"]), str(tmp_path / "first"), str(folders["gpt"])]
    assert list(open_models(names)) == [names[0], names[1], "gpt"]
    with pytest.raises(ValueError, match="is given twice"):
        open_models([names[2], names[2]])


def test_runs_and_their_curves(folders, tmp_path):
    run = tmp_path / "runs" / "first"
    run.mkdir(parents=True)
    for name in ("run.json", "config.json", "metrics.jsonl"):
        (run / name).write_bytes((folders["first"] / name).read_bytes())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    expected = {
        kind: [[row["step"], row["loss"]] for row in lines if row["kind"] == kind] for kind in ("train", "validation")
    }
    models = open_models([str(folders["first"])])
    with TestClient(build_app(models, ServeSettings(runs=tmp_path / "runs"))) as client:
        (found,) = client.get("/runs").json()["runs"]
        assert found["name"] == "first" and found["num_steps"] == 3 and client.get("/models").json()["has_runs"]
        for kind, points in expected.items():
            assert [point[:2] for point in found["curves"][kind]] == points
        with (run / "metrics.jsonl").open("a") as file:  # a run that goes on, in the middle of a line
            file.write('{"kind": "train", "step": 4, "loss": 1.5}\n{"kind": "train", "st')
        (found,) = client.get("/runs").json()["runs"]
        assert found["curves"]["train"][-1] == [4, 1.5, None]


def run_folder(folder, source, terms, task=None):
    """A folder with the record of the run `source` and a line of metrics with these loss terms."""
    folder.mkdir(parents=True)
    about = json.loads((source / "run.json").read_text(encoding="utf-8")) | ({"task": task} if task else {})
    (folder / "run.json").write_text(json.dumps(about), encoding="utf-8")
    (folder / "metrics.jsonl").write_text(json.dumps({"kind": "train", "step": 1, "loss": 2.0, **terms, "lr": 0.1}))


def test_runs_have_an_objective_and_samples(folders, tmp_path):
    run_folder(tmp_path / "bert", folders["first"], {"mlm": 1.5, "nsp": 0.5})
    run_folder(tmp_path / "task", folders["texts"], {"task": 2.0}, "rte")
    run_folder(tmp_path / "vectors", folders["first"], {"epoch": 1})
    samples = json.loads((folders["first"] / "samples.json").read_text(encoding="utf-8"))
    (tmp_path / "bert" / "samples.json").write_text(json.dumps(samples), encoding="utf-8")
    (tmp_path / "task" / "samples.json").write_text("damaged")
    found = {run["name"]: run for run in list_runs(tmp_path)}
    objectives = {name: run["objective"] for name, run in found.items()}
    assert objectives == {"bert": "mlm + nsp", "task": "rte", "vectors": "pretrain"}
    assert found["task"]["samples"] == [] and found["vectors"]["samples"] == []
    for ours, stored in zip(found["bert"]["samples"], samples, strict=True):
        assert "[MASK]".join(ours["parts"]) == stored["text"] and ours["answer"] == stored["answer"]
        assert ours["guesses"] == stored["guesses"]


def test_runs_are_shown_only_if_asked(client):
    found = client.get("/runs")
    assert found.status_code == 404 and "--runs" in found.json()["error"]["message"]


def test_a_folder_of_runs_that_was_removed(folders, tmp_path):
    (tmp_path / "runs").mkdir()
    with TestClient(build_app(open_models([str(folders["first"])]), ServeSettings(runs=tmp_path / "runs"))) as client:
        assert client.get("/runs").json() == {"runs": []}
        (tmp_path / "runs").rmdir()
        found = client.get("/runs")
        assert found.status_code == 404 and "is not a folder" in found.json()["error"]["message"]


def test_a_failure_is_no_secret_and_no_crash(folders, monkeypatch):
    models = open_models([str(folders["first"])])

    def fail(texts):
        raise RuntimeError("something of the inside")

    with TestClient(build_app(models, ServeSettings()), raise_server_exceptions=False) as client:
        monkeypatch.setattr(models["first"].loaded, "embed", fail)
        message = refusal(client, "/v1/embeddings", 500, model="first", input="the river")
        assert message == "the server failed on this request: its log has the reason"
        assert ask(client, "/fill-mask", text="the [MASK]")["masks"]


def test_a_stream_that_fails_has_the_status_of_its_error(client):
    message = refusal(client, "/v1/completions", 422, model="gpt", prompt="", stream=True)
    assert message.startswith("the prompt is empty")


def test_inputs_without_words_are_refused(client):
    assert refusal(client, "/predict", 422, model="tags", inputs=["the river", " "]) == (
        "input 2 of 2 has no words: leave it out"
    )
    assert "has no words" in refusal(client, "/tag", 422, text="\x85")
    assert "no tokens that can be masked" in refusal(client, "/show/masking", 422, text="☃")


def test_another_method_is_refused_with_those_that_are_allowed(client):
    found = client.get("/predict")
    assert found.status_code == 405 and found.headers["Allow"] == "POST"
    assert found.json()["error"]["message"] == "GET is not allowed here: use POST"


def test_numbers_in_quotes_are_refused(client):
    assert "top_k: Input should be a valid integer" in refusal(client, "/fill-mask", 422, text="the [MASK]", top_k="3")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "text: Field required"),
        ({"text": 5}, "text: Input should be a valid string or Input should be a valid list"),
        ({"text": ""}, "text: String should have at least 1 character"),
        ({"text": ["the [MASK]", 5]}, "text.1: Input should be a valid string"),
        ({"text": "the [MASK]", "top_k": 0}, "top_k: Input should be greater than or equal to 1"),
        (
            {"text": "the [MASK]", "top_k": 9999, "model": 3},
            "model: Input should be a valid string; top_k: Input should be less than or equal to 1000",
        ),
    ],
)
def test_invalid_fields_are_named_in_plain_words(client, fields, problem):
    assert refusal(client, "/fill-mask", 422, **fields) == f"the request is invalid: {problem}"


def test_a_route_that_does_not_exist(client):
    found = client.get("/nothing")
    assert found.status_code == 404
    assert found.json()["error"]["message"] == "/nothing does not exist: /openapi.json lists what does"


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
