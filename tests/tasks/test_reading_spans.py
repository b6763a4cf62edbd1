"""Questions about passages, in all their layouts."""

import json

import pytest
from task_files import counts, first, lines, question, squad, write

from hornbook.metrics.spans import COQA
from hornbook.tasks.reading.read import read
from hornbook.tasks.reading.spans import nearest

PASSAGE = "Ada wrote the first program. Ada was a countess."


def stored(path, *articles, version="1.1"):
    path.write_text(json.dumps({"version": version, "data": articles}), encoding="utf-8")
    return path


def test_squad(tmp_path):
    stored(tmp_path / "train-v1.1.json", squad(question("a", ("Ada", 0))))
    stored(tmp_path / "dev-v1.1.json", squad(question("b", ("Ada", 0), ("Ada", 0), ("the first program", 10))))
    data = read("squad", tmp_path, strict=True)
    (train,), (dev,) = data.splits["train"], data.splits["dev"]
    assert (train.key, train.question, train.answers, train.starts, train.title) == ("a", "Who?", ("Ada",), (0,), "Ada")
    assert dev.answers == ("Ada", "the first program") and dev.starts == (0, 10)
    assert data.kind == "spans" and data.labels == ()


def test_squad_2_has_questions_without_an_answer(tmp_path):
    impossible = question("b", ("Ada", 0), is_impossible=True)  # what it has is but plausible
    path = stored(tmp_path / "dev-v2.0.json", squad(question("a", ("Ada", 0), is_impossible=False), impossible))
    data = read("squad2", path)
    assert [each.answers for each in data.splits["dev"]] == [("Ada",), ()]
    assert not counts(data)


def test_a_question_without_answer_where_there_must_be_one(tmp_path):
    path = stored(tmp_path / "train-v1.1.json", squad(question("a", ("Ada", 0)), question("b")))
    data = read("squad", path)
    assert [each.key for each in data.splits["train"]] == ["a"]
    assert "squad2" in first(data, "no_label")["detail"]


def test_versions_in_one_folder_are_distinguished(tmp_path):
    for version in ("1.1", "2.0"):
        stored(tmp_path / f"dev-v{version}.json", squad(question(version, ("Ada", 0))))
    stored(tmp_path / "train-v1.1.subset.json", squad(question("t", ("Ada", 0))))
    assert read("squad", tmp_path).splits["dev"][0].key == "1.1"
    assert {split: each[0].key for split, each in read("squad2", tmp_path).splits.items()} == {"dev": "2.0"}


def test_two_files_for_one_part_are_not_chosen_from(tmp_path):
    for name in ("train-v1.1-a.json", "train-v1.1-b.json"):
        stored(tmp_path / name, squad(question("t", ("Ada", 0))))
    with pytest.raises(ValueError, match=r"several files .*train-v1.1-a.json, train-v1.1-b.json"):
        read("squad", tmp_path)


def test_spans_that_are_elsewhere_or_nowhere(tmp_path):
    wrong = [question("moved", ("Ada", 30)), question("gone", ("Bob", 0)), question("right", ("Ada", 0))]
    stored(tmp_path / "train-v1.1.json", squad(*wrong, passage=PASSAGE))
    stored(tmp_path / "dev-v1.1.json", squad(*wrong, passage=PASSAGE))
    data = read("squad", tmp_path)
    assert [(each.key, each.starts) for each in data.splits["train"]] == [("moved", (29,)), ("right", (0,))]
    assert [(each.key, each.starts, each.answers) for each in data.splits["dev"]][1] == ("gone", (-1,), ("Bob",))
    assert counts(data) == {"moved_span": 2, "no_span": 1, "kept_no_span": 1}
    assert first(data, "moved_span") == {
        "file": str(tmp_path / "train-v1.1.json"),
        "place": "article 1, paragraph 1, question moved",
        "detail": "'Ada' is at character 29, not 30",
    }
    with pytest.raises(ValueError, match=r"train-v1.1.json article 1, paragraph 1, question moved"):
        read("squad", tmp_path, strict=True)


@pytest.mark.parametrize(("start", "found"), [(0, 0), (3, 0), (14, 0), (15, 29), (29, 29), (40, 29), (999, 29)])
def test_nearest(start, found):
    assert nearest(PASSAGE, "Ada", start) == found
    assert nearest(PASSAGE, "Bob", start) == nearest(PASSAGE, "", start) == -1


def test_json_cut_short_keeps_what_came_before(tmp_path):
    path = stored(tmp_path / "train-v1.1.json", *(squad(question(str(n), ("Ada", 0)), title=str(n)) for n in range(4)))
    text = path.read_text()
    path.write_text(text[: text.rindex('"title"') + 30])
    data = read("squad", path, held_out=0)
    assert [each.key for each in data.splits["train"]] == ["0", "1", "2"]
    assert counts(data) == {"unreadable": 1} and "after element 3" in first(data, "unreadable")["detail"]
    with pytest.raises(ValueError, match="after element 3"):
        read("squad", path, strict=True)


def test_keys_that_are_there_twice(tmp_path):
    path = stored(tmp_path / "dev-v1.1.json", squad(question("a", ("Ada", 0)), question("a", ("Ada", 0))))
    data = read("squad", path)
    assert [each.key for each in data.splits["dev"]] == ["a", "a#2"] and counts(data) == {"repeated_key": 1}


def test_what_is_not_in_the_layout_is_counted(tmp_path):
    article = squad(question("a", ("Ada", 0)), {"id": "b"}, "c")
    path = stored(tmp_path / "dev-v1.1.json", article, {"paragraphs": [{"qas": []}]}, {"title": "t"})
    data = read("squad", path)
    assert [each.question for each in data.splits["dev"]] == ["Who?", "", ""]
    assert counts(data) == {"kept_bad_json": 2, "bad_json": 2}


def test_a_lone_surrogate_is_replaced(tmp_path):
    path = stored(tmp_path / "dev-v1.1.json", squad(question("a", ("Ada", 0), text="Who \ud83d is?")))
    data = read("squad", path)
    assert data.splits["dev"][0].question == "Who \ufffd is?" and counts(data) == {"lone_surrogate": 1}


def test_no_passage_is_on_both_sides(tmp_path):
    articles = [squad(*(question(f"{n}-{m}", ("Ada", 0)) for m in range(3)), title=str(n)) for n in range(10)]
    data = read("squad", stored(tmp_path / "train-v1.1.json", *articles))
    titles = [{each.title for each in data.splits[split]} for split in ("train", "dev")]
    assert not titles[0] & titles[1] and len(data.splits["dev"]) == 3
    assert data.messages[-1].endswith("by article, seed 0) are held out for validation")


def test_korquad(tmp_path):
    stored(tmp_path / "KorQuAD_v1.0_dev.json", squad(question("6-0", ("1989년", 0)), passage="1989년 2월"))
    assert read("korquad", tmp_path).splits["dev"][0].answers == ("1989년",)


def trivia(tmp_path, **more):
    item = {
        "QuestionId": "tc_1",
        "Question": "Who was first?",
        "Answer": {"Value": "Ada", "Aliases": ["Ada Lovelace", "Ada"], "NormalizedAliases": ["ada lovelace", "ada"]},
        "EntityPages": [{"Filename": "One.txt", "Title": "One"}],
        "SearchResults": [{"Filename": "9/9_1.txt"}],
    }
    write(tmp_path / "evidence" / "wikipedia", One__txt="Long ago. ADA wrote. Ada again.")
    (tmp_path / "evidence" / "web" / "9").mkdir(parents=True)
    (tmp_path / "evidence" / "web" / "9" / "9_1.txt").write_text("Nothing of the kind.")
    (tmp_path / "qa").mkdir()
    for split in ("train", "dev"):
        content = {"Data": [{**item, **more}], "Domain": "Wikipedia", "VerifiedEval": bool(more)}
        (tmp_path / "qa" / f"wikipedia-{split}.json").write_text(json.dumps(content))
    return tmp_path


def test_triviaqa_finds_the_first_alias_in_each_document(tmp_path):
    data = read("triviaqa", trivia(tmp_path))
    (train,) = data.splits["train"]
    assert train.key == "tc_1--One.txt" and train.starts[0] == 10 and train.answers[0] == "ADA"
    assert set(train.answers[1:]) == {"ada lovelace", "ada", "Ada Lovelace", "Ada"} and set(train.starts[1:]) == {-1}
    assert [(each.key, max(each.starts)) for each in data.splits["dev"]] == [
        ("tc_1--One.txt", 10),
        ("tc_1--9/9_1.txt", -1),
    ]
    assert counts(data) == {"no_span": 1}


def test_triviaqa_verified_part(tmp_path):
    assert read("triviaqa", trivia(tmp_path, QuestionPartOfVerifiedEval=True)).splits["dev"]
    other = trivia(tmp_path / "other", QuestionPartOfVerifiedEval=False)
    with pytest.raises(ValueError, match="no example could be read"):
        read("triviaqa", other)


def test_triviaqa_without_its_documents(tmp_path):
    trivia(tmp_path)
    (tmp_path / "evidence").rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="put the published folder at"):
        read("triviaqa", tmp_path)


def test_triviaqa_with_a_document_missing(tmp_path):
    trivia(tmp_path)
    (tmp_path / "evidence" / "wikipedia" / "One.txt").unlink()
    data = read("triviaqa", tmp_path / "qa" / "wikipedia-dev.json")
    assert [each.passage for each in data.splits["dev"]] == ["", "Nothing of the kind."]
    assert counts(data) == {"unreadable": 1, "kept_empty_text": 1}


@pytest.mark.parametrize("more", [{"EntityPages": [{"Filename": None}]}, {"Answer": {"Aliases": [5], "Value": 5}}])
def test_triviaqa_with_values_of_other_types(tmp_path, more):
    folder = trivia(tmp_path)
    file = folder / "qa" / "wikipedia-dev.json"
    (item,) = json.loads(file.read_text())["Data"]
    file.write_text(json.dumps({"Data": [item, item | more]}))
    assert read("triviaqa", file).splits["dev"][0].key == "tc_1--One.txt"


def test_triviaqa_as_squad(tmp_path):
    stored(tmp_path / "train.json", squad(question("tc_1--One.txt", ("Ada", 0))))
    assert read("triviaqa", tmp_path).splits["train"][0].answers == ("Ada",)


STORY = "Cotton was a white kitten. She lived in a barn."


def coqa_story():
    def answer(turn, typed, marked):
        return {"turn_id": turn, "input_text": typed, "span_text": marked, "span_start": STORY.find(marked)}

    questions = ["What colour was she?", "Did she live alone?", "Where?", "Why?"]
    answers = [answer(1, "White.", "a white kitten"), answer(2, "Yes", "lived"), answer(3, "in the hay", "in a barn")]
    answers.append({"turn_id": 4, "input_text": "unknown", "span_text": "unknown", "span_start": -1})
    others = [{**each, "input_text": "pale"} if each["turn_id"] == 1 else each for each in answers]
    return {
        "id": "s1",
        "story": STORY,
        "questions": [{"turn_id": turn, "input_text": text} for turn, text in enumerate(questions, 1)],
        "answers": answers,
        "additional_answers": {"0": others},
    }


def test_coqa(tmp_path):
    for split in ("train", "dev"):
        (tmp_path / f"coqa-{split}-v1.0.json").write_text(json.dumps({"version": "1", "data": [coqa_story()]}))
    data = read("coqa", tmp_path, strict=True)
    train, dev = data.splits["train"], data.splits["dev"]
    assert [each.key for each in train] == ["s1-1", "s1-2", "s1-3", "s1-4"]
    assert [each.answers for each in train] == [("white",), ("yes",), ("in a barn",), ()]
    for each in train[:3]:
        assert each.passage[each.starts[0] :].startswith(each.answers[0])
    assert [each.answers for each in dev] == [("white", "pale"), ("yes", "yes"), ("in the hay", "in the hay"), ()]
    assert dev[0].starts == (STORY.find("white"), -1) and dev[2].starts == (-1, -1)
    assert train[1].question == "What colour was she? White. Did she live alone?"
    assert train[3].question == "Did she live alone? Yes Where? in the hay Why?"
    assert "unknown" in data.messages[0]


def test_coqa_scores_every_person(tmp_path):
    """As in the official script: each annotator is left out in turn, with those who answered the same or "unknown"."""
    said = [("white", "White.", "unknown"), ("unknown", "unknown", "yes"), ("in a barn",) * 3, ("unknown",) * 3]
    story = coqa_story()
    people = [
        [{**each, "input_text": said[i][person]} for i, each in enumerate(story["answers"])] for person in range(3)
    ]
    story |= {"answers": people[0], "additional_answers": {"0": people[1], "1": people[2]}}
    (tmp_path / "coqa-dev-v1.0.json").write_text(json.dumps({"data": [story]}))
    dev = read("coqa", tmp_path, strict=True).splits["dev"]
    assert [each.answers for each in dev] == [("white", "white", ""), ("", "", "yes"), ("in a barn",) * 3, ()]
    assert dev[1].starts == (-1, -1, len(STORY) + 1)

    def score(prediction, answers):
        return COQA.score(prediction, answers)[1]

    assert [score("white", dev[0].answers), score("", dev[0].answers)] == [1.0, pytest.approx(2 / 3)]
    assert [score("yes", dev[1].answers), score("", dev[1].answers)] == [pytest.approx(2 / 3), 1.0]
    assert [score("in a barn", dev[2].answers), score("", dev[3].answers), score("x", dev[3].answers)] == [1, 1, 0]


def test_coqa_with_a_start_that_is_not_whole(tmp_path):
    story = coqa_story()
    story["answers"][0]["span_start"] += 0.5
    (tmp_path / "coqa-train-v1.0.json").write_text(json.dumps({"data": [story]}))
    assert read("coqa", tmp_path, held_out=0).splits["train"][0].answers == ("white",)


def test_columns_cannot_be_named_where_there_are_none(tmp_path):
    stored(tmp_path / "dev-v1.1.json", squad(question("a", ("Ada", 0))))
    with pytest.raises(ValueError, match="has a fixed layout"):
        read("squad", tmp_path, text="question")


def test_own_questions(tmp_path):
    rows = [
        {"question": "Who?", "context": PASSAGE, "answer": "Ada"},
        {"question": "What?", "context": PASSAGE, "answer": "countess", "start": 39},
        {"question": "Who?", "context": PASSAGE, "answer": "Bob"},
        {"question": "", "context": PASSAGE, "answer": "Ada", "start": 0},
        {"question": "None?", "context": PASSAGE, "answer": ""},
    ]
    write(tmp_path, train__jsonl=lines(*rows))
    data = read("spans", tmp_path / "train.jsonl", held_out=0)
    assert [(each.answers, each.starts) for each in data.splits["train"]] == [(("Ada",), (0,)), (("countess",), (39,))]
    assert counts(data) == {"several_spans": 1, "no_span": 1, "empty_text": 1, "no_label": 1}
    assert first(data, "no_span")["place"] == "line 3"
    assert data.messages == ("columns: question = 'question', passage = 'context', answer = 'answer', start = 'start'",)
    assert read("spans-or-none", tmp_path, held_out=0).splits["train"][-1].answers == ()


def test_own_questions_with_lists_of_answers():
    rows = [{"id": "x", "question": "Who?", "context": PASSAGE, "answers": {"text": ["Ada"], "answer_start": [29]}}]
    (found,) = read("spans", rows).splits["train"]
    assert (found.key, found.answers, found.starts) == ("x", ("Ada",), (29,))


def test_own_questions_in_the_layout_of_squad(tmp_path):
    stored(tmp_path / "train.json", squad(question("a", ("Ada", 0))))
    assert read("spans", tmp_path).splits["train"][0].key == "a"


def test_own_questions_without_a_passage():
    with pytest.raises(ValueError, match=r"no column for the passage .*name it with pair= \(columns: question, answer"):
        read("spans", [{"question": "Who?", "answer": "Ada"}])
