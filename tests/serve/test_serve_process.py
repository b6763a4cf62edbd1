"""A real server process, used by OpenAI's client and by clients that go away."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import openai
import pytest
from small_gpts import saved_gpt

import hornbook as library
from hornbook.serve import server as server_module

LONG = 3000  # tokens: they take seconds


class Process:
    def __init__(self, *arguments):
        words = [sys.executable, "-m", "hornbook", "serve", *map(str, arguments), "--port", "0"]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"serving on (http://[\d.]+:(\d+))", line):
                self.address, self.port = found[1], int(found[2])
                return
        raise AssertionError("".join(self.lines))

    def get(self, path):
        with urllib.request.urlopen(f"{self.address}{path}", timeout=20) as found:
            return found.read().decode()

    def running(self) -> int:
        return int(float(re.search(r'hornbook_running_requests{model="gpt"} ([\d.]+)', self.get("/metrics"))[1]))

    def wait_for(self, number):
        end = time.monotonic() + 20
        while self.running() != number:
            assert time.monotonic() < end, self.running()
            time.sleep(0.02)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(30)
        self.rest = self.process.stderr.read()
        return status


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "gpt"
    saved_gpt(folder, end=None, n_positions=LONG + 100)
    return folder


@pytest.fixture(scope="module")
def server(gpt, tiny_run):
    process = Process(gpt, tiny_run, "--slots", 2)
    try:
        yield process
        assert process.stop() == 0
    finally:
        process.process.kill()


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0)


def test_embeddings(client, tiny_run):
    texts = ["the river", "a lantern and the garden"]
    expected = library.load(tiny_run).embed(texts, normalize=True)  # as OpenAI's are
    for settings in ({}, {"encoding_format": "float"}):  # by default the client asks for base64 and decodes it
        found = client.embeddings.create(model="run", input=texts, **settings)
        assert [each.embedding for each in found.data] == [pytest.approx(row, abs=1e-5) for row in expected]
    assert client.embeddings.create(model="run", input="the river").data[0].embedding == pytest.approx(
        expected[0], abs=1e-5
    )
    assert found.usage.prompt_tokens == sum(len(library.load(tiny_run).tokenizer.encode(text).ids) for text in texts)


def test_completions(client, gpt):
    model = library.load(gpt)
    expected = model.generate("the river", 12, temperature=0)[0]
    found = client.completions.create(model="gpt", prompt="the river", max_tokens=12, temperature=0)
    assert found.choices[0].text == expected.text and found.choices[0].finish_reason == "length"
    assert found.usage.completion_tokens == len(expected.ids) == 12
    assert found.usage.prompt_tokens == len(model.tokenizer.encode_batch(["the river"])[0].ids)
    sampled = client.completions.create(model="gpt", prompt=["the", "bread"], max_tokens=8, n=2, seed=5, top_p=0.9)
    expected = model.generate(["the", "bread"], 8, top_p=0.9, seed=5, num_return_sequences=2)
    assert [each.text for each in sampled.choices] == [each.text for samples in expected for each in samples]
    first = model.generate("the river", 12, temperature=0)[0].text
    stopped = client.completions.create(model="gpt", prompt="the river", max_tokens=12, temperature=0, stop=first[3:5])
    assert stopped.choices[0].text == first[: first.index(first[3:5])] and stopped.choices[0].finish_reason == "stop"


def test_streams(client, gpt):
    expected = library.load(gpt).generate(["the river", "한국어"], 20, seed=3)
    pieces = client.completions.create(
        model="gpt",
        prompt=["the river", "한국어"],
        max_tokens=20,
        seed=3,
        stream=True,
        stream_options={"include_usage": True},
    )
    texts, reasons, usage, num = ["", ""], [None, None], None, 0
    for piece in pieces:
        usage = piece.usage or usage
        for choice in piece.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
            num += 1
    assert texts == [samples[0].text for samples in expected] and reasons == ["length", "length"]
    assert usage.completion_tokens == 40 and num > 10


def test_errors_of_the_client_library(client):
    with pytest.raises(openai.NotFoundError, match="there is no model 'other'"):
        client.completions.create(model="other", prompt="the")
    with pytest.raises(openai.UnprocessableEntityError, match="cannot do embed"):
        client.embeddings.create(model="gpt", input="the")


def test_a_client_that_goes_away_frees_its_slot(server, client):
    server.wait_for(0)
    stream = client.completions.create(model="gpt", prompt="the", max_tokens=LONG, stream=True)
    next(iter(stream))
    server.wait_for(1)
    stream.close()
    server.wait_for(0)
    body = json.dumps({"model": "gpt", "prompt": "the", "max_tokens": LONG}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        server.wait_for(1)
    server.wait_for(0)


def test_a_broken_request_does_no_harm(server):
    for sent in (b"nonsense\r\n\r\n", b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(sent)
    assert json.loads(server.get("/health")) == {"status": "alive"}


@pytest.mark.faults
def test_sigterm_finishes_what_runs(gpt, request):
    process = Process(gpt)
    request.addfinalizer(process.process.kill)
    client = openai.OpenAI(base_url=f"{process.address}/v1", api_key="none", max_retries=0)
    stream = client.completions.create(model="gpt", prompt="the", max_tokens=400, temperature=0, stream=True)
    text = next(iter(stream)).choices[0].text
    stopped = threading.Thread(target=process.stop)
    stopped.start()
    text += "".join(piece.choices[0].text for piece in stream)
    stopped.join()
    assert text == library.load(gpt).generate("the", 400, temperature=0)[0].text
    assert process.process.returncode == 0 and process.rest == "stopped\n"
    with pytest.raises(OSError):
        process.get("/health")


@pytest.mark.faults
def test_a_second_ctrl_c_stops_at_once_without_a_traceback(gpt, request):
    process = Process(gpt)
    request.addfinalizer(process.process.kill)
    client = openai.OpenAI(base_url=f"{process.address}/v1", api_key="none", max_retries=0)
    stream = client.completions.create(model="gpt", prompt="the", max_tokens=LONG, temperature=0, stream=True)
    next(iter(stream))
    for _ in range(2):
        process.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    assert process.process.wait(30) == 0
    assert process.process.stderr.read() == "stopped\n"


def test_an_open_server_needs_a_key(hornbook, gpt):
    said = hornbook("serve", gpt, "--host", "0.0.0.0", "--port", 0)
    assert said.status == 2 and said.error.startswith("hornbook: 0.0.0.0 can be reached by others: add --api-key")


DAY = "above 0 and at most 86,400"


@pytest.mark.parametrize(("seconds", "range"), [("0", "above 0"), ("inf", DAY), ("nan", DAY)])
def test_a_timeout_is_a_time(hornbook, gpt, seconds, range):
    said = hornbook("serve", gpt, "--port", 0, f"--timeout={seconds}")
    assert f"hornbook: --timeout must be {range}, not {seconds}\n" in said.stderr


def test_a_port_in_use_and_a_missing_model_are_refused(hornbook, server, gpt):
    assert "choose another port" in hornbook("serve", gpt, "--port", server.port).error
    assert "there is no folder ./nothing" in hornbook("serve", "./nothing", "--port", 0).error


def test_a_port_is_taken_while_the_models_are_still_loading(monkeypatch, gpt):
    def load(*_):
        with pytest.raises(ValueError, match="choose another port"):
            server_module._listen("127.0.0.1", ports[0])
        raise ValueError("loaded")

    ports, listen = [], server_module._listen
    monkeypatch.setattr(server_module, "open_models", load)
    with listen("127.0.0.1", 0) as free:
        ports.append(free.getsockname()[1])
    with pytest.raises(ValueError, match="loaded"):
        server_module.serve([str(gpt)], port=ports[0])


def test_missing_packages_are_named(hornbook, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("hornbook.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    error = "hornbook: serving needs the package uvicorn, which is not installed: pip install 'hornbook[serve]'\n"
    assert hornbook("serve").error == error


def test_the_built_in_models_are_served_without_a_name():
    server = Process()
    found = {each["name"]: each["language"] for each in json.loads(server.get("/models"))["models"]}
    assert server.stop() == 0 and found == {"en": "en", "ko": "ko"}


def test_a_connection_may_be_idle_for_longer_than_clients_keep_it(server):
    """Clients such as httpx close idle connections after 5 seconds; a server that did so too might close one on which a
    request is under way."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.connect()
    connection.auto_open = False  # a request on a closed connection fails
    for pause in (5.5, 0):
        connection.request("GET", "/health")
        assert connection.getresponse().read()
        time.sleep(pause)
    connection.close()
