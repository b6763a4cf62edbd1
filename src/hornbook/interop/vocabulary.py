"""Extends a model's vocabulary: new embedding rows are the mean of the old tokens of the word, or random."""

import dataclasses

import torch
from torch import nn

from hornbook.models.transformer import PADDED
from hornbook.text.tokenizer import Tokenizer


def grown(model: nn.Module, old: Tokenizer, new: Tokenizer) -> nn.Module:
    """Returns a copy of `model` for the tokenizer `new`, which extends `old` and keeps its ids.

    The embedding of a new token is the mean of the embeddings of its old tokens; so is its bias in the MLM head.
    """
    _check_extends(old, new)
    num_kept = model.config.vocab_size  # may exceed the tokenizer's: rows without a token
    larger = type(model)(dataclasses.replace(model.config, vocab_size=max(num_kept, new.vocab_size)), model.heads)
    larger.initialise(torch.Generator().manual_seed(0))
    old_ids = {
        token: torch.from_numpy(old.encode_sentences([new.token(token)]).ids.astype("int64"))
        for token in range(old.vocab_size, new.vocab_size)
    }
    target = larger.state_dict()
    for name, value in model.state_dict().items():
        if name not in PADDED:
            target[name].copy_(value)
            continue
        target[name][:num_kept] = value[:num_kept]
        for token, ids in old_ids.items():
            if len(ids):
                target[name][token] = value[ids].mean(0)
    return larger


def with_new_tokens(model: nn.Module, old: Tokenizer, new: Tokenizer, seed: int) -> nn.Module:
    """Returns a copy of `model`, without a task head, for the tokenizer `new`, which extends `old` and keeps its ids.
    The embeddings of the new tokens are newly initialised."""
    config, num_kept = model.config, model.config.vocab_size
    config = dataclasses.replace(config, vocab_size=max(num_kept, new.vocab_size))
    with torch.device("meta"):
        larger = type(model)(model.for_tokenizer(config, new.pad_id, new.end_id), model.heads)
    larger.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    source = model.state_dict()
    for name, target in larger.state_dict().items():
        if name not in PADDED:
            target.copy_(source[name])
            continue
        target.fill_(PADDED[name])
        target[:num_kept] = source[name][:num_kept]
        target[old.vocab_size : new.vocab_size].normal_(0, config.init_std, generator=generator)
    return larger


def _check_extends(old: Tokenizer, new: Tokenizer) -> None:
    for number in range(old.vocab_size):
        before, after = old.backend.id_to_token(number), new.backend.id_to_token(number)
        if before != after:
            raise ValueError(
                f"the corpus was built with a different vocabulary than the model's (token {number} is '{after}' in "
                f"the corpus and '{before}' in the model): build the corpus with the model's own tokenizer, or with "
                "one that 'hornbook tokenizer extend' made from it"
            )
