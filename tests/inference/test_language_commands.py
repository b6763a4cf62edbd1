"""`generate`, `score` and `perplexity` as a person meets them."""

import json
import sys

import pytest
import torch
from small_gpts import CONTEXT, saved_gpt
from tiny import tiny_text

import hornbook as library
from hornbook import cli
from hornbook.devices import chosen_device
from hornbook.inference.decoder import DecoderModel
from hornbook.interop.folder import save_model
from hornbook.models.bert import Bert, BertConfig
from hornbook.text.training import train_tokenizer


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt")
    saved_gpt(folder)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    tokenizer = train_tokenizer(tiny_text(60).split("\n\n"), vocab_size=200)
    size = {"num_layers": 1, "width": 32, "num_heads": 2, "inner_width": 64, "max_positions": 32}
    model = Bert(BertConfig(vocab_size=tokenizer.vocab_size, **size), ("mlm",))
    model.initialize(torch.Generator().manual_seed(0))
    save_model(folder, model)
    tokenizer.save(folder)
    return folder


@pytest.fixture
def run(monkeypatch, capsys):
    def of(*words) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hornbook", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return of


def test_a_model_is_opened_where_it_runs_best(gpt, bert, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert library.load(gpt).device.type == library.load(bert).device.type == "cpu"
    with pytest.raises(ValueError, match=r"device cuda was requested, but torch finds no GPU .*: use cpu"):
        library.load(gpt, device="cuda")
    for name in ("gpu", "mps", "cuda:x", ""):
        with pytest.raises(ValueError, match=f"there is no device '{name}' here: use auto, cpu or cuda"):
            chosen_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert chosen_device("cuda:1") == "cuda:1"
    assert chosen_device() == "cuda" and chosen_device("cpu") == "cpu"
    monkeypatch.setattr("hornbook.inference.load.chosen_device", lambda asked: {"auto": "meta"}.get(asked, asked))
    assert library.load(gpt).device.type == library.load(bert).device.type == "meta"
    assert library.load(gpt, device="cpu").device.type == "cpu" and library.load(gpt, "int8").device.type == "cpu"
    assert library.load(bert, device="meta").device.type == "meta"
    with pytest.raises(ValueError, match="int8 weights run on a CPU only: use float weights on cuda"):
        library.load(gpt, "int8", "cuda")


def test_generate_streams_what_python_gives(run, gpt, monkeypatch):
    (expected,) = library.load(gpt).generate("the river 🙂", 30, seed=3, top_k=50)
    shown = []
    monkeypatch.setattr("builtins.print", lambda *words, **_: shown.append("".join(map(str, words))))
    assert run("generate", gpt, "the river 🙂", "--max-new-tokens", 30, "--seed", 3, "--top-k", 50)[0] == 0
    assert "".join(shown) == "the river 🙂" + expected.text
    assert len(shown) > 5


def test_generate_several_and_json(run, gpt):
    status, out, _ = run(
        "generate", gpt, "the", "--num-return-sequences", 2, "--max-new-tokens", 8, "--stop", "q!", "--json"
    )
    answer = json.loads(out)
    assert status == 0 and answer["prompt"] == "the" and len(answer["texts"]) == 2
    expected = library.load(gpt).generate("the", 8, num_return_sequences=2)
    assert [each["ids"] for each in answer["texts"]] == [each.ids for each in expected]
    assert run("generate", gpt, "the", "--num-return-sequences", 2, "--max-new-tokens", 8)[1].startswith("--- 1\nthe")
    status, out, _ = run("generate", gpt, "the", "--num-beams", 3, "--max-new-tokens", 8)
    assert (status, out) == (0, f"the{library.load(gpt).generate('the', 8, num_beams=3)[0].text}\n")


def test_a_text_of_which_nothing_comes_shows_its_prompt(run, gpt):
    (whole,) = library.load(gpt).generate("the river", 30)
    assert run("generate", gpt, "the river", "--stop", whole.text[0])[1] == "the river\n"


def test_generate_slides(run, gpt):
    status, _, error = run("generate", gpt, "river " * 50, "--max-new-tokens", 3)
    assert status == 2 and f"more than the model's context of {CONTEXT}" in error and error.count("\n") == 1
    assert run("generate", gpt, "river " * 50, "--max-new-tokens", 3, "--slide")[0] == 0


def test_an_encoder_explains_itself_or_fills(run, bert, gpt):
    status, out, error = run("generate", bert, "the river")
    assert (status, out) == (2, "") and "is a bert, which is bidirectional" in error and "--fill" in error
    status, out, _ = run("generate", bert, "the river", "--fill", "--max-new-tokens", 3, "--json")
    assert status == 0 and json.loads(out)["filled"] == library.load(bert).fill("the river", 3)
    assert "--fill is for encoders" in run("generate", gpt, "the river", "--fill")[2]
    assert "use a GPT" in run("perplexity", bert, "file.txt")[2]
    assert "reads from left to right" in run("fill-mask", gpt, "the [MASK]")[2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ["--fill", "--temperature", 3, "--seed", 1],
            "--temperature and --seed have no effect with --fill",
        ),
        (["--fill", "--num-beams", 2], "--num-beams has no effect with --fill: leave it out"),
        (
            ["--num-beams", 3, "--top-k", 5],
            "--top-k has no effect with --num-beams, which does not sample: leave it out",
        ),
        (["--length-penalty", 2], "--length-penalty has no effect without --num-beams"),
    ],
)
def test_what_would_do_nothing_is_refused(run, gpt, bert, given, said):
    status, out, error = run("generate", bert if "--fill" in given else gpt, "the river", *given)
    assert (status, out) == (2, "") and said in error and error.count("\n") == 1


def test_a_family_goes_with_the_right_article():
    from hornbook.models.registry import MODELS

    names = {family.described() for family in MODELS.values()}
    assert {"a bert", "an albert", "an electra", "an openai-gpt", "a gpt2"} <= names


def test_score(run, gpt, bert):
    for folder, words in ((gpt, "given those before it"), (bert, "each token is masked in turn")):
        status, out, _ = run("score", folder, "the river", "[red]bread[/]")
        assert status == 0 and words in out and "[red]bread[/]" in out
        found = json.loads(run("score", folder, "the river", "[red]bread[/]", "--json")[1])["scores"]
        expected = library.load(folder).score(["the river", "[red]bread[/]"])
        assert [each["log_probability"] for each in found] == pytest.approx([each.total for each in expected])


def test_perplexity_prints_its_definition(run, gpt, tmp_path):
    (tmp_path / "text.txt").write_text(tiny_text(3), encoding="utf-8")
    words = ["perplexity", gpt, tmp_path / "text.txt", "--stride", 12, "--documents", "file"]
    status, out, _ = run(*words)
    assert status == 0
    for part in ("perplexity per token", "perplexity per word", "bits per byte", "windows of 48 tokens that start 12"):
        assert part in out
    found = json.loads(run(*words, "--json")[1])
    expected = library.load(gpt).perplexity(tmp_path / "text.txt", 12, "file")
    assert found["per_token"] == pytest.approx(expected.per_token) and found["num_documents"] == 1
    assert "must be one of blank-line, file" in run("perplexity", gpt, tmp_path / "text.txt", "--documents", "x")[2]
    assert run("perplexity", gpt, tmp_path / "nothing.txt")[0] == 2


def test_an_empty_text_is_not_scored(run, gpt):
    status, _, error = run("score", gpt, "the river", " ")
    assert status == 2 and "text 2 is empty" in error


def test_a_full_context_is_reported_apart_from_the_text(run, gpt):
    status, out, error = run("generate", gpt, "the", "--max-new-tokens", 500, "--num-return-sequences", 2, "--top-k", 3)
    assert status == 0 and f"the context of {CONTEXT} tokens is full; --slide" in error and "note" not in out
    assert "note" not in run("generate", gpt, "the", "--max-new-tokens", 3)[2]


def test_a_stopped_text_ends_its_line(run, gpt, monkeypatch):
    def stopped(self, prompt, *_, on_text, **__):
        on_text(0, 0, " river")
        raise KeyboardInterrupt

    monkeypatch.setattr(DecoderModel, "generate", stopped)
    assert run("generate", gpt, "the") == (130, "the river\n", "hornbook: stopped\n")


def test_perplexity_reports_what_is_wrong_with_the_file(run, gpt, tmp_path):
    (tmp_path / "latin.txt").write_bytes("the river and a caf\u00e9".encode("latin-1"))
    status, out, error = run("perplexity", gpt, tmp_path / "latin.txt")
    assert status == 0 and "latin.txt cp1252)" in error and "\nof 1 document;" in out
    (tmp_path / "table.jsonl").write_text('{"other": "the river", "more": "x"}\n')
    column = ("--text-column", "other")
    assert run("perplexity", gpt, tmp_path / "table.jsonl", *column, "--baseline", tmp_path / "latin.txt")[0] == 0
    (tmp_path / "empty.txt").write_text("")
    error = run("perplexity", gpt, tmp_path / "empty.txt")[2]
    assert "files without any text" in error and "--text-column" not in error


def test_a_baseline_is_learned_from_another_text_that_is_there(run, gpt, tmp_path):
    (tmp_path / "text.txt").write_text(tiny_text(3), encoding="utf-8")
    for baseline, words in (
        ("text.txt", "--baseline is the file that is scored"),
        ("nothing.txt", "spelling of --baseline"),
    ):
        status, _, error = run("perplexity", gpt, tmp_path / "text.txt", "--baseline", tmp_path / baseline)
        assert status == 2 and words in error and error.count("\n") == 1
