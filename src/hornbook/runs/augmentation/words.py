"""Which words of a text may be replaced: purely alphabetic words that are not stop words, as in TinyBERT's code. Words
are the units of the tokenizer's pre-tokenization."""

import unicodedata
from typing import NamedTuple

# The list in TinyBERT's code, cut at apostrophes. Unlike in `text/stop_words.py`, question words are not in it: they
# may be replaced.
_STOP_WORDS = """
    a an the this that these those and but if or because as until while of at by for with about against between into
    through during before after above below to from up down in out on off over under again further then once here there
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it
    its itself they them their theirs themselves am is are was were be been being have has had having do does did doing
    all any both each few more most other some such no nor not only own same so than too very can will just should now
    s t d m o y ll re ve ma don ain aren couldn didn doesn hadn hasn haven isn mightn mustn needn shan shouldn wasn
    weren won wouldn
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


class Word(NamedTuple):
    text: str
    start: int  # in characters
    stop: int
    token: int | None  # index of its token; None if it has several


def replaceable(text: str, encoding) -> list[Word]:
    """The replaceable words of a text, from its encoding without special tokens."""
    tokens_of: dict[int, list[int]] = {}
    for token, word in enumerate(encoding.word_ids):
        tokens_of.setdefault(word, []).append(token)
    words = []
    for tokens in tokens_of.values():
        start, stop = _stripped(text, encoding.offsets[tokens[0]][0], encoding.offsets[tokens[-1]][1])
        word = text[start:stop]
        if not word or not all(map(_is_letter, word)) or word.lower() in STOP_WORDS:
            continue
        whole = [token for token in tokens if _stripped(text, *encoding.offsets[token]) == (start, stop)]
        words.append(Word(word, start, stop, whole[0] if whole else None))
    return words


def _stripped(text: str, start: int, stop: int) -> tuple[int, int]:
    """The span without spaces and punctuation at its ends: tokens may include the space before a word, words the comma
    after it."""
    while start < stop and not text[start].isalnum():
        start += 1
    while start < stop and not text[stop - 1].isalnum():
        stop -= 1
    return start, stop


def _is_letter(character: str) -> bool:
    """Whether a character is a letter or a combining mark."""
    return unicodedata.category(character)[0] in "LM"


def in_case_of(word: str, other: str) -> str:
    """`other`, capitalised if `word` is.

    >>> in_case_of("River", "stream")
    'Stream'
    """
    return other.title() if word.istitle() and other.islower() else other
