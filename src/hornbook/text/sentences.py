"""Rule-based sentence splitting for English, Korean and other languages with similar punctuation."""

import re

_CLOSERS = "\"'”’)\\]}»›」』）】"
_OPENERS = "\"'“‘([{«‹「『（【"
# Full stops inside numbers, addresses and file names are not followed by white space and are not candidates.
# A leading character class lets the regex engine skip to the candidates; an alternation would try each position.
# The look-behind starts a run of marks only once: "......" without white space after it would take quadratic time.
_CANDIDATES = re.compile(
    rf"[.!?…。！？｡\n](?:(?<=\n)\s*"
    rf"|(?<=[.!?…])(?<![.!?…][.!?…])[.!?…]*[{_CLOSERS}]*\s+"
    rf"|(?<=[。！？｡])[。！？｡]*[{_CLOSERS}]*\s*)"
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TITLES = _words(
    "mr mrs ms dr prof rev hon gen col maj capt cpt lt sgt cpl adm gov sen rep pres messrs mme mlle msgr fr mt "
    "vs viz cf e.g i.e al ed eds trans ca approx resp"
)
_BEFORE_NUMBERS = _words(
    "no nos nr vol vols p pp fig figs eq ch chap sec sect art par ver v op jan feb mar apr jun jul aug sep sept oct "
    "nov dec"
)
# Abbreviations that may also end a sentence: they do if the next word is a typical sentence start.
_AMBIGUOUS = _words("etc st ft inc ltd co corp bros jr sr dept univ est assn ave blvd rd gov't ph.d m.d")
_STARTERS = _words(
    "The A An In On At It Its He She They We You His Her Their Our My This That These Those There Then But And So If "
    "When While After Before As For From With However Although Since During Some Many Most One No Not What Who Why "
    "How Yes According By To Under Both Each All Such Now Here Once"
)
_WORD = re.compile(r"[^\W\d_]+")
_SPACE = re.compile(r"\s*")
_INITIALS = re.compile(r"(?:[^\W\d_]{1,2}\.)*[^\W\d_]{1,2}")
_DATE = re.compile(r"\d\.\s*\d{1,2}$")
_QUOTATIVES = ("라고", "라는", "라며", "라면", "이라고", "이라는", "이라며", "하고", "하며", "하는", "고 ", "며 ", "と")
_KOREAN_ENDINGS = "다요까죠"


def split_sentences(text: str) -> list[str]:
    """Sentences whose concatenation is `text`: white space belongs to the next sentence, at the end to the last one.

    A newline always ends a sentence. A text of white space only has no sentences.

    >>> split_sentences("Dr. Kim paid 3.50. 안녕하세요? 네.")
    ['Dr. Kim paid 3.50.', ' 안녕하세요?', ' 네.']
    """
    sentences = []
    begin = 0
    for candidate in _CANDIDATES.finditer(text):
        start, end, match = candidate.start(), candidate.end(), candidate[0]
        if end == len(text):
            break
        ending = match.rstrip()
        if match[0] == "\n":
            is_end = bool(text[begin:start].strip())
        else:
            is_end = "\n" in match or _ends_sentence(text, begin, start, ending, end)
        if is_end:
            sentences.append(text[begin : start + len(ending)])
            begin = start + len(ending)
    if text[begin:].strip():
        sentences.append(text[begin:])
    return sentences


def _ends_sentence(text: str, begin: int, stop: int, ending: str, after: int) -> bool:
    """Whether the full stop (or other mark) at `stop`, with white space up to `after`, ends a sentence."""
    following = text[after]
    if following in _OPENERS:
        following = text[after + 1 : after + 2]
    if following.islower() or following in ",;:)]}%":
        return False
    if ending == ".":
        # 24 characters are enough for every abbreviation; more would cost time
        words = text[max(begin, stop - 24) : stop].rsplit(None, 1)
        return not words or _full_stop_ends_sentence(text, begin, stop, words[-1].lstrip(_OPENERS), after)
    if ending[-1] in _CLOSERS and text.startswith(_QUOTATIVES, after):
        return False
    if ending[0] == "…" or ending.startswith(".."):
        before = text[stop - 1 : stop]
        if "가" <= before <= "힣":
            return before in _KOREAN_ENDINGS
        return _next_word(text, after) != "I"
    return True


def _full_stop_ends_sentence(text: str, begin: int, stop: int, word: str, after: int) -> bool:
    length = len(word)
    if length > 8 or not word.isascii():
        return True
    if word.isdigit():
        if length <= 3 and _SPACE.match(text, begin).end() == stop - length:
            return False  # the number of an item: "1. Introduction"
        is_date = text[after].isdigit() and re.match(r"\d{1,2}\.", text[after : after + 3])
        return not is_date and not _DATE.search(text[max(begin, stop - 6) : stop])
    lower = word.lower()
    if lower in _TITLES:
        return False
    if lower in _BEFORE_NUMBERS:
        return not text[after].isdigit()
    is_initial = length == 1 and word.isupper()
    if is_initial or lower in _AMBIGUOUS or ("." in word and _INITIALS.fullmatch(word)):
        return _next_word(text, after) in _STARTERS
    return True


def _next_word(text: str, after: int) -> str:
    word = _WORD.search(text, after, after + 16)
    return word[0] if word else ""
