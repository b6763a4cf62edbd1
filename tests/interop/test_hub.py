"""What a person types, to a folder."""

import pytest

from hornbook.interop.hub import model_folder


@pytest.mark.parametrize(
    "name", ["no-such-model", "owner/no-such-model", "runs/nothing", "a b", "a:b", "C:\\models\\x"]
)
def test_name_that_is_not_in_the_cache(name):
    with pytest.raises(ValueError, match="no model of that name could be downloaded") as raised:
        model_folder(name)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["./nothing", "/nothing/there", "~/nothing", "a/b/c"])
def test_path_that_does_not_exist(name):
    with pytest.raises(ValueError, match="there is no folder"):
        model_folder(name)


def test_file_instead_of_its_folder(tmp_path):
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ValueError, match="is a file: give the folder"):
        model_folder(tmp_path / "model.safetensors")
