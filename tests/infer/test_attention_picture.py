"""The attention that is shown must be the attention that the model runs."""

import json

import pytest
import torch

from hornbook.batch import pack
from hornbook.infer.attention import attention_of, hidden_before, write_attention
from hornbook.models.albert import Albert, AlbertConfig
from hornbook.models.bert import Bert, BertConfig
from hornbook.text.tokenizer import Tokenizer


def tiny_model(direction="both", vocab_size=200):
    """Weights far enough from 0 that attention is uneven, and dropout that must not be felt."""
    config = BertConfig(
        vocab_size, 3, 32, 4, 64, 64, init_std=0.4, direction=direction, dropout=0.3, attention_dropout=0.3
    )
    model = Bert(config, ("pooler",))
    model.initialise(torch.Generator().manual_seed(1))
    return model


def one_sequence(random, length=11):
    return pack([random.integers(0, 200, length)])


@pytest.mark.parametrize("direction", ["both", "left", "right"])
@pytest.mark.parametrize("layer", [0, 1, -1])
def test_it_is_what_the_model_attends_to(random, direction, layer):
    model, batch = tiny_model(direction), one_sequence(random)
    weights_HSS = attention_of(model, batch, layer)
    assert weights_HSS.shape == (4, 11, 11) and (weights_HSS >= 0).all()
    assert torch.allclose(weights_HSS.sum(-1), torch.ones(4, 11), atol=1e-6)
    assert weights_HSS.max() > 0.5  # uneven, so a wrong formula would be seen
    model.eval()
    attention = model.blocks[layer].attention
    with torch.no_grad():
        x_TD = hidden_before(model, batch, layer % 3)
        value_THC = attention.qkv(x_TD).unflatten(-1, (3, 4, -1))[:, 2]
        ours = torch.einsum("hqk,khc->qhc", weights_HSS, value_THC).flatten(1)
        theirs = attention(x_TD, batch.starts, batch.starts_host, batch.longest)
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_the_hidden_state_before_a_layer_leads_to_the_model_s_own_output(random):
    model, batch = tiny_model().eval(), one_sequence(random)
    with torch.no_grad():
        x_TD = hidden_before(model, batch, 2)
        assert torch.equal(model.blocks[2](x_TD, batch.starts, batch.starts_host, batch.longest), model(batch))


def test_the_hidden_state_of_narrow_token_vectors_is_as_wide_as_the_blocks(random):
    model, batch = Albert(AlbertConfig(200, 3, 32, 4, 64, 64, embedding_width=8), ()).eval(), one_sequence(random)
    with torch.no_grad():
        x_TD = hidden_before(model, batch, 0)
        for block in model.blocks:
            x_TD = block(x_TD, batch.starts, batch.starts_host, batch.longest)
        assert torch.equal(x_TD, model(batch))


def test_a_model_in_training_stays_in_training(random):
    model, batch = tiny_model(), one_sequence(random)
    model.train()
    first, second = attention_of(model, batch), attention_of(model, batch)
    assert torch.equal(first, second) and model.training and not first.requires_grad


def test_what_cannot_be_shown_is_refused(random):
    model = tiny_model()
    with pytest.raises(ValueError, match="of one sequence, and the batch has 2"):
        attention_of(model, pack([random.integers(0, 200, 3)] * 2))
    with pytest.raises(ValueError, match="no layer 3: the model has 3"):
        attention_of(model, one_sequence(random), 3)


def test_the_file(tmp_path, tiny_tokenizer):
    tokenizer = Tokenizer.load(tiny_tokenizer)
    model = tiny_model(vocab_size=tokenizer.vocab_size)
    path = write_attention(tmp_path, model, tokenizer, "the river and the garden", "a teacher")
    found = json.loads(path.read_text(encoding="utf-8"))
    num_tokens = len(found["tokens"])
    assert path.name == "attention.json" and (found["layer"], found["num_layers"]) == (3, 3)
    assert found["tokens"][0] == "[CLS]" and found["tokens"].count("[SEP]") == 2 and num_tokens <= 40
    assert len(found["heads"]) == 4 and len(found["mean"]) == num_tokens
    for row, of_heads in zip(found["mean"], zip(*found["heads"], strict=True), strict=True):
        assert sum(row) == pytest.approx(1, abs=1e-4 * num_tokens)
        for mean, *each in zip(row, *of_heads, strict=True):
            assert mean == pytest.approx(sum(each) / 4, abs=1.1e-4) and mean == round(mean, 4)


def test_a_long_text_has_no_picture(tmp_path, tiny_tokenizer):
    tokenizer = Tokenizer.load(tiny_tokenizer)
    model = tiny_model(vocab_size=tokenizer.vocab_size)
    assert write_attention(tmp_path, model, tokenizer, "the river " * 30) is None
    assert not list(tmp_path.iterdir())
