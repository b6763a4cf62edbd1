"""Every setting of pretrain, finetune and distill, and every numeric option of the commands, with extreme values
against tiny inputs: nothing may end in a traceback or hang.

    python -m pytest tests/faults/test_settings.py -m faults
"""

import itertools
import json
import shutil
from pathlib import Path

import pytest
from extremes import NUMBERS, cases, command, fault_of, numeric_options
from tiny import TINY_MODEL, TINY_WORDS, tiny_text

from hornbook.runs.distillation.run import distill
from hornbook.runs.finetuning.api import finetune
from hornbook.runs.finetuning.settings import settings_for
from hornbook.runs.pretraining.presets import preset_settings
from hornbook.runs.pretraining.run import pretrain
from hornbook.tasks.datasets import known

pytestmark = pytest.mark.faults
SECONDS = 60
# What would run for long by what it asks for, and not by a fault: tried with a value that ends.
LONG = {"schedule.steps", "batch.tokens", "epochs", "augment.copies", "objective.earlier_epochs"}
WORDS = "the river and a teacher near the bridge"


class Places:
    """Tiny inputs of every kind, and a new folder for each case."""

    def __init__(self, folder: Path, corpus: Path, run: Path, tokenizer: Path, text: Path):
        self.folder, self.corpus, self.run, self.tokenizer, self.text = folder, corpus, run, tokenizer, text
        self.numbers = itertools.count()
        self.data = folder / "data"
        self.data.mkdir()
        for part, num in (("train", 8), ("dev", 4)):
            rows = [{"text": WORDS[: 6 + i], "label": "ab"[i % 2]} for i in range(num)]
            (self.data / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.tuned, self.gpt = folder / "tuned", folder / "gpt"
        quiet = {"overrides": {"runtime.threads": 1}, "log": lambda words: None}
        finetune(run, self.data, "classification", self.tuned, epochs=1, **quiet)
        gpt = TINY_MODEL | {"model.max_positions": 64}
        self.gpt_corpus = folder / "gpt-corpus"
        self._make_gpt(gpt)

    def _make_gpt(self, changes: dict) -> None:
        from hornbook.data.build import build_corpus
        from hornbook.text.training import train_tokenizer

        train_tokenizer(tiny_text(60).split("\n\n"), kind="bpe", vocab_size=300, cased=True).save(self.folder / "bpe")
        build_corpus(self.text, self.folder / "bpe", self.gpt_corpus, workers=0)
        quiet = {"batch_tokens": 512, "overrides": changes, "log": lambda words: None}
        pretrain("gpt2-small", self.gpt_corpus, self.gpt, steps=2, **quiet)

    def new(self) -> Path:
        return self.folder / f"out-{next(self.numbers)}"


@pytest.fixture(scope="module")
def places(tmp_path_factory, tiny_corpus, tiny_run, tiny_tokenizer, tiny_text_file) -> Places:
    return Places(tmp_path_factory.mktemp("faults"), tiny_corpus, tiny_run, tiny_tokenizer, tiny_text_file)


def report(what: str, tried: int, faults: list[str]) -> None:
    num_hangs = sum(" hangs" in each for each in faults)
    print(f"\n{what}: {tried:,} tried, {len(faults) - num_hangs} tracebacks, {num_hangs} hangs")
    assert not faults, f"{len(faults)} of {tried} failed:\n" + "\n".join(faults[:20])


def tried(what: str, found: list[tuple[str, str]], work_of, places: Places) -> None:
    faults = []
    for name, value in found:
        out = places.new()
        if fault := fault_of(work_of(name, value, out), SECONDS):
            faults.append(f"{name}={value[:20]} {fault}")
        shutil.rmtree(out, ignore_errors=True)
    report(what, len(found), faults)


def accepted(settings, resolve) -> list[tuple[str, str]]:
    """Values that the settings accept; the others are refused before a run starts, which the fast test covers."""
    found = []
    for name, value in cases(settings):
        try:
            resolve(name, value)
        except ValueError:
            continue
        if name not in LONG or value in ("0", "1"):
            found.append((name, value))
    return found


@pytest.mark.parametrize(
    "preset", ["bert-tiny", "albert-base", "roberta-base", "electra-small", "gpt1-base", "gpt2-small"]
)
def test_settings_of_pretrain(places, preset):
    tiny = TINY_MODEL | {"batch.tokens": 512, "schedule.steps": 2, "validation.tokens": 512}
    tiny |= {"model.inner_width": 128} if preset.startswith("gpt") else {}
    tiny |= {"model.embedding_width": 16} if preset in ("albert-base", "electra-small") else {}
    tiny |= {"objective.generator_size": 0.5} if preset == "electra-small" else {}
    corpus = places.gpt_corpus if preset.startswith("gpt") else places.corpus

    def work_of(name, value, out):
        return lambda: pretrain(preset, corpus, out, overrides=tiny | {name: value}, log=lambda words: None)

    found = accepted(preset_settings(preset, tiny), lambda name, value: preset_settings(preset, tiny | {name: value}))
    tried(f"settings of pretrain {preset}", found, work_of, places)


def test_settings_of_finetune(places):
    tiny = {"runtime.threads": 1, "epochs": 1}

    def resolve(name, value):
        return settings_for(known("classification"), None, tiny | {name: value})

    def work_of(name, value, out):
        changes = tiny | {name: value}
        return lambda: finetune(
            places.run, places.data, "classification", out, overrides=changes, log=lambda words: None
        )

    found = accepted(settings_for(known("classification"), None, tiny), resolve)
    tried("settings of finetune", found, work_of, places)


@pytest.mark.parametrize("on", ["text", "task"])
def test_settings_of_distill(places, on):
    tiny = {"runtime.threads": 1}
    if on == "text":
        tiny |= {"batch.tokens": 512, "schedule.steps": 2, "data.length": 64, "data.short_length": 32}
        settings = preset_settings("distilbert", tiny, has_teacher=True)
    else:
        tiny |= {"epochs": 1, "objective.recipe": "distilbert"}
        settings = settings_for(known("classification"), None, tiny, has_teacher=True)

    def resolve(name, value):
        if on == "text":
            preset_settings("distilbert", tiny | {name: value}, has_teacher=True)
        else:
            settings_for(known("classification"), None, tiny | {name: value}, has_teacher=True)

    def work_of(name, value, out):
        task = {"corpora": [places.corpus]} if on == "text" else {"task": "classification", "data": places.data}
        teacher = places.run if on == "text" else places.tuned
        changes = tiny | {name: value}
        return lambda: distill(teacher, "distilbert", out, overrides=changes, log=lambda words: None, **task)

    tried(f"settings of distill on {on}", accepted(settings, resolve), work_of, places)


def commands(places: Places) -> dict[str, list]:
    """The other arguments of each command with a numeric option."""
    data = ["--task", "classification", "--data", places.data]
    task = places.folder / "task.toml"
    task.write_text(
        'example = "{text} is"\ngold = "label"\nmeasures = ["accuracy"]\n[choices]\nlabels = {a = "red", b = "blue"}\n'
    )
    threads = ["--set", "runtime.threads=1"]
    return {
        "pretrain": ["bert-tiny", "--corpus", places.corpus, *TINY_WORDS],
        "plan": ["bert-tiny"],
        "fill-mask": [places.run, "the [MASK]"],
        "detect": [places.run, "the river"],
        "generate": [places.gpt, "the river"],
        "perplexity": [places.gpt, places.text],
        "prompt": [places.gpt, "--task", task, "--data", places.data],
        "finetune": [places.run, *data, *threads, "--set", "epochs=1"],
        "distill": [places.tuned, "--student", "distilbert", *data, *threads, "--set", "epochs=1"],
        "tokenizer train": [places.text],
        "tokenizer extend": [places.tokenizer, places.text],
        "corpus build": [places.text, "--tokenizer", places.tokenizer],
        "probe": [places.run, *data],
        "baseline": ["tfidf", *data],
        "label-curve": [places.run, *data, "--methods", "tfidf", "--sizes", "4"],
        "export": [places.tuned, "--to", "onnx", "--rounds", "2"],
        "compare": [places.tuned, "--rounds", "2"],
        "reproduce": ["equal-compute", "--corpus", places.corpus, "--data", places.data],
        "lm-eval": [places.gpt, "--tasks", "none"],
    }


WITHOUT_OUT = {"plan", "fill-mask", "detect", "generate", "perplexity", "lm-eval"}
LEGAL_AND_LONG = {("pretrain", "--tokens", "99999999999"), ("pretrain", "--minutes", "1")}
HOW_LONG = ("--steps", "--tokens", "--minutes")  # a run of pretrain; only one may be given


@pytest.mark.parametrize("verb", sorted(numeric_options()))
def test_numeric_options(places, verb):
    given, options = commands(places), numeric_options()[verb]
    assert verb in given, "a command with a numeric option is not tried here"
    found = [(option, value) for option in options for value in NUMBERS if (verb, option, value) not in LEGAL_AND_LONG]
    faults = []
    for option, value in found:
        out = places.new()
        words = [*verb.split(), *given[verb], *([] if verb in WITHOUT_OUT else ["--out", out]), f"{option}={value}"]
        words += ["--steps", "2"] if verb == "pretrain" and option not in HOW_LONG else []
        if fault := fault_of(command(*words), SECONDS):
            faults.append(f"hornbook {verb} {option}={value} {fault}")
        shutil.rmtree(out, ignore_errors=True)
    report(f"numeric options of {verb}", len(found), faults)
