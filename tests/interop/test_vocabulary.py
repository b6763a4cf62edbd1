"""An extended vocabulary: old rows bit for bit, new rows the mean of their former tokens, padding untouched."""

import pytest
import torch

from hornbook.interop.folder import load_folder, save_model
from hornbook.interop.vocabulary import extend_vocabulary, with_new_tokens
from hornbook.models.bert import Bert, BertConfig
from hornbook.models.gpt import Gpt2, Gpt2Config
from hornbook.models.head_config import MASKED_LOGIT, HeadConfig
from hornbook.models.transformer import VOCABULARY_PADDING
from hornbook.text.task_tokens import with_gpt1_format, with_pad_token
from hornbook.text.tokenizer import Tokenizer

NEW_WORDS = ["bridgeriver", "teacherly", "한국어위키", "qx"]


@pytest.fixture
def old(tiny_tokenizer) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer)


def extended(old: Tokenizer, tiny_tokenizer, words: list[str]) -> Tokenizer:
    new = Tokenizer.load(tiny_tokenizer)
    assert len(new.add_words(words)) == len(words)
    return new


def random_model(vocab_size: int, tied: bool = True, **overrides) -> Bert:
    size = {"num_layers": 1, "width": 16, "num_heads": 2, "inner_width": 24, "max_positions": 32} | overrides
    model = Bert(BertConfig(vocab_size=vocab_size, tied=tied, **size))
    model.initialize(torch.Generator().manual_seed(1))
    with torch.no_grad():
        model.mlm.bias[:vocab_size].normal_()
        if not tied:
            model.mlm.weight[:vocab_size].normal_()
    return model


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("num_words", [1, 4, 200])  # the padded size stays, and changes
@pytest.mark.parametrize("num_spare", [0, 2, 150])  # rows of the model that no token has had
def test_rows(old, tiny_tokenizer, tied, num_words, num_spare):
    words = (NEW_WORDS + [f"zq{'abcdefghij'[i // 20]}{'klmnopqrstuvwxyzabcd'[i % 20]}" for i in range(196)])[:num_words]
    new = extended(old, tiny_tokenizer, words)
    model = random_model(old.vocab_size + num_spare, tied)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    larger = extend_vocabulary(model, old, new)
    size = max(new.vocab_size, model.config.vocab_size)
    assert larger.config.vocab_size == size
    for name, value in larger.state_dict().items():
        if name not in VOCABULARY_PADDING:
            assert torch.equal(value, before[name]), name
            continue
        assert torch.equal(value[: old.vocab_size], before[name][: old.vocab_size])
        assert torch.equal(value[new.vocab_size : model.config.vocab_size], before[name][new.vocab_size : size])
        for token in range(old.vocab_size, new.vocab_size):
            pieces = torch.tensor(old.encode(new.token(token)).ids[1:-1])
            assert torch.allclose(value[token], before[name][pieces].mean(0), atol=1e-7)
        assert (value[size:] == VOCABULARY_PADDING[name]).all()
    assert VOCABULARY_PADDING["mlm.bias"] == MASKED_LOGIT
    assert torch.equal(model.state_dict()["mlm.bias"], before["mlm.bias"])


def test_tables_as_long_as_the_vocabulary_are_not_taken_for_it(old, tiny_tokenizer):
    padded = random_model(old.vocab_size).config.padded_vocab_size
    model = random_model(old.vocab_size, max_positions=padded, inner_width=padded, num_segments=padded)
    larger = extend_vocabulary(model, old, extended(old, tiny_tokenizer, NEW_WORDS))
    for name, value in model.state_dict().items():
        if name not in VOCABULARY_PADDING:
            assert torch.equal(larger.state_dict()[name], value), name


def test_a_task_head_is_left_out(old, tiny_tokenizer):
    plain = random_model(old.vocab_size)
    model = Bert(plain.config, plain.heads, HeadConfig("sequence", num_labels=3))
    model.load_state_dict(plain.state_dict(), strict=False)
    larger = extend_vocabulary(model, old, extended(old, tiny_tokenizer, NEW_WORDS))
    assert larger.state_dict().keys() == plain.state_dict().keys()


def test_nothing_new(old):
    model = random_model(old.vocab_size)
    for name, value in extend_vocabulary(model, old, old).state_dict().items():
        assert torch.equal(value, model.state_dict()[name])


def test_saved_and_opened(old, tiny_tokenizer, tmp_path):
    new = extended(old, tiny_tokenizer, NEW_WORDS)
    larger = extend_vocabulary(random_model(old.vocab_size), old, new)
    save_model(tmp_path, larger)
    new.save(tmp_path)
    model, tokenizer = load_folder(tmp_path)
    assert tokenizer.encode("teacherly").ids[1:-1] == [new.id("teacherly")]
    for name, value in model.state_dict().items():
        assert torch.equal(value, larger.state_dict()[name])


@pytest.mark.parametrize("is_smaller", [True, False])
def test_other_vocabulary(old, tiny_tokenizer, is_smaller):
    from hornbook.text.training import train_tokenizer

    other = train_tokenizer(["one two three four five six"] * 3, vocab_size=60)
    pair = (old, other) if is_smaller else (other, old)
    with pytest.raises(ValueError, match="a different vocabulary than the model's"):
        extend_vocabulary(random_model(pair[0].vocab_size), *pair)
    with pytest.raises(ValueError, match="a different vocabulary than the model's"):
        extend_vocabulary(random_model(old.vocab_size + 4), extended(old, tiny_tokenizer, NEW_WORDS), old)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("num_spare", [0, 2, 150])
def test_new_tokens_are_newly_initialised(old, tied, num_spare):
    """All else bit for bit, also rows that no token has had; a task's head is left behind."""
    size = {"num_layers": 1, "width": 64, "num_heads": 2, "inner_width": 24, "max_positions": 32}
    config = Gpt2Config(vocab_size=old.vocab_size + num_spare, tied=tied, **size)
    model = Gpt2(config, head_config=HeadConfig("sequence", 3))
    model.initialize(torch.Generator().manual_seed(1))
    new = with_pad_token(with_gpt1_format(old))
    larger, again, other = (with_new_tokens(model, old, new, seed) for seed in (0, 0, 1))
    assert larger.task is None and larger.config.vocab_size == old.vocab_size + max(3, num_spare)
    assert (larger.config.pad_id, larger.config.eos_id) == (new.pad_id, new.eos_id)
    for name, value in larger.state_dict().items():
        before = model.state_dict()[name]
        if name not in VOCABULARY_PADDING:
            assert torch.equal(value, before)
            continue
        first, last = old.vocab_size, old.vocab_size + 3
        assert torch.equal(value[:first], before[:first]) and not value[larger.config.vocab_size :].any()
        assert torch.equal(value[last : config.vocab_size], before[last : config.vocab_size])
        assert float(value[first:last].std()) == pytest.approx(0.02, rel=0.25)
        assert torch.equal(value, again.state_dict()[name])
        assert not torch.equal(value[first:last], other.state_dict()[name][first:last])
