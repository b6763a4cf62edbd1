"""Scores of prompts and choices, compared with plain sums over the model's log-probabilities."""

from dataclasses import replace

import numpy as np
import pytest
from small_prompting import QUESTION, WRITING, bytes_tokenizer, saved_small_gpt, write_task
from tiny import tiny_text

import hornbook
from hornbook.evaluation.prompting.evaluator import PromptEvaluator, extract_answer
from hornbook.inference.scoring import next_token_scores
from hornbook.tasks.text.definition import Choices, GenerationSettings, read_task
from hornbook.tasks.text.metrics import METRICS
from hornbook.tasks.text.prompts import Prompt
from hornbook.tasks.text.sources import Item
from hornbook.text.lemmas import STOP_WORDS

CHOICES = ("red", "dark green", "of bread and letters")
ITEMS = [Item(str(i), {}, ("red",), CHOICES) for i in range(3)]
PROMPTS = [Prompt(text, 0) for text in ("the river is", "A teacher: the colour of the garden is", "Answer:")]


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    return hornbook.load(saved_small_gpt(tmp_path_factory.mktemp("gpt")))


@pytest.fixture
def task(tmp_path):
    return read_task(write_task(tmp_path / "colour.toml", QUESTION))


@pytest.fixture
def writing(tmp_path):
    return read_task(write_task(tmp_path / "writing.toml", WRITING))


def tokens_of(text: str) -> list[int]:
    return bytes_tokenizer().encode_batch([text])[0].ids


def log_p(gpt, context: str, text: str) -> float:
    """Each token by a separate forward pass."""
    ids, num_before = tokens_of(context + text), len(tokens_of(context))
    return sum(float(next_token_scores(gpt.model, [ids[: i + 1]], 1)[0][-1]) for i in range(num_before, len(ids)))


def with_readable_answer(gpt) -> tuple[str, str]:
    """A prompt whose continuation is encoded as the same tokens again."""
    for first in tiny_text(20).split():
        (found,) = gpt.generate(first, 2, temperature=0)
        if tokens_of(first + found.text) == tokens_of(first) + found.ids:
            return first, found.text
    raise AssertionError("no prompt is gone on with readably")


@pytest.mark.parametrize("normalize", ["token", "byte", "sum", "answer"])
def test_choices_are_scored_by_their_likelihood(gpt, task, normalize):
    evaluator = PromptEvaluator(replace(task, choices=replace(task.choices, normalize=normalize)), gpt)
    done = []
    found = evaluator.ask(ITEMS, PROMPTS, 0, done.append)
    assert done == [3]
    for prompt, reply in zip(PROMPTS, found, strict=True):
        sums = [log_p(gpt, prompt.text, f" {choice}") for choice in CHOICES]
        units = {
            "token": [len(tokens_of(f" {choice}")) for choice in CHOICES],
            "byte": [len(choice) for choice in CHOICES],
        }.get(normalize, [1] * 3)
        less = [log_p(gpt, "Answer:", f" {choice}") if normalize == "answer" else 0.0 for choice in CHOICES]
        expected = [(total - alone) / unit for total, alone, unit in zip(sums, less, units, strict=True)]
        assert reply.extra["scores"] == pytest.approx(expected, abs=1e-4)
        assert reply.text == CHOICES[int(np.argmax(expected))]
    if normalize == "answer":
        assert found[2].extra["scores"] == pytest.approx([0.0] * 3, abs=1e-5)


def test_the_likelihood_of_the_right_answer(gpt, writing):
    task = replace(writing, metrics=("greedy", "last_token", "perplexity"), answer="{answer}")
    prompt, likeliest = with_readable_answer(gpt)
    answers = [likeliest, f"~{likeliest}", " red"]
    found = PromptEvaluator(task, gpt).ask(
        [Item("0", {}, (text,)) for text in answers], [Prompt(prompt, 0)] * 3, 0, lambda done: None
    )
    assert all(found[0].is_greedy) and not all(found[1].is_greedy)
    for text, reply in zip(answers, found, strict=True):
        assert sum(reply.log_probabilities) == pytest.approx(log_p(gpt, prompt, text), abs=1e-4)


def test_written_answers_are_those_of_generate(gpt, writing):
    items = [Item(str(i), {}, ("red",)) for i in range(3)]
    found = PromptEvaluator(writing, gpt).ask(items, PROMPTS, 0, lambda done: None)
    for prompt, reply in zip(PROMPTS, found, strict=True):
        assert reply.extra["generated"] == gpt.generate(prompt.text, 4, temperature=0)[0].text
        assert reply.text == reply.extra["generated"].strip()
    drawing = replace(writing, generation=GenerationSettings(max_new_tokens=8, temperature=1.0, top_k=2))
    texts = [
        [each.extra["generated"] for each in PromptEvaluator(drawing, gpt).ask(items, PROMPTS, seed, lambda done: None)]
        for seed in (0, 1, 0)
    ]
    assert texts[0] == texts[2] != texts[1]


def test_a_stop_word_is_not_the_last_word(gpt, writing):
    """The token that would be generated is a stop word for some prompt, and is excluded when requested."""
    words = ["the", "of", "and", "a", "river", "bread", "garden"]
    prompts = [Prompt(f"{first} {second}", 0) for first in words for second in words]
    items = [Item(str(i), {}, ("red",)) for i in range(len(prompts))]
    found = {}
    for stop_words in (True, False):
        task = replace(writing, generation=GenerationSettings(max_new_tokens=6, keep="word", stop_words=stop_words))
        asked = PromptEvaluator(task, gpt).ask(items, prompts, 0, lambda done: None)
        found[stop_words] = [reply.extra["generated"] for reply in asked]
    firsts = [
        tokens_of(prompt.text + text)[len(tokens_of(prompt.text))]
        for prompt, text in zip(prompts, found[False], strict=True)
    ]
    for number in firsts:
        text = bytes_tokenizer().decode([number])
        assert text.startswith(" ") and text[1].isalpha() and text.strip().lower() not in STOP_WORDS
    assert found[True] != found[False]


@pytest.mark.parametrize(
    ("what", "text", "expected"),
    [
        ("all", " a b \n", "a b"),
        ("line", "\n a b\nc", "a b"),
        ("word", " don't. You", "don't"),
        ("word", " ...", ""),
        ("sentence", " Il dort. Il rit.", "Il dort."),
        ("three sentences", "A b. C d! E f? G h.", "A b. C d! E f?"),
        ("three sentences", "A b", "A b"),
    ],
)
def test_what_is_kept(what, text, expected):
    assert extract_answer(text, what) == expected


def test_a_word_is_compared_as_the_vocabulary_writes_it(gpt, writing, monkeypatch):
    task = replace(writing, metrics=("word",), generation=GenerationSettings(keep="word"))
    item = Item("0", {}, ("Shane",))
    assert PromptEvaluator(task, gpt)._reply(item, " Shane.", None).answers == ("Shane",)
    monkeypatch.setattr(type(gpt.tokenizer), "normalize", lambda self, text: text.lower())
    found = PromptEvaluator(task, gpt)._reply(item, " shane.", None)
    assert METRICS["word"].rows([found]).tolist() == [[1.0]]


def test_room_for_the_longest_choice(gpt, task, writing):
    assert PromptEvaluator(task, gpt).answer_lengths(ITEMS[:1]) == [len(tokens_of(f" {CHOICES[2]}"))]
    assert PromptEvaluator(writing, gpt).answer_lengths(ITEMS[:2]) == [4, 4]
    assert Choices().is_given is False
