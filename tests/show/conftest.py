"""Encoders that read in each direction."""

import pytest
import torch

from hornbook.interop.folder import save_model
from hornbook.models.bert import Bert, BertConfig
from hornbook.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def one_way(tmp_path_factory, tiny_tokenizer):
    """Encoders that read in each direction."""
    root, tokenizer = tmp_path_factory.mktemp("directions"), Tokenizer.load(tiny_tokenizer)
    size = {"num_layers": 2, "width": 32, "num_heads": 2, "inner_width": 64, "max_positions": 40, "init_std": 0.4}
    for direction in ("bidirectional", "causal"):
        model = Bert(BertConfig(vocab_size=tokenizer.vocab_size, direction=direction, **size), ())
        model.initialize(torch.Generator().manual_seed(1))
        tokenizer.save(root / direction, 40)
        save_model(root / direction, model)
    return root
