from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from model_folders import model_folder_of
from typer.testing import CliRunner

import hornbook
from hornbook.cli import app

WORDS = "the a of and river teacher bridge morning letters windows children garden silver bread"


class Learned(NamedTuple):
    run: Path
    phone: Path  # the same model in int8
    data: str
    said: str  # output of the export command


@pytest.fixture(scope="session")
def learned(tmp_path_factory, tiny_tokenizer, fast_exporter) -> Learned:
    """A run that separates light from dark texts, exported with its data; do not write into its folders."""
    folder = tmp_path_factory.mktemp("learned")
    model = model_folder_of(folder / "model", tiny_tokenizer, "bert")
    draw = np.random.default_rng(1)
    texts = [" ".join(draw.choice(WORDS.split(), draw.integers(2, 12))) for _ in range(160)]
    texts = [f"{text} lantern" if i % 2 else text for i, text in enumerate(texts)]
    rows = "\n".join(f"the lantern of {i},{text},{'light' if i % 2 else 'dark'}" for i, text in enumerate(texts))
    data = folder / "texts.csv"
    data.write_text(f"text,said,label\n{rows}\n", encoding="utf-8")  # the column named text is uninformative
    overrides = {"runtime.threads": 1, "schedule.warmup_fraction": 0.0}
    run, phone = folder / "run", folder / "phone"
    size = {"epochs": 6, "lr": 3e-3, "batch_size": 16}
    found = hornbook.finetune(model, str(data), out=run, text="said", label="label", **size, overrides=overrides)
    assert found.scores["dev"]["accuracy"]["value"] > 0.9
    words = ["export", str(run), "--format", "onnx-int8", "--out", str(phone), "--data", str(data)]
    result = CliRunner().invoke(app, [*words, "--rounds", "2", "--length", "8"])
    assert result.exit_code == 0, (result.output, result.exception)
    return Learned(run, phone, str(data), result.output)
