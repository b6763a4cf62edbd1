"""Folders of small models with random weights, of any family, with the head of any task or none."""

from pathlib import Path

import torch

from hornbook.interop.folder import save_model
from hornbook.models.head_config import HeadConfig
from hornbook.models.registry import MODELS
from hornbook.text.tokenizer import Tokenizer

LENGTH = 24  # tokens that they read


def model_folder_of(
    folder: Path, tokenizer_folder: Path, family: str, head_config: HeadConfig | None = None, seed: int = 0, **overrides
) -> Path:
    kind, tokenizer = MODELS[family], Tokenizer.load(tokenizer_folder)
    size = {"num_layers": 1, "width": 32, "num_heads": 2, "inner_width": 128, "max_positions": LENGTH}
    config = kind.config_class(vocab_size=tokenizer.vocab_size, **size | overrides)
    model = kind(
        kind.for_tokenizer(config, tokenizer.pad_id),
        () if head_config is None else kind.heads_for(head_config),
        head_config,
    )
    model.initialize(torch.Generator().manual_seed(seed))
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():  # loud, so that answers differ
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        model.embeddings.tokens.weight[config.vocab_size :] = 0
    tokenizer.save(folder, LENGTH)
    save_model(folder, model)
    return folder
