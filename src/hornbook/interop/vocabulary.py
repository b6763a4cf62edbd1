"""Growing a model's vocabulary: new rows start from the mean of the pieces that the word was written in before."""

import dataclasses

import torch
from torch import nn

from hornbook.models.transformer import PADDED
from hornbook.text.tokenizer import Tokenizer


def grown(model: nn.Module, old: Tokenizer, new: Tokenizer) -> nn.Module:
    """A copy of `model` for the tokenizer `new`, which has all tokens of `old` at the same ids, and more.

    The embedding of a new token is the mean of its old pieces' embeddings; so is its bias in the MLM head.
    """
    _check_extends(old, new)
    num_kept = model.config.vocab_size  # it may be more than the tokenizer's: rows that no token has had yet
    larger = type(model)(dataclasses.replace(model.config, vocab_size=max(num_kept, new.vocab_size)), model.heads)
    larger.initialise(torch.Generator().manual_seed(0))
    pieces_of = {
        token: torch.from_numpy(old.encode_sentences([new.token(token)]).ids.astype("int64"))
        for token in range(old.vocab_size, new.vocab_size)
    }
    target = larger.state_dict()
    for name, value in model.state_dict().items():
        if name not in PADDED:
            target[name].copy_(value)
            continue
        target[name][:num_kept] = value[:num_kept]
        for token, pieces in pieces_of.items():
            if len(pieces):
                target[name][token] = value[pieces].mean(0)
    return larger


def with_new_tokens(model: nn.Module, old: Tokenizer, new: Tokenizer, seed: int) -> nn.Module:
    """A copy of `model` for the tokenizer `new`, which has all tokens of `old` at the same ids, and more, whose
    embeddings start anew; without the head of a task."""
    config, num_kept = model.config, model.config.vocab_size
    config = dataclasses.replace(config, vocab_size=max(num_kept, new.vocab_size))
    with torch.device("meta"):
        larger = type(model)(model.for_tokenizer(config, new.pad_id, new.end_id), model.heads)
    larger.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    held = model.state_dict()
    for name, target in larger.state_dict().items():
        if name not in PADDED:
            target.copy_(held[name])
            continue
        target.fill_(PADDED[name])
        target[:num_kept] = held[name][:num_kept]
        target[old.vocab_size : new.vocab_size].normal_(0, config.init_std, generator=generator)
    return larger


def _check_extends(old: Tokenizer, new: Tokenizer) -> None:
    for number in range(old.vocab_size):
        before, after = old.backend.id_to_token(number), new.backend.id_to_token(number)
        if before != after:
            raise ValueError(
                f"the corpus was built with another vocabulary than the model's (token {number} is '{after}' there and "
                f"'{before}' in the model): build the corpus with the model's own tokenizer, or with one that "
                "'hornbook tokenizer extend' made from it"
            )
