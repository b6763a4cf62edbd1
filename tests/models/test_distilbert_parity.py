"""DistilBERT: outputs and gradients equal those of `transformers`; folders open in both libraries; the sizes of small
students."""

import pytest
import torch
import transformers
from small_families import FAMILIES, VOCABULARY, check_gradients, moved, sequences

from hornbook.batch import pack
from hornbook.interop.folder import load_model, save_model
from hornbook.models.bert import Bert
from hornbook.models.distilbert import Distilbert, DistilbertConfig
from hornbook.runs.pretraining.presets import PRESETS

FAMILY = FAMILIES["distilbert"]
LENGTHS = [13, 3, 20, 7, 7, 1]


def their_model(folder, **changes) -> transformers.DistilBertForMaskedLM:
    torch.manual_seed(0)
    model = moved(transformers.DistilBertForMaskedLM(FAMILY.their_config(**changes)))
    model.save_pretrained(folder)
    return transformers.DistilBertForMaskedLM.from_pretrained(folder, attn_implementation="eager")


@pytest.mark.parametrize("changes", [{}, {"activation": "relu"}, {"sinusoidal_pos_embds": True}])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_outputs_and_gradients(tmp_path, random, changes, dtype, tolerance):
    theirs = their_model(tmp_path, **changes).to(dtype).eval()
    ours = load_model(tmp_path).to(dtype)
    assert ours.heads == ("mlm",) and ours.embeddings.segments is None
    ids, segments = sequences(random, LENGTHS)
    padded = FAMILY.padded(ids, segments)
    expected = theirs(**padded).logits[padded["attention_mask"].bool()]
    found = ours.vocabulary_logits(ours(pack(ids, segments)))[:, :VOCABULARY]  # segments change nothing
    assert (found - expected).abs().max() <= tolerance * max(1.0, expected.abs().max())
    (expected**2).mean().backward()
    (found**2).mean().backward()
    if "sinusoidal_pos_embds" in changes:  # their table trains, once it was loaded; ours does not
        theirs.distilbert.embeddings.position_embeddings.weight.grad = None
        fixed = [name for name, each in ours.named_parameters() if each.grad is None]
        assert fixed == ["embeddings.positions.weight"]
        return
    check_gradients(ours, theirs, tolerance)


@pytest.mark.parametrize("heads", [("mlm",), ()])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_transformers_opens_what_we_write(tmp_path, random, heads, positions):
    model = Distilbert(FAMILY.config(positions=positions), heads)
    model.initialize(torch.Generator().manual_seed(3))
    save_model(tmp_path, model.eval())
    kind = transformers.DistilBertForMaskedLM if heads else transformers.DistilBertModel
    theirs, report = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert theirs.config.sinusoidal_pos_embds == (positions == "sinusoidal")
    ids = random.integers(0, VOCABULARY, 17)
    expected = theirs.base_model.eval()(torch.from_numpy(ids)[None]).last_hidden_state[0]
    assert torch.allclose(model(pack([ids])), expected, atol=1e-5)
    again = load_model(tmp_path)
    assert again.heads == heads and again.config == model.config
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("kind", "preset", "heads", "published_millions"),
    [
        (Distilbert, PRESETS["distilbert"], (), 66),
        (Bert, PRESETS["tinybert-4"], ("pooler", "mlm"), 14.5),
        (Bert, PRESETS["tinybert-6"], ("pooler",), 67),
    ],
)
def test_published_sizes(kind, preset, heads, published_millions):
    with torch.device("meta"):
        model = kind(preset.model, heads)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(published_millions, abs=0.5)


def test_what_it_has_no_place_for_is_refused():
    with pytest.raises(ValueError, match="has no segments"):
        DistilbertConfig(num_segments=2)
    with pytest.raises(ValueError, match=r"always 1e-12: leave out 1e-05"):
        DistilbertConfig(norm_eps=1e-5)
