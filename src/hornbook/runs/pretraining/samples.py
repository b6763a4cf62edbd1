"""`samples.json`: held-out sentences with one masked word each, and the model's predictions for it."""

from pathlib import Path

import numpy as np
from torch import nn

from hornbook.data.corpus import Corpus
from hornbook.devices import eagerly
from hornbook.files import write_json
from hornbook.inference.encoder import EncoderModel

NUM_SAMPLES = 12
SHORTEST, LONGEST = 8, 40  # tokens


# Eager: compiling for a dozen sentence lengths would take a minute.
@eagerly()
def write_samples(run: Path, model: nn.Module, corpus: Corpus) -> list[dict]:
    """Masks and predicts one word in each of a dozen held-out sentences, and writes `samples.json`."""
    encoder = EncoderModel(model, corpus.tokenizer, Path(run))
    samples = []
    for ids, position in _held_out_sentences(corpus, NUM_SAMPLES):
        tokenizer = corpus.tokenizer
        masked = tokenizer.decode(ids[:position]) + f" {tokenizer.mask_token} " + tokenizer.decode(ids[position + 1 :])
        guesses = encoder.fill_mask(masked.strip(), top_k=5)
        if len(guesses) == 1:
            rounded = [{"token": guess.token, "probability": round(guess.probability, 4)} for guess in guesses[0]]
            samples.append({"text": masked.strip(), "answer": tokenizer.token(ids[position]), "guesses": rounded})
    write_json(Path(run) / "samples.json", samples)
    return samples


def _held_out_sentences(corpus: Corpus, num: int) -> list[tuple[list[int], int]]:
    """Returns (token ids, position of a one-token word) of sentences spread over the held-out documents."""
    documents = np.flatnonzero(corpus.is_held_out(np.arange(corpus.num_documents)))
    random = np.random.default_rng(0)
    sentences = []
    for document in random.permutation(documents).tolist() * 4:
        shard, first, last = corpus.document(document)
        sentence = int(random.integers(first, last))
        start, stop = int(shard.sentences[sentence]), int(shard.sentences[sentence + 1])
        if not SHORTEST <= stop - start <= LONGEST:
            continue
        ids = shard.tokens[start:stop].astype(np.int64).tolist()
        position = _whole_word(ids, shard.word_starts_in(start, stop), corpus, random)
        if position is not None and ids not in [each for each, _ in sentences]:
            sentences.append((ids, position))
        if len(sentences) == num:
            break
    return sentences


def _whole_word(ids: list[int], starts: np.ndarray, corpus: Corpus, random: np.random.Generator) -> int | None:
    """Returns the position of a random word that is one token, all letters, and neither first nor last; or None."""
    tokenizer = corpus.tokenizer
    positions = [
        i
        for i in range(1, len(ids) - 1)
        if starts[i]
        and starts[i + 1]
        and ids[i] not in tokenizer.special_ids
        and tokenizer.decode([ids[i]]).strip().isalpha()
    ]
    return int(random.choice(positions)) if positions else None
