"""What a task is worth without a model."""

import numpy as np
import pytest

from hornbook.evaluation.prompting import scores
from hornbook.evaluation.prompting.scores import (
    _translation_probabilities,
    baselines,
    chance,
    learn_dictionary,
    read_dictionary,
    translate_words,
)
from hornbook.tasks.text.definition import Baseline, read_task
from hornbook.tasks.text.sources import Item

ENGLISH = {"the": "le", "cat": "chat", "dog": "chien", "sees": "voit", "big": "grand", "here": "ici"}
SENTENCES = (
    "the cat sees the dog",
    "the dog sees",
    "big cat",
    "the big dog here",
    "here sees the cat",
    "the cat",
    "dog here",
)


def pairs() -> list[Item]:
    french = [" ".join(ENGLISH[word] for word in text.split()) for text in SENTENCES]
    return [Item(text, {"en": text}, (other,)) for text, other in zip(SENTENCES, french, strict=True)]


def test_a_dictionary_is_learned_from_pairs():
    assert learn_dictionary(pairs(), "en") == ENGLISH


def test_what_another_word_explains_is_not_shared():
    """a b - x y, a - x: y is left for b."""
    given, wanted = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])  # the pairs a x, a y, b x, b y
    places, wanted_there, sentences = np.array([0, 1, 2, 3, 0]), np.array([0, 1, 0, 1, 0]), np.array([0, 0, 0, 0, 1])
    share = _translation_probabilities(given, wanted, places, wanted_there, sentences)
    assert share[3] > 0.75 and share[0] > 0.75 and share[[0, 1]].sum() == pytest.approx(1)


def test_word_by_word():
    assert translate_words("The big cat, (here) zzz!", ENGLISH) == "Le grand chat, (ici) zzz !"


def test_a_dictionary_of_ones_own(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("Cat chat\ncat minou\nice cream\tglace\n\n", encoding="utf-8")
    assert read_dictionary(file) == {"cat": "chat", "ice cream": "glace"}
    file.write_text("\ufeff" + file.read_text())
    assert read_dictionary(file) == {"cat": "chat", "ice cream": "glace"}
    file.write_bytes("cat\t고양이\nriver\t강\nbridge\t다리\nmoon\t달\n".encode("cp949"))
    assert read_dictionary(file) == {"cat": "고양이", "river": "강", "bridge": "다리", "moon": "달"}
    file.write_text("cat\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 1 has a word and no translation"):
        read_dictionary(file)


def test_the_baselines_of_a_translation(monkeypatch):
    task = read_task("translation-pairs")
    (test,) = [Item("0", {"en": "the big dog"}, ("le grand chien",))]
    assert baselines(task, pairs(), [test])["dictionary"][0].text == "Le grand chien"
    assert baselines(task, [], [test]) == {}  # nothing to learn from
    monkeypatch.setattr(scores, "MAX_LEARNED", 10)  # a million pairs would take 80 GB
    others = [Item(str(i), {"en": f"word{i}"}, (f"mot{i}",)) for i in range(100)]
    translated = [answer.text.lower() for answer in baselines(task, others, others)["dictionary"]]
    assert sum(text.startswith("mot") for text in translated) == 10


def test_three_sentences():
    task = read_task("summary")
    items = [Item(str(i), {"article": "A b. C d. E f. G h. I j."}, ("x",)) for i in range(20)]
    found = baselines(task, [], items)
    assert {each.text for each in found["lead-3"]} == {"A b. C d. E f."}
    texts = [each.text for each in found["random-3"]]
    assert len(set(texts)) > 3 and texts == [each.text for each in baselines(task, [], items)["random-3"]]
    assert all(
        len(text.split(".")) == 4 and text == " ".join(sorted(text.split(), key="A b. C d. E f. G h. I j.".index))
        for text in texts
    )
    assert Baseline().kinds == ()


def test_choosing_blindly():
    same = [Item(str(i), {}, (answer,), ("yes", "no")) for i, answer in enumerate(["yes", "yes", "no"])]
    assert chance(same) == pytest.approx({"chance": 50, "commonest answer": 200 / 3})
    own = [Item("0", {}, ("a",), ("a", "b")), Item("1", {}, ("c",), ("c", "d", "e", "f"))]
    assert chance(own) == pytest.approx({"chance": 37.5})
