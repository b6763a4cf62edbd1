"""Every setting of pretrain, finetune and distill, and every numeric option of the commands, with extreme values
against tiny inputs: nothing may end in a traceback or hang.

    python -m pytest tests/faults/test_settings.py -m faults
"""

import itertools
import json
import shutil
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path

import pytest
import uvicorn
from extremes import NUMBERS, cases, command, fault_of, numeric_options
from retrieval_folder import DOCUMENTS, write_beir
from tiny import TINY_MODEL, TINY_WORDS, tiny_text
from tiny_runs import run
from tool_questions import questions, write_graph
from web_pages import pages, write_links, write_mirror

from hornbook.inference.retrieval.building import build_index
from hornbook.runs.distillation.distill import distill
from hornbook.runs.finetuning.finetune import finetune
from hornbook.runs.finetuning.published import settings_for
from hornbook.runs.pretraining.presets import preset_settings
from hornbook.runs.pretraining.pretrain import pretrain
from hornbook.tasks.datasets import find_task

pytestmark = pytest.mark.faults
SECONDS = 60
# What would run for long by what it asks for, and not by a fault: tried with a value that ends.
LONG = {"schedule.steps", "batch.tokens", "epochs", "augment.copies", "objective.earlier_epochs"}
WORDS = "the river and a teacher near the bridge"
FROZEN = {"runtime.threads": 1, "layers.frozen": -1, "reason.width": 32}


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

    @cached_property
    def electra(self) -> Path:
        run(self.folder / "electra", self.corpus, steps=2, family="electra")
        return self.folder / "electra"

    @cached_property
    def graph(self) -> Path:
        return write_graph(self.folder / "tools", "en")

    @cached_property
    def kagnet(self) -> Path:
        """A run that answers questions by the paths of the graph."""
        rows, out = questions("en")[:8], self.folder / "kagnet"
        options = {"reason": "kagnet", "graph": self.graph, "epochs": 1, "log": lambda words: None}
        finetune(self.run, {"train": rows, "dev": rows[:4]}, "choice", out, overrides=FROZEN, **options)
        return out

    @cached_property
    def retrieval(self) -> Path:
        queries = {"q1": "the river", "q2": "silver bread"}
        return write_beir(self.folder / "retrieval", DOCUMENTS, queries, [("q1", "1", 1), ("q2", "3", 1)])

    @cached_property
    def index(self) -> Path:
        build_index(self.retrieval / "corpus.jsonl", self.folder / "index", self.run, log=lambda words: None)
        return self.folder / "index"

    @cached_property
    def pages(self) -> Path:
        write_mirror(self.folder / "pages", pages()[:3])
        return self.folder / "pages"

    @cached_property
    def links(self) -> Path:
        write_links(self.folder / "links.tsv")
        return self.folder / "links.tsv"

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
        return settings_for(find_task("classification"), None, tiny | {name: value})

    def work_of(name, value, out):
        changes = tiny | {name: value}
        return lambda: finetune(
            places.run, places.data, "classification", out, overrides=changes, log=lambda words: None
        )

    found = accepted(settings_for(find_task("classification"), None, tiny), resolve)
    tried("settings of finetune", found, work_of, places)


@pytest.mark.parametrize("on", ["text", "task"])
def test_settings_of_distill(places, on):
    tiny = {"runtime.threads": 1}
    if on == "text":
        tiny |= {"batch.tokens": 512, "schedule.steps": 2, "data.length": 64, "data.short_length": 32}
        settings = preset_settings("distilbert", tiny, has_teacher=True)
    else:
        tiny |= {"epochs": 1, "objective.recipe": "distilbert"}
        settings = settings_for(find_task("classification"), None, tiny, has_teacher=True)

    def resolve(name, value):
        if on == "text":
            preset_settings("distilbert", tiny | {name: value}, has_teacher=True)
        else:
            settings_for(find_task("classification"), None, tiny | {name: value}, has_teacher=True)

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
        'example = "{text} is"\ngold = "label"\nmetrics = ["accuracy"]\n[choices]\nlabels = {a = "red", b = "blue"}\n'
    )
    threads = ["--set", "runtime.threads=1"]
    return {
        "pretrain": ["bert-tiny", "--corpus", places.corpus, *TINY_WORDS],
        "plan": ["bert-tiny"],
        "fill-mask": [places.run, "the [MASK]"],
        "detect": ["en", "the river"],
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
        "export": [places.tuned, "--format", "onnx", "--rounds", "2"],
        "compare": [places.tuned, "--rounds", "2"],
        "reproduce": ["equal-compute", "--corpus", places.corpus, "--data", places.data],
        "lm-eval": [places.gpt, "--tasks", "none"],
        "graph paths": [places.graph, "trowel", "flower"],
        "graph embed": [places.graph, "--epochs", "2", "--width", "4"],
        "show masking": [places.run, WORDS],
        "show replaced": [places.electra, WORDS],
        "show example": [places.corpus],
        "show attention": [places.run, WORDS],
        "corpus web": [places.pages, "--links", places.links, "--workers", "1", "--keep-low-quality"],
        "explain": [places.kagnet, "With what?", "--choices", "trowel,excavator", "--out", places.folder / "page.html"],
        "search": [places.index, WORDS],
        "evaluate-retrieval": [places.run, "--data", places.retrieval],
        "serve": [places.gpt, "--port", "0"],
    }


WITHOUT_OUT = {
    *("plan", "fill-mask", "detect", "generate", "perplexity", "lm-eval", "graph paths", "show masking"),
    *("show replaced", "show example", "show attention", "explain", "search", "evaluate-retrieval", "serve"),
}
UNFINISHED = {"reproduce", "lm-eval"}  # takes minutes; needs a package that may not be there, and its tasks
LEGAL_AND_LONG = {("pretrain", "--tokens", "99999999999"), ("pretrain", "--minutes", "1")}
HOW_LONG = ("--steps", "--tokens", "--minutes")  # a run of pretrain; only one may be given


def stopped_once_started(work: Callable[[], None]) -> None:
    """Runs `serve`, which would wait for requests until it is stopped; only in a process of its own."""

    async def nothing(server: object) -> None:
        pass

    uvicorn.Server.main_loop = nothing
    work()


def words_of(verb: str, places: Places, out: Path) -> list:
    return [*verb.split(), *commands(places)[verb], *([] if verb in WITHOUT_OUT else ["--out", out])]


def work_of(verb: str, words: list, succeeds: bool = False) -> Callable[[], None]:
    work = command(*words, succeeds=succeeds)
    return partial(stopped_once_started, work) if verb == "serve" else work


@pytest.mark.parametrize("verb", sorted(numeric_options()))
def test_numeric_options(places, verb):
    assert verb in commands(places), "a command with a numeric option is not tried here"
    steps, faults = ["--steps", "2"] if verb == "pretrain" else [], []
    if verb not in UNFINISHED:
        words = [*words_of(verb, places, places.new()), *steps]
        assert fault_of(work_of(verb, words, succeeds=True), SECONDS) is None, f"{verb} fails without the options"
    options = numeric_options()[verb]
    found = [(option, value) for option in options for value in NUMBERS if (verb, option, value) not in LEGAL_AND_LONG]
    for option, value in found:
        out = places.new()
        words = [*words_of(verb, places, out), f"{option}={value}", *(steps if option not in HOW_LONG else [])]
        if fault := fault_of(work_of(verb, words), SECONDS):
            faults.append(f"hornbook {verb} {option}={value} {fault}")
        shutil.rmtree(out, ignore_errors=True)
    report(f"numeric options of {verb}", len(found), faults)
