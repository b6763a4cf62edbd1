"""Tiny models of every kind that is served."""

import pytest
from finetuned import asked_questions, encoder, finetuned, labelled_texts, tagged_words
from small_gpts import saved_gpt


@pytest.fixture(scope="session")
def folders(tmp_path_factory, tiny_tokenizer, tiny_run):
    root = tmp_path_factory.mktemp("served")
    model = encoder(root / "encoder", tiny_tokenizer)
    finetuned(root / "texts", model, "classification", labelled_texts())
    finetuned(root / "tags", model, "tagging", tagged_words())
    finetuned(root / "answers", model, "spans-or-none", asked_questions())
    saved_gpt(root / "gpt", end=None, n_positions=2000)
    (root / "first").symlink_to(tiny_run)
    return {name: root / name for name in ("first", "texts", "tags", "answers", "gpt")}
