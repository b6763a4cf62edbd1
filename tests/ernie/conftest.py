"""A small graph over the words of the made-up text, its vectors, a linked corpus, a BERT and an ERNIE that starts from
it, in folders: do not write into them."""

from pathlib import Path

import pytest
from ernie_runs import pretrain_ernie, quiet
from tiny import TINY_MODEL

from hornbook.data.build import build_corpus
from hornbook.graph.build import build_graph
from hornbook.graph.embedding.training import embed_graph
from hornbook.graph.linking import EntityLinker
from hornbook.runs.pretraining.pretrain import pretrain

FACTS = """river Near bridge
teacher Has letters
lantern In garden
children In garden
bread At harbour
silver IsA metal
windows In harbour
morning Before evening
"""


@pytest.fixture(scope="session")
def made(tmp_path_factory, tiny_tokenizer, tiny_text_file) -> Path:
    """A folder with `graph`, `other-graph`, `vectors`, `corpus`, `plain-corpus`, `bert` and `ernie`."""
    folder = tmp_path_factory.mktemp("ernie")
    (folder / "facts.tsv").write_text(FACTS.replace(" ", "\t"), encoding="utf-8")
    (folder / "other.tsv").write_text("river\tNear\tgarden\n", encoding="utf-8")
    build_graph([folder / "facts.tsv"], folder / "graph")
    build_graph([folder / "other.tsv"], folder / "other-graph")
    embed_graph(folder / "graph", folder / "vectors", model="transe", width=8, epochs=2, device="cpu")
    linker = EntityLinker(folder / "graph")
    build_corpus(tiny_text_file, tiny_tokenizer, folder / "corpus", workers=0, linker=linker)
    build_corpus(tiny_text_file, tiny_tokenizer, folder / "plain-corpus", workers=0)
    shape = TINY_MODEL | {"model.num_layers": 2}
    options = {"steps": 3, "batch_tokens": 512, "recipe": "published", "log": quiet}
    pretrain("bert-tiny", folder / "corpus", folder / "bert", overrides=shape, **options)
    pretrain_ernie(folder / "ernie", folder)
    return folder
