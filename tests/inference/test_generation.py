"""Going on with a text: cached as if it were not; greedy, drawn and by beams as `transformers` does it; ragged batches
as one at a time."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from small_gpts import CONTEXT, FAMILIES, PROMPTS, saved_gpt, their_continuation

import hornbook
from hornbook.batch import pack
from hornbook.inference.beams import BeamSettings, _Search
from hornbook.inference.decoder import DecoderModel
from hornbook.inference.decoding_state import DecodingState
from hornbook.inference.generation import GenerationConfig, sample_by_inverse_cdf, uniform_numbers
from hornbook.interop.folder import save_model
from hornbook.models.gpt import Gpt2


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request, tmp_path_factory) -> tuple[DecoderModel, torch.nn.Module, Path]:
    """Both in float64, where near ties cannot be decided differently."""
    folder = tmp_path_factory.mktemp(request.param)
    theirs = saved_gpt(folder, request.param).double()
    ours = hornbook.load(folder).to("cpu", torch.float64)
    assert isinstance(ours, DecoderModel)
    return ours, theirs, folder


@pytest.fixture
def ours(pair) -> DecoderModel:
    return pair[0]


def banded(ours: DecoderModel, window: int) -> DecoderModel:
    """The same weights, with every second block attending to a band."""
    model = Gpt2(dataclasses.replace(ours.model.config, window=window), ("clm",)).double()
    model.load_state_dict(ours.model.state_dict())
    return DecoderModel(model, ours.tokenizer, ours.folder)


def ids_of(ours: DecoderModel, texts: list[str] = PROMPTS) -> list[list[int]]:
    return [pieces.ids for pieces in ours.tokenizer.encode_batch(texts)]


# ---- cached equals uncached


@pytest.mark.parametrize("lengths", [None, (7, 7), (7,)])
@pytest.mark.parametrize("window", [None, 1, 5])
def test_every_step_equals_a_full_forward_pass(ours, random, window, lengths):
    """Texts of different lengths, of equal length, and a single one: three code paths."""
    if window is not None and ours.model.model_type != "gpt2":
        pytest.skip("only GPT-3 has bands")
    model = ours.model if window is None else banded(ours, window).model
    texts = [random.integers(0, 200, each).tolist() for each in lengths] if lengths else ids_of(ours)
    decoding = DecodingState(model.eval(), len(texts), CONTEXT)
    assert decoding.single_blocks is not None
    logits = decoding.prefill(texts)
    for _ in range(CONTEXT - max(map(len, texts)) + 1):  # until one is full
        with torch.no_grad():
            batch = pack([np.array(text) for text in texts])
            expected = model.vocabulary_logits(model(batch)[batch.offsets[1:].long() - 1])[:, : model.config.vocab_size]
        assert (logits - expected).abs().max() < 1e-10
        chosen = random.integers(0, model.config.vocab_size, len(texts))
        logits = decoding.step(torch.from_numpy(chosen))
        texts = [[*text, int(token)] for text, token in zip(texts, chosen, strict=True)]


def test_rows_are_prefilled_again_and_copied(ours):
    first, second, third = ids_of(ours)[:3]
    decoding = DecodingState(ours.model, 3, CONTEXT)
    decoding.prefill([first, second, third])
    token = torch.tensor([9, 9, 9])
    alone = DecodingState(ours.model, 1, CONTEXT)
    assert torch.allclose(alone.prefill([third]), decoding.prefill([third], [0])[0], atol=1e-12)
    decoding.reorder(torch.tensor([1, 0, 0]))
    found = decoding.step(token)
    for place, text in enumerate((second, third, third)):
        alone = DecodingState(ours.model, 1, CONTEXT)
        alone.prefill([text])
        assert torch.allclose(found[place], alone.step(token[:1])[0], atol=1e-12)


def test_a_full_room_harms_no_neighbour(ours):
    texts = ids_of(ours)[:2]
    long = [*texts[0], *[11] * (CONTEXT - len(texts[0]))]
    decoding, alone = DecodingState(ours.model, 2, CONTEXT), DecodingState(ours.model, 1, CONTEXT)
    decoding.prefill([long, texts[1]])
    alone.prefill([texts[1]])
    for token in (5, 6, 7):
        found = decoding.step(torch.tensor([token, token]))
        assert torch.allclose(found[1], alone.step(torch.tensor([token]))[0], atol=1e-12)


# ---- as transformers does it


@pytest.mark.parametrize("penalty", [1.0, 1.4])
def test_greedy(pair, penalty):
    ours, theirs, _ = pair
    found = ours.generate(PROMPTS, 20, temperature=0, repetition_penalty=penalty)
    for prompt, (text,) in zip(ids_of(ours), found, strict=True):
        assert text.ids == their_continuation(theirs, prompt, 20, repetition_penalty=penalty)[0]


@pytest.fixture(scope="module")
def common_end(pair) -> int:
    """A token that beams often come across, so that texts end at many lengths."""
    found = pair[0].generate(PROMPTS, 10, num_beams=3, num_return_sequences=3)
    return int(np.bincount([token for its in found for each in its for token in each.ids]).argmax())


def test_beams_take_no_memory_for_tokens_that_do_not_fit(ours):
    config = GenerationConfig(max_new_tokens=10**6)
    search = _Search(ours.model, ours.tokenizer, [[5, 6]], config, BeamSettings(2), ours.eos_id)
    assert search._start().running.shape == (1, 2, CONTEXT - 1)  # the last token is not fed back


@pytest.mark.parametrize("num_beams", [2, 4])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, -1.0])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_beams(pair, common_end, monkeypatch, num_beams, length_penalty, early_stopping):
    """With a token as the end of texts that is often met. All prompts at once here, one at a time there."""
    (ours, theirs, _), end = pair, common_end
    monkeypatch.setattr(ours.model, "config", dataclasses.replace(ours.model.config, eos_id=end))
    settings = {"length_penalty": length_penalty, "early_stopping": early_stopping}
    settings |= {"repetition_penalty": 1.2 if num_beams == 4 else 1.0}
    found = ours.generate(PROMPTS, 12, num_beams=num_beams, num_return_sequences=num_beams, **settings)
    assert num_beams == 4 or {each.finish_reason for its in found for each in its} >= {"end"}
    settings |= {"num_beams": num_beams, "num_return_sequences": num_beams, "eos_token_id": end}
    for prompt, its in zip(ids_of(ours), found, strict=True):
        assert [each.ids for each in its] == their_continuation(theirs, prompt, 12, **settings)


PROCESSORS = transformers.generation.logits_process


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.7},
        {"top_k": 5},
        {"top_k": 1000},
        {"top_p": 0.6},
        {"top_p": 0.01},
        {"top_p": 1e-18},
        {"temperature": 1.6, "top_k": 12, "top_p": 0.8, "repetition_penalty": 1.3},
        {"repetition_penalty": 0.8},
    ],
    ids=str,
)
def test_scores_are_those_of_their_processors(random, settings):
    logits = torch.from_numpy(random.normal(0, 3, (6, 80)))
    ids = torch.from_numpy(random.integers(0, 80, (6, 20)))
    expected = logits
    makers = {
        "repetition_penalty": PROCESSORS.RepetitionPenaltyLogitsProcessor,
        "temperature": PROCESSORS.TemperatureLogitsWarper,
        "top_k": PROCESSORS.TopKLogitsWarper,
        "top_p": PROCESSORS.TopPLogitsWarper,
    }
    for name, maker in makers.items():
        if name in settings:
            expected = maker(settings[name])(ids, expected.clone())
    written = torch.zeros(6, 80, dtype=torch.bool).scatter(1, ids, True)
    assert torch.equal(GenerationConfig(**settings).process(logits, written), expected)


@pytest.mark.parametrize("settings", [{}, {"top_k": 20, "temperature": 1.3}, {"top_p": 0.7, "repetition_penalty": 1.2}])
def test_samples_are_theirs_by_the_same_random_numbers(pair, monkeypatch, settings):
    ours, theirs, _ = pair
    numbers = iter(())

    def multinomial(probabilities, num_samples):
        below, goal = np.cumsum(probabilities[0].numpy()), next(numbers)
        return torch.tensor([[int((below <= goal * below[-1]).sum())]])

    monkeypatch.setattr(torch, "multinomial", multinomial)
    for prompt, text in zip(ids_of(ours), PROMPTS, strict=True):
        for sample, found in enumerate(ours.generate(text, 15, num_return_sequences=2, seed=4, **settings)):
            numbers = iter(uniform_numbers(4, sample, 15))
            expected = their_continuation(theirs, prompt, 15, do_sample=True, **{"top_k": 0} | settings)
            assert found.ids == expected[0]


def test_draws_follow_the_probabilities():
    scores = torch.tensor([[0.1, 0.0, 0.6, 0.3]]).log()
    found = sample_by_inverse_cdf(scores.expand(10_000, 4), torch.arange(10_000) / 10_000).bincount(minlength=4)
    assert found.tolist() == pytest.approx([1000, 0, 6000, 3000], abs=2)
    assert sample_by_inverse_cdf(scores, torch.tensor([0.0], dtype=torch.float64)).item() == 0
    assert sample_by_inverse_cdf(scores, torch.tensor([1 - 2**-53], dtype=torch.float64)).item() == 3


# ---- the same alone and in a batch


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0},
        {"seed": 3, "num_return_sequences": 3, "top_p": 0.95},
        {"num_beams": 3, "num_return_sequences": 2},
        {"seed": 1, "slide": True, "num_return_sequences": 2},
    ],
    ids=str,
)
def test_a_batch_of_prompts_is_as_one_at_a_time(ours, settings):
    num = 2 * CONTEXT if settings.get("slide") else 20
    found = ours.generate(PROMPTS, num, **settings)
    assert found == [ours.generate(prompt, num, **settings) for prompt in PROMPTS]
    assert found == ours.generate(PROMPTS[::-1], num, **settings)[::-1]


def test_prompts_in_several_groups(ours, monkeypatch):
    expected = ours.generate(PROMPTS, 8)
    monkeypatch.setattr("hornbook.inference.generation.CACHE_TOKENS", 60)
    assert ours.generate(PROMPTS, 8) == expected


def test_seeds_and_samples(ours):
    first = ours.generate("the river", 12, num_return_sequences=3, seed=7)
    assert first == ours.generate("the river", 12, num_return_sequences=3, seed=7)
    assert len({each.text for each in first}) == 3
    assert ours.generate("the river", 12, num_return_sequences=1, seed=7) == first[:1]  # more samples change none
    assert ours.generate("the river", 12, num_return_sequences=3, seed=8) != first
    shorter = ours.generate("the river", 5, seed=7)[0]
    assert shorter.ids == first[0].ids[:5]


# ---- where it ends


def test_the_context_is_full(ours):
    prompt = "the river " * 5
    room = CONTEXT - len(ids_of(ours, [prompt])[0])
    for settings in ({"temperature": 0}, {"num_beams": 2}):
        (found,) = ours.generate(prompt, 3 * CONTEXT, **settings)
        assert found.finish_reason == "context" and len(found.ids) == room + 1


def test_sliding_window_prefills_the_last_half_again(ours):
    """A loop that keeps a window, and halves it when it is over the context."""
    window = ids_of(ours, ["the river"])[0]
    expected = []
    for _ in range(2 * CONTEXT):
        with torch.no_grad():
            logits = ours.model.vocabulary_logits(ours.model(pack([np.array(window)]))[-1:])
        token = int(logits[0, : ours.tokenizer.vocab_size].argmax())
        if token == ours.eos_id:
            break
        expected.append(token)
        window.append(token)
        if len(window) > CONTEXT:
            window = window[-CONTEXT // 2 :]
    (found,) = ours.generate("the river", 2 * CONTEXT, temperature=0, slide=True)
    assert found.ids == expected and len(expected) > CONTEXT


def test_a_prompt_that_is_too_long(ours):
    prompt = "bread 🙂 " * 40
    ids = ids_of(ours, [prompt])[0]
    with pytest.raises(ValueError, match=f"the prompt has {len(ids)} tokens, {len(ids) - CONTEXT} more than .*slide="):
        ours.generate(prompt, 3)
    with pytest.raises(ValueError, match="prompt 2 has"):
        ours.generate(["a", prompt], 3, num_beams=2)
    (found,) = ours.generate(prompt, 1, temperature=0, slide=True)
    logits = DecodingState(ours.model, 1, CONTEXT).prefill([ids[-CONTEXT:]])
    assert found.ids == [int(logits.argmax())]


def test_an_empty_prompt_begins_a_text(ours, tmp_path):
    (found,) = ours.generate("", 5, temperature=0)
    logits = DecodingState(ours.model, 1, CONTEXT).prefill([[ours.eos_id]])
    assert found.ids[:1] == [int(logits.argmax())]
    saved_gpt(tmp_path, end=None)
    with pytest.raises(ValueError, match="the prompt is empty"):
        hornbook.load(tmp_path).generate("", 5)


def test_an_ordinary_word_that_ends_a_text_is_not_written(tmp_path):
    """Such as a line end, where a GPT writes lines."""
    saved_gpt(tmp_path, end=None)
    model = hornbook.load(tmp_path)
    (whole,) = model.generate("the river", 5, temperature=0)
    saved_gpt(tmp_path, end=model.tokenizer.token(whole.ids[-1]))
    model, parts = hornbook.load(tmp_path), []
    (found,) = model.generate("the river", 5, temperature=0)
    model.generate("the river", 5, temperature=0, on_text=lambda *part: parts.append(part[-1]))
    assert found.finish_reason == "end" and found.ids == whole.ids[: whole.ids.index(whole.ids[-1])]
    assert found.text == "".join(parts) == model.tokenizer.decode(found.ids) != whole.text


def test_tokens_without_text_are_never_written(tmp_path):
    saved_gpt(tmp_path, vocab_size=2000, end=None)
    model = hornbook.load(tmp_path)
    for settings in ({"num_return_sequences": 4}, {"num_beams": 4, "num_return_sequences": 4}):
        found = model.generate("the", 30, **settings)
        assert max(max(each.ids) for each in found) < model.tokenizer.vocab_size


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": -1}, "temperature must be at least 0"),
        ({"temperature": float("nan")}, "temperature must be at least 0"),
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"top_p": 0.0}, "top_p must be above 0"),
        ({"top_p": 1.5}, "top_p must be above 0"),
        ({"repetition_penalty": 0}, "repetition_penalty must be above 0"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
        ({"num_return_sequences": 0}, "num_return_sequences must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"stop_strings": ["a", ""]}, "at least one character"),
        ({"num_beams": 0}, "num_beams must be at least 1"),
        ({"num_beams": 2, "num_return_sequences": 3}, "at least as many beams"),
        ({"num_beams": 2, "slide": True}, "does not support slide"),
        ({"num_beams": 2, "temperature": 0.5}, "does not sample: leave out temperature= or num_beams="),
        ({"num_beams": 2, "top_k": 3}, "does not sample: leave out top_k="),
        ({"num_beams": 2, "top_p": 0.5}, "does not sample: leave out top_p="),
        ({"num_beams": 2, "seed": 3}, "does not sample: leave out seed="),
        ({"length_penalty": 2.0}, "length_penalty= is for beam search"),
        ({"early_stopping": True}, "early_stopping= is for beam search"),
        ({"temperature": 0, "num_return_sequences": 2}, "the same text every time"),
    ],
    ids=str,
)
def test_what_makes_no_sense(ours, settings, words):
    with pytest.raises(ValueError, match=words):
        ours.generate("the", **{"max_new_tokens": 3} | settings)
    with pytest.raises(ValueError, match="lone surrogate"):
        ours.generate("\ud800", 3)


def test_a_fine_tuned_folder_cannot_generate(ours, tmp_path):
    save_model(tmp_path, type(ours.model)(ours.model.config, ()))
    ours.tokenizer.save(tmp_path)
    loaded = hornbook.load(tmp_path)
    if "clm" not in loaded.model.heads:
        with pytest.raises(ValueError, match="no clm head"):
            loaded.generate("the", 3)
    uses = (lambda: ours.fill_mask("a"), lambda: ours.next_sentence(first="a", second="b"), lambda: ours.embed(["a"]))
    for use in (*uses, lambda: ours.detect(text="a")):
        with pytest.raises(ValueError, match="reads from left to right"):
            use()


# ---- how the weights lie


def test_an_opened_gpt_lies_in_columns_and_is_saved_as_it_was(pair, tmp_path):
    _, _, folder = pair
    opened = hornbook.load(folder)
    block = opened.model.blocks[0]
    for weight in (block.attention.qkv.weight, block.fc2.weight, opened.model.embeddings.tokens.weight):
        assert weight.stride() == (1, weight.shape[0])
    save_model(tmp_path, opened.model)
    kept, saved = (load_file(where / "model.safetensors") for where in (folder, tmp_path))
    assert kept.keys() == saved.keys()
    assert all(torch.equal(kept[name], saved[name]) for name in kept)
