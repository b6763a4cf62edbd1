"""Corpora that are linked to a graph: every mention at its first token, in every layout, whatever the workers."""

import json

import numpy as np
import pytest

from hornbook.data.build import build_corpus
from hornbook.data.corpus import Corpus
from hornbook.data.sequences import SequenceSampler
from hornbook.data.tokenizing import mention_tokens
from hornbook.graph.graph import Graph
from hornbook.graph.linking import EntityLinker


def words_of_entities(batch, corpus: Corpus, graph) -> list[tuple[str, str]]:
    """(token, entity) of each alignment."""
    tokenizer, entities = corpus.tokenizer, batch.entities
    ids = batch.ids_T[entities.indices_E].tolist()
    return [(tokenizer.token(i), graph.label(e)) for i, e in zip(ids, entities.ids_E.tolist(), strict=True)]


@pytest.mark.parametrize("layout", ["nsp", "sop", "pairs", "full-sentences"])
def test_batches_hold_the_entities_of_their_texts(made, layout):
    corpus, graph = Corpus(made / "corpus"), Graph(made / "graph")
    plain = SequenceSampler([(corpus, 1.0)], 48, 0, layout).batch(1, 40)
    batch = SequenceSampler([(corpus, 1.0)], 48, 0, layout, with_entities=True).batch(1, 40)
    assert batch.ids_T.equal(plain.ids_T) and plain.entities is None  # entities change nothing else
    pairs = words_of_entities(batch, corpus, graph)
    assert len(pairs) > 200
    assert all(entity.startswith(word) for word, entity in pairs)  # of a word of several tokens, the first
    names = {graph.label(number) for number in range(graph.num_entities)}
    tokens = [corpus.tokenizer.token(number) for number in batch.ids_T.tolist()]
    assert sum(token in names for token in tokens) <= len(pairs)  # none is missing
    entities = batch.entities
    starts = np.repeat(batch.offsets_host[:-1], np.diff(entities.offsets_host))
    assert np.array_equal(entities.indices_E.numpy(), starts + entities.positions_host)
    assert (np.diff(entities.indices_E.numpy()) > 0).all()


def test_workers_and_a_resumed_build_change_nothing(made, tmp_path, tiny_tokenizer, tiny_text_file):
    linker, first = EntityLinker(made / "graph"), Corpus(made / "corpus")
    build_corpus(tiny_text_file, tiny_tokenizer, tmp_path / "two", workers=2, linker=linker)
    assert Corpus(tmp_path / "two").fingerprint == first.fingerprint != Corpus(made / "plain-corpus").fingerprint
    assert first.graph_fingerprint == linker.fingerprint and Corpus(made / "plain-corpus").graph_fingerprint is None
    again = build_corpus(tiny_text_file, tiny_tokenizer, tmp_path / "two", workers=0, linker=linker)
    assert again["already_built"] and again["totals"]["mentions"] == sum(len(s.entity_ids) for s in first.shards)
    with pytest.raises(ValueError, match="graph was"):
        build_corpus(tiny_text_file, tiny_tokenizer, tmp_path / "two", workers=0)
    build_corpus(tiny_text_file, tiny_tokenizer, tmp_path / "small", workers=0, linker=linker, shard_tokens=2000)
    small = Corpus(tmp_path / "small")
    assert len(small.shards) > 2
    shifts = np.cumsum([0, *(len(shard.tokens) for shard in small.shards[:-1])])
    tokens = np.concatenate([shard.entity_tokens + shift for shard, shift in zip(small.shards, shifts, strict=True)])
    assert np.array_equal(tokens, first.shards[0].entity_tokens)


def test_a_changed_file_is_named(made, tmp_path, tiny_tokenizer, tiny_text_file):
    build_corpus(tiny_text_file, tiny_tokenizer, tmp_path, workers=0, linker=EntityLinker(made / "graph"))
    file = tmp_path / "shard-00000.entity_ids.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ValueError, match=r"entity_ids\.npy has changed"):
        Corpus(tmp_path)


ROWS = [
    {"text": "The garden of bread.", "mentions": [{"start": 4, "end": 10, "entity": "bridge"}]},
    {"tokens": ["the", "silver", "lantern"], "entities": [None, "river", "river"]},
    {
        "sub_uri": "teacher",
        "obj_uri": "letters",
        "evidences": [
            {"sub_surface": "children", "obj_surface": "bread", "masked_sentence": "children [MASK] and harbour"},
            {"sub_surface": "absent", "obj_surface": "windows", "masked_sentence": "a [MASK] of the morning"},
        ],
    },
    {"text": "bread of the river", "entities": [{"uri": "http://x/garden", "boundaries": [0, 5]}, {"uri": "unknown"}]},
]


def test_linked_rows_keep_their_links(made, tmp_path, tiny_tokenizer):
    """Even if they contradict the names; entities that the graph does not have are left out."""
    file = tmp_path / "linked.jsonl"
    file.write_text("\n".join(map(json.dumps, [*ROWS, {"text": "bread in the garden"}])), encoding="utf-8")
    manifest = build_corpus(file, tiny_tokenizer, tmp_path / "corpus", workers=0, linker=EntityLinker(made / "graph"))
    corpus, graph = Corpus(tmp_path / "corpus"), Graph(made / "graph")
    shard = corpus.shards[0]
    found = [
        (corpus.tokenizer.token(int(shard.tokens[token])), graph.label(int(entity)))
        for token, entity in zip(shard.entity_tokens, shard.entity_ids, strict=True)
    ]
    assert found == [
        ("garden", "bridge"),
        ("silver", "river"),
        ("children", "teacher"),
        ("bread", "letters"),
        ("windows", "letters"),
        ("bread", "garden"),
        *[("bread", "bread"), ("garden", "garden")],  # not linked in the file
    ]
    assert manifest["problems"]["missing_surface"]["count"] == 2
    with pytest.raises(ValueError, match="leave out clean="):
        build_corpus(file, tiny_tokenizer, tmp_path / "x", workers=0, clean="wiki", linker=EntityLinker(made / "graph"))


def test_a_mention_is_at_its_first_token():
    offsets = np.array([[0, 3], [3, 7], [7, 12], [13, 15]])  # the second token begins with a space
    tokens, entities = mention_tokens(offsets, [(13, 15, 4), (4, 12, 9), (4, 7, 2), (12, 13, 7)])
    assert tokens.tolist() == [1, 3] and entities.tolist() == [2, 4]
    assert [len(each) for each in mention_tokens(offsets, [])] == [0, 0]
