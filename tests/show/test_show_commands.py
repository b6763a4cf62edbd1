"""What is shown is what the model reads and does."""

import json
import re

import numpy as np
import pytest
import torch
from tiny import KOREAN, TINY_MODEL

import hornbook as library
from hornbook.batch import pack
from hornbook.cli.showing import split_texts
from hornbook.interop.folder import save_model
from hornbook.models import registry
from hornbook.models.albert import Albert, AlbertConfig
from hornbook.models.bert import Bert, BertConfig
from hornbook.models.gpt import Gpt2
from hornbook.objectives.masking import MaskingSettings
from hornbook.runs.pretraining.plan import plan
from hornbook.runs.pretraining.presets import PRESETS
from hornbook.runs.pretraining.pretrain import pretrain
from hornbook.show.masking import LAYOUTS, show_example, show_masking, show_replaced
from hornbook.show.parameters import parameter_table, sharing_totals, show_parameters
from hornbook.show.translations import LEGEND, PARTS, WORDS
from hornbook.show.visualization import show_forms, show_tokens
from hornbook.text.tokenizer import Tokenizer
from hornbook.text.training import train_tokenizer

TEXT = "the river and the garden of the teacher"


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer)


def texts(token_row) -> list[str]:
    return [cell.text for cell in token_row.cells]


def test_tokens_of_a_pair(tokenizer):
    picture = show_tokens(tokenizer, "the river", "a ☃ bridge")
    encoded = tokenizer.encode("the river", "a ☃ bridge")
    rows = picture.tables[0].rows
    assert [row[2] for row in rows] == encoded.ids and [row[3] for row in rows] == encoded.segments
    assert [row[0] for row in rows] == list(range(len(encoded.ids)))
    marks = {cell.text: (cell.mark, cell.note) for cell in picture.token_rows[0].cells}
    assert marks["[UNK]"] == ("unknown", "☃") and marks["[CLS]"][0] == "special" and marks["river"] == ("", "")
    assert [row[4] for row in rows if row[5] != "special token"] == ["the", "river", "a", "☃", "bridge"]
    assert "unknown" in picture.legend and picture.notes[1].startswith("1 of the tokens stands for")
    assert show_tokens(tokenizer, "☃ and ☃").notes[1].startswith("2 of the tokens stand for")


def test_words_in_pieces_and_korean(tokenizer):
    picture = show_tokens(tokenizer, "riverbridge")
    pieces = [cell for cell in picture.token_rows[0].cells if cell.mark == "piece"]
    assert pieces and f"{len(pieces) + 3} tokens of 1 word, from" in picture.notes[0]
    assert [row[5] for row in picture.tables[0].rows[2:-1]] == ["continues a word"] * len(pieces)
    assert show_tokens(tokenizer, KOREAN, language="ko").tables[0].rows[0][5] == "특수 토큰"
    said = [row[4] for row in show_tokens(tokenizer, KOREAN).tables[0].rows]
    assert "".join(said) == KOREAN.replace(" ", "")


def test_the_text_of_a_byte_level_token():
    tokenizer = train_tokenizer(["the river is wide"] * 20, vocab_size=300, kind="bpe")
    rows = show_tokens(tokenizer, "the river", "is wide").tables[0].rows
    assert [row[4] for row in rows if row[4]] == ["the", "river", "is", "wide"]


def test_bytes_are_shown_as_text():
    tokenizer = train_tokenizer([KOREAN] * 20, vocab_size=400, kind="bpe")
    assert "한국어" in "".join(texts(show_tokens(tokenizer, "한국어").token_rows[0])).replace("Ġ", "")


def test_masking_is_that_of_pretraining(tokenizer):
    picture = show_masking(tokenizer, TEXT, settings=MaskingSettings(probability=0.3), num=200)
    encoded = tokenizer.encode(TEXT)
    cells = [cell for token_row in picture.token_rows for cell in token_row.cells]
    chosen = [cell for cell in cells if cell.note]
    assert len(picture.token_rows) == 200 and len(chosen) == 200 * round(0.3 * len(encoded.ids))
    shares = {name: sum(cell.mark == name for cell in chosen) / len(chosen) for name in ("masked", "random", "kept")}
    assert shares == pytest.approx({"masked": 0.8, "random": 0.1, "kept": 0.1}, abs=0.05)
    for token_row in picture.token_rows:
        restored = [cell.note or cell.text for cell in token_row.cells]
        assert restored == [tokenizer.token(number) for number in encoded.ids]
    for cell in chosen:
        assert (cell.text == "[MASK]") == (cell.mark == "masked") and (cell.mark == "kept") == (cell.text == cell.note)


def test_whole_words_are_masked_together(tokenizer):
    text = "riverbridge gardenbread silverriver"
    token_rows = show_masking(
        tokenizer, text, settings=MaskingSettings(probability=0.4, unit="word"), num=20
    ).token_rows
    words = tokenizer.encode(text).word_ids
    for token_row in token_rows:
        chosen = [bool(cell.note) for cell in token_row.cells]
        by_word = {word: {hit for hit, its in zip(chosen, words, strict=True) if its == word} for word in words}
        assert all(len(hits) == 1 for hits in by_word.values())


def test_masking_needs_words_and_a_mask_token(tokenizer):
    with pytest.raises(ValueError, match="no words to mask"):
        show_masking(tokenizer, " ")
    with pytest.raises(ValueError, match="no mask token"):
        show_masking(Tokenizer(tokenizer.backend, {"unk_token": "[UNK]"}), TEXT)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_examples(tiny_corpus, tokenizer, layout):
    picture = show_example(tiny_corpus, layout, length=32, number=2)
    if layout == "documents":
        cells = picture.token_rows[0].cells
        assert [cell.note for cell in cells[:-1]] == texts(picture.token_rows[0])[1:]
        return
    tokens = [text for token_row in picture.token_rows for text in texts(token_row)]
    assert tokens[0] == "[CLS]" and tokens[-1] == "[SEP]" and len(tokens) <= 32
    assert len(picture.token_rows) == (1 if layout == "full-sentences" else 2)
    num = sum(bool(cell.note) for token_row in picture.token_rows for cell in token_row.cells)
    assert f"{len(tokens)} tokens, {num} of them predicted" in picture.notes


def test_an_unknown_layout_is_refused(tiny_corpus):
    with pytest.raises(ValueError, match="there is no layout 'segments': choose nsp"):
        show_example(tiny_corpus, "segments")


def test_forms_of_tasks(tokenizer):
    gpt = show_forms(tokenizer.without_special_tokens(), "the river", "a garden", is_gpt=True)
    forms = {token_row.label.partition(" (")[0]: texts(token_row) for token_row in gpt.token_rows}
    assert forms["classification"] == ["_start_", "the", "river", "_classify_"]
    assert forms["similarity, second order"] == ["_start_", "a", "garden", "_delimiter_", "the", "river", "_classify_"]
    encoder = show_forms(tokenizer, "the river", "a garden", is_gpt=False)
    assert texts(encoder.token_rows[1]) == ["[CLS]", "the", "river", "[SEP]", "a", "garden", "[SEP]"]
    for token_row in (*gpt.token_rows, *encoder.token_rows):
        assert ":" not in token_row.label and "." not in texts(token_row), token_row.label


def test_a_gpt_is_not_masked(hornbook, tiny_tokenizer, tiny_run, one_way, tmp_path):
    """Whatever its vocabulary: that of an encoder has a mask token."""
    tokenizer = Tokenizer.load(tiny_tokenizer)
    size = {"num_layers": 1, "width": 32, "num_heads": 2, "inner_width": 64, "max_positions": 40}
    for name, mask_id in (("gpt", None), ("hybrid", tokenizer.mask_id)):
        model = Gpt2(Gpt2.config_class(vocab_size=tokenizer.vocab_size, mask_id=mask_id, **size), ("clm",))
        model.initialize(torch.Generator().manual_seed(1))
        tokenizer.save(tmp_path / name, 40)
        save_model(tmp_path / name, model)
    said = hornbook("show", "masking", tmp_path / "gpt", TEXT)
    assert said.status == 2 and said.error.strip().endswith("masks none: give an encoder such as en")
    assert "is a left-to-right model, which" in hornbook("show", "masking", one_way / "causal", TEXT).error
    for folder in (tmp_path / "hybrid", tiny_run, tiny_tokenizer):
        assert hornbook("show", "masking", folder, TEXT).status == 0


@pytest.fixture(scope="module")
def electra(tmp_path_factory, tiny_corpus):
    folder = tmp_path_factory.mktemp("electra")
    overrides = TINY_MODEL | {"model.embedding_width": 16, "objective.generator_size": 0.5}
    settings = {"steps": 2, "batch_tokens": 512, "recipe": "published", "log": lambda words: None}
    pretrain("electra-small", [tiny_corpus], folder / "run", overrides=overrides, **settings)
    return library.load(folder / "run")


def test_several_texts_are_judged_as_each_alone(electra):
    several = [TEXT, "the river", "a lantern of the teacher", ""]
    for found, text in zip(electra.detect(several), several, strict=True):
        alone = electra.detect(text)
        assert [(word.word, word.start, word.end) for word in found] == [
            (word.word, word.start, word.end) for word in alone
        ]
        assert [word.probability for word in found] == pytest.approx([word.probability for word in alone], abs=1e-6)


def test_masked_generated_judged(electra):
    picture = show_replaced(electra, TEXT, num=2, probability=0.4)
    assert "its generator" in picture.notes[0] and len(picture.token_rows) == 6
    for masked, generated, judged in zip(*(picture.token_rows[i::3] for i in range(3)), strict=True):
        assert texts(generated) == texts(judged)
        for before, after in zip(masked.cells, generated.cells, strict=True):
            assert (after.mark == "replaced") == bool(before.note) and after.note == before.note
            assert before.note or before.text == after.text
        ids = [electra.tokenizer.id(text) for text in texts(generated)]
        original = [electra.tokenizer.id(cell.note or cell.text) for cell in masked.cells]
        with torch.no_grad():
            found = torch.sigmoid(electra.model.rtd(electra.model(pack([np.array(ids)])))).tolist()
        for cell, chance, now, then in zip(judged.cells, found, ids, original, strict=True):
            is_right = (chance > 0.5) == (now != then)
            assert (cell.mark == "wrong") == (not is_right)
            assert cell.mark not in ("wrong", "found") or cell.note == f"{chance:.0%}"


def test_other_models_have_nothing_to_judge(tiny_run):
    with pytest.raises(ValueError, match="no head that detects replaced tokens: give an ELECTRA"):
        show_replaced(library.load(tiny_run), TEXT)


@pytest.mark.parametrize(
    "name", ["bert-tiny", "albert-base", "electra-small", "gpt2-tiny", "roberta-base", "gpt1-base", "ernie-tiny"]
)
def test_the_ledger_adds_up(name):
    picture = show_parameters(name)
    ledger = [
        int(row[2].replace(",", "")) for table in picture.tables if len(table.headings) == 3 for row in table.rows
    ]
    assert sum(ledger) == plan(name).parameters
    assert picture.tables[-1].rows == [("total", f"{sum(ledger):,}")]
    sharing = [table for table in picture.tables if table.title == "if the blocks shared"]
    assert len(sharing) == (name != "ernie-tiny")
    for table in sharing:
        assert dict(table.rows)[next(row for row, _ in table.rows if "(this model)" in row)] == f"{sum(ledger):,}"


def test_the_embeddings_of_a_generator_are_counted_once():
    picture = show_parameters("electra-small")
    discriminator, generator = (
        [note for note in picture.notes if note.startswith(name)] for name in ("discriminator", "generator")
    )
    assert "30,522 x 128 + 128 x 256 = 3,939,584, where V x H would be 7,813,632" in discriminator[1]
    assert "E x H = 128 x 64 = 8,192; the token embeddings, V x E, are those" in generator[1] and len(generator) == 2
    totals = [int(total.replace(",", "")) for _, total in picture.tables[-2].rows]
    assert totals[0] == max(totals) == plan("electra-small").parameters and totals[-1] == min(totals)


def test_a_preset_that_does_not_exist(hornbook):
    said = hornbook("show", "parameters", "nonexist")
    assert said.status == 2 and "'nonexist'" in said.error and all(name in said.error for name in PRESETS)


def test_formulas_are_right():
    for row in show_parameters("bert-tiny").tables[0].rows:
        assert eval(row[1].replace(",", "").replace("x", "*")) == int(row[2].replace(",", ""))


@pytest.mark.parametrize("sharing", ["none", "attention", "ffn", "all"])
def test_totals_of_shared_layers(sharing):
    size = {"vocab_size": 100, "num_layers": 3, "width": 32, "num_heads": 2, "inner_width": 48, "embedding_width": 8}
    model = Albert(AlbertConfig(**size, sharing=sharing))
    ledger = sum(number for _, _, number in parameter_table(model))
    other = Albert(AlbertConfig(**size, sharing="ffn"))
    totals = {name.removesuffix(" (this model)"): total for name, total in sharing_totals(other)}
    names = {
        "none": "nothing",
        "attention": "attention",
        "ffn": "the feed-forward network",
        "all": "everything (ALBERT)",
    }
    assert totals[names[sharing]] == f"{ledger:,}"


def test_the_ledger_of_a_folder(tiny_run):
    model = library.load(tiny_run).model
    number = sum(number for _, _, number in parameter_table(model))
    padding = model.config.padded_vocab_size - model.config.vocab_size
    assert number == sum(each.numel() for each in model.parameters()) - padding * (model.config.width + 1)
    assert (
        registry.model_class(model.model_type) is type(model)
        and show_parameters(tiny_run).tables[-1].rows[0][1] == f"{number:,}"
    )


def test_arguments():
    assert split_texts(["one two"]) == (None, "one two", None)
    assert split_texts(["runs/first", "one", "two"]) == ("runs/first", "one", "two")
    assert split_texts(["a b", "two"]) == (None, "a b", "two") and split_texts(["m", "two"])[0] == "m"
    with pytest.raises(ValueError, match="quote texts"):
        split_texts(["a", "b", "c", "d"])
    with pytest.raises(ValueError, match="the text is empty"):
        split_texts(["m", " "])


def test_a_text_in_the_place_of_a_model(hornbook):
    for command in ("tokens", "attention", "masking", "replaced"):
        said = hornbook("show", command, "hello", "world")
        assert said.status == 2 and "'hello'" in said.error and '"hello world"' in said.error, command


def test_commands(hornbook, tiny_run, tiny_corpus, tmp_path):
    said = hornbook("show", "masking", tiny_run, TEXT, "--json", "--html", tmp_path / "masking.html")
    assert said.status == 0 and len(said.answer["token_rows"]) == 5
    assert "[MASK]" in (tmp_path / "masking.html").read_text(encoding="utf-8")
    assert "[MASK](" in hornbook("show", "masking", tiny_run, TEXT).stdout
    assert "label" in hornbook("show", "example", tiny_corpus, "--length", 32).stdout
    assert hornbook("show", "attention", tiny_run, TEXT, "--layer", 9).error.startswith("hornbook: the layer")
    assert "needs" not in hornbook("show", "parameters", tiny_run).error


def test_two_models_fill_in_the_same_mask(hornbook, tiny_run, electra):
    text = "the [MASK] of the river"
    said = hornbook("fill-mask", tiny_run, electra.folder, text, "--top-k", 3, "--json")
    (rows,) = said.answer["masks"]
    for number, model in enumerate((library.load(tiny_run), electra)):
        for guess in model.fill_mask(text, top_k=3)[0]:
            row = next(row for row in rows if row["token"] == guess.token)
            assert row["probabilities"][number] == pytest.approx(guess.probability, abs=1e-6)
    assert json.dumps(said.answer["models"]) == json.dumps([str(tiny_run), str(electra.folder)])


def test_models_of_other_vocabularies_fill_in_the_same_mask(hornbook, tiny_run, tmp_path):
    """A token of one vocabulary has a probability in the other if that has a token for the same text."""
    tokenizer = train_tokenizer([TEXT] * 30, vocab_size=300, kind="bpe")
    size = {"num_layers": 1, "width": 32, "num_heads": 2, "inner_width": 64, "max_positions": 40, "init_std": 0.4}
    model = Bert(BertConfig(vocab_size=tokenizer.vocab_size, **size), ("mlm",))
    model.initialize(torch.Generator().manual_seed(1))
    tokenizer.save(tmp_path / "bytes", 40)
    save_model(tmp_path / "bytes", model)
    models = [library.load(tiny_run), library.load(tmp_path / "bytes")]
    text = "the [MASK] of the river"
    said = hornbook("fill-mask", tiny_run, tmp_path / "bytes", text, "--top-k", 300, "--json")
    (row,) = [row for row in said.answer["masks"][0] if row["token"] in ("garden", "Ġgarden")]
    expected = [
        each.mask_probabilities([text])[0].probabilities_KV[0, each.tokenizer.id(token)].item()
        for each, token in zip(models, ("garden", "Ġgarden"), strict=True)
    ]
    assert row["probabilities"] == pytest.approx(expected)
    lacking = [row["token"] for row in said.answer["masks"][0] if None in row["probabilities"]]
    assert (
        lacking
        and "-: the vocabulary" in hornbook("fill-mask", tiny_run, tmp_path / "bytes", text, "--top-k", 300).stdout
    )
    assert "-: the vocabulary" not in hornbook("fill-mask", tiny_run, tiny_run, text).stdout


def test_several_texts_are_filled_in_as_each_alone(tiny_run):
    model = library.load(tiny_run)
    several = ["the [MASK] river", "a [MASK] of the [MASK] and the garden of the teacher"]
    for text, found in zip(several, model.fill_mask(several), strict=True):
        for ours, alone in zip(found, model.fill_mask(text), strict=True):
            assert [each.token for each in ours] == [each.token for each in alone]
            assert [each.probability for each in ours] == pytest.approx([each.probability for each in alone], abs=1e-6)


def test_both_languages_have_the_same_texts():
    for name, (english, korean) in (*WORDS.items(), *LEGEND.items(), *PARTS.items()):
        assert sorted(re.findall(r"{(\w+)", english)) == sorted(re.findall(r"{(\w+)", korean)), name
        assert re.search("[가-힣]", korean) and not re.search("[가-힣]", english), name


def test_forgotten_texts_and_misspelt_presets_get_a_hint(hornbook, tiny_run):
    for command in (["detect"], ["show", "tokens"], ["show", "attention"]):
        assert "is a folder: give a text after it" in hornbook(*command, tiny_run).error
    assert "did you mean bert-base" in hornbook("show", "parameters", "bert-bas").error


def test_copies_and_the_index_of_an_example(hornbook, tiny_corpus):
    said = hornbook("show", "masking", "The cat sat.", "--copies", 2, "--json")
    assert [len(said.answer["token_rows"])] == [2]
    one, other = (hornbook("show", "example", tiny_corpus, "--index", i).out for i in (0, 1))
    assert one != other
