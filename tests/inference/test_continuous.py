"""Texts that join and leave a running batch are those that each prompt gives alone."""

import pytest
from small_gpts import PROMPTS, saved_gpt

import hornbook
from hornbook.inference.continuous import ContinuousBatch
from hornbook.inference.generation import GenerationConfig

SETTINGS = [
    {"temperature": 0.0},
    {"temperature": 1.0, "seed": 3},
    {"temperature": 0.7, "top_k": 20, "seed": 4},
    {"temperature": 1.0, "top_p": 0.8, "seed": 5, "repetition_penalty": 1.3},
    {"temperature": 0.0, "repetition_penalty": 1.5},
]


@pytest.fixture(scope="module", params=["gpt2", "openai-gpt"])
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("continuous") / "gpt"
    saved_gpt(folder, request.param)
    return hornbook.load(folder)


def batch_of(model, num_slots=3):
    return ContinuousBatch(model.model, model.tokenizer, model.eos_id, num_slots)


def test_texts_are_those_of_each_prompt_alone(model):
    """More texts than slots, of different lengths and settings, which join whenever a slot is free."""
    wanted = [
        (prompt, {"max_new_tokens": 3 + 5 * number % 17, **settings})
        for number, (prompt, settings) in enumerate((p, s) for p in PROMPTS for s in SETTINGS)
    ]
    batch, waiting, running, found, sizes = batch_of(model), list(enumerate(wanted)), {}, {}, []
    while waiting or running:
        if waiting and batch.has_free_slot:
            number, (prompt, settings) = waiting.pop(0)
            pieces = []
            sequence = batch.add(model.prompt_ids([prompt])[0], GenerationConfig(**settings), on_text=pieces.append)
            running[number] = sequence, pieces
        batch.step()
        sizes.append(len(batch))
        for number in [number for number, (sequence, _) in running.items() if sequence.finish_reason]:
            sequence, pieces = running.pop(number)
            found[number] = sequence.result(), "".join(pieces)
    for number, (prompt, settings) in enumerate(wanted):
        (alone,) = model.generate(prompt, **settings)
        assert found[number] == (alone, alone.text), (prompt, settings)
    assert set(sizes) >= {1, 2}


def test_a_text_that_is_removed_changes_no_other(model):
    batch = batch_of(model)
    config = GenerationConfig(max_new_tokens=12, seed=7)
    sequences = [batch.add(model.prompt_ids([prompt])[0], config) for prompt in PROMPTS[:3]]
    for _ in range(4):
        batch.step()
    batch.remove(sequences[0])
    config = GenerationConfig(max_new_tokens=5, temperature=0.0)
    late = batch.add(model.prompt_ids([PROMPTS[3]])[0], config) if batch.has_free_slot else None
    while len(batch):
        batch.step()
    assert not sequences[0].finish_reason and late.result() == model.generate(PROMPTS[3], 5, temperature=0)[0]
    for prompt, sequence in zip(PROMPTS[1:3], sequences[1:], strict=True):
        assert sequence.result() == model.generate(prompt, 12, seed=7)[0]


def test_stop_strings_full_contexts_and_samples(model):
    batch = batch_of(model, 4)
    first = model.generate("the river", 12, temperature=0)[0].text
    stop = first[3:5]
    stopped = batch.add(
        model.prompt_ids(["the river"])[0], GenerationConfig(max_new_tokens=12, temperature=0.0, stop_strings=(stop,))
    )
    full = batch.add(model.prompt_ids(["bread " * 10])[0], GenerationConfig(max_new_tokens=200, seed=1))
    config = GenerationConfig(max_new_tokens=9, num_return_sequences=2, seed=2)
    samples = [batch.add(model.prompt_ids(["the"])[0], config, sample) for sample in range(2)]
    while len(batch):
        batch.step()
    assert stopped.result() == model.generate("the river", 12, temperature=0, stop_strings=stop)[0]
    assert full.result() == model.generate("bread " * 10, 200, seed=1)[0]
    expected = model.generate("the", 9, num_return_sequences=2, seed=2)
    assert [each.result() for each in samples] == expected
