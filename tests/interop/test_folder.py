"""Folders written by `transformers` open here, folders written here open there, and broken ones are refused."""

import json
import random as chance
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from hornbook.batch import pack
from hornbook.interop.files import WEIGHTS
from hornbook.interop.folder import load_folder, load_model, save_model
from hornbook.models.bert import Bert, BertConfig
from hornbook.models.head_config import MASKED_LOGIT, HeadConfig
from hornbook.text.tokenizer import Tokenizer

IDS = [[2, 9, 17, 25, 33, 3], [2, 8, 3]]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "한국", "##어", "the", "cat", "##s", "sat", ".", ","]


def their_config(**overrides) -> transformers.BertConfig:
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    return transformers.BertConfig(**size | {"vocab_size": 40, "max_position_embeddings": 24} | overrides)


def written(folder: Path, kind: type = transformers.BertForPreTraining, **overrides):
    torch.manual_seed(0)
    model = kind(their_config(**overrides)).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases away from 1 and 0
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def rewrite(folder: Path, change) -> None:
    save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS, metadata={"format": "pt"})


def change_config(folder: Path, **overrides) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | overrides))


def assert_same_hidden(ours: Bert, theirs: transformers.BertModel, tolerance: float = 1e-5) -> None:
    with torch.no_grad():
        x_TD = ours(pack(IDS))
        expected = torch.cat([theirs(torch.tensor([row])).last_hidden_state[0] for row in IDS])
    assert (x_TD - expected).abs().max() < tolerance


def assert_same_mlm(ours: Bert, theirs, tolerance: float = 1e-5) -> None:
    with torch.no_grad():
        logits = ours.vocabulary_logits(ours(pack(IDS)))[:, : ours.config.vocab_size]
        outputs = [theirs(torch.tensor([row])) for row in IDS]
        expected = torch.cat([getattr(out, "logits", getattr(out, "prediction_logits", None))[0] for out in outputs])
    assert (logits - expected).abs().max() < tolerance


# ---- what transformers wrote


@pytest.mark.parametrize(
    ("kind", "heads"),
    [
        ("BertModel", ("pooler",)),
        ("BertForPreTraining", ("pooler", "mlm", "sentence")),
        ("BertForMaskedLM", ("mlm",)),
        ("BertForNextSentencePrediction", ("pooler", "sentence")),
        ("BertForSequenceClassification", ("pooler",)),
        ("BertForTokenClassification", ()),
        ("BertForQuestionAnswering", ()),
        ("BertForMultipleChoice", ("pooler",)),
    ],
)
def test_opens_every_kind_of_bert_folder(tmp_path, kind, heads):
    theirs = written(tmp_path, getattr(transformers, kind))
    ours = load_model(tmp_path)
    assert ours.heads == heads
    assert not ours.training
    assert_same_hidden(ours, getattr(theirs, "bert", theirs))
    if "mlm" in heads:
        assert_same_mlm(ours, theirs)


@pytest.mark.parametrize("prefixed", [True, False])
def test_prefix_position_ids_and_old_names_of_norms(tmp_path, prefixed):
    theirs = written(tmp_path, transformers.BertModel)

    def old(weights: dict) -> dict:
        weights["embeddings.position_ids"] = torch.arange(24)[None]
        renamed = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
            for name, value in weights.items()
        }
        return {("bert." if prefixed else "") + name: value for name, value in renamed.items()}

    rewrite(tmp_path, old)
    assert_same_hidden(load_model(tmp_path), theirs)


def test_decoder_written_out_although_tied(tmp_path):
    theirs = written(tmp_path)

    def with_decoder(weights: dict) -> dict:
        weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"].clone()
        weights["cls.predictions.decoder.bias"] = weights["cls.predictions.bias"].clone()
        return weights

    rewrite(tmp_path, with_decoder)
    assert_same_mlm(load_model(tmp_path), theirs)


def test_bias_only_under_the_decoders_name(tmp_path):
    theirs = written(tmp_path)
    rewrite(tmp_path, lambda w: w | {"cls.predictions.decoder.bias": w["cls.predictions.bias"].clone()})
    rewrite(tmp_path, lambda w: {name: value for name, value in w.items() if name != "cls.predictions.bias"})
    assert_same_mlm(load_model(tmp_path), theirs)


def test_untied_embeddings_both_ways(tmp_path):
    theirs = written(tmp_path / "theirs", transformers.BertForMaskedLM, tie_word_embeddings=False)
    ours = load_model(tmp_path / "theirs")
    assert not torch.equal(ours.mlm.weight[:40], ours.embeddings.tokens.weight[:40])
    assert_same_mlm(ours, theirs)
    save_model(tmp_path / "ours", ours)
    assert_same_mlm(ours, transformers.BertForMaskedLM.from_pretrained(tmp_path / "ours").eval())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_into_float32(tmp_path, dtype):
    theirs = written(tmp_path).to(dtype)
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}
    assert_same_mlm(ours, theirs.float())


def test_several_files_with_an_index(tmp_path):
    theirs = written(tmp_path / "one")
    theirs.save_pretrained(tmp_path / "many", max_shard_size="4KB")
    assert not (tmp_path / "many" / WEIGHTS).exists()
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    assert_same_mlm(load_model(tmp_path / "many"), theirs)
    first = sorted((tmp_path / "many").glob("*.safetensors"))[0]
    first.unlink()
    with pytest.raises(ValueError, match=f"{first.name} is missing"):
        load_model(tmp_path / "many")
    for content in ("{}", '{"weight_map": ["a"]}', '{"weight_map": {"a": 3}}'):
        (tmp_path / "many" / f"{WEIGHTS}.index.json").write_text(content)
        with pytest.raises(ValueError, match="weight_map"):
            load_model(tmp_path / "many")


def test_vocabulary_text_alone(tmp_path):
    written(tmp_path, vocab_size=len(VOCABULARY))
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    _, tokenizer = load_folder(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("The cats sat, the cat sat.", "[MASK] sat"):
        assert tokenizer.encode(text).ids == theirs(text)["input_ids"]


# ---- what is written here


@pytest.mark.parametrize("part", [".", "best"])
def test_transformers_opens_a_run(tiny_run, part):
    folder = tiny_run / part
    ours, tokenizer = load_folder(folder)
    for kind in (transformers.BertForPreTraining, transformers.BertForMaskedLM):
        theirs, said = kind.from_pretrained(folder, output_loading_info=True)
        assert not said["missing_keys"]
        assert not said["mismatched_keys"]
        assert_same_mlm(ours, theirs.eval())
    assert_same_hidden(ours, transformers.AutoModel.from_pretrained(folder).eval())
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text in (
        "The river, and THE teacher of letters!",
        "한국어 위키백과는 한국어로 운영되는 여우가",
        "a [MASK] b",
        "",
    ):
        assert tokenizer.encode(text).ids == their_tokenizer(text)["input_ids"]
    pair = their_tokenizer("the river", "한국어 bread")
    assert tokenizer.encode("the river", "한국어 bread").ids == pair["input_ids"]
    assert tokenizer.encode("the river", "한국어 bread").segments == pair["token_type_ids"]


@pytest.mark.parametrize("heads", [(), ("pooler",), ("mlm",), ("pooler", "sentence"), ("pooler", "mlm", "sentence")])
def test_written_and_read_again(tmp_path, heads):
    config = BertConfig(vocab_size=70, num_layers=1, width=16, num_heads=2, inner_width=20, max_positions=16)
    model = Bert(config, heads)
    model.initialize(torch.Generator().manual_seed(3))
    save_model(tmp_path, model)
    again = load_model(tmp_path)
    assert again.config == config
    assert again.heads == heads
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    if "mlm" in heads:
        assert (again.mlm.bias[70:] == MASKED_LOGIT).all()
    assert len(load_file(tmp_path / WEIGHTS)[_word_embeddings(tmp_path)]) == 70


def test_the_labels_of_our_own_head_do_not_depend_on_the_name_of_the_class(tmp_path):
    head_config = HeadConfig("sequence", 3, ("bad", "good", "mixed"))
    config = BertConfig(vocab_size=70, num_layers=1, width=16, num_heads=2, inner_width=20, max_positions=16)
    model = Bert(config, Bert.heads_for(head_config), head_config)
    model.initialize(torch.Generator().manual_seed(3))
    save_model(tmp_path, model)
    change_config(tmp_path, architectures=["SomeOtherClass"])
    assert load_model(tmp_path).head_config == head_config


def _word_embeddings(folder: Path) -> str:
    return next(name for name in load_file(folder / WEIGHTS) if name.endswith("word_embeddings.weight"))


# ---- what is broken


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    written(folder, vocab_size=len(VOCABULARY))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    load_folder(folder)
    return folder


@pytest.fixture
def folder(whole, tmp_path) -> Path:
    shutil.copytree(whole, tmp_path / "model")
    return tmp_path / "model"


def complaint(folder: Path) -> str:
    with pytest.raises(ValueError) as raised:
        load_folder(folder)
    words = str(raised.value)
    assert type(raised.value) is ValueError
    assert "\n" not in words
    assert str(folder) in words
    return words


def test_weights_cut_short_anywhere(folder):
    content = (folder / WEIGHTS).read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    for length in (0, 1, 7, 8, 9, header // 2, header - 1, header, header + 1, len(content) // 2, len(content) - 1):
        (folder / WEIGHTS).write_bytes(content[:length])
        words = complaint(folder)
        assert WEIGHTS in words
        assert "damaged or truncated" in words


def test_weights_with_wrong_bytes_in_the_header(folder):
    content = (folder / WEIGHTS).read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    draw = chance.Random(0)
    before = load_model(folder).state_dict()
    for _ in range(300):
        place = draw.randrange(header)
        wrong = bytearray(content)
        wrong[place] ^= 1 << draw.randrange(8)
        (folder / WEIGHTS).write_bytes(wrong)
        try:
            after = load_model(folder).state_dict()
        except ValueError as error:
            assert type(error) is ValueError
            assert WEIGHTS in str(error)
            assert "\n" not in str(error)
        else:  # a byte of the metadata, or a name without its prefix
            assert all(torch.equal(before[name], after[name]) for name in before)


def test_integers_for_weights(folder):
    rewrite(folder, lambda weights: {name: value.int() for name, value in weights.items()})
    assert "not floating point" in complaint(folder)


@pytest.mark.parametrize(
    "overrides",
    [
        {"hidden_size": 32},
        {"hidden_size": 10**7},
        {"num_hidden_layers": 3},
        {"num_hidden_layers": 1},
        {"num_hidden_layers": 10**9},
        {"intermediate_size": 25},
        {"max_position_embeddings": 512},
        {"type_vocab_size": 1},
        {"vocab_size": 64},
        {"vocab_size": 12},
        {"hidden_size": 17},
        {"num_attention_heads": 0},
        {"num_attention_heads": 3},
        {"hidden_size": "16"},
        {"hidden_size": 16.5},
        {"hidden_size": None},
        {"hidden_act": "swish"},
        {"hidden_act": ["gelu"]},
        {"position_embedding_type": "relative_key"},
        {"add_cross_attention": True},
        {"model_type": "roberta"},
        {"model_type": None},
        {"model_type": ["bert"]},
    ],
    ids=str,
)
def test_config_that_does_not_fit(folder, overrides):
    change_config(folder, **overrides)
    assert "config.json" in complaint(folder)


def test_weights_of_the_padded_size_are_not_taken_for_the_vocabulary(folder):
    """64 rows is what 13 tokens are padded to inside: the file still does not belong to this config."""
    written(folder, vocab_size=64)
    change_config(folder, vocab_size=len(VOCABULARY))
    assert "(64, 16)" in complaint(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b'{"model_type": "bert"}', b"null"])
def test_config_that_is_none(folder, content):
    (folder / "config.json").write_bytes(content)
    assert "config.json" in complaint(folder)


@pytest.mark.parametrize("name", ["config.json", WEIGHTS, "vocab.txt"])
def test_missing_file(folder, name):
    (folder / name).unlink()
    complaint(folder)


@pytest.mark.parametrize("name", ["config.json", WEIGHTS])
def test_folder_where_a_file_should_be(folder, name):
    (folder / name).unlink()
    (folder / name).mkdir()
    complaint(folder)


def test_vocabulary_of_another_size(folder):
    with open(folder / "vocab.txt", "a", encoding="utf-8") as file:
        file.write("more\n")
    assert "14 tokens but the model only 13" in complaint(folder)


def test_vocabulary_smaller_than_the_models_is_well(folder):
    written(folder, vocab_size=20)
    model, tokenizer = load_folder(folder)
    assert (model.config.vocab_size, tokenizer.vocab_size) == (20, 13)


@pytest.mark.parametrize("content", [b"{}", b"[", b"\xff", b'{"model": 3}'])
def test_tokenizer_that_is_none(folder, content):
    (folder / "tokenizer.json").write_bytes(content)
    assert "tokenizer.json" in complaint(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "bert_model.ckpt.index"])
def test_pickle_is_refused(folder, name):
    (folder / WEIGHTS).rename(folder / name)
    words = complaint(folder)
    assert "pickle" in words
    assert "save_pretrained" in words


def test_pickle_is_converted_as_the_message_says(folder):
    state = load_file(folder / WEIGHTS)
    torch.save(state, folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()
    code = complaint(folder).partition('python -c "')[2].removesuffix('"')
    exec(code)
    assert Tokenizer.load(folder).vocab_size == load_model(folder).config.vocab_size
    assert {name for name in load_file(folder / WEIGHTS)} == set(state)
