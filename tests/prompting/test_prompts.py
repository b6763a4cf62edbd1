"""Prompts: sampling of examples, never from the questions; the template; and fitting into the context."""

from dataclasses import replace

import pytest
from small_prompting import QUESTION, bytes_tokenizer, write_task

from hornbook.tasks.text.definition import read_task
from hornbook.tasks.text.prompts import PromptWriter, drawable, drawn, pool_for, shown_prompts
from hornbook.tasks.text.sources import Item, ItemSplits


@pytest.fixture
def task(tmp_path):
    return read_task(write_task(tmp_path / "colour.toml", QUESTION))


def item(text: str, answer: str = "red") -> Item:
    return Item(text, {"text": text}, (answer,), ("red", "dark green"))


TRAIN = [item(f"thing {i}") for i in range(30)]
TEST = [item("thing  7", "dark green"), item("THING 9"), item("another")]


def test_the_question_is_never_one_of_its_examples(task):
    """Also where only case, white space or the answer differ."""
    pool = drawable(task, TRAIN, TEST)
    assert {each.key for each in TRAIN} - {each.key for each in pool} == {"thing 7", "thing 9"}
    said = []
    assert pool_for(task, ItemSplits(TRAIN, TEST), 8, said.append) == pool
    assert said == ["2 training examples are also in the test split and are not used"]
    shown = {pool[i].key for seed in range(40) for number in range(3) for i in drawn(task, len(pool), 8, seed, number)}
    assert shown == {each.key for each in pool}


def test_draws_follow_from_seed_and_question(task):
    few, many = drawn(task, 30, 3, seed=1, question_index=4), drawn(task, 30, 8, seed=1, question_index=4)
    assert many[:3] == few and len(set(many)) == 8 and many == drawn(task, 30, 8, seed=1, question_index=4)
    assert drawn(task, 30, 8, seed=2, question_index=4) != many != drawn(task, 30, 8, seed=1, question_index=5)
    once = replace(task, draw="once")
    assert drawn(once, 30, 8, seed=1, question_index=4) == drawn(once, 30, 8, seed=1, question_index=5)
    assert sorted(drawn(task, 8, 8, seed=1, question_index=4)) == list(range(8))


def test_more_shots_than_examples_are_refused(task):
    with pytest.raises(ValueError, match="28 training examples to draw from, fewer than the 29"):
        pool_for(task, ItemSplits(TRAIN, TEST), 29, print)
    with pytest.raises(ValueError, match=r"no training split to draw examples from.*set shots= to 0"):
        pool_for(task, ItemSplits([], TEST), 1, print)
    assert pool_for(task, ItemSplits([], TEST), 0, print) == []


def test_zero_shot_shows_the_description_alone(task):
    writer = PromptWriter(task, task.example, bytes_tokenizer(), 400)
    (alone,) = writer.write(TEST[2:], [[]], [5])
    assert (alone.text, alone.num_examples, alone.is_cut) == ("Say which colour it is.\n\nanother is", 0, False)
    (with_two,) = writer.write(TEST[2:], [TRAIN[:2]], [5])
    expected = "Say which colour it is.\n\nthing 0 is red\n\nthing 1 is red\n\nanother is"
    assert (with_two.text, with_two.num_examples) == (expected, 2)
    (bare,) = PromptWriter(replace(task, description=""), task.example, bytes_tokenizer(), 400).write(
        TEST[2:], [[]], [5]
    )
    assert bare.text == "another is"


def num_tokens(text: str) -> int:
    return len(bytes_tokenizer().encode_batch([text])[0].ids)


@pytest.mark.parametrize("context", range(24, 140, 7))
def test_as_many_examples_as_fit(task, context):
    shown, room = [TRAIN[:8], TRAIN[8:16]], 6
    asked = [item("another"), item("a much longer text than the other ones are")]
    for prompt, its in zip(
        PromptWriter(task, task.example, bytes_tokenizer(), context).write(asked, shown, [room] * 2), shown, strict=True
    ):
        assert num_tokens(prompt.text) <= context - room
        assert not (prompt.is_cut and prompt.num_examples)  # examples go before the question is cut
        if prompt.num_examples < 8 and not prompt.is_cut:
            one_more = prompt.text.replace("Say which colour it is.", "Say which colour it is.\n\nthing 15 is red", 1)
            assert num_tokens(one_more) > context - room - 2  # "thing 0" may be two tokens shorter than "thing 15"
        assert all(f"{each.key} is" in prompt.text for each in its[: prompt.num_examples])


def test_a_question_that_is_too_long_is_cut(task):
    long = item("river " * 60 + "END")
    (prompt,) = PromptWriter(task, task.example, bytes_tokenizer(), 40).write([long], [TRAIN[:2]], [5])
    assert prompt.is_cut and prompt.num_examples == 0 and num_tokens(prompt.text) <= 35
    assert prompt.text.endswith("river END is") and "Say which" not in prompt.text
    shortening = replace(task, shorten="text")
    (prompt,) = PromptWriter(shortening, task.example, bytes_tokenizer(), 40).write([long], [TRAIN[:2]], [5])
    assert prompt.is_cut and 30 <= num_tokens(prompt.text) <= 35
    assert prompt.text.startswith("Say which colour it is.\n\nriver river") and prompt.text.endswith("river is")


def test_the_shown_prompt(task, tmp_path):
    from small_prompting import write_colours

    found = shown_prompts(task, write_colours(tmp_path / "data"), [0, 2])
    assert [each["shots"] for each in found] == [0, 2]
    assert found[0]["prompt"] == "Say which colour it is.\n\ntest 0 is" and found[0]["answers"] == [
        " red",
        " dark green",
    ]
    assert found[1]["prompt"].count("train") == 2 and found[1]["prompt"].count("test") == 1
