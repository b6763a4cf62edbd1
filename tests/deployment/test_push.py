"""What is uploaded to the hub, and what is said when it cannot be."""

import json
import shutil

import huggingface_hub
import pytest
from finetuned import encoder as saved_encoder
from finetuned import finetuned, labelled_texts

import hornbook as library


class FakeHub:
    """Stands for `HfApi`; keeps what it is given."""

    def __init__(self):
        self.created, self.commits, self.error = [], [], None

    def __call__(self, **options):
        return self

    def create_repo(self, name, private, exist_ok):
        if self.error is not None:
            raise self.error
        self.created.append((name, private))
        owner_and_name = name if "/" in name else f"someone/{name}"
        return huggingface_hub.RepoUrl(f"https://huggingface.co/{owner_and_name}")

    def create_commit(self, name, operations, commit_message):
        self.commits.append((name, {each.path_in_repo: _bytes(each.path_or_fileobj) for each in operations}))


def _bytes(content):
    if isinstance(content, bytes):
        return content
    with open(content, "rb") as file:
        return file.read()


@pytest.fixture
def hub(monkeypatch):
    found = FakeHub()
    monkeypatch.setattr(huggingface_hub, "HfApi", found)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "a token")
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_tokenizer):
    folder = tmp_path_factory.mktemp("pushed")
    model = saved_encoder(folder / "encoder", tiny_tokenizer)
    finetuned(folder / "texts", model, "classification", labelled_texts())
    return folder / "texts"


def test_a_run_is_uploaded_with_its_card(hornbook, hub, run, tmp_path):
    said = hornbook("push", run, "me/texts", "--private", "--json")
    assert said.answer["url"] == "https://huggingface.co/me/texts" and hub.created == [("me/texts", True)]
    ((name, files),) = hub.commits
    assert name == "me/texts" and set(said.answer["files"]) == set(files)
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    assert files["README.md"] == (run / "README.md").read_bytes()
    assert "run.json" not in files and not any("checkpoint" in path or ".jsonl" in path for path in files)
    assert json.loads(files["task.json"]) == json.loads((run / "task.json").read_text())
    for path, content in files.items():  # what is uploaded opens, and predicts as the run
        (tmp_path / path).write_bytes(content)
    texts = ["the river", "a lantern"]
    expected = [each.label for each in library.load_predictor(run).predict(texts)]
    assert [each.label for each in library.load_predictor(tmp_path).predict(texts)] == expected


def test_graphs_are_uploaded_by_name_without_their_paths(hub, run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    graphs = {"reason": {"graph": "/home/me/graph", "vectors": None, "hops": 2}, "graph": {"folder": "/home/me/wiki"}}
    task = json.loads((run / "task.json").read_text())
    (tmp_path / "run" / "task.json").write_text(json.dumps(task | graphs))
    library.push(tmp_path / "run", "me/texts")
    graphs["reason"]["graph"], graphs["graph"]["folder"] = "graph", "wiki"
    assert json.loads(hub.commits[0][1]["task.json"]) == task | graphs


def test_a_model_without_a_card_gets_one(hub, tiny_run):
    found = library.push(tiny_run, "first")
    assert found.url == "https://huggingface.co/someone/first"
    ((name, files),) = hub.commits
    assert name == "someone/first"
    card = huggingface_hub.ModelCard(files["README.md"].decode())
    assert card.data.tags == ["hornbook", "bert"] and "A bert model, trained with Hornbook" in card.text


def test_a_dry_run_uploads_nothing(hornbook, hub, run):
    said = hornbook("push", run, "me/texts", "--dry-run")
    assert "model.safetensors" in said.stdout and "nothing is uploaded" in said.stderr
    assert not hub.created and not hub.commits


def test_refusals(hornbook, hub, run, tmp_path, monkeypatch):
    def refusal(*arguments):
        said = hornbook("push", *arguments)
        assert said.status == 2 and not hub.commits
        return said.error

    assert "'a/b/c' is not a name for the hub" in refusal(run, "a/b/c")
    assert "there is no folder" in refusal(tmp_path / "nothing", "me/x")
    assert "has no model: give a finished run" in refusal(tmp_path, "me/x")
    hub.error = ConnectionError("no route to host")
    assert "me/x could not be uploaded: the hub cannot be reached (no route to host)" in refusal(run, "me/x")
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    assert "there is no token for the hub: run hf auth login" in refusal(run, "me/x")


def test_the_hub_is_not_asked_when_offline(hornbook, run, monkeypatch):
    """With the real client: these tests set HF_HUB_OFFLINE."""
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "a token")
    assert "could not be uploaded: HF_HUB_OFFLINE is set: unset it" in hornbook("push", run, "me/x").error
