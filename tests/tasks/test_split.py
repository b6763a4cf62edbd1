from collections import Counter

import pytest

from hornbook.tasks.reading.read import by_article, hold_out, read, split_groups, split_off
from hornbook.tasks.records import SpanExample, TaggedExample, TextExample

EXAMPLES = [(number, "ab"[number % 10 == 0]) for number in range(1000)]


def label(example):
    return example[1]


def test_each_stratum_gives_its_share_in_the_old_order():
    rest, held_out = split_off(EXAMPLES, 0.1, 0, label)
    assert Counter(map(label, held_out)) == {"a": 90, "b": 10}
    assert sorted(rest + held_out) == EXAMPLES
    assert rest == sorted(rest) and held_out == sorted(held_out)


def test_the_seed_decides_alone():
    assert split_off(EXAMPLES, 0.1, 1, label) == split_off(EXAMPLES, 0.1, 1, label)
    assert split_off(EXAMPLES, 0.1, 1, label) != split_off(EXAMPLES, 0.1, 2, label)


def test_the_draw_is_the_same_on_every_machine():
    assert [number for number, _ in split_off(EXAMPLES[:30], 0.1, 7)[1]] == [4, 7, 12]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_every_class_is_kept_in_train(share):
    examples = [(0, "once"), (1, "twice"), (2, "twice"), *((number, "often") for number in range(3, 20))]
    rest, held_out = split_off(examples, share, 0, label)
    assert set(map(label, rest)) == {"once", "twice", "often"}
    assert held_out and "once" not in map(label, held_out)


def test_many_single_classes_do_not_empty_another():
    examples = [(number, number) for number in range(100)] + [(number, "often") for number in range(100, 120)]
    rest, _ = split_off(examples, 0.1, 0, label)
    assert Counter(map(label, rest))["often"] >= 16


def test_small_classes_give_their_share_together():
    examples = [(number, number // 4) for number in range(400)]
    assert len(split_off(examples, 0.1, 0, label)[1]) == 40


def test_groups_are_not_split():
    examples = [(number, number // 7) for number in range(210)]
    rest, held_out = split_groups(examples, 0.1, 0, label)
    assert len(held_out) == 21 and not set(map(label, rest)) & set(map(label, held_out))


def test_a_share_is_checked():
    with pytest.raises(ValueError, match="between 0 and 1"):
        split_off(EXAMPLES, 1.0, 0)


def test_questions_are_split_by_article_then_by_passage():
    articles = [SpanExample(str(n), "q", f"passage {n // 2}", title=f"title {n // 10}") for n in range(40)]
    train, dev, how = hold_out(articles, 0.1, 0)
    assert how == "by article" and {e.title for e in train}.isdisjoint(e.title for e in dev) and len(dev) == 10
    one = [SpanExample(e.key, e.question, e.passage) for e in articles]
    train, dev, how = hold_out(one, 0.1, 0)
    assert how == "by passage" and {e.passage for e in train}.isdisjoint(e.passage for e in dev) and len(dev) == 4


def test_few_articles_are_split_by_passage():
    two = [SpanExample(str(n), "q", f"passage {n // 2}", title=f"title {n // 20}") for n in range(40)]
    train, dev, how = hold_out(two, 0.1, 0)
    assert how == "by passage" and {e.passage for e in train}.isdisjoint(e.passage for e in dev) and len(dev) == 4


def test_several_classes_are_split_by_the_first():
    examples = [TextExample(str(n), "t", None, ("a", str(n)) if n % 2 else ()) for n in range(100)]
    _, dev, how = hold_out(examples, 0.1, 0)
    assert how == "by label" and Counter(bool(e.label) for e in dev) == {True: 5, False: 5}


def test_numbers_are_split_at_random():
    examples = [TextExample(str(n), "t", None, float(n)) for n in range(50)]
    train, dev, how = hold_out(examples, 0.1, 0)
    assert how == "at random" and (len(train), len(dev)) == (45, 5)


@pytest.mark.parametrize("kind", ["numbers", "one class", "classes of one", "passages", "one passage", "uneven"])
def test_two_are_held_out_of_four(kind):
    made = {
        "numbers": lambda n: TextExample(str(n), "t", None, float(n)),
        "one class": lambda n: TextExample(str(n), "t", None, "a"),
        "classes of one": lambda n: TextExample(str(n), "t", None, str(n)),
        "passages": lambda n: SpanExample(str(n), "q", f"passage {n}"),
        "one passage": lambda n: SpanExample(str(n), "q", "passage"),
        "uneven": lambda n: SpanExample(str(n), "q", f"passage {n > 0}", title=f"title {n > 0}"),
    }[kind]
    for seed in range(4):
        train, dev, _ = hold_out([made(n) for n in range(4)], 0.1, seed)
        assert len(dev) >= 2 and train
        with pytest.raises(ValueError, match="3 examples are too few to hold some out: give at least 4"):
            hold_out([made(n) for n in range(3)], 0.1, seed)


def test_error_for_a_table_too_small_to_validate_on():
    for num in (2, 3):
        rows = [{"text": f"text {n}", "label": n} for n in range(num)]
        with pytest.raises(ValueError, match="give at least 4, or a separate dev split"):
            read("regression", rows)
        assert len(read("regression", rows, held_out=0).splits["train"]) == num


def test_articles_stand_where_their_titles_say():
    examples = [SpanExample(str(i), "Who?", f"Passage {i}", ("a",), (0,), f"title {i % 40}") for i in range(400)]
    train, dev = by_article(examples)
    assert not {each.title for each in train} & {each.title for each in dev}
    assert sorted(train + dev, key=lambda each: int(each.key)) == examples
    assert 100 <= len(train) <= 300
    again_train, again_dev = by_article(examples[::-3])  # whatever else is there
    assert set(again_train) <= set(train) and set(again_dev) <= set(dev)


def test_what_was_read_is_not_read_again():
    examples = [TextExample(str(i), f"text {i}", label="ab"[i % 2]) for i in range(8)]
    data = read("classification", [{"text": each.text, "label": each.label} for each in examples])
    assert read("classification", data) is data


def test_equal_inputs_stay_on_one_side():
    texts = [f"{'text' if n % 2 else 'Text'} {n % 40 if n % 3 else n}" for n in range(300)]
    kinds = (
        lambda n: TextExample(str(n), texts[n], None, "ab"[n % 2]),
        lambda n: TextExample(str(n), texts[n], None, float(n)),
        lambda n: TaggedExample(str(n), tuple(texts[n].split()), ("O", "O")),
    )
    for make in kinds:
        train, dev, how = hold_out([make(n) for n in range(300)], 0.1, 0)
        lower = [{tuple(map(str.lower, each.texts)) for each in side} for side in (train, dev)]
        assert not lower[0] & lower[1]
        assert 15 <= len(dev) <= 45 and len(train) + len(dev) == 300
        assert how.endswith(", equal texts together")


def test_a_text_that_is_most_of_the_data_is_not_held_out():
    examples = [TextExample(str(n), "same" if n % 4 else f"text {n}", None, "ab"[n % 2]) for n in range(200)]
    _, dev, _ = hold_out(examples, 0.1, 0)
    assert "same" not in {each.text for each in dev} and len(dev) == 5


@pytest.mark.parametrize("sizes", [(5, 7), (7, 5), (2, 30), (3, 3, 60), (2, 2, 2, 100)])
@pytest.mark.parametrize("num_copies", [1, 2])
def test_every_class_with_two_texts_is_on_both_sides(sizes, num_copies):
    classes = [str(i) for i, size in enumerate(sizes) for _ in range(size)]
    examples = [
        TextExample(str(n), f"text {n // num_copies}", None, each)
        for n, each in enumerate(name for name in classes for _ in range(num_copies))
    ]
    for seed in range(5):
        train, dev, _ = hold_out(examples, 0.1, seed)
        assert {each.label for each in train} == {each.label for each in dev} == set(classes)
        assert len(dev) <= max(2, len(examples) * 0.1 + 1) * num_copies
