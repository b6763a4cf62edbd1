"""Requests to the HTTP API, for its tests."""

from hornbook.serve.api import ServeSettings

SETTINGS = ServeSettings(timeout=20.0, max_bytes=50_000)
JSON = {"Content-Type": "application/json"}
TEXTS = ["the river", "a lantern of the teacher and the garden", "bread", "the silver bridge of the harbour"]


def ask(client, path, status=200, **body):
    found = client.post(path, json=body)
    assert found.status_code == status, found.text
    return found.json()


def refusal(client, path, status, **body):
    return ask(client, path, status, **body)["error"]["message"]
