"""A few sentences that were held out, with one word hidden each, and what a model makes of them."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from hornbook.data.corpus import Corpus
from hornbook.data.shards import unpack_word_starts
from hornbook.files import write_json
from hornbook.infer.encoder import EncoderModel

NUM_SAMPLES = 12
SHORTEST, LONGEST = 8, 40  # tokens


# Sentences of a dozen lengths: compiling for them would take a minute.
@torch.compiler.set_stance("force_eager")
def write_samples(run: Path, model: nn.Module, corpus: Corpus) -> list[dict]:
    """Fills in one word of each of a dozen held-out sentences and writes `samples.json`."""
    device = next(model.parameters()).device
    encoder = EncoderModel(model, corpus.tokenizer, Path(run))
    samples = []
    for ids, place in _held_out_sentences(corpus, NUM_SAMPLES):
        tokenizer = corpus.tokenizer
        masked = tokenizer.decode(ids[:place]) + f" {tokenizer.mask_token} " + tokenizer.decode(ids[place + 1 :])
        guesses = encoder.to(device).fill_mask(masked.strip(), top=5)
        if len(guesses) == 1:
            found = [{"token": guess.token, "probability": round(guess.probability, 4)} for guess in guesses[0]]
            samples.append({"text": masked.strip(), "answer": tokenizer.token(ids[place]), "guesses": found})
    write_json(Path(run) / "samples.json", samples)
    return samples


def _held_out_sentences(corpus: Corpus, num: int) -> list[tuple[list[int], int]]:
    """(token ids, place of a one-token word) of sentences spread over the held-out documents."""
    documents = np.flatnonzero(corpus.is_held_out(np.arange(corpus.num_documents)))
    random = np.random.default_rng(0)
    found = []
    for document in random.permutation(documents).tolist() * 4:
        shard, first, last = corpus.document(document)
        sentence = int(random.integers(first, last))
        start, stop = int(shard.sentences[sentence]), int(shard.sentences[sentence + 1])
        if not SHORTEST <= stop - start <= LONGEST:
            continue
        ids = shard.tokens[start:stop].astype(np.int64).tolist()
        place = _whole_word(ids, unpack_word_starts(shard.word_starts, start, stop), corpus, random)
        if place is not None and ids not in [each for each, _ in found]:
            found.append((ids, place))
        if len(found) == num:
            break
    return found


def _whole_word(ids: list[int], starts: np.ndarray, corpus: Corpus, random: np.random.Generator) -> int | None:
    """A word that is one token and made of letters, not the first and not the last of its sentence."""
    tokenizer = corpus.tokenizer
    places = [
        i
        for i in range(1, len(ids) - 1)
        if starts[i]
        and starts[i + 1]
        and ids[i] not in tokenizer.special_ids
        and tokenizer.decode([ids[i]]).strip().isalpha()
    ]
    return int(random.choice(places)) if places else None
