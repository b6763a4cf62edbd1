"""Fine-tuned runs in Python: `load(run).predict`, `evaluate`, data frames in and out, the progress bar."""

import importlib.resources
import inspect

import pytest
from finetuned import encoder, finetuned, labelled_texts, tagged_words

import hornbook
from hornbook import terminal
from hornbook.train.job import TrainingProgress


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def plain_encoder(folder, tiny_tokenizer):
    return encoder(folder / "encoder", tiny_tokenizer)


@pytest.fixture(scope="module")
def reviews(folder, plain_encoder):
    return finetuned(folder / "reviews", plain_encoder, "classification", labelled_texts())


def test_a_run_that_is_loaded_predicts_and_embeds(reviews):
    model = hornbook.load(reviews)
    assert model.predict(["the river"]) == hornbook.load_predictor(reviews).predict(["the river"])
    assert model.embed(["the river"]).shape == (1, 32)
    assert model.evaluate(labelled_texts(10))["examples"] == {"dev": 10}


def test_error_for_a_model_without_a_task_names_the_fix(plain_encoder):
    with pytest.raises(ValueError, match=r"no task head.*hornbook\.finetune\("):
        hornbook.load(plain_encoder).predict(["the river"])


def test_evaluate(reviews):
    rows = [{"body": row["text"], "kind": row["label"]} for row in labelled_texts(10)]
    found = hornbook.evaluate(reviews, rows, text="body", label="kind")
    assert found == hornbook.load_predictor(reviews).evaluate(labelled_texts(10)) | {"messages": found["messages"]}


class Frame:
    """The parts of a pandas data frame that are used."""

    def __init__(self, columns: dict):
        self.data = columns

    @property
    def columns(self):
        return list(self.data)

    def to_dict(self, orient):
        assert orient == "records"
        return [dict(zip(self.data, row, strict=True)) for row in zip(*self.data.values(), strict=True)]

    def assign(self, **more):
        return Frame(self.data | more)


def test_a_frame_gives_a_frame(reviews):
    frame = Frame({"id": [7, 8], "review": ["the river", "a lantern"], "label": ["x", "y"]})
    found = hornbook.load(reviews).predict(frame)
    assert found.columns == ["id", "review", "label", "predicted_label", "probability", "p_dark", "p_light"]
    assert found.data["id"] == [7, 8] and found.data["label"] == ["x", "y"]
    alone = hornbook.load(reviews).predict(frame.data["review"])
    assert found.data["predicted_label"] == [each.label for each in alone]
    assert found.data["p_light"] == pytest.approx([each.probabilities["light"] for each in alone], abs=1e-5)


def test_a_frame_of_pandas_keeps_its_index(reviews):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["the river", "a lantern", "bread"]}, index=[5, 3, 9])
    found = hornbook.load(reviews).predict(frame)
    assert list(found.index) == [5, 3, 9] and list(found.columns)[:3] == ["text", "label", "probability"]
    assert hornbook.evaluate(reviews, found.assign(label="dark"))["examples"] == {"dev": 3}


def test_a_frame_of_polars(folder, plain_encoder):
    polars = pytest.importorskip("polars")
    run = finetuned(folder / "tags", plain_encoder, "tagging", tagged_words(200))
    found = hornbook.load(run).predict(polars.DataFrame({"id": [1], "text": ["the silver bridge"]}))
    assert found.columns == ["id", "text", "words", "tags", "entities", "probabilities"]
    assert found["words"].to_list() == [["the", "silver", "bridge"]]


# ---- the bar


@pytest.fixture
def finetuning(monkeypatch, plain_encoder, tmp_path):
    """Fine-tunes as a script does; whether a bar was drawn."""
    shown = []
    monkeypatch.setattr(terminal.TrainingDisplay, "__call__", lambda self, status: shown.append(self.is_live))

    def run(**more) -> bool:
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        settings = {"epochs": 1, "overrides": {"runtime.threads": 1}, "log": lambda words: None}
        shown.clear()
        hornbook.finetune(plain_encoder, labelled_texts(), out=out, **settings, **more)
        return any(shown)

    return run


@pytest.mark.parametrize("place", ["_force_terminal", "is_jupyter"])
def test_a_script_shows_a_bar_on_a_terminal_and_in_a_notebook(finetuning, monkeypatch, place):
    monkeypatch.setattr(terminal.log_console, place, True)
    monkeypatch.setattr("rich.progress.Progress.start", lambda self: None)
    assert finetuning()
    assert not finetuning(progress=False)


def test_the_help_names_the_argument_of_the_bar():
    for function in (hornbook.finetune, hornbook.reproduce):
        assert inspect.signature(function).parameters["progress"].default is True


def test_no_bar_where_nobody_looks(finetuning):
    assert not finetuning()


def test_the_bar_follows_runs_of_different_lengths():
    display = terminal.TrainingDisplay()
    display.is_live = True
    for step, num_steps in ((5, 5), (1, 8)):
        display(TrainingProgress(step, num_steps, {}, 0.0, 0.0))
    (task,) = display.progress.tasks
    assert (task.completed, task.total, task.finished) == (1, 8, False)


def test_an_earlier_validation_is_shown_with_its_step(monkeypatch):
    lines = []
    monkeypatch.setattr(terminal, "log", lines.append)
    monkeypatch.setattr(terminal, "LINE_EVERY_SECONDS", 0.0)
    display = terminal.TrainingDisplay(is_live=False)
    monkeypatch.setattr(terminal, "MAX_LINES", 3)
    for step in range(1, 9):
        validation = {"validation_loss": 0.5} if step > 1 else {}
        display(TrainingProgress(step, 9, {"loss": 1.0} | validation, 0.0, float("inf")))
    assert [line.partition("1.00")[2].strip() for line in lines] == ["", "validation 0.50 (step 2)", ""]


def test_without_a_terminal_a_run_logs_about_twenty_lines(monkeypatch):
    lines = []
    monkeypatch.setattr(terminal, "log", lines.append)
    monkeypatch.setattr(terminal, "LINE_EVERY_SECONDS", 0.0)
    with terminal.TrainingDisplay(is_live=False) as display:
        for step in [*range(1, 501), *range(1, 501)]:  # two runs in sequence
            display(
                TrainingProgress(
                    step, 500, {"loss": 1.0, "validation_accuracy": 0.6333}, 0.0, 9.0, metric_for_best="accuracy"
                )
            )
    assert 38 <= len(lines) <= 42 and lines[-1] == "step 500 of 500  loss 1.00  done"
    assert sum("validation accuracy 0.6333" in line for line in lines) == 1


# ---- types and help


def test_types_are_published():
    assert importlib.resources.files("hornbook").joinpath("py.typed").is_file()


@pytest.mark.parametrize("name", [name for name in hornbook.__all__ if name != "__version__"])
def test_every_public_name_has_types_and_an_example(name):
    found = getattr(hornbook, name)
    assert ">>> " in (found.__doc__ or ""), f"hornbook.{name} has no example"
    function = found.__init__ if inspect.isclass(found) else found
    untyped = [
        each.name
        for each in inspect.signature(function).parameters.values()
        if each.annotation is each.empty and each.name != "self"
    ]
    assert not untyped, f"hornbook.{name}: {untyped} without a type"
