"""The attention that is shown must be the attention that the model runs."""

import json

import pytest
import torch

from hornbook.batch import pack
from hornbook.inference.attention import attentions_of, write_attention
from hornbook.models.albert import Albert
from hornbook.models.bert import Bert, BertConfig
from hornbook.models.gpt import Gpt2
from hornbook.text.tokenizer import Tokenizer


def tiny_model(direction="bidirectional", vocab_size=200):
    """Weights far enough from 0 that attention is uneven, and dropout that must not be felt."""
    config = BertConfig(
        vocab_size, 3, 32, 4, 64, 64, init_std=0.4, direction=direction, dropout=0.3, attention_dropout=0.3
    )
    model = Bert(config, ("pooler",))
    model.initialize(torch.Generator().manual_seed(1))
    return model


def one_sequence(random, length=11):
    return pack([random.integers(0, 200, length)])


def tiny(kind, **settings):
    """The same of other families."""
    of_all = {"vocab_size": 200, "num_layers": 3, "width": 32, "num_heads": 4, "inner_width": 64, "max_positions": 64}
    model = kind(kind.config_class(**of_all, init_std=0.4, **settings), ())
    model.initialize(torch.Generator().manual_seed(1))
    return model


MODELS = {
    "bidirectional": tiny_model,
    "causal": lambda: tiny_model("causal"),
    "narrow token vectors": lambda: tiny(Albert, embedding_width=8),
    "norms before the parts": lambda: tiny(Gpt2),
    "bands": lambda: tiny(Gpt2, window=3),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("layer", [0, 1, -1])
def test_it_is_what_the_model_attends_to(random, make, layer):
    model, batch = make(), one_sequence(random)
    weights_HSS = attentions_of(model, batch, [layer])[0]
    assert weights_HSS.shape == (4, 11, 11) and (weights_HSS >= 0).all()
    assert torch.allclose(weights_HSS.sum(-1), torch.ones(4, 11), atol=1e-6)
    assert weights_HSS.max() > 0.5  # uneven, so a wrong formula would be seen
    model.eval()
    attention = model.blocks[layer].attention
    through = []
    attention.register_forward_hook(lambda _, inputs, head_config: through.append((inputs[0], head_config)))
    with torch.no_grad():
        model(batch)
        x_TD, theirs_TD = through[layer % 3 if len(through) == 3 else 0]  # one block may stand for all
        value_THC = attention.qkv(x_TD).unflatten(-1, (3, 4, -1))[:, 2]
        ours_TD = torch.einsum("hqk,khc->qhc", weights_HSS, value_THC).flatten(1)
    assert torch.allclose(ours_TD, theirs_TD, atol=1e-5)


def test_training_mode_is_kept(random):
    model, batch = tiny_model(), one_sequence(random)
    model.train()
    first, second = (attentions_of(model, batch, [-1])[0] for _ in range(2))
    assert torch.equal(first, second) and model.training and not first.requires_grad


def test_what_cannot_be_shown_is_refused(random):
    model = tiny_model()
    with pytest.raises(ValueError, match="a batch of one sequence, not 2"):
        attentions_of(model, pack([random.integers(0, 200, 3)] * 2), [-1])
    with pytest.raises(ValueError, match="no layer 3: the model has 3"):
        attentions_of(model, one_sequence(random), [3])


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
