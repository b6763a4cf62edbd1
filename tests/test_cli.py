"""The verbs as a person meets them: help, answers, JSON, and one sentence for everything that is wrong."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tiny import TINY_MODEL, tiny_text

from hornbook import cli

VERBS = [
    ["tokenizer", "train"],
    ["tokenizer", "extend"],
    ["corpus", "build"],
    ["pretrain"],
    ["fill-mask"],
    ["next-sentence"],
    ["generate"],
    ["score"],
    ["perplexity"],
    ["finetune"],
    ["evaluate"],
    ["predict"],
    ["report"],
    ["info"],
    ["features"],
    ["probe"],
    ["baseline"],
    ["label-curve"],
    ["glue"],
    ["reproduce"],
]
RUN = "from hornbook.cli import main; main()"
TINY = [part for name, value in TINY_MODEL.items() for part in ("--set", f"{name}={value}")] + ["--batch-tokens", "512"]


class Said(NamedTuple):
    status: int
    out: str
    error: str

    @property
    def answer(self) -> dict:
        """The JSON object in the last line; no other line is one."""
        *before, last = self.out.splitlines()
        assert not [line for line in before if line.startswith("{")]
        return json.loads(last)


@pytest.fixture
def hornbook(monkeypatch, capsys):
    def run(*words) -> Said:
        monkeypatch.setattr(sys, "argv", ["hornbook", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return Said(ended.value.code or 0, said.out, said.err)

    return run


@pytest.fixture
def complaint(hornbook):
    """Runs what is wrong; gives the one sentence that is said about it."""

    def run(*words) -> str:
        said = hornbook(*words)
        assert said.status == 2, said
        assert said.error.startswith("hornbook: ")
        assert said.error.count("\n") == 1
        assert "Traceback" not in said.error
        assert not said.out.startswith("{")
        return said.error

    return run


@pytest.fixture
def pretraining(tiny_corpus, tmp_path) -> list:
    return ["pretrain", "bert-tiny", "--corpus", tiny_corpus, "--out", tmp_path / "run", *TINY]


# ---- help


@pytest.mark.parametrize("verb", VERBS, ids="-".join)
def test_help_has_an_example(hornbook, verb):
    said = hornbook(*verb, "--help")
    assert said.status == 0
    assert f"Example: hornbook {' '.join(verb)} " in re.sub(r"\s+", " ", said.out)


@pytest.mark.parametrize("verb", VERBS, ids="-".join)
def test_the_example_is_understood(hornbook, verb, tmp_path, monkeypatch):
    """Every word of it parses; that its files do not exist is what stops it."""
    monkeypatch.chdir(tmp_path)
    text = re.sub(r"\s+", " ", hornbook(*verb, "--help").out).partition("Example: hornbook ")[2]
    said = hornbook(*shlex.split(text))
    assert said.status == 2
    assert said.error.startswith("hornbook: "), said.error


def test_help_names_every_verb(hornbook):
    out = hornbook("--help").out
    places = [out.index(f"│ {verb[0]} ") for verb in VERBS]
    assert places == sorted(places)  # in the order in which they are needed
    assert hornbook("--version").out.strip()


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["pretrian"], "pretrain"),
        (["fillmask"], "fill-mask"),
        (["tokenizer", "trian"], "train"),
        (["corpus", "bild"], "build"),
        (["fill-mask", "run", "text", "--topp", "3"], "--top"),
    ],
)
def test_typos_name_the_nearest(hornbook, words, near):
    said = hornbook(*words)
    assert said.status == 2
    assert near in said.error
    assert "Traceback" not in said.error


# ---- the way from text to a report, each verb with --json


def test_the_whole_way(hornbook, tmp_path, tiny_text_file):
    vocabulary, larger, corpus, run = (tmp_path / name for name in ("vocabulary", "larger", "corpus", "run"))
    said = hornbook("tokenizer", "train", tiny_text_file, "--out", vocabulary, "--vocab-size", 150, "--json")
    assert said.answer["vocab_size"] <= 150
    (tmp_path / "words").write_text("lanternish\nbridgely\nthe\n")
    said = hornbook(
        "tokenizer", "extend", vocabulary, tiny_text_file, "--word-list", tmp_path / "words", "--out", larger, "--json"
    )
    assert said.answer["added"] == 2
    said = hornbook(
        "corpus", "build", tiny_text_file, "--tokenizer", vocabulary, "--out", corpus, "--workers", 0, "--json"
    )
    assert said.answer["totals"]["documents"] == 200
    said = hornbook("corpus", "build", tiny_text_file, "--tokenizer", vocabulary, "--out", corpus, "--json")
    assert "is already built" in said.out
    assert said.answer["totals"]["documents"] == 200
    command = ["pretrain", "bert-tiny", "--corpus", f"{corpus}:2", "--out", run, *TINY, "--steps", 2, "--json"]
    said = hornbook(*command, "--resume")  # with nothing there, it starts
    assert said.answer["ended"] == "finished"
    assert said.answer["step"] == 2
    assert said.out.count("step 2 of 2") == 1
    before = (run / "model.safetensors").read_bytes()
    said = hornbook(*command, "--resume")
    assert (said.status, said.answer["ended"]) == (0, "already finished")
    assert (run / "model.safetensors").read_bytes() == before
    assert len(hornbook("fill-mask", run, "the [MASK] of [MASK].", "--top", 3, "--json").answer["masks"]) == 2
    assert 0 < hornbook("next-sentence", run, "the river.", "a bridge.", "--json").answer["is_next"] < 1
    for folder, kind in ((run, "run"), (corpus, "corpus"), (vocabulary, "tokenizer"), (run / "best", "model")):
        assert hornbook("info", folder, "--json").answer["kind"] == kind
    assert Path(hornbook("report", run, "--json").answer["page"]).is_file()
    assert hornbook("pretrain", "bert-tiny", "--show", "--json").answer["model.width"] == 128


def test_show_lists_what_is_read(hornbook, tiny_run):
    gpt, bert = (hornbook("pretrain", preset, "--show", "--json").answer for preset in ("gpt2-small", "bert-tiny"))
    assert "data.crosses_documents" in gpt.keys() - bert.keys()
    assert {"masking.rate", "data.layout", "data.single_chance"} <= bert.keys() - gpt.keys()
    on_task = hornbook("finetune", tiny_run, "--task", "mrpc", "--show", "--json").answer
    assert "epochs" in on_task and not {"schedule.steps", "batch.tokens", "validation.tokens"} & on_task.keys()


def test_goes_on_from_a_model_with_more_words(hornbook, tmp_path, tiny_run, tiny_text_file):
    (tmp_path / "words").write_text("lanternish bridgely")
    vocabulary, corpus = tmp_path / "vocabulary", tmp_path / "corpus"
    hornbook("tokenizer", "extend", tiny_run, tiny_text_file, "--word-list", tmp_path / "words", "--out", vocabulary)
    hornbook("corpus", "build", tiny_text_file, "--tokenizer", vocabulary, "--out", corpus, "--workers", 0)
    said = hornbook(
        *["pretrain", "bert-tiny", "--from", tiny_run, "--corpus", corpus, "--out", tmp_path / "run"],
        *["--steps", 1, *TINY, "--json"],
    )
    assert said.answer["ended"] == "finished", said
    assert "2 new words" in said.out
    assert hornbook("fill-mask", tmp_path / "run", "the [MASK]").status == 0


def test_lines_in_a_pipe_are_whole(hornbook, tiny_run):
    said = hornbook("info", tiny_run)
    assert f"run in {tiny_run}" in said.out
    assert "accuracy" in next(line for line in said.out.splitlines() if line.startswith("last validation"))


def test_signs_of_markup_are_text(hornbook, tiny_run):
    said = hornbook("fill-mask", tiny_run, "[/b] [red]the[/] [MASK] :smile:", "--top", 1)
    assert said.status == 0
    assert "[/b] [red]the[/] " in said.out
    assert ":smile:" in said.out


def test_notes_on_problems_are_words(hornbook, tmp_path, tiny_tokenizer):
    (tmp_path / "rows.jsonl").write_text('{"text": "the river of bread"}\n{nope\n{"other": 3}\n')
    out = hornbook(
        *["corpus", "build", tmp_path / "rows.jsonl", "--tokenizer", tiny_tokenizer],
        *["--out", tmp_path / "corpus", "--workers", 0],
    ).out
    assert "note: lines that are not a JSON object, left out: 1 (" in out
    assert "rows.jsonl line 2" in out
    assert "{'" not in out


# ---- what is wrong


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (["--set", "optimizer.lrr=1"], "did you mean 'optimizer.lr'"),
        (["--set", "lr=1"], "did you mean 'optimizer.lr'"),
        (["--set", "objective.lr=1"], "did you mean 'optimizer.lr'"),
        (["--set", "model.layers=1"], "did you mean 'model.num_layers'"),
        (["--set", "optimizer.lr"], "--set takes key=value"),
        (["--set", "optimizer.lr=fast"], "optimizer.lr must be a number"),
        (["--set", "optimizer=1"], "there is no setting 'optimizer'"),
        (["--set", "model.num_heads=5"], "does not divide"),
        (["--set", "runtime.device=abacus"], "is not a device"),
        (["--steps", "3", "--minutes", "1"], "only one of --steps, --tokens and --minutes"),
        (["--steps", "0"], "--steps must be at least 1, not 0"),
        (["--tokens", "-1"], "--tokens must be at least 1, not -1"),
        (["--minutes", "-1"], "--minutes must be above 0, not -1"),
        (["--minutes", "nan"], "--minutes must be above 0"),
        (["--minutes", "inf"], "--minutes must be above 0"),
        (["--batch-tokens", "1"], "--batch-tokens must be at least 8, not 1"),
        (["--batch-tokens", "32"], "less than one sequence"),
        (["--seed", "-1"], "--seed must be at least 0, not -1"),
        (["--from", "/no/such/model"], "there is no folder /no/such/model"),
        (["--from", "nobody-s/model"], "could be downloaded"),
    ],
)
def test_pretrain_refuses(complaint, pretraining, tmp_path, extra, expected):
    assert expected in complaint(*pretraining, *extra)
    assert not (tmp_path / "run").exists()


def test_pretrain_refuses_names(complaint, tmp_path, tiny_corpus):
    out = ["--out", tmp_path / "run"]
    assert "did you mean bert-tiny" in complaint("pretrain", "bert-tinny", "--corpus", tiny_corpus, *out)
    assert "needs --corpus" in complaint("pretrain", "bert-tiny", *out)
    assert "needs --out" in complaint("pretrain", "bert-tiny", "--corpus", tiny_corpus)
    assert "needs --corpus" in complaint("pretrain", "bert-tiny", *out, "--resume")
    for corpus in (tmp_path / "none", f"{tmp_path / 'none'}:3", "C:\\corpora\\x", f"{tiny_corpus}:heavy"):
        assert "there is no folder" in complaint("pretrain", "bert-tiny", "--corpus", corpus, *out)
    assert "is not a corpus" in complaint("pretrain", "bert-tiny", "--corpus", tmp_path, *out)
    for weight in ("-1", "0", "nan", "inf"):
        assert "weight" in complaint("pretrain", "bert-tiny", "--corpus", f"{tiny_corpus}:{weight}", *out, *TINY)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["plain", "with:colon", "with:3", "a b"])
@pytest.mark.parametrize("weight", ["", ":2", ":0.5"])
def test_names_of_corpora(hornbook, tmp_path, tiny_corpus, name, weight):
    shutil.copytree(tiny_corpus, tmp_path / name)
    said = hornbook(
        *["pretrain", "bert-tiny", "--corpus", f"{tmp_path / name}{weight}", "--out", tmp_path / "run"],
        *[*TINY, "--steps", 1],
    )
    assert said.status == 0, said.error
    (corpus,) = json.loads((tmp_path / "run" / "run.json").read_text())["corpora"]
    assert corpus["folder"] == str(tmp_path / name)
    assert corpus["weight"] == float(weight[1:] or 1)


def test_out_that_is_taken(complaint, tiny_run, tiny_corpus, tiny_tokenizer, tiny_text_file, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.doc").touch()
    start = ["pretrain", "bert-tiny", "--corpus", tiny_corpus, *TINY, "--out"]
    assert "add --resume" in complaint(*start, tiny_run)
    assert "is not a run" in complaint(*start, tmp_path / "full")
    train = ["tokenizer", "train", tiny_text_file, "--out"]
    assert "already holds a tokenizer" in complaint(*train, tiny_tokenizer)
    build = ["corpus", "build", tiny_text_file, "--tokenizer", tiny_tokenizer, "--out"]
    assert "is no corpus" in complaint(*build, tmp_path / "full")
    for verb in (start, train, build):
        assert "cannot be written" in complaint(*verb, tmp_path / "file")
        assert "cannot be written" in complaint(*verb, tmp_path / "file" / "inside")
    assert os.listdir(tmp_path / "full") == ["thesis.doc"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_out_without_permission(complaint, tiny_text_file, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    assert "cannot be written" in complaint("tokenizer", "train", tiny_text_file, "--out", tmp_path / "closed" / "x")


@pytest.mark.parametrize("verb", [["tokenizer", "train"], ["corpus", "build"]], ids="-".join)
@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("empty.txt", b"", "no document could be read"),
        ("blank.txt", b"\n \n\t\n", "no document could be read"),
        ("zeros.txt", bytes(2000), "no document could be read"),
        ("torn.txt.gz", b"\x1f\x8b\x08torn", "no document could be read"),
        ("torn.parquet", b"PAR1torn", "no document could be read"),
        ("letter.docx", b"x", "of no known kind"),
        ("folder/picture.png", b"x", "no text files in"),
        (None, None, "does not exist"),
    ],
)
def test_files_without_text(complaint, tmp_path, tiny_tokenizer, verb, name, content, expected):
    path = tmp_path / (name or "none.txt")
    path.parent.mkdir(exist_ok=True)
    if name:
        path.write_bytes(content)
    given = path.parent if path.parent != tmp_path else path
    extra = ["--tokenizer", tiny_tokenizer, "--workers", "0"] if verb[0] == "corpus" else []
    assert expected in complaint(*verb, given, "--out", tmp_path / "out", *extra)
    assert not (tmp_path / "out" / "tokenizer.json").exists() or verb[0] == "corpus"
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_tokenizer_verbs_refuse(complaint, tmp_path, tiny_text_file, tiny_tokenizer):
    train = ["tokenizer", "train", tiny_text_file, "--out", tmp_path / "out"]
    assert "a vocabulary of 3 cannot hold" in complaint(*train, "--vocab-size", 3)
    assert "kind 'nonsense' is unknown: use one of" in complaint(*train, "--kind", "nonsense")
    extend = ["tokenizer", "extend", tiny_tokenizer, tiny_text_file, "--out", tmp_path / "out"]
    assert "at least 1, not 0" in complaint(*extend, "--words", 0)
    assert "at least 1, not -1" in complaint(*extend, "--words", -1)
    assert "no such file" in complaint(*extend, "--word-list", tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x80")
    assert "is not UTF-8 text" in complaint(*extend, "--word-list", tmp_path / "binary")
    assert not (tmp_path / "out").exists()


def test_corpus_build_refuses(complaint, tmp_path, tiny_text_file, tiny_tokenizer, tiny_corpus):
    build = ["corpus", "build", tiny_text_file, "--out", tmp_path / "out"]
    (tmp_path / "folder").mkdir()
    assert "no tokenizer.json and no vocab.txt" in complaint(*build, "--tokenizer", tmp_path / "folder")
    assert "is a file" in complaint(*build, "--tokenizer", tiny_text_file)
    build += ["--tokenizer", tiny_tokenizer]
    assert "--documents must be" in complaint(*build, "--documents", "pages")
    assert "clean must be" in complaint(*build, "--clean", "soap")
    assert "workers must be 0 or more" in complaint(*build, "--workers", -1)
    (tmp_path / "other.txt").write_text("another text")
    other = ["corpus", "build", tmp_path / "other.txt", "--tokenizer", tiny_tokenizer, "--out", tiny_corpus]
    assert "already holds another corpus" in complaint(*other)


def test_models_refuse(complaint, hornbook, tmp_path, tiny_run, tiny_corpus, tiny_tokenizer):
    assert "the text has no mask: put [MASK]" in complaint("fill-mask", tiny_run, "no mask")
    assert "the text has no mask" in complaint("fill-mask", tiny_run, "")
    assert "top must be at least 1, not 0" in complaint("fill-mask", tiny_run, "the [MASK]", "--top", 0)
    assert "more than this model takes (512)" in complaint("fill-mask", tiny_run, "the [MASK] " * 300)
    assert "more than this model takes (512)" in complaint("next-sentence", tiny_run, "a " * 400, "b " * 400)
    assert "lone surrogate" in complaint("fill-mask", tiny_run, "[MASK] \udcff")
    for folder in (tiny_corpus, tiny_tokenizer, tmp_path):
        assert "is not a model folder" in complaint("fill-mask", folder, "the [MASK]")
    assert "is a file" in complaint("fill-mask", tiny_run / "model.safetensors", "the [MASK]")
    assert "could be downloaded" in complaint("fill-mask", "bert-base-that-is-not-there", "the [MASK]")


def test_info_and_report_refuse(complaint, tmp_path, tiny_run, tiny_corpus, tiny_text_file):
    assert "does not exist" in complaint("info", tmp_path / "none")
    assert "holds none of" in complaint("info", tmp_path)
    assert "is a file of text" in complaint("info", tiny_text_file)
    assert "is a file: give the folder" in complaint("info", tiny_run / "run.json")
    for path in (tmp_path, tmp_path / "none", tiny_corpus, tiny_text_file):
        assert "is not a run" in complaint("report", path)
    shutil.copytree(tiny_run, tmp_path / "run")
    for content in ("{", "[]", "{}"):
        (tmp_path / "run" / "run.json").write_text(content)
        complaint("info", tmp_path / "run")
        complaint("report", tmp_path / "run")


def test_a_fault_of_the_program_keeps_its_traceback(monkeypatch, tiny_run):
    def fails(path):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr("hornbook.report.info.describe", fails)
    monkeypatch.setattr(sys, "argv", ["hornbook", "info", str(tiny_run)])
    with pytest.raises(RuntimeError):
        cli.main()


# ---- Ctrl-C


def interrupted(words: list, is_time: Callable[[int], bool]) -> tuple[int, str]:
    """Starts a verb, sends Ctrl-C as a terminal does once `is_time(process id)`; its status and complaint."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        began = time.monotonic()
        while not is_time(process.pid) and process.poll() is None and time.monotonic() - began < 30:
            time.sleep(0.02)
        time.sleep(0.2)
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, error


@pytest.fixture(scope="module")
def long_text(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("long") / "long.txt"
    file.write_text("\n\n".join(tiny_text(1000, seed) for seed in range(16)), encoding="utf-8")
    return file


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_stopping_tokenizer_train(tmp_path, long_text, kind):
    words = ["tokenizer", "train", long_text, "--out", tmp_path / "out", "--kind", kind]
    status, error = interrupted(words, lambda process: len(os.listdir(f"/proc/{process}/task")) > 1)
    assert status == 130
    assert re.fullmatch(r"hornbook: stopped.*\n", error)
    assert not (tmp_path / "out").exists()


def test_stopping_corpus_build(hornbook, complaint, tmp_path, long_text, tiny_tokenizer):
    out = tmp_path / "out"
    words = ["corpus", "build", long_text, "--tokenizer", tiny_tokenizer, "--out", out, "--workers", 1]
    status, error = interrupted(words, lambda process: (out / "progress.json").exists())
    assert status == 130
    assert re.fullmatch(r"hornbook: stopped.* run the same command again.*\n", error)
    assert not (out / "manifest.json").exists()
    assert hornbook("info", out, "--json").answer["kind"] == "unfinished corpus"
    assert "interrupted" in complaint("pretrain", "bert-tiny", "--corpus", out, "--out", tmp_path / "run")


def test_stopping_pretrain(hornbook, tmp_path, pretraining):
    run = tmp_path / "run"
    timer = threading.Thread(target=_interrupt_once_there, args=(run / "metrics.jsonl",))
    timer.start()
    said = hornbook(*pretraining, "--steps", 100_000, "--json")
    timer.join()
    assert said.status == 130
    assert "--resume goes on" in said.out
    assert said.answer["ended"] == "stopped"
    step = said.answer["step"]
    assert json.loads((run / "checkpoints" / f"step-{step:08d}" / "state.json").read_text())["step"] == step
    assert hornbook("fill-mask", run, "the [MASK]").status == 0


def _interrupt_once_there(file: Path) -> None:
    began = time.monotonic()
    while not (file.exists() and file.stat().st_size) and time.monotonic() - began < 30:
        time.sleep(0.02)
    if file.exists():
        os.kill(os.getpid(), signal.SIGINT)


# ---- words to add


def test_words_worth_adding_forgets_the_rarest(monkeypatch, tiny_tokenizer):
    from hornbook.text import extension
    from hornbook.text.tokenizer import Tokenizer

    monkeypatch.setattr(extension, "COUNTED_AT_MOST", 4)
    tokenizer = Tokenizer.load(tiny_tokenizer)
    documents = ["lanternish lanternish lanternish bridgely bridgely"] * 5 + ["one two six ten"] * 2
    found = extension.words_worth_adding(tokenizer, documents, 10)
    assert found[0] == "lanternish"
    assert Counter(found).most_common(1)[0][1] == 1


def test_as_a_module():
    """For where the command is not on the path."""
    found = subprocess.run([sys.executable, "-m", "hornbook", "--help"], capture_output=True, text=True, check=True)
    assert "pretrain" in found.stdout
