"""How a file of text is encoded: UTF-8 if its bytes are valid UTF-8. Otherwise, isolated high bytes are accents of a
European language and runs that decode to Hangul are Korean; the rest is left to `charset-normalizer`, which needs some
text to be reliable."""

import codecs
import re
import unicodedata

UTF_8 = "utf-8"
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: UTF_8,
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is a prefix of this one
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
OTHER_ENCODINGS = ("cp932", "gb18030", "big5", "cp1250", "cp1251", "cp1253")
SAMPLE_BYTES = 1 << 18
MIN_HIGH_BYTES = 6  # beyond ASCII; fewer are not enough for charset-normalizer
HIGH_BYTES = re.compile(rb"[\x80-\xff]+")
VALID_UTF_8 = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
HANGUL = re.compile("[가-힣]")
CONTROL = re.compile("[\x01-\x08\x0e-\x1b]")  # hardly any text has them, unlike NUL, form feeds and separators
SAMPLE_CHARACTERS, MAX_CONTROL = 10_000, 0.03
RARE_CHARACTERS = "ÿþÞðÐ"  # in cp1252 texts; so are these Unicode categories:
RARE_CATEGORIES = ("Cc", "Cf", "No", "So", "Sk", "Sm")


def is_text(start: str) -> bool:
    """Whether a file that starts like this, once decoded, is text rather than a picture, an archive or a program."""
    sample = start[:SAMPLE_CHARACTERS]
    return len(CONTROL.findall(sample)) <= MAX_CONTROL * len(sample)


def encoding_of(data: bytes) -> str:
    """The encoding of a file; `utf-8` if none fits, so that invalid bytes are replaced."""
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return encoding
    if wide := _wide(data[:SAMPLE_BYTES]):
        return wide
    try:
        data.decode(UTF_8)
        return UTF_8
    except UnicodeDecodeError as error:
        start = max(0, error.start - SAMPLE_BYTES // 2)
    sample = data[start : start + SAMPLE_BYTES]
    sample = sample[: sample.rfind(b"\n") + 1] or sample
    return _legacy(sample) or UTF_8


def _wide(sample: bytes) -> str | None:
    """UTF-16 without a byte order mark: line ends, digits and delimiters have a zero in every other byte."""
    zeros = [sample[side::2].count(0) for side in (0, 1)]
    if max(zeros) < max(3, len(sample) / 40) or min(zeros) > max(zeros) / 20:
        return None
    encoding = "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
    try:
        sample[: len(sample) // 2 * 2].decode(encoding)
    except UnicodeDecodeError as error:
        return encoding if error.reason == "unexpected end of data" else None
    return encoding


def _legacy(sample: bytes) -> str | None:
    runs = HIGH_BYTES.findall(sample)
    if sum(map(len, VALID_UTF_8.findall(sample))) >= sum(map(len, runs)) / 2:
        return None  # UTF-8 with some damaged bytes
    if sum(len(run) == 1 for run in runs) > len(runs) / 2 and (european := _european(sample)):
        return european
    korean = _decoded(sample, "cp949")
    # EUC-KR has 2,350 syllables, which cover nearly all Korean words.
    common = [each for each in HANGUL.findall(korean or "") if len(each.encode("euc_kr", "ignore")) == 2]
    if korean is not None and _fraction(common, korean) > 0.95:
        return "cp949"
    if sum(map(len, runs)) < MIN_HIGH_BYTES:
        return None
    from charset_normalizer import from_bytes

    best = from_bytes(sample, cp_isolation=list(OTHER_ENCODINGS)).best()
    return best.encoding if best is not None and best.encoding in OTHER_ENCODINGS else None


def _european(sample: bytes) -> str | None:
    for encoding in ("cp1252", "latin-1"):
        text = _decoded(sample, encoding)
        if text is not None:
            others = [each for each in text if each > "\x7f"]
            rare = [each for each in others if each in RARE_CHARACTERS or unicodedata.category(each) in RARE_CATEGORIES]
            return encoding if _fraction(rare, text) < 0.4 else None
    return None


def _decoded(sample: bytes, encoding: str) -> str | None:
    """The decoded sample, None if it is not in this encoding; a character cut off at the end is ignored."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return None


def _fraction(some: list[str], text: str) -> float:
    return len(some) / max(1, sum(each > "\x7f" and not unicodedata.category(each).startswith("P") for each in text))
