"""`hornbook compare` on a machine with a GPU: throughput there too, and scores from there."""

import pytest
import torch
from deployment.model_folders import model_folder_of

from hornbook.deployment.comparison import compare
from hornbook.models.head_config import HeadConfig

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]


def test_throughput_is_measured_on_both(tiny_tokenizer, tmp_path):
    head_config = HeadConfig("sequence", 2, ("dark", "light"))
    models = [model_folder_of(tmp_path / str(seed), tiny_tokenizer, "bert", head_config, seed) for seed in (0, 1)]
    data = tmp_path / "texts.csv"
    data.write_text("text,label\n" + "the river,dark\na lantern,light\n" * 20, encoding="utf-8")
    found = compare(models, data=str(data), rounds=3, batch_size=4)
    assert all(row["throughput"]["cuda"] > 0 and row["throughput"]["cpu"] > 0 for row in found["rows"])
    assert found["devices"]["cuda"] and all(0 <= row["score"]["value"] <= 1 for row in found["rows"])
