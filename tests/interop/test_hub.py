"""What a person types, to a folder."""

from fnmatch import fnmatch

import huggingface_hub
import pytest

from hornbook.interop import hub
from hornbook.interop.hub import model_folder
from hornbook.report.info import describe
from hornbook.runs.pretraining import presets


@pytest.mark.parametrize(
    "name", ["no-such-model", "owner/no-such-model", "runs/nothing", "a b", "a:b", "C:\\models\\x"]
)
def test_name_that_is_not_in_the_cache(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the working folder may hold runs/
    with pytest.raises(ValueError, match="no model of that name could be downloaded") as raised:
        model_folder(name)
    assert "\n" not in str(raised.value)


def test_presets_are_not_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert set(hub.PRESETS.split()) == set(presets.PRESETS)
    with pytest.raises(ValueError, match=r"bert-tiny is a preset, not a model: .* or a built-in model"):
        model_folder("bert-tiny")
    with pytest.raises(ValueError, match="'hornbook plan bert-tiny' describes it"):
        describe("bert-tiny")
    (tmp_path / "bert-tiny").mkdir()
    assert model_folder("bert-tiny").is_dir()


@pytest.mark.parametrize("name", ["./nothing", "/nothing/there", "~/nothing", "a/b/c"])
def test_path_that_does_not_exist(name):
    with pytest.raises(ValueError, match="there is no folder"):
        model_folder(name)


def test_a_path_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").mkdir()
    assert model_folder("~/model") == tmp_path / "model"


def test_file_instead_of_its_folder(tmp_path):
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ValueError, match="is a file: give the folder"):
        model_folder(tmp_path / "model.safetensors")


@pytest.mark.parametrize("file", ["merges.txt", "vocab.json", "task.json", "1_Pooling/config.json"])
def test_files_that_are_downloaded(file, tmp_path, monkeypatch):
    patterns = []

    def download(name, allow_patterns):
        patterns.extend(allow_patterns)
        return tmp_path

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert model_folder("owner/model") == tmp_path
    assert any(fnmatch(file, pattern) for pattern in patterns)
