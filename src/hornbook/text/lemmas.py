"""Words of a text, English stop words, and base forms of words: English inflection and Korean particles.

The base form is found by rules that are accepted only where the result is a known word, as in WordNet's Morphy: no
dictionary is shipped, the known words are those of the graph or vocabulary at hand.
"""

import re
import sys
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from functools import cache

# ending:replacement, tried in this order.
_ENDINGS = """
ies:y ves:f ves:fe sses:ss shes:sh ches:ch xes:x zes:z oes:o es:e es: s: men:man ied:y ed:e ed: ying:ie ing:e ing:
"""
_ENGLISH = [pair.split(":") for pair in _ENDINGS.split()]
_IRREGULAR_FORMS = """
am:be are:be been:be being:be is:be was:be were:be has:have had:have having:have does:do did:do done:do went:go
gone:go ate:eat eaten:eat drank:drink drunk:drink drove:drive driven:drive wrote:write written:write saw:see seen:see
took:take taken:take gave:give given:give came:come became:become ran:run sat:sit stood:stand understood:understand
said:say made:make paid:pay met:meet led:lead felt:feel left:leave kept:keep slept:sleep swept:sweep lost:lose
told:tell sold:sell held:hold found:find built:build sent:send spent:spend lent:lend bent:bend bought:buy
brought:bring thought:think taught:teach caught:catch fought:fight sought:seek knew:know known:know grew:grow
grown:grow threw:throw thrown:throw flew:fly flown:fly drew:draw drawn:draw blew:blow blown:blow wore:wear worn:wear
tore:tear torn:tear bore:bear born:bear swore:swear sworn:swear broke:break broken:break spoke:speak spoken:speak
stole:steal stolen:steal chose:choose chosen:choose froze:freeze frozen:freeze woke:wake woken:wake rode:ride
ridden:ride rose:rise risen:rise hid:hide hidden:hide bit:bite bitten:bite fell:fall fallen:fall began:begin
begun:begin sang:sing sung:sing swam:swim swum:swim rang:ring rung:ring sank:sink sunk:sink shot:shoot won:win
hung:hang dug:dig stuck:stick struck:strike spun:spin heard:hear read:read lay:lie lain:lie laid:lay dealt:deal
meant:mean forgot:forget forgotten:forget got:get gotten:get sewn:sew shown:show children:child men:man women:woman
feet:foot teeth:tooth geese:goose mice:mouse lice:louse oxen:ox people:person better:good best:good worse:bad
worst:bad further:far furthest:far
"""
_IRREGULAR = dict(pair.split(":") for pair in _IRREGULAR_FORMS.split())
_VOWELS = "aeiou"
_SHORTEST = 3  # letters of an English word below which no ending is removed, such as "is", "as"

# Particles and copula endings by the sound that they follow: a consonant, a vowel, a vowel or ㄹ, any.
_AFTER_CONSONANT = """
을 은 이 과 아 으로 이랑 이나 이라도 이든지 이라 이라고 이라는 이란 이며 이고 이다 이었다 으로서 으로써
"""
_AFTER_VOWEL = "를 는 가 와 야 랑 나 라도 든지 라 라고 라는 란 며 고 다 였다"
_AFTER_VOWEL_OR_RIEUL = "로 로서 로써"
_AFTER_ANY = """
의 도 만 에 에서 에게 에게서 께 께서 한테 한테서 하고 까지 부터 조차 마저 보다 처럼 같이 만큼 밖에 마다 대로 뿐 들 인
입니다 이에요 예요
"""
_PARTICLES = {
    particle: follows
    for particles, follows in (
        (_AFTER_CONSONANT, "c"),
        (_AFTER_VOWEL, "v"),
        (_AFTER_VOWEL_OR_RIEUL, "l"),
        (_AFTER_ANY, ""),
    )
    for particle in particles.split()
}
_MAX_PARTICLES = 3  # 나무들에서는 is 나무 with three of them
_HANGUL = range(0xAC00, 0xD7A4)
_RIEUL = 8  # index of the final consonant ㄹ

# A text rarely ends in a stop word, so the GPT-2 paper excludes them as predictions of the last word of LAMBADA. The
# paper does not list them; these are articles, pronouns, prepositions, conjunctions, auxiliary verbs, and adverbs that
# refer to another word.
_STOP_WORDS = """
a an the this that these those
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
herself it its itself they them their theirs themselves who whom whose which what
and but or nor so yet if because although though while whereas unless until since than as whether
of in on at by for from with without to into onto upon about above below over under between among through during
before after against toward towards behind beside besides beyond across along around near off up down out
be am is are was were been being do does did done doing have has had having will would shall should can could may
might must ought
not no any some all both each every either neither few more most other another such own same
very too just only even also then there here when where why how again once
s t d ll m re ve don
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

_ASCII_WORD = re.compile(r"[^\W_]+|[^\s_]")


@cache
def _any_word() -> re.Pattern:
    marks = [chr(code) for code in range(0x300, 0x20000) if unicodedata.category(chr(code)) in ("Mn", "Mc")]
    combining = "".join(map(re.escape, marks))
    return re.compile(rf"[^\W_]+(?:[{combining}]+[^\W_]*)*|[^\s_]")


def split_words(text: str) -> list[str]:
    """The words of a text, with their combining marks, separated by white space or underscores; every other visible
    character is a word of its own.

    >>> split_words("St. Louis, 땅을")
    ['St', '.', 'Louis', ',', '땅을']
    """
    return (_ASCII_WORD if text.isascii() else _any_word()).findall(text)


def whole_character(text: str, end: int) -> int:
    """The end of a span, after the combining marks and Hangul vowels and finals of its last character, which tokenizers
    that drop accents or compose characters leave out.

    >>> whole_character("cafe\\u0301 noir", 4)
    5
    """
    while end < len(text) and (unicodedata.category(text[end])[0] == "M" or "\u1160" <= text[end] <= "\u11ff"):
        end += 1
    return end


def normalized(word: str) -> str:
    """The form in which words are compared: Unicode's compatibility form without case.

    >>> normalized("ＣＡＦÉ") == normalized("cafe\\u0301")
    True
    """
    if word.isascii():
        return sys.intern(word.lower())
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", word).casefold())


def base_form(word: str, known: Collection[str]) -> str | None:
    """The base form of a normalised word among the known words, or None if no rule leads to one. If `known` maps words
    to their frequencies, the most frequent of several forms is chosen, otherwise the first by the order of the rules.

    >>> base_form("buildings", {"build", "building"}), base_form("trees", {"tree"}), base_form("땅을", {"땅"})
    ('building', 'tree', '땅')
    """
    if ord(word[-1]) in _HANGUL:
        return _without_particles(word, known, _MAX_PARTICLES)
    forms = [form for form in _english_forms(word) if form != word and form in known]
    if not forms:
        return None
    return max(forms, key=known.__getitem__) if isinstance(known, Mapping) else forms[0]


def _english_forms(word: str) -> Iterator[str]:
    if word in _IRREGULAR:
        yield _IRREGULAR[word]
    if len(word) <= _SHORTEST or not word.isascii():
        return
    for ending, replacement in _ENGLISH:
        if not word.endswith(ending) or word.endswith("ss") or len(word) - len(ending) < 2:
            continue
        stem = word[: len(word) - len(ending)]
        # running: the doubled consonant of "run" is removed first; "fall" keeps it, as "fal" is not known.
        if ending in ("ing", "ed") and not replacement and stem[-1] == stem[-2] not in _VOWELS:
            yield stem[:-1]
        if any(letter in "aeiouy" for letter in stem):
            yield stem + replacement


def _without_particles(word: str, known: Collection[str], max_particles: int) -> str | None:
    """The longest known stem of a Korean word: the shortest particles are removed first."""
    stems = list(_stems_of(word)) if max_particles else []
    deeper = (_without_particles(stem, known, max_particles - 1) for stem in stems)
    return next((stem for stem in stems if stem in known), None) or next(filter(None, deeper), None)


def _stems_of(word: str) -> Iterator[str]:
    """The word without a particle that may follow its last sound, the shortest particle first."""
    for length in range(1, min(len(word) - 1, 4) + 1):
        stem, particle = word[:-length], word[-length:]
        if particle not in _PARTICLES or ord(stem[-1]) not in _HANGUL:
            continue
        final = (ord(stem[-1]) - _HANGUL.start) % 28
        fits = {"c": final != 0, "v": final == 0, "l": final in (0, _RIEUL), "": True}
        if fits[_PARTICLES[particle]]:
            yield stem
