"""The likeliest words in the place of one that is masked, for all such words of many texts in few passes.

Shapes: T tokens, K masked tokens, one a sequence, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from hornbook.augmentation.words import Word
from hornbook.batch import pack
from hornbook.infer.encoder import EncoderModel
from hornbook.infer.loaded import grouped
from hornbook.text.tokenizer import Tokenizer


class _Masked(NamedTuple):
    """A text with one word masked. All those of a text share the arrays of the text."""

    ids: np.ndarray
    segments: np.ndarray
    place: int
    owner: tuple[int, int]  # number of the text, number of its word


class WordFilling:
    """Asks a masked-language model for words."""

    def __init__(self, opened: EncoderModel, num_candidates: int, beside: bool, autocast: Callable[[], object]):
        self.filler, self.tokenizer = opened.mask_filler, opened.tokenizer
        if self.tokenizer.mask_id is None:
            raise ValueError(f"the tokenizer in {opened.folder} has no mask token, which filling in words needs")
        self.num_candidates, self.beside, self.autocast = num_candidates, beside, autocast
        self.forms = _word_forms(self.tokenizer)
        self.num_tokens = 0  # read so far

    @torch.no_grad()
    def candidates(self, texts: Sequence[tuple[object, list[Word]]]) -> list[dict[int, tuple[str, ...]]]:
        """For each text, given as its pieces and its words, the candidates of each word of one piece, by the number of
        the word. Of the likeliest tokens, those that are no whole word drop out, as published."""
        masked = [each for number, (pieces, words) in enumerate(texts) for each in self._masked(number, pieces, words)]
        found: list[dict[int, tuple[str, ...]]] = [{} for _ in texts]
        lengths = [len(each.ids) for each in masked]
        order = sorted(range(len(masked)), key=lengths.__getitem__)
        for group in grouped(order, lengths):
            some = [masked[i] for i in group]
            for each, tokens in zip(some, self._likeliest(some), strict=True):
                text, word = each.owner
                original = self.forms.get(each.ids[each.place])
                starts_word = original is None or original[1]
                forms = (self.forms.get(token) for token in tokens)
                found[text][word] = tuple(form[0] for form in forms if form and form[1] == starts_word)
        return found

    def _masked(self, number: int, pieces, words: list[Word]) -> list[_Masked]:
        """The text once for each word of one piece; where there is room for it, with itself beside it."""
        longest = self.filler.config.max_positions
        pieces.truncate(min(len(pieces.ids), longest - self.tokenizer.num_special(False)))
        fits = 2 * len(pieces.ids) + self.tokenizer.num_special(True) <= longest
        joined = self.tokenizer.joined(pieces, pieces if self.beside and fits else None)
        first = joined.special_tokens_mask.index(0) if len(pieces.ids) else 0
        ids, segments = np.array(joined.ids, np.int64), np.array(joined.type_ids, np.int64)
        return [
            _Masked(ids, segments, first + word.piece, (number, i))
            for i, word in enumerate(words)
            if word.piece is not None and word.piece < len(pieces.ids)
        ]

    def _likeliest(self, some: list[_Masked]) -> list[list[int]]:
        batch = pack([each.ids for each in some], [each.segments for each in some])
        places_K = torch.from_numpy(batch.starts_host[:-1] + np.array([each.place for each in some]))
        batch.ids_T[places_K] = self.tokenizer.mask_id
        device = next(self.filler.parameters()).device
        self.num_tokens += batch.num_tokens
        with self.autocast():
            x_TD = self.filler(batch.to(device))
            logits_KV = self.filler.mlm_logits(x_TD.index_select(0, places_K.to(device)))
        logits_KV = logits_KV[:, : self.tokenizer.vocab_size].float()
        return logits_KV.topk(min(self.num_candidates, logits_KV.shape[1])).indices.tolist()


def _word_forms(tokenizer: Tokenizer) -> dict[int, tuple[str, bool]]:
    """Each token that can stand as a word, as a person writes it, and whether it begins one: a piece that goes on with
    a word is told by its spelling."""
    forms = {}
    special = set(tokenizer.special_ids)
    for token, number in tokenizer.backend.get_vocab(with_added_tokens=False).items():
        is_reserved = len(token) > 2 and token[0] == "[" and token[-1] == "]"  # as BERT's [unused1]
        if number in special or is_reserved or (tokenizer.kind == "wordpiece" and token.startswith("##")):
            continue
        word = tokenizer.decode([number], skip_special=False).strip()
        if word and len(word.split()) == 1 and "\ufffd" not in word:
            forms[number] = (word, tokenizer.kind == "wordpiece" or token[0] in "Ġ▁" or token.endswith("</w>"))
    return forms


def whole_words(tokenizer: Tokenizer) -> dict[str, int]:
    """The tokens that are whole words of letters, by their spelling."""
    found: dict[str, int] = {}
    for number, (word, begins) in _word_forms(tokenizer).items():
        if begins and word.isalpha():
            found.setdefault(word, number)
    return found
