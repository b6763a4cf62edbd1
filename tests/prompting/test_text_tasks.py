"""The task file: its keys, and errors for invalid ones."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from small_prompting import QUESTION, WRITING, write_task

from hornbook.files import shipped_names
from hornbook.tasks.text import definition
from hornbook.tasks.text.definition import SHIPPED, filled, read_task


def test_every_shipped_task_can_be_read():
    assert {"lambada-paper", "lambada-harness", "coqa", "summary", "translation-pairs", "translation-say"} <= set(
        shipped_names(SHIPPED)
    )
    assert {"sst-2-question", "rte-question", "commonsenseqa"} <= set(shipped_names(SHIPPED))
    for name in shipped_names(SHIPPED):
        task = read_task(name)
        assert task.name == name and task.about


def test_the_published_settings():
    summary = read_task("summary")
    generation = summary.generation
    assert (generation.max_new_tokens, generation.top_k, generation.keep) == (100, 2, "three sentences")
    assert summary.templates["without-the-hint"] == summary.example.replace("TL;DR:", "")
    assert summary.baseline.kinds == ("lead-3", "random-3") and summary.draws_answers
    assert read_task("translation-pairs").example == "{en} =" and not read_task("translation-pairs").draws_answers
    assert read_task("lambada-harness").needs == {"likelihood"}
    assert read_task("lambada-paper").needs == {"likelihood", "text"}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('metrics = ["accuracy"]', 'metrics = ["acuracy"]', "did you mean accuracy"),
        ('metrics = ["accuracy"]', 'metrics = ["rouge1"]', "not a metric for a task that has"),
        ('metrics = ["accuracy"]', "metrics = []", "metrics is missing"),
        ('example = "{text} is"', "", "example is missing"),
        ('example = "{text} is"', "example = 3", "must be a string"),
        ("description", "descripton", "did you mean 'description'"),
        ("{r =", "{r = ", ""),
        ('"dark green"', '"red"', "a different text"),
        ("[choices]", '[generation]\ntop_k = "two"\n[choices]', "generation.top_k must be a whole number"),
        ("[choices]", "[generation]\ntemperature = -1\n[choices]", "generation.temperature must be at least 0"),
        ("[choices]", '[source]\nlayout = "tables"\n[choices]', "source.layout must be one of columns, lambada"),
        ("[choices]", '[choices]\nnormalize = "word"', "choices.normalize must be one of token, byte"),
        ("[choices]", "[baseline]\nfield = 3\n[choices]", "baseline.field must be a string"),
        (
            "[choices]",
            '[baseline]\nkinds = ["lead-4"]\n[choices]',
            "baseline.kinds must be one of lead-3",
        ),
        ("[choices]", "[choices]\nfrom_example = true", "exclude each other"),
        ("[choices]", "[choices", "not valid TOML"),
    ],
)
def test_mistakes_are_answered_with_the_fix(tmp_path, before, after, words):
    file = write_task(tmp_path / "colour.toml", QUESTION.replace(before, after, 1))
    if not words:
        assert read_task(file).name == "colour"
        return
    with pytest.raises(ValueError, match=words) as error:
        read_task(file)
    assert "colour.toml" in str(error.value) and "\n" not in str(error.value)[:40]


def test_a_free_answer_has_no_accuracy(tmp_path):
    file = write_task(tmp_path / "colour.toml", WRITING.replace('"exact"', '"accuracy"'))
    with pytest.raises(ValueError, match="not a metric for a task that generates"):
        read_task(file)


def test_an_unknown_task_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="a shipped one; did you mean lambada-paper or lambada-harness"):
        read_task("lambada")
    with pytest.raises(ValueError, match="there is no file xyz"):
        read_task("xyz.toml")


def test_a_template_takes_texts_as_they_are():
    assert filled("{a} and {b}", {"a": "{b}", "b": "\\1"}) == "{b} and \\1"
    assert filled('{{"name": "{my name}"}}', {"my name": "Ada"}) == '{"name": "Ada"}'
    with pytest.raises(ValueError, match=r"names the field \{c\}, and the data has a"):
        filled("{c}", {"a": ""})


def test_its_document_names_every_key():
    text = (Path(__file__).parents[2] / "docs" / "prompting.md").read_text(encoding="utf-8")
    kinds = (
        definition.TextTask,
        definition.ExampleSource,
        definition.Choices,
        definition.GenerationSettings,
        definition.Baseline,
    )
    keys = [key.name for kind in (*kinds, definition.Variant) for key in fields(kind)]
    assert len(keys) > 30 and not [key for key in keys if not re.search(rf"\b{key}\b", text)]
