import pytest
from stories import story


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory):
    from hornbook.text.training import train_tokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(story(0, 60).split("\n\n"), kind="wordpiece", vocab_size=300, cased=False).save(folder)
    return folder
