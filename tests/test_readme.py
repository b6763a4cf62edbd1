"""Every command of the README and of the pages in docs/ runs, on a small text and for two steps."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from tiny import tiny_text
from typer.testing import CliRunner
from web_pages import pages, write_links, write_mirror

import hornbook as library
from hornbook.files import sha256

README = Path(__file__).parent.parent / "README.md"
SAME_SIZE = "--steps 2 --batch-tokens 512 --set data.short_length=32 --set data.length=64 --set runtime.threads=1"
SMALL = f"{SAME_SIZE} --set model.num_layers=1 --set model.width=32 --set model.num_heads=2 --set model.inner_width=64"

PAGES = (
    "finetuning",
    "pretraining",
    "generation",
    "howto/distillation",
    "howto/export",
    "embeddings",
    "knowledge",
    "show",
)
FAMILIES = tuple(f"families/{path.stem}" for path in sorted((README.parent / "docs" / "families").glob("*.md")))
HOW_TO = tuple(f"howto/{path.stem}" for path in sorted((README.parent / "docs" / "howto").glob("*.md")))
NOTES = ("index", "bert", "gpt", "albert", "electra", "distillation", "knowledge")
REVIEWS = (("charming", "good"), ("slow", "bad"))


def code(page: Path, language: str) -> list[str]:
    """The blocks of code of a page, without comments."""
    blocks = re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    return [re.sub(r"( {2})?# .*$", "", block, flags=re.M) for block in blocks]


def commands(pages: list[Path]) -> list[list[str]]:
    """In the order of the pages, each once: later pages use what earlier ones made."""
    blocks = [block for page in pages for block in code(page, "sh")]
    lines = dict.fromkeys(line for block in blocks for line in block.splitlines() if line.startswith("hornbook "))
    # A server runs until it is stopped: tests/serve starts one.
    return [words for line in lines if (words := shlex.split(line))[1] != "serve"]


def shortened(words: list[str]) -> list[str]:
    """The same command for two steps of a tiny model; training that continues from a model keeps that model's size."""
    if words[1] == "corpus":
        return [*words, "--workers", "1" if words[2] == "web" else "0"]
    if words[1] in ("export", "compare"):
        return [*words, "--rounds", "2"]
    if words[1] == "push":  # needs a network and a token: tests/deployment/test_push.py
        return [*dict.fromkeys([*words, "--dry-run"])]
    if words[1] in ("finetune", "label-curve"):
        short = ["--set", "runtime.threads=1", "--set", "epochs=1", "--set", "examples=64"]
        return [*words, *short] if words[1] == "finetune" else words
    if words[1] == "distill" and "--task" in words:
        return [*words, *["--set", "runtime.threads=1", "--set", "epochs=1", "--set", "objective.earlier_epochs=1"]]
    if words[1:3] == ["graph", "embed"]:
        return [*words, "--epochs", "1", "--width", "4"]
    if words[1] not in ("pretrain", "distill") or "--show" in words:
        return words
    for flag in ("--minutes", "--steps"):
        if flag in words:
            del words[words.index(flag) : words.index(flag) + 2]
    if "--from" in words:
        return [
            *words,
            *["--steps", "2", "--batch-tokens", "512", "--set", "data.short_length=32", "--set", "data.length=64"],
        ]
    return [*words, *SMALL.split()]


def prompting_examples() -> list[str]:
    """The files that docs/prompting.md shows: a task, and several tasks to learn together."""
    text = (README.parent / "docs" / "prompting.md").read_text(encoding="utf-8")
    return re.findall(r"```toml\n(.*?)```", text, re.S)


def test_the_files_of_the_page_on_prompting_can_be_read(tmp_path):
    from hornbook.runs.finetuning.finetune_text import read_mixture
    from hornbook.tasks.text.definition import read_task

    task, joint = prompting_examples()
    for name, text in (("review.toml", task), ("joint.toml", joint)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_task(tmp_path / "review.toml").choices.labels == {"good": "good", "bad": "bad"}
    assert [each.task for each in read_mixture(tmp_path / "joint.toml").tasks] == ["sst-2-question", "review.toml"]


def search_data(folder: Path) -> None:
    """The files that docs/embeddings.md names."""
    numbers = range(40)
    tables = {
        "texts": ["id,lang,body", *(f"{i},{'en' if i % 2 else 'de'},how to reset password {i}" for i in numbers)],
        "more-texts": ["id,lang,body", "new,en,a new password"],
        "pairs": ["question,answer", *(f"how to reset password {i}?,choose a password {i}" for i in numbers)],
        "scored-pairs": ["question,answer,score", *(f"password {i},a password {i // 2},{i % 6}" for i in numbers)],
    }
    for name, lines in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(lines), encoding="utf-8")
    (folder / "beir" / "qrels").mkdir(parents=True)
    for name in ("corpus", "queries"):
        (folder / "beir" / f"{name}.jsonl").write_text(
            '{"_id": "1", "text": "a password"}\n{"_id": "2", "text": "a"}\n'
        )
    (folder / "beir" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\t2\t1\n")


def marked_data(folder: Path) -> None:
    """The files of the section on ERNIE in docs/knowledge.md."""
    words = [(number, *each) for number in range(6) for each in REVIEWS]
    types = [{"text": f"[ENT] {word} {i} [ENT] is here.", "labels": [label]} for i, word, label in words]
    relations = [{"text": f"A [HD] {word} [HD] in [TL] room {i} [TL].", "label": label} for i, word, label in words]
    for name, rows in (("typing", types), ("relations", relations)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def how_to_data(folder: Path) -> None:
    """The files that the pages in docs/howto/ name."""
    people, cities = ("Ada Lovelace", "Grace Hopper"), ("Oslo", "Berlin", "Seoul", "Paris")
    pairs = [(person, city) for person in people for city in cities]
    tagged = [f"{p.split()[0]}\tB-PER\n{p.split()[1]}\tI-PER\nsaw\tO\n{c}\tB-LOC\n" for p, c in pairs]
    (folder / "entities.conll").write_text("\n".join(tagged), encoding="utf-8")
    rows = [f"{q},{p} moved to {c}.,{a}" for p, c in pairs for q, a in ((f"Where did {p} move?", c), ("Why?", ""))]
    (folder / "answers.csv").write_text("\n".join(["question,passage,answer", *rows]), encoding="utf-8")
    (folder / "korean").mkdir()
    sentences = [f"고양이가 {place}에서 {thing} 읽었다." for place in "집산강" for thing in ("책을", "글을", "시를")]
    (folder / "korean" / "some.txt").write_text("\n\n".join(sentences * 8), encoding="utf-8")
    reviews = [
        f"이 영화는 {word} {i},{label}" for i in range(10) for word, label in (("좋다", "긍정"), ("싫다", "부정"))
    ]
    (folder / "korean-reviews.csv").write_text("\n".join(["document,label", *reviews]), encoding="utf-8")


def run_commands(pages: list[Path], model: str) -> int:
    """Runs the commands of the pages, shortened, in the current folder; returns how many there are. Tasks start from
    `model` in place of the built-in one, which is larger."""
    from hornbook.cli import app

    found = commands(pages)
    for words in found:
        if words[1] == "finetune" and words[2] == "--task":
            words.insert(2, model)
        result = CliRunner().invoke(app, shortened(words)[1:])
        assert result.exit_code == 0, (words, result.output, result.exception)
    return len(found)


def test_every_command_runs(tmp_path, monkeypatch, tiny_run, fast_exporter):
    from hornbook.evaluation import label_curve

    monkeypatch.setattr(label_curve, "MIN_STEPS", 2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "distilbert-base-uncased").symlink_to(tiny_run)  # in place of the one on Hugging Face
    (tmp_path / "sentence-transformers").mkdir()
    (tmp_path / "sentence-transformers" / "all-MiniLM-L6-v2").symlink_to(tiny_run)
    (tmp_path / "new-reviews.csv").write_text("review\na charming film\na slow film\n", encoding="utf-8")
    for name, seed in (("texts", 0), ("law", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "some.txt").write_text(tiny_text(80, seed), encoding="utf-8")
    (tmp_path / "texts.txt").write_text("a text\nanother\n", encoding="utf-8")
    pair = '{"sentence_good": "a good text", "sentence_bad": "text a good"}\n'
    (tmp_path / "pairs.jsonl").write_text(pair, encoding="utf-8")
    for name, number in (("reviews", 40), ("more-reviews", 10)):
        lines = [f"{word} film number {i},{label}" for i in range(number) for word, label in REVIEWS]
        (tmp_path / f"{name}.csv").write_text("\n".join(["review,label", *lines]), encoding="utf-8")
    for split, number in (("train", 8), ("test", 4)):
        lines = [f"{word} {split} film {i},{label}" for i in range(number) for word, label in REVIEWS]
        (tmp_path / "reviews").mkdir(exist_ok=True)
        (tmp_path / "reviews" / f"{split}.csv").write_text("\n".join(["review,label", *lines]), encoding="utf-8")
    search_data(tmp_path)
    how_to_data(tmp_path)
    facts = "plant\tAtLocation\tgarden\t5\t1\ntrowel\tUsedFor\tgarden\t5\t2\n"
    (tmp_path / "assertions.tsv").write_text(facts, encoding="utf-8")
    rows = [{"context": f"What is for the garden {i}?", "choices": ["trowel", "moon"], "label": 0} for i in range(8)]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    marked_data(tmp_path)
    write_mirror(tmp_path / "crawl", pages())
    write_links(tmp_path / "links.tsv")
    (tmp_path / "review.toml").write_text(prompting_examples()[0], encoding="utf-8")
    documents = [README, *(README.parent / "docs" / f"{page}.md" for page in (*PAGES, *FAMILIES, *HOW_TO))]
    assert run_commands(documents, "runs/first") >= 80
    assert (tmp_path / "runs" / "first" / "report.html").exists()
    assert (tmp_path / "runs" / "law" / "model.safetensors").exists()
    assert len((tmp_path / "predictions.csv").read_text(encoding="utf-8").splitlines()) == 3


def test_the_python_example_runs(tiny_run, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "first").symlink_to(tiny_run)
    example = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S).group(1)
    space: dict = {}
    exec(example, space)
    assert space["model"].embed(["a"]).shape == (1, 32)


def test_the_licence():
    """The text that pyproject.toml names, as it was published."""
    project = tomllib.loads((README.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    published = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    assert sha256(README.parent / "LICENSE") == published


@pytest.mark.parametrize("name", ["README.md", "README.ko.md"])
def test_the_first_command_needs_no_data_and_prints_what_the_readme_shows(name, tmp_path, monkeypatch):
    from hornbook.cli import app

    monkeypatch.chdir(tmp_path)
    page = README.parent / name
    install, command = code(page, "sh")[0].splitlines()
    assert install.startswith("pip install") and page.read_text(encoding="utf-8").splitlines().index(command) < 30
    printed = CliRunner().invoke(app, shlex.split(command)[1:]).stdout
    ours, shown = ([line.split(maxsplit=2) for line in text.splitlines()] for text in (printed, code(page, "text")[0]))
    assert ours[0] == shown[0] == ["word", "text"]
    for (chance, *words), (expected, *others) in zip(ours[1:], shown[1:], strict=True):
        assert [each.strip() for each in words] == others
        assert float(chance.rstrip("%")) == pytest.approx(float(expected.rstrip("%")), abs=0.05)


def test_the_korean_example_of_the_korean_readme():
    text = (README.parent / "README.ko.md").read_text(encoding="utf-8")
    sentence, word, share = re.search(r'fill-mask "([^"]+)"`의 첫 예측은 (\w+)\((\d+)%\)', text).groups()
    (best, *_), *_ = library.load("ko").fill_mask(sentence)
    assert (best.word, f"{best.probability:.0%}") == (word, f"{share}%")


@pytest.mark.parametrize("name", ["page.png", "page.ko.png"])
def test_pictures_of_the_page_are_small(name):
    assert 0 < (README.parent / "docs" / name).stat().st_size < 200_000


def test_a_person_with_a_csv_reads_how_to_use_it_first():
    text = README.read_text(encoding="utf-8")
    first = text[: text.index("## I have domain text")]
    assert all(command in first for command in ("pip install", "hornbook finetune", "hornbook predict", "--file"))


def run_python(page: Path) -> None:
    for block in code(page, "python"):
        exec(block, {})


@pytest.fixture
def small_documents(monkeypatch, tmp_path):
    """In place of Python's whole documentation; in an empty folder."""
    monkeypatch.setattr("hornbook.demo.built_in_documents", lambda: tiny_text(120, 0).split("\n\n"))
    monkeypatch.chdir(tmp_path)


def test_the_tutorial_runs(small_documents, tmp_path, fast_exporter):
    page = README.parent / "docs" / "tutorial.md"
    run_python(page)
    for name, least in (("docstrings.csv", 1000), ("more-docstrings.csv", 301)):
        rows = (tmp_path / name).read_text(encoding="utf-8").splitlines(keepends=True)
        assert len(rows) >= least
        (tmp_path / name).write_text("".join(rows[:80]), encoding="utf-8")
    assert run_commands([page], "runs/base") == 17
    assert (tmp_path / "student-int8" / "model.onnx").exists()


def test_the_notes_run(small_documents, tmp_path):
    pages = [README.parent / "docs" / "notes" / f"{name}.en.md" for name in NOTES]
    run_python(pages[0])
    assert run_commands(pages, "runs/bert") >= 45
    for page in pages[1:]:
        run_python(page)


@pytest.mark.parametrize("name", ["README", *(f"docs/notes/{name}" for name in NOTES)])
def test_korean_pages_have_the_commands_of_the_english_ones(name):
    english = README.parent / f"{name}.md" if name == "README" else README.parent / f"{name}.en.md"
    korean = README.parent / f"{name}.ko.md"
    for language in ("sh", "python", "py"):
        assert code(korean, language) == code(english, language)
    headings = [re.findall(r"^(#+) ", page.read_text(encoding="utf-8"), re.M) for page in (english, korean)]
    assert headings[0] == headings[1]
    pictures = [re.findall(r"!\[.+\]\((.+)\)", page.read_text(encoding="utf-8")) for page in (english, korean)]
    assert pictures[0] == [picture.replace(".ko.png", ".png") for picture in pictures[1]]
    assert all((korean.parent / picture).is_file() for picture in pictures[1])
    assert f"({korean.name})" in english.read_text(encoding="utf-8")
    assert f"({english.name})" in korean.read_text(encoding="utf-8")
