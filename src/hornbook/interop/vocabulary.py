"""Growing a model's vocabulary: new rows start from the mean of the pieces that the word was written in before."""

import dataclasses

import torch
from torch import nn

from hornbook.text.tokenizer import Tokenizer


def grown(model: nn.Module, old: Tokenizer, new: Tokenizer) -> nn.Module:
    """A copy of `model` for the tokenizer `new`, which has all tokens of `old` at the same ids, and more.

    The embedding of a new token is the mean of its old pieces' embeddings; so is its bias in the MLM head.
    """
    before, after = model.config.vocab_size, new.vocab_size
    _check_extends(old, new)
    config = dataclasses.replace(model.config, vocab_size=max(before, after))
    larger = type(model)(config, model.heads)
    larger.initialise(torch.Generator().manual_seed(0))
    pieces = [old.encode_sentences([new.token(token)]).ids.astype("int64") for token in range(old.vocab_size, after)]
    state, target = model.state_dict(), larger.state_dict()
    for name, value in state.items():
        if value.shape == target[name].shape and config.vocab_size == before:
            target[name].copy_(value)
            continue
        if value.shape[:1] != (model.config.padded_vocab_size,):
            target[name].copy_(value)
            continue
        target[name][:before] = value[:before]
        for token, old_ids in zip(range(old.vocab_size, after), pieces, strict=True):
            target[name][token] = value[torch.from_numpy(old_ids)].mean(0)
    return larger


def _check_extends(old: Tokenizer, new: Tokenizer) -> None:
    for token in range(old.vocab_size):
        if old.token(token) != new.token(token):
            raise ValueError(
                f"the corpus was built with another vocabulary than the model's (token {token} is '{new.token(token)}' "
                f"there and '{old.token(token)}' in the model): build the corpus with the model's own tokenizer, "
                "or with one that 'hornbook tokenizer extend' made from it"
            )
