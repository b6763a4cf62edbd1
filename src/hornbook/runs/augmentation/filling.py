"""The likeliest words at masked positions, for every one-token word of many texts, in batched forward passes.

Shapes: T tokens, K masked tokens (one per sequence), D hidden size, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from hornbook.batch import pack
from hornbook.inference.encoder import EncoderModel
from hornbook.inference.loaded import BATCH_TOKENS
from hornbook.runs.augmentation.words import Word
from hornbook.tasks.running import index_batches
from hornbook.text.tokenizer import Tokenizer


class _Masked(NamedTuple):
    """A text with one masked word. All maskings of a text share its arrays."""

    ids: np.ndarray
    segments: np.ndarray
    position: int
    owner: tuple[int, int]  # index of the text, index of the word in it


class WordFilling:
    """Finds candidate words with a masked-language model."""

    def __init__(self, encoder: EncoderModel, num_candidates: int, with_unmasked: bool, autocast: Callable[[], object]):
        self.filler, self.tokenizer = encoder.mask_filler, encoder.tokenizer
        if self.tokenizer.mask_id is None:
            raise ValueError(
                f"the tokenizer in {encoder.folder} has no mask token, which augmentation needs: name another model"
            )
        self.num_candidates, self.with_unmasked, self.autocast = num_candidates, with_unmasked, autocast
        self.forms = _word_forms(self.tokenizer)
        self.num_tokens = 0  # processed so far

    @torch.no_grad()
    def candidates(self, texts: Sequence[tuple[object, list[Word]]]) -> list[dict[int, tuple[str, ...]]]:
        """For each text, given as its encoding and its words, the candidates of each one-token word, by the index of
        the word. Tokens among the likeliest that are not whole words are dropped, as published."""
        masked = [copy for i, (encoding, words) in enumerate(texts) for copy in self._masked(i, encoding, words)]
        candidates: list[dict[int, tuple[str, ...]]] = [{} for _ in texts]
        lengths = [len(copy.ids) for copy in masked]
        order = sorted(range(len(masked)), key=lengths.__getitem__)
        for indices in index_batches(order, lengths, BATCH_TOKENS):
            copies = [masked[i] for i in indices]
            for copy, tokens in zip(copies, self._likeliest(copies), strict=True):
                text, word = copy.owner
                original = self.forms.get(copy.ids[copy.position])
                starts_word = original is None or original[1]
                forms = (self.forms.get(token) for token in tokens)
                candidates[text][word] = tuple(form[0] for form in forms if form and form[1] == starts_word)
        return candidates

    def _masked(self, text: int, encoding, words: list[Word]) -> list[_Masked]:
        """The text once for each one-token word; the unmasked text is added as the second segment if that fits."""
        max_length = self.filler.config.max_positions
        encoding.truncate(min(len(encoding.ids), max_length - self.tokenizer.num_special(False)))
        fits = 2 * len(encoding.ids) + self.tokenizer.num_special(True) <= max_length
        joined = self.tokenizer.with_special_tokens(encoding, encoding if self.with_unmasked and fits else None)
        first = joined.special_tokens_mask.index(0) if len(encoding.ids) else 0
        ids, segments = np.array(joined.ids, np.int64), np.array(joined.type_ids, np.int64)
        return [
            _Masked(ids, segments, first + word.token, (text, i))
            for i, word in enumerate(words)
            if word.token is not None and word.token < len(encoding.ids)
        ]

    def _likeliest(self, masked: list[_Masked]) -> list[list[int]]:
        """The ids of the likeliest tokens at the masked position of each text."""
        batch = pack([copy.ids for copy in masked], [copy.segments for copy in masked])
        positions_K = torch.from_numpy(batch.offsets_host[:-1] + np.array([copy.position for copy in masked]))
        batch.ids_T[positions_K] = self.tokenizer.mask_id
        device = next(self.filler.parameters()).device
        self.num_tokens += batch.num_tokens
        with self.autocast():
            x_TD = self.filler(batch.to(device))
            logits_KV = self.filler.mlm_logits(x_TD.index_select(0, positions_K.to(device)))
        logits_KV = logits_KV[:, : self.tokenizer.vocab_size].float()
        return logits_KV.topk(min(self.num_candidates, logits_KV.shape[1])).indices.tolist()


def _word_forms(tokenizer: Tokenizer) -> dict[int, tuple[str, bool]]:
    """Tokens that spell a word on their own: the word without markers, and whether the token starts a word. Tokens that
    continue a word are recognised by their spelling."""
    forms = {}
    special = set(tokenizer.special_ids)
    for token, token_id in tokenizer.backend.get_vocab(with_added_tokens=False).items():
        is_reserved = len(token) > 2 and token[0] == "[" and token[-1] == "]"  # such as BERT's [unused1]
        if token_id in special or is_reserved or (tokenizer.kind == "wordpiece" and token.startswith("##")):
            continue
        word = tokenizer.decode([token_id], skip_special=False).strip()
        if word and len(word.split()) == 1 and "\ufffd" not in word:
            forms[token_id] = (word, tokenizer.kind == "wordpiece" or token[0] in "Ġ▁" or token.endswith("</w>"))
    return forms


def whole_words(tokenizer: Tokenizer) -> dict[str, int]:
    """Ids of the tokens that are whole alphabetic words, by their spelling."""
    ids: dict[str, int] = {}
    for token_id, (word, starts_word) in _word_forms(tokenizer).items():
        if starts_word and word.isalpha():
            ids.setdefault(word, token_id)
    return ids
