"""The limits of the HTTP API: a full queue, time-outs, streams that fail, and clients that leave."""

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient
from served_api import SETTINGS, ask, refusal
from starlette.requests import ClientDisconnect

from hornbook.serve.api import ServeSettings
from hornbook.serve.models import open_models
from hornbook.serve.server import build_app


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
    asked = {"model": "gpt", "prompt": "the river", "max_tokens": 40, "temperature": 0, "stream": True}
    with TestClient(build_app(models, SETTINGS)) as client:
        found = client.post("/v1/completions", json=asked)
    error = json.loads(found.text.strip().splitlines()[-1].removeprefix("data: "))["error"]
    assert error["code"] == 500 and error["message"] == "the server failed on this request: its log has the reason"
    assert "something of the inside" in caplog.text and "of the inside" not in found.text


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


def test_a_client_that_leaves_before_its_stream_begins_is_not_generated_for(folders, monkeypatch):
    models = open_models([str(folders["gpt"])])
    app = build_app(models, SETTINGS)
    jobs, submit = [], models["gpt"].generator.submit
    monkeypatch.setattr(models["gpt"].generator, "submit", lambda *given: jobs.append(submit(*given)) or jobs[-1])
    body = json.dumps({"model": "gpt", "prompt": "the", "max_tokens": 400, "stream": True}).encode()
    path, headers = "/v1/completions", [(b"content-type", b"application/json")]
    scope = {"type": "http", "asgi": {"spec_version": "2.4"}, "method": "POST", "path": path, "headers": headers}
    scope |= {"query_string": b"", "http_version": "1.1"}
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return messages.pop() if messages else await asyncio.Event().wait()

    async def send(message):
        raise OSError("the client is gone")

    with TestClient(app), pytest.raises(ClientDisconnect):
        asyncio.run(app(scope, receive, send))
    assert [job.is_cancelled for job in jobs] == [True]


def test_a_stream_that_fails_has_the_status_of_its_error(client):
    message = refusal(client, "/v1/completions", 422, model="gpt", prompt="", stream=True)
    assert message.startswith("the prompt is empty")
