import numpy as np
import pytest
from one_call_scores import (
    apply_threshold,
    coqa_f1,
    exact_match,
    score_coqa,
    score_korquad,
    score_spans,
    score_trivia_qa,
    token_f1,
)

from hornbook.metrics import spans
from hornbook.metrics.spans import (
    COQA,
    SQUAD_1,
    SQUAD_2,
    normalize_answer,
    threshold_curve,
)


def best_threshold(scores, predictions, gold, rules=SQUAD_2):
    """The best F1 and its threshold, of values by question in the order of `scores`."""
    lists = ([side[question] for question in scores] for side in (scores, predictions, gold))
    return spans.best_threshold(*lists, rules)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel\tTower!", "eiffel tower"),
        ("a man, an ant and the theatre", "man ant and theatre"),
        ("anthem", "anthem"),  # articles inside words stay
        ("the-cat", "thecat"),  # punctuation goes first, so no article is left
        ("$1,000.50", "100050"),
        ("the", ""),
        ("A.", ""),
        ("...", ""),
        ("Zoë", "zoë"),
        ("aé the é", "aé é"),
        ("東京", "東京"),
        ("“The end”", "“ end”"),  # only ASCII punctuation is stripped
        ("1914–18", "1914–18"),
        ("a’s", "’s"),
        ("「東京」。", "「東京」。"),
        ("no\u00a0break", "no break"),
    ],
)
def test_normalised(text, expected):
    assert normalize_answer(text) == expected


def test_one_question():
    assert exact_match("the Cat.", ("dog", "cat")) == 1.0
    assert exact_match("cats", ("dog", "cat")) == 0.0
    assert token_f1("the black cat", ("cat",)) == pytest.approx(2 / 3)
    assert token_f1("black cat sat", ("a cat sat down", "dog")) == pytest.approx(2 / 3)
    assert token_f1("cat", ("dog",)) == 0.0
    assert token_f1("cat cat", ("cat",)) == pytest.approx(2 / 3)  # a word counts as often as both sides have it
    assert token_f1("ny", ("new york city", "ny usa")) == pytest.approx(2 / 3)  # the nearest answer counts
    assert exact_match("Zoe", ("Zoë",)) == 0.0
    assert exact_match("“cat”", ("cat",)) == 0.0
    assert exact_match('"cat"', ("cat",)) == 1.0


@pytest.mark.parametrize("score", [exact_match, token_f1])
def test_unanswerable(score):
    assert score("", ()) == 1.0
    assert score("the", ()) == 1.0  # it normalises to nothing
    assert score("cat", ()) == 0.0
    assert score("", ("cat",)) == 0.0
    assert score("", ("the",)) == 1.0  # no gold answer is left, so gold is ""
    assert score("", ("the", "cat")) == 0.0  # "the" is left out
    assert score("the", ("the", "cat")) == 0.0


def test_squad_1_keeps_answers_that_normalise_to_nothing():
    gold = {"q": ("the", "cat")}
    assert score_spans({"q": "the"}, gold, has_unanswerable=False) == {"exact": 100.0, "f1": 0.0, "total": 1}
    assert score_spans({"q": "the"}, gold, has_unanswerable=True)["exact"] == 0.0
    with pytest.raises(ValueError, match="use rules=SQUAD_2"):
        score_spans({"q": ""}, {"q": ()}, has_unanswerable=False)


def test_score_spans_is_in_percent_with_both_parts():
    gold = {"1": ("cat",), "2": ("black cat", "cat"), "3": (), "4": (), "5": ("the",)}
    ours = {"1": "dog", "2": "a black dog", "3": "", "4": "dog", "5": "", "other": "dog"}
    assert score_spans(ours, gold, has_unanswerable=True) == pytest.approx(
        {
            "exact": 40.0,
            "f1": 50.0,
            "total": 5,
            "HasAns_exact": 100 / 3,
            "HasAns_f1": 50.0,
            "HasAns_total": 3,
            "NoAns_exact": 50.0,
            "NoAns_f1": 50.0,
            "NoAns_total": 2,
        }
    )
    answerable = {"1": gold["1"], "2": gold["2"]}
    assert score_spans(ours, answerable, has_unanswerable=False) == {"exact": 0.0, "f1": 25.0, "total": 2}
    assert "NoAns_total" not in score_spans(ours, answerable, has_unanswerable=True)


def test_scores_of_a_question_are_fractions():
    assert SQUAD_1.score("dog", ("dog",)) == (1.0, 1.0)
    assert SQUAD_1.score("black cat", ("cat",)) == (0.0, pytest.approx(2 / 3))


@pytest.mark.parametrize("rules", [SQUAD_2, COQA])
def test_the_curve_is_the_score_at_each_threshold(random, rules):
    words = ["river", "garden", "the river", "red house"]
    gold = [[words[i] for i in random.integers(0, 4, random.integers(0, 3))] for _ in range(60)]
    ours = [words[i] for i in random.integers(0, 4, 60)]
    scores = random.integers(-5, 6, 60).astype(float).tolist()  # with ties
    points = threshold_curve(scores, ours, gold, rules)
    assert [at for at, *_ in points[1:]] == sorted(set(scores)) and points[0][0] < min(scores)
    for at, *found in points:
        said = [answer if score <= at else "" for answer, score in zip(ours, scores, strict=True)]
        expected = np.mean([rules.score(*each) for each in zip(said, gold, strict=True)], 0)
        assert found == pytest.approx(expected.tolist())


def test_the_best_of_the_curve_is_what_the_official_search_finds(random):
    gold = {str(i): ["river"] if i % 3 else [] for i in range(40)}
    ours = {key: ("river", "garden")[int(key) % 2] for key in gold}
    scores = dict(zip(gold, random.normal(size=40).tolist(), strict=True))
    points = threshold_curve(list(scores.values()), list(ours.values()), list(gold.values()))
    best, threshold = best_threshold(scores, ours, gold)
    assert best == pytest.approx(max(f1 for *_, f1 in points))
    assert next(f1 for at, _, f1 in points if at == threshold) == pytest.approx(best)


def test_best_threshold_by_hand():
    gold = {"1": ("cat",), "2": (), "3": ("black cat",), "4": ()}
    ours = {"1": "cat", "2": "dog", "3": "cat", "4": ""}
    no_answer = {"4": 0.05, "1": 0.1, "3": 0.2, "2": 0.9}
    # 2 unanswerable are right at the start; question 1 adds 1, question 3 adds 2/3, question 2 takes 1
    assert best_threshold(no_answer, ours, gold) == (pytest.approx((3 + 2 / 3) / 4), 0.2)


def test_answering_nothing_may_be_best():
    gold, ours = {"1": (), "2": ("cat",)}, {"1": "dog", "2": "dog"}
    assert best_threshold({"1": 0.3, "2": 0.6}, ours, gold) == (0.5, 0.0)
    # scores are differences of logits here: 0 would let both be answered
    scores = {"1": -3.0, "2": -1.0}
    best, threshold = best_threshold(scores, ours, gold)
    assert best == 0.5
    assert apply_threshold(ours, scores, threshold) == {"1": "", "2": ""}


def test_equal_scores_are_taken_one_by_one_as_in_the_official_search():
    gold, ours = {"1": ("cat",), "2": ()}, {"1": "cat", "2": "dog"}
    assert best_threshold({"1": 0.5, "2": 0.5}, ours, gold) == (1.0, 0.5)
    assert best_threshold({"2": 0.5, "1": 0.5}, ours, gold) == (0.5, 0.0)


@pytest.mark.parametrize("shift", [0.0, -5.0])
def test_best_threshold_equals_a_search_over_all_thresholds(shift):
    generator = np.random.default_rng(3)
    words = ["cat", "black cat", "black cat sat", "dog", ""]
    for _ in range(60):
        names = [str(number) for number in range(generator.integers(1, 12))]
        gold = {name: () if generator.random() < 0.5 else (words[generator.integers(4)],) for name in names}
        ours = {name: words[generator.integers(5)] for name in names}
        scores = {name: shift + float(generator.random()) * 10 for name in names}
        best, threshold = best_threshold(scores, ours, gold)
        reached = {
            at: score_spans(apply_threshold(ours, scores, at), gold, has_unanswerable=True)["f1"] / 100
            for at in (-100.0, *scores.values(), threshold)
        }
        assert best == pytest.approx(max(reached.values()))
        assert best == pytest.approx(reached[threshold])


def test_where_some_people_saw_no_answer_leaving_it_out_counts():
    """Unanswered, the two of three that saw none are right: 1, 1 and 1 of the best among the others."""
    gold = {"1": ("", "", "cat"), "2": ("dog", "dog")}
    ours, scores = {"1": "cat", "2": "dog"}, {"1": 0.5, "2": 0.1}
    assert best_threshold(scores, ours, gold, COQA) == (1.0, 0.1)
    assert score_coqa(apply_threshold(ours, scores, 0.1), gold)["f1"] == 100.0


def korquad(prediction: str, *answers: str) -> tuple[float, float]:
    scores = score_korquad({"q": prediction}, {"q": answers})
    return scores["exact"], scores["f1"]


def test_korquad_counts_characters():
    assert korquad("서울특별시", "서울시") == (0.0, pytest.approx(100 * 2 * 3 / (5 + 3)))
    assert korquad("서울 시", "서울시") == (0.0, 100.0)  # spaces count for the exact match only
    assert korquad("《햄릿》", "햄릿") == (100.0, 100.0)
    assert korquad("햄릿(1601)", "햄릿 1601") == (100.0, 100.0)  # brackets become spaces
    assert korquad("햄.릿", "햄릿") == (100.0, 100.0)  # other punctuation goes
    assert korquad("‘〈햄릿〉’", "로미오", "햄릿") == (100.0, 100.0)
    assert korquad("“햄릿”", "햄릿") == (0.0, pytest.approx(100 * 2 * 2 / (4 + 2)))  # not on the official list
    assert korquad("The A", "a") == (0.0, pytest.approx(100 * 2 * 1 / (4 + 1)))  # English articles stay
    assert korquad("부산", "서울") == (0.0, 0.0)
    assert korquad("", "!") == (100.0, 0.0)


def test_coqa_leaves_each_reference_out_once():
    # per reference 1, 2/3, 0, 0: the others of the first give 2/3, those of the rest 1
    references = ["black cat", "cat", "dog", "hen"]
    assert coqa_f1("the black cat", references) == pytest.approx((2 / 3 + 1 + 1 + 1) / 4)
    assert coqa_f1("cat", ["cat", "cat", "dog"]) == 1.0
    assert coqa_f1("cat", ["cat", "dog"]) == 0.5
    assert coqa_f1("black cat", ["cat"]) == pytest.approx(2 / 3)
    assert coqa_f1("the", ["a"]) == 1.0
    assert COQA.score("cat", ["cat", "dog", "hen"])[0] == pytest.approx(2 / 3)
    assert score_coqa({"1": "cat", "2": "hen"}, {"1": ("cat", "dog"), "2": ("hen",)}) == {
        "exact": 75.0,
        "f1": 75.0,
        "total": 2,
    }


def trivia_qa(prediction: str, *aliases: str) -> tuple[float, float]:
    scores = score_trivia_qa({"q": prediction}, {"q": aliases})
    return scores["exact"], scores["f1"]


def test_trivia_qa_puts_spaces_for_punctuation():
    assert trivia_qa("Sunset_Boulevard", "sunset boulevard") == (100.0, 100.0)
    assert trivia_qa("Jay-Z", "jay z") == (100.0, 100.0)
    assert trivia_qa("The ‘O’Neill´ `", "o neill") == (100.0, 100.0)
    assert trivia_qa("“cat”", "cat") == (0.0, 0.0)  # double curly quotes stay
    assert trivia_qa("the black cat", "dog", "cat") == (0.0, pytest.approx(200 / 3))
    assert trivia_qa("", "the") == (100.0, 0.0)
