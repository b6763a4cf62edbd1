"""Extends a model's vocabulary: new embedding rows are the mean of the old tokens of the word, or random."""

import dataclasses

import torch
from torch import nn

from hornbook.models.transformer import VOCABULARY_PADDING
from hornbook.text.tokenizer import Tokenizer


def extend_vocabulary(model: nn.Module, old: Tokenizer, new: Tokenizer) -> nn.Module:
    """Returns a copy of `model`, without a task head, for the tokenizer `new`, which extends `old` and keeps its ids.
    The embedding of a new token is the mean of the embeddings of its old tokens; so is its bias in the MLM head."""
    _check_extends(old, new)
    larger = with_new_tokens(model, old, new, seed=0)
    source, target = model.state_dict(), larger.state_dict()
    for token in range(old.vocab_size, new.vocab_size):
        ids = torch.from_numpy(old.encode_plain([new.token(token)]).ids.astype("int64"))
        for name in VOCABULARY_PADDING.keys() & target.keys() if len(ids) else ():
            target[name][token] = source[name][ids].mean(0)
    return larger


def with_new_tokens(model: nn.Module, old: Tokenizer, new: Tokenizer, seed: int) -> nn.Module:
    """Returns a copy of `model`, without a task head, for the tokenizer `new`, which extends `old` and keeps its ids.
    The embeddings of the new tokens are newly initialised."""
    config, num_kept = model.config, model.config.vocab_size  # may exceed the tokenizer's: rows without a token
    config = dataclasses.replace(config, vocab_size=max(num_kept, new.vocab_size))
    with torch.device("meta"):
        larger = type(model)(model.for_tokenizer(config, new.pad_id, new.eos_id), model.heads)
    larger.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    source = model.state_dict()
    for name, target in larger.state_dict().items():
        if name not in VOCABULARY_PADDING:
            target.copy_(source[name])
            continue
        target.fill_(VOCABULARY_PADDING[name])
        target[:num_kept] = source[name][:num_kept]
        target[old.vocab_size : new.vocab_size].normal_(0, config.init_std, generator=generator)
    return larger


def _check_extends(old: Tokenizer, new: Tokenizer) -> None:
    for token in range(old.vocab_size):
        before, after = old.backend.id_to_token(token), new.backend.id_to_token(token)
        if before != after:
            raise ValueError(
                f"the corpus was built with a different vocabulary than the model's (token {token} is '{after}' in "
                f"the corpus and '{before}' in the model): build the corpus with the model's own tokenizer, or with "
                "one that 'hornbook tokenizer extend' made from it"
            )
