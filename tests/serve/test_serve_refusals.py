"""What the HTTP API refuses: invalid requests, in one sentence, and those of others."""

import pytest
from fastapi.testclient import TestClient
from served_api import JSON, ask, refusal

from hornbook.serve.api import ServeSettings
from hornbook.serve.models import open_models
from hornbook.serve.server import build_app


def test_refusals_are_one_sentence(client, folders):
    assert refusal(client, "/fill-mask", 422, text="no mask").startswith("the text has no mask")
    assert refusal(client, "/fill-mask", 404, text="[MASK]", model="other").startswith("there is no model 'other'")
    assert "the model gpt cannot do fill-mask" in refusal(client, "/fill-mask", 422, text="[MASK]", model="gpt")
    assert refusal(client, "/fill-mask", 422, text="[MASK]", topp=3) == (
        "the request is invalid: topp: Extra inputs are not permitted; its fields are model, text, top_k"
    )
    message = refusal(client, "/answer", 422, model="first", question="who?", passage="Ada")
    assert "the model first cannot answer questions about a passage (fine-tune one with --task spans)" in message
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


def test_an_unknown_field_is_refused_with_the_names_of_the_known_ones(client):
    message = refusal(client, "/predict", 422, model="texts", texts=["the river"], inputs=["the river"])
    assert message == "the request is invalid: texts: Extra inputs are not permitted; its fields are model, inputs"


def test_embeddings_take_texts_only(client):
    assert "send texts" in refusal(client, "/v1/embeddings", 422, model="first", input=[1, 2])
    assert "have 32 dimensions" in refusal(client, "/v1/embeddings", 422, model="first", input="a", dimensions=8)
    assert "give 1 to 2048" in refusal(client, "/v1/embeddings", 422, model="first", input=[])


def test_completions_refuse_what_they_would_ignore(client):
    for name, value in (("logprobs", 3), ("logprobs", 0), ("suffix", "x"), ("best_of", 4), ("presence_penalty", 0.5)):
        message = refusal(client, "/v1/completions", 422, model="gpt", prompt="the", **{name: value})
        assert message == f"{name} is not supported: leave it out"
    ask(client, "/v1/completions", model="gpt", prompt="the", max_tokens=2, n=None, best_of=1)
    many = refusal(client, "/v1/completions", 422, model="gpt", prompt="the", stop=["x"] * 17)
    assert "List should have at most 16 items" in many
    assert "lower n" in refusal(client, "/v1/completions", 422, model="gpt", prompt=["the"] * 20, n=10)
    assert "set n to 1" in refusal(client, "/v1/completions", 422, model="gpt", prompt="the", n=2, temperature=0)
    assert "more than the model's context" in refusal(client, "/v1/completions", 422, model="gpt", prompt="the " * 3000)


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


def test_a_failure_is_no_secret_and_no_crash(folders, monkeypatch):
    models = open_models([str(folders["first"])])

    def fail(texts):
        raise RuntimeError("something of the inside")

    with TestClient(build_app(models, ServeSettings()), raise_server_exceptions=False) as client:
        monkeypatch.setattr(models["first"].loaded, "embed", fail)
        message = refusal(client, "/v1/embeddings", 500, model="first", input="the river")
        assert message == "the server failed on this request: its log has the reason"
        assert ask(client, "/fill-mask", text="the [MASK]")["masks"]


def test_inputs_without_words_are_refused(client):
    assert refusal(client, "/predict", 422, model="tags", inputs=["the river", " "]) == (
        "input 2 of 2 has no words: leave it out"
    )
    assert "has no words" in refusal(client, "/tag", 422, text="\x85")
    assert "no tokens that can be masked" in refusal(client, "/show/masking", 422, text="☃")


def test_too_many_predictions_of_masks_are_refused(client):
    message = refusal(client, "/fill-mask", 422, text="[MASK] " * 21, top_k=1000)
    assert message.startswith("the request asks for 1000 predictions for each of 21 masks: ask for at most 2,048 masks")
    assert "each of 2,049 masks" in refusal(client, "/fill-mask", 422, text=["[MASK] " * 683] * 3, top_k=1)
    assert len(ask(client, "/fill-mask", text="[MASK] " * 20, top_k=1000)["masks"]) == 20


def test_a_long_prompt_is_refused_without_an_option_of_python(client):
    assert refusal(client, "/v1/completions", 422, model="gpt", prompt="the " * 900).endswith(": shorten it")


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
        ({"text": ""}, "text: must not be empty"),
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
