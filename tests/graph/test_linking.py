"""Linking: offsets, longest names, whole words, base forms, particles, context, and texts that are linked already."""

import json
import sys

import pytest

from hornbook.data.problems import Problems
from hornbook.graph.build import build_graph
from hornbook.graph.graph import Graph
from hornbook.graph.linked_texts import link_entities_in_files


def found(graph, text: str) -> list[tuple[str, str]]:
    linked = graph.link(text)
    assert all(text[each.start : each.end] == each.text for each in linked.mentions)
    return [(each.text, each.entity) for each in linked.mentions]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I love New York City!", [("New York City", "new york city")]),  # not "new york", the name inside it
        ("new york cityscape", [("new york", "new york")]),  # whole words only, and then the shorter name
        ("two trowels, watering plants", [("trowels", "trowel"), ("watering", "water"), ("plants", "plant")]),
        ("these building sites", [("building sites", "building site")]),
        ("replant the gardens", [("gardens", "garden")]),
        ("땅을 파는 trowel", [("땅", "땅"), ("trowel", "trowel")]),
        ("땅에서는 자연이 산다", [("땅", "땅"), ("자연", "자연")]),
        ("땅콩을 먹는다", []),
        ("im CAFÉ MÜLLER", [("CAFÉ MÜLLER", "Café Müller")]),
        ("im Cafe\u0301 Müller", [("Cafe\u0301 Müller", "Café Müller")]),
        ("Luna 🌙 plant", [("Luna", "moon"), ("plant", "plant")]),
        ("", []),
        ("nothing here", []),
    ],
)
def test_mentions(graph, text, expected):
    assert found(graph, text) == expected


def test_scores_fall_with_the_distance_of_the_form(graph):
    exact, case, base = (graph.link(text).mentions[0].score for text in ("plant", "Plant", "plants"))
    assert exact == 1.0 > case > base > 0


def test_underscores_in_names_and_texts_are_spaces(tmp_path):
    (tmp_path / "a.tsv").write_text("ice_cream\tIsA\tfood\nNew_York\tIsA\tcity\n")
    build_graph(tmp_path / "a.tsv", tmp_path / "graph")
    graph = Graph(tmp_path / "graph")
    text = "ice cream or ice_cream in New York"
    mentions = [("ice cream", "ice_cream"), ("ice_cream", "ice_cream"), ("New York", "New_York")]
    assert found(graph, text) == mentions and graph.link("New York").mentions[0].score == 1.0
    assert graph.find("Ice cream") == graph.find("ice_cream")


def test_several_texts_equal_one_at_a_time(graph):
    texts = ["a plant", "", "New York City, new york", "땅을"]
    assert graph.link(texts) == [graph.link(text) for text in texts]


@pytest.fixture(scope="module")
def banks(tmp_path_factory):
    """Two entities named bank: the one with more edges is likelier, unless the text is about the other's neighbours."""
    folder = tmp_path_factory.mktemp("banks")
    rows = ["Q1\tr\tQ3", "Q1\tr\tQ4", "Q1\tr\tQ5", "Q2\tr\tQ6", "Q2\tr\tQ7"]
    (folder / "train.txt").write_text("\n".join(rows))
    labels = {"Q1": "bank", "Q2": "bank", "Q3": "money", "Q4": "loan", "Q5": "vault", "Q6": "river", "Q7": "mud"}
    labels |= {"Q8": "US", "Q9": "The Who", "Q10": "the"}
    (folder / "names.json").write_text(json.dumps({key: {"label": label} for key, label in labels.items()}))
    build_graph(folder, folder / "graph")
    return Graph(folder / "graph")


def test_the_prior_decides_and_context_overrides_it(banks):
    alone = banks.link("the bank").mentions[0]
    assert (alone.entity, alone.candidates[0].entity) == ("Q1", "Q2")
    assert 0.5 < alone.score < 1 and alone.score + alone.candidates[0].score == pytest.approx(1, abs=1e-3)
    by_river = next(each for each in banks.link("mud of the river bank").mentions if each.text == "bank")
    assert by_river.entity == "Q2" and by_river.score > 0.8
    by_vault = next(each for each in banks.link("money of the bank").mentions if each.text == "bank")
    assert by_vault.entity == "Q1" and by_vault.score > alone.score


def test_hubs_have_the_same_context(banks, monkeypatch):
    from hornbook.graph import linking

    before = banks.link("mud of the river bank, money bank")
    monkeypatch.setattr(linking, "MAX_NEIGHBOURS", 0)
    assert banks.link("mud of the river bank, money bank") == before


def test_stop_words_are_mentions_only_as_proper_names(banks):
    assert found(banks, "the who asked us") == []
    assert found(banks, "The Who in the US") == [("The Who", "Q9"), ("US", "Q8")]


def test_without_the_package_the_error_names_it(graph_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "ahocorasick_rs", None)
    with pytest.raises(ValueError, match=r"pip install 'hornbook\[graph\]'"):
        Graph(graph_folder).link("a plant")


def test_files_of_texts(graph, tmp_path):
    (tmp_path / "a.txt").write_text("a plant\n\nnothing\nthe garden\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"text": "water\\nand tool"}\n', encoding="utf-8")
    places = list(link_entities_in_files(graph, tmp_path))
    assert [(each.place, len(each.linked.mentions)) for each in places] == [
        ("line 1", 1),
        ("line 3", 0),
        ("line 4", 1),
        ("line 1", 2),
    ]


def test_texts_that_are_linked_keep_their_links(graph, tmp_path):
    evidence = {"sub_surface": "plant", "obj_surface": "Garden", "masked_sentence": "A plant lives in the [MASK]."}
    lost = {**evidence, "sub_surface": "shrub", "masked_sentence": "It lives in the [MASK]."}
    fact = {"sub_uri": "plant", "obj_uri": "Q42", "evidences": [evidence, evidence, lost]}
    (tmp_path / "facts.jsonl").write_text(json.dumps(fact) + "\nbroken\n")
    problems = Problems()
    (found,) = link_entities_in_files(graph, tmp_path / "facts.jsonl", problems=problems)
    assert found.linked.text == "A plant lives in the Garden.\nIt lives in the Garden."
    assert [(each.text, each.entity, each.score) for each in found.linked.mentions] == [
        ("plant", "plant", 1.0),
        ("Garden", "Q42", 1.0),
        ("Garden", "Q42", 1.0),
    ]
    assert problems.count("missing_surface") == problems.count("not_json") == 1
    document = {"text": "An oak", "entities": [{"uri": "http://www.wikidata.org/entity/Q1", "boundaries": [3, 6]}]}
    (tmp_path / "document.jsonl").write_text(json.dumps(document) + "\n")
    (found,) = link_entities_in_files(graph, tmp_path / "document.jsonl")
    assert found.was_linked and [(each.text, each.entity) for each in found.linked.mentions] == [("oak", "Q1")]
    (tmp_path / "again.jsonl").write_text(json.dumps(found.to_dict()) + "\n")
    (again,) = link_entities_in_files(graph, tmp_path / "again.jsonl")
    assert [each[:4] for each in again.linked.mentions] == [each[:4] for each in found.linked.mentions]
