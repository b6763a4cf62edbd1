"""Text while it is written: never half a character, nothing of a stop string, and in the end the same text."""

import pytest
from small_gpts import byte_tokenizer, saved_gpt
from tiny import tiny_text

import hornbook
from hornbook.inference.generation import StreamingDetokenizer
from hornbook.text.training import train_tokenizer

TEXT = " bread 🙂👩‍👩‍👧 한국어를 압니다, naïve 🎉 river\n\nEnd."


@pytest.fixture(scope="module", params=["bpe", "wordpiece", "unigram"])
def tokenizer(request):
    if request.param == "bpe":
        return byte_tokenizer()
    return train_tokenizer(tiny_text(100).split("\n\n"), kind=request.param, vocab_size=300)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt")
    saved_gpt(folder)
    return hornbook.load(folder)


def ids_of(tokenizer, text: str) -> list[int]:
    return tokenizer.encode_batch([text])[0].ids


def pieces_of(writer: StreamingDetokenizer, ids: list[int]) -> list[str]:
    return [*(writer.add([number]) for number in ids), writer.finish()]


def test_streamed_chunks_are_whole_characters_and_add_up_to_the_text():
    tokenizer = byte_tokenizer()
    ids = ids_of(tokenizer, TEXT)
    assert len(ids) > len(TEXT) * 1.2  # characters are split
    pieces = pieces_of(StreamingDetokenizer(tokenizer, ids_of(tokenizer, "the river")), ids)
    assert "".join(pieces) == TEXT
    assert not any("\ufffd" in piece for piece in pieces)
    assert pieces.count("") > 20  # half characters waited


def test_at_once_is_as_one_by_one(tokenizer):
    prompt, ids = ids_of(tokenizer, "the river of bread"), ids_of(tokenizer, TEXT)
    at_once, one_by_one = StreamingDetokenizer(tokenizer, prompt), StreamingDetokenizer(tokenizer, prompt)
    at_once.add(ids)
    pieces_of(one_by_one, ids)
    assert at_once.text == one_by_one.text
    whole = tokenizer.decode(prompt + ids)
    assert tokenizer.decode(prompt) + one_by_one.text == whole


def test_a_half_character_at_the_end_is_left_out():
    tokenizer = byte_tokenizer()
    ids = ids_of(tokenizer, "river 🙂")
    for num_missing in (1, 2, 3):
        writer = StreamingDetokenizer(tokenizer, [])
        pieces_of(writer, ids[:-num_missing])
        assert writer.text == "river "


def test_bytes_that_are_no_character_are_shown_as_such_once_it_is_clear():
    tokenizer = byte_tokenizer()
    half, rest = ids_of(tokenizer, "🙂")[:2], ids_of(tokenizer, "ab")
    writer = StreamingDetokenizer(tokenizer, [])
    assert [writer.add([number]) for number in half] == ["", ""]
    assert "".join(writer.add([number]) for number in rest) == "\ufffdab"


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        (["naïve"], TEXT.partition("naïve")[0]),
        (["한국어를 압"], TEXT.partition("한국어")[0]),
        (["\n\n"], TEXT.partition("\n\n")[0]),
        (["End.", "river"], TEXT.partition("river")[0]),
        (["riverbank", "🎉!"], None),  # begun, but not gone on with
        ([" bread"], ""),
    ],
    ids=str,
)
def test_stop_strings_over_several_tokens(stop, expected):
    tokenizer = byte_tokenizer()
    writer = StreamingDetokenizer(tokenizer, ids_of(tokenizer, "the river"), stop)
    pieces = pieces_of(writer, ids_of(tokenizer, TEXT))
    assert "".join(pieces) == writer.text == (TEXT if expected is None else expected)
    assert writer.is_stopped == (expected is not None)


@pytest.mark.parametrize(
    "settings", [{"seed": 1}, {"seed": 2, "num_return_sequences": 3}, {"temperature": 0}, {"num_beams": 3}], ids=str
)
def test_streamed_is_as_not_streamed(model, settings):
    prompts = ["the river 🙂", "한국어를"]
    expected = model.generate(prompts, 25, **settings)
    streamed: dict = {}

    def listen(prompt: int, sample: int, text: str) -> None:
        streamed[prompt, sample] = streamed.get((prompt, sample), "") + text

    assert model.generate(prompts, 25, **settings, on_text=listen) == expected
    for prompt, its in enumerate(expected):
        for sample, each in enumerate(its):
            assert streamed.get((prompt, sample), "") == each.text


@pytest.mark.parametrize("settings", [{"seed": 1}, {"num_beams": 3, "length_penalty": 0.0}], ids=str)
def test_a_text_ends_before_its_stop_string(model, settings):
    (whole,) = model.generate("the river", 25, **settings)
    stop = whole.text[3:6]  # of several tokens, or of parts of them
    for listen in (None, lambda *_: None):
        (found,) = model.generate("the river", 25, stop_strings=["never!", stop], on_text=listen, **settings)
        assert found.finish_reason == "stop" and stop not in found.text
        if "seed" in settings:
            assert found.text == whole.text.partition(stop)[0]
            assert found.ids == whole.ids[: len(found.ids)] and len(found.ids) < len(whole.ids)
