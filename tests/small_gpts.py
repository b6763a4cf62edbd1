"""Small GPTs with random weights, here and in `transformers`, with a byte-level vocabulary that splits characters."""

from functools import cache
from pathlib import Path

import numpy as np
import torch
import transformers
from tiny import tiny_text

from hornbook.text.tokenizer import Tokenizer
from hornbook.text.training import train_tokenizer

CONTEXT = 48
SIZE = {"n_layer": 2, "n_embd": 32, "n_head": 4, "n_positions": CONTEXT}
DROPOUTS = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
FAMILIES = {
    "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config),
    "openai-gpt": (transformers.OpenAIGPTLMHeadModel, transformers.OpenAIGPTConfig),
}
PROMPTS = ["the river", "A teacher of the garden, and letters", "한국어 위키백과는", "🙂", "bread " * 4]


@cache
def byte_tokenizer() -> Tokenizer:
    """About 300 tokens: most Hangul and every emoji is several."""
    return train_tokenizer(tiny_text(60).split("\n\n"), kind="bpe", vocab_size=300, cased=True)


def saved_gpt(folder: Path, family: str = "gpt2", end: str | None = "</s>", **overrides):
    """The folder of a random model, so loud that its guesses differ; and the model in `transformers`."""
    tokenizer = byte_tokenizer()
    eos_id = None if end is None else tokenizer.id(end)
    kind, config = FAMILIES[family]
    torch.manual_seed(0)
    settings = SIZE | DROPOUTS | {"vocab_size": tokenizer.vocab_size, "eos_token_id": eos_id, "bos_token_id": eos_id}
    model = kind(config(**settings | {"attn_implementation": "eager", "pad_token_id": 0} | overrides)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    tokenizer.save(folder)
    return model


def their_continuation(theirs, prompt: list[int], num: int, **settings) -> list[list[int]]:
    """New tokens of each sequence that `transformers` gives, up to the end of the text."""
    settings = {"do_sample": False, "pad_token_id": 0} | settings
    ids = torch.tensor(np.array(prompt, np.int64))[None]
    found = theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=num, **settings)
    end = settings.get("eos_token_id", theirs.config.eos_token_id)
    rows = [row[len(prompt) :].tolist() for row in found]
    return [row[: row.index(end)] if end in row else row for row in rows]
