"""Tables of polars, pyarrow and datasets are taken wherever those of pandas are, and give the same."""

import numpy as np
import pyarrow
import pytest
from finetuned import encoder, finetuned, labelled_texts

import hornbook
from hornbook import TextClassifier
from hornbook.inference.retrieval.index import Index
from hornbook.tasks.reading.read import read

ROWS = [row | {"id": f"k{number}"} for number, row in enumerate(labelled_texts())]
TEXTS, LABELS = [row["text"] for row in ROWS], [row["label"] for row in ROWS]


class Streamed:
    """A table that only gives an Arrow stream, as DuckDB's and others' do."""

    def __init__(self, rows):
        self.table = pyarrow.Table.from_pylist(rows)
        self.columns = self.table.column_names

    def __arrow_c_stream__(self, schema=None):
        return self.table.__arrow_c_stream__(schema)


def _polars(rows):
    return pytest.importorskip("polars").DataFrame(rows)


def _lazy(rows):
    return pytest.importorskip("polars").LazyFrame(rows)


def _datasets(rows):
    return pytest.importorskip("datasets").Dataset.from_list(rows)


def _pandas(rows):
    return pytest.importorskip("pandas").DataFrame(rows)


TABLES = [_polars, _datasets, _pandas, pyarrow.Table.from_pylist, Streamed]
NAMES = ["polars", "datasets", "pandas", "pyarrow", "stream"]


@pytest.fixture(scope="module")
def model(tmp_path_factory, tiny_tokenizer):
    return encoder(tmp_path_factory.mktemp("frames") / "encoder", tiny_tokenizer)


@pytest.fixture(scope="module")
def run(model):
    return finetuned(model.parent / "run", model, "classification", ROWS)


@pytest.mark.parametrize("table", [*TABLES, _lazy], ids=[*NAMES, "lazy"])
def test_data_to_train_on(table):
    expected = read("classification", ROWS, text="text")
    assert read("classification", table(ROWS), text="text").splits == expected.splits
    splits = {"train": table(ROWS[:40]), "dev": table(ROWS[40:])}
    assert len(read("classification", splits).splits["dev"]) == 20


def test_datasets_with_splits():
    datasets = pytest.importorskip("datasets")
    found = datasets.DatasetDict({"train": _datasets(ROWS[:40]), "validation": _datasets(ROWS[40:])})
    assert {name: len(each) for name, each in read("classification", found).splits.items()} == {"train": 40, "dev": 20}


@pytest.mark.parametrize("table", TABLES, ids=NAMES)
def test_inputs_to_predict_and_to_embed(table, model, run, tmp_path):
    given = table([{"id": row["id"], "text": row["text"]} for row in ROWS])
    predictor, loaded = hornbook.load_predictor(run), hornbook.load(model)
    found = predictor.predict(given)
    labels = [each.label for each in found] if isinstance(found, list) else list(found["label"])
    assert labels == [each.label for each in predictor.predict(TEXTS)]
    hornbook.build_index(given, tmp_path / "index", loaded)
    index = Index(tmp_path / "index")
    assert index.rows["id"].to_pylist() == [row["id"] for row in ROWS]
    assert np.allclose(index.vectors_ND, loaded.embed(TEXTS, normalize=True), atol=1e-6)


@pytest.mark.parametrize("table", TABLES[:3], ids=NAMES[:3])
def test_columns_and_estimators(table, model):
    frame = table(ROWS)
    loaded = hornbook.load(model)
    assert np.allclose(loaded.embed(frame["text"]), loaded.embed(TEXTS), atol=1e-6)
    found = TextClassifier(model, epochs=1).fit(frame["text"], frame["label"])
    assert found.classes_.tolist() == ["dark", "light"]
    expected = found.predict(TEXTS).tolist()
    one_column = frame.select_columns(["text"]) if hasattr(frame, "select_columns") else frame[["text"]]
    assert found.predict(frame["text"]).tolist() == found.predict(one_column).tolist() == expected
