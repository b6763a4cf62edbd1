"""Fast encoding of corpora: a corpus repeats its words, so most need not be encoded again.

Texts are split at single spaces into words that the tokenizer encodes independently of each other, which holds for
BERT's WordPiece and for byte-level BPE. The tokens of known words are gathered from a table. Of the others, those of
common characters are split by a regular expression and given to the model directly, which skips the normaliser and
pre-tokeniser of the `tokenizers` library; the library encodes the rest. The tokens are always those of the library.
"""

import json
import re
import threading
from collections.abc import Callable
from functools import lru_cache
from itertools import chain, filterfalse, repeat
from typing import Any

import numpy as np
import tokenizers

MAX_CHARACTERS = 2_000_000  # of the words, about 40 MB; a full cache is emptied, so that it follows the text
MAX_PARTS = 2**16
Encode = Callable[[list[str]], tuple[np.ndarray, np.ndarray, np.ndarray]]


class WordCache:
    """Encodes texts like `encode`, which returns the tokens (uint32) and word starts (bool) of several texts, and the
    number of tokens of each (int64)."""

    def __init__(self, encode: Encode, words: "WordPieceWords | ByteLevelWords"):
        self._encode, self._words = encode, words
        self._part_ids = lru_cache(MAX_PARTS)(words.part_ids)
        self._lock = threading.Lock()
        self._clear()

    def encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        with self._lock:
            return self._encode_words(list(map(self._words.split, texts)))

    def _encode_words(self, words_of: list[list[str]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if self._num_characters > MAX_CHARACTERS:
            self._clear()
        words = list(chain.from_iterable(words_of))
        word_indices = np.fromiter(map(self._index_of.get, words, repeat(-1)), np.int64, len(words))
        missing = np.flatnonzero(word_indices < 0)
        missing_words = [words[i] for i in missing]
        self._add(list(dict.fromkeys(missing_words)))
        word_indices[missing] = [self._index_of[word] for word in missing_words]
        starts = self._offsets[word_indices]
        num_tokens = self._offsets[word_indices + 1] - starts
        ends = np.cumsum(num_tokens)  # of the words in the result
        rows = np.arange(num_tokens.sum()) + np.repeat(starts - ends + num_tokens, num_tokens)
        last_words = np.cumsum(sizes(words_of)) - 1
        return self._ids[rows], self._word_starts[rows], np.diff(ends[last_words], prepend=0)

    def _clear(self) -> None:
        self._index_of: dict[str, int] = {}
        self._num_characters = 0
        self._ids, self._word_starts = np.zeros(0, np.uint32), np.zeros(0, bool)
        self._offsets = np.zeros(1, np.int64)  # of the tokens of each word, and the end of the last

    def _add(self, words: list[str]) -> None:
        easy = list(filter(self._words.is_easy, words))
        self._append(easy, *self._encode_easy(easy))
        if hard := list(filterfalse(self._words.is_easy, words)):
            self._append(hard, *self._encode(hard))

    def _encode_easy(self, words: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        parts_of = list(map(self._words.parts, words))
        ids_of = list(map(self._part_ids, chain.from_iterable(parts_of)))
        ends = np.concatenate([[0], np.cumsum(sizes(ids_of))])
        ids = np.fromiter(chain.from_iterable(ids_of), np.uint32, ends[-1])
        word_starts = np.zeros(len(ids), bool)
        word_starts[ends[:-1]] = True
        return ids, word_starts, np.diff(ends[np.cumsum(sizes(parts_of))], prepend=0)

    def _append(self, words: list[str], ids: np.ndarray, word_starts: np.ndarray, lengths: np.ndarray) -> None:
        first = len(self._index_of)
        self._index_of.update(zip(words, range(first, first + len(words)), strict=True))
        self._num_characters += sum(map(len, words))
        self._offsets = np.concatenate([self._offsets, len(self._ids) + np.cumsum(lengths)])
        self._ids = np.concatenate([self._ids, ids])
        self._word_starts = np.concatenate([self._word_starts, word_starts])


def sizes(items: list) -> np.ndarray:
    return np.fromiter(map(len, items), np.int64, len(items))


class WordPieceWords:
    """BERT's pre-tokeniser splits at white space and around each punctuation mark."""

    def __init__(self, backend: tokenizers.Tokenizer):
        self._model = backend.model
        normalize = backend.normalizer.normalize_str if backend.normalizer else str
        self._lowercases = normalize("A") == "a"
        letters = "A-Za-z0-9" + ("가-힣" if normalize("가힣") == "가힣" else "")
        self.is_easy = re.compile(f"[!-~{letters}]+").fullmatch
        self._find_parts = re.compile(f"[{letters}]+|[!-~]").findall

    @staticmethod
    def split(text: str) -> list[str]:
        return text.split(" ")

    def parts(self, word: str) -> list[str]:
        return self._find_parts(word.lower() if self._lowercases else word)

    def part_ids(self, part: str) -> list[int]:
        return [token.id for token in self._model.tokenize(part)]


class ByteLevelWords:
    """GPT-2's pre-tokeniser splits off contractions, and separates letters, digits and other characters. A word
    includes the space before it; the first one has none, unless the tokenizer adds it."""

    LETTERS, DIGITS = "A-Za-zÀ-ÖØ-öø-įı-ſ가-힣", "0-9"
    OTHERS = r"!-/:-@\[-`{-~‘’“”–—…·「」『』《》〈〉、。"
    BEFORE_SINGLE_SPACE = re.compile(r"(?<=\S)(?= \S)")

    def __init__(self, backend: tokenizers.Tokenizer):
        self._model = backend.model
        self._first_space = " " if backend.pre_tokenizer.pre_tokenize_str("a")[0][0] != "a" else ""
        self.is_easy = re.compile(f" ?[{self.LETTERS}{self.DIGITS}{self.OTHERS}]+").fullmatch
        classes = "|".join(f" ?[{each}]+" for each in (self.LETTERS, self.DIGITS, self.OTHERS))
        self._find_parts = re.compile(f"'(?:s|t|re|ve|m|ll|d)|{classes}").findall
        self._as_characters = _byte_characters()

    def split(self, text: str) -> list[str]:
        words, separated = text.split(), text.split(" ")
        if words == separated:
            return [words[0], *map(" ".__add__, words[1:])]
        if words and not separated[0] and words == separated[1:]:
            return list(map(" ".__add__, words))
        # Several spaces in a row are encoded together, and other white space is a token.
        return self.BEFORE_SINGLE_SPACE.split(text)

    def parts(self, word: str) -> list[str]:
        return self._find_parts(word if word[0] == " " else self._first_space + word)

    def part_ids(self, part: str) -> list[int]:
        characters = part.encode().decode("latin-1").translate(self._as_characters)
        return [token.id for token in self._model.tokenize(characters)]


def _byte_characters() -> dict[int, int]:
    """The character by which GPT-2's vocabulary represents each byte: itself if it is visible, else one after 255."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in visible]
    return {byte: 256 + i for i, byte in enumerate(others)}


def find_words(backend: tokenizers.Tokenizer) -> WordPieceWords | ByteLevelWords | None:
    """How to split texts into words that the tokenizer encodes independently; None if that cannot be told.

    Normalisers must not move characters across spaces. Added tokens, other than special ones, are refused: they are
    matched before all else, and may contain spaces.
    """
    state = json.loads(backend.to_str())
    if any(not token["special"] for token in state["added_tokens"]) or state["model"].get("dropout"):
        return None
    normalizers = {each["type"] for each in _steps(state["normalizer"])}
    first_space = {"type": "Metaspace", "replacement": " ", "split": False}  # adds a space before a text
    splits = [each for each in _steps(state["pre_tokenizer"]) if not first_space.items() <= each.items()]
    if len(splits) != 1:
        return None
    kinds = state["model"]["type"], splits[0]["type"]
    if kinds == ("WordPiece", "BertPreTokenizer"):
        is_local = normalizers <= {"BertNormalizer", "NFC", "NFD", "Lowercase", "StripAccents"}
        return WordPieceWords(backend) if is_local else None
    if kinds == ("BPE", "ByteLevel") and splits[0]["use_regex"]:
        return ByteLevelWords(backend) if normalizers <= {"NFC"} else None
    return None


def _steps(component: dict[str, Any] | None) -> list[dict[str, Any]]:
    if component is None:
        return []
    return component.get("normalizers") or component.get("pretokenizers") or [component]
