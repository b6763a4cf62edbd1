"""Entity linking: which entities of a graph a text mentions, where, and how surely.

The words of all names are numbered, and each name becomes a run of two characters per word; so does a text, once as
written and once in base forms. Aho-Corasick (the package ahocorasick-rs) finds the longest names from left to right in
both. As every word is two characters from disjoint ranges, a name can only match whole words.

A mention's candidates are the entities of that name. The weight of a candidate is its prior (the weight of its edges,
or WordNet's order of senses) times (1 + the number of other mentions whose entities are its neighbours) to the power
of `CONTEXT_POWER`; its score is its share of the weights, lowered if the text has the name in another form.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hornbook.text.lemmas import base_form, normalised, word_pattern
from hornbook.text.stop_words import STOP_WORDS

if TYPE_CHECKING:
    from hornbook.graph.graph import Graph

CONTEXT_POWER = 2.0
MOST_CANDIDATES = 20  # of a mention, by prior
MOST_CONTEXT = 64  # entities of a text that are compared with each candidate
AS_WRITTEN, OTHER_CASE, BASE_FORM = 1.0, 0.9, 0.8  # factors of the score
# A word is one character of the first range and one of the second; no surrogates are among them.
FIRST, SECOND, NUM_SECOND = 0x100, 0x10000, 50_000
UNKNOWN = "\0\0"


@dataclass(frozen=True)
class Candidate:
    """An entity that a mention may stand for; the scores of a mention's candidates add up to at most 1."""

    entity: str
    label: str
    score: float


@dataclass(frozen=True)
class Mention:
    """Characters `start` to `end` (exclusive) of a text and the entity they stand for, by its identifier."""

    start: int
    end: int
    text: str
    entity: str
    label: str
    score: float
    candidates: tuple[Candidate, ...] = ()  # the others, likeliest first

    def to_dict(self) -> dict:
        return {**vars(self), "candidates": [vars(each) for each in self.candidates]}


@dataclass
class LinkedText:
    """A text and the entities that it mentions, in order."""

    text: str
    mentions: list[Mention] = field(default_factory=list)

    def to_dict(self) -> dict:
        return {"text": self.text, "mentions": [each.to_dict() for each in self.mentions]}


@dataclass(frozen=True)
class _Found:
    """A name in a text: its words, characters, candidate entities with priors, and how it is written."""

    first_word: int
    last_word: int
    start: int
    end: int
    entities: np.ndarray
    priors: np.ndarray
    form: float


class Linker:
    """Links texts to the entities of a graph. Stop words alone ("the", "in") are no mentions.

    Making one reads all names of the graph; `Graph.link` keeps it for the next call.
    """

    def __init__(self, graph: "Graph"):
        self.graph = graph
        self._word = word_pattern()
        self._ids: dict[str, str] = {}  # normalised word of a name -> its two characters
        self._codes: dict[str, tuple[str, str, int]] = {}  # word of a text -> as written, base form, length of the latter
        keys: dict[str, list[tuple[int, float, str]]] = {}
        split = [self._split(name) for _, name, _ in graph.names]
        for words in split:
            for word in words:
                if word not in self._ids:
                    self._ids[word] = _code(len(self._ids))
        for (entity, name, prior), words in zip(graph.names, split, strict=True):
            if len(words) == 1 and words[0] in STOP_WORDS:
                continue
            written = "".join(map(self._ids.__getitem__, words))
            base = "".join(self._base(word)[0] for word in words)
            for key in {written, base} - {""}:
                keys.setdefault(key, []).append((entity, prior, name))
        self._senses = [_senses_of(several) for several in keys.values()]
        self._automaton = _automaton(list(keys)) if keys else None

    def _split(self, text: str) -> list[str]:
        return [normalised(word) for word in self._word.findall(text)]

    def _base(self, word: str) -> tuple[str, int]:
        """(Characters of the base form of a normalised word, its length), or of the word itself if it has none."""
        form = base_form(word, self._ids)
        return (self._ids.get(word, UNKNOWN), len(word)) if form is None else (self._ids[form], len(form))

    def _encode(self, word: str) -> tuple[str, str, int]:
        form = normalised(word)
        base, length = self._base(form)
        # A Korean particle is not in the mention; an English ending is.
        length = length if "가" <= form[-1] <= "힣" and len(form) == len(word) else len(word)
        found = self._codes[word] = self._ids.get(form, UNKNOWN), base, length
        return found

    def link(self, texts: Sequence[str]) -> list[LinkedText]:
        """The mentions of each text."""
        found = [self._find(text) for text in texts]
        context = self._context(found)
        return [
            LinkedText(text, [self._mention(text, each, next(context)) for each in names])
            for text, names in zip(texts, found, strict=True)
        ]

    def _find(self, text: str) -> list[_Found]:
        """The longest names from left to right; of equally long ones at a place, that in the text's own form."""
        if self._automaton is None:
            return []
        spans, written, based, lengths = [], [], [], []
        codes = self._codes
        for match in self._word.finditer(text):
            word = match.group()
            code, base, length = codes.get(word) or self._encode(word)
            spans.append(match.span())
            written.append(code)
            based.append(base)
            lengths.append(length)
        search = self._automaton.find_matches_as_indexes
        matches = [(start >> 1, -(end >> 1), 0, key) for key, start, end in search("".join(written))]
        if based != written:
            matches += [(start >> 1, -(end >> 1), 1, key) for key, start, end in search("".join(based))]
            matches.sort()
        found, free = [], 0
        for first, minus_end, is_base, key in matches:
            if first < free:
                continue
            last = -minus_end - 1
            start = spans[first][0]
            end = spans[last][0] + lengths[last] if is_base else spans[last][1]
            entities, priors, names = self._senses[key]
            if first == last and text[start:end].lower() in STOP_WORDS:
                continue
            surface = text[start:end]
            form = AS_WRITTEN if surface in names else OTHER_CASE if not is_base else BASE_FORM
            found.append(_Found(first, last, start, end, entities, priors, form))
            free = last + 1
        return found

    def _context(self, found: list[list[_Found]]) -> Iterable[np.ndarray]:
        """Yields for each name the number of other names in its text of which an entity is a neighbour of each
        candidate; all texts are looked up together."""
        candidates, others, names, owners, sizes = [], [], [], [], []
        number = 0
        for several in found:
            ambiguous = any(len(each.entities) > 1 for each in several)
            for each in several:
                sizes.append(len(each.entities))
                if ambiguous and len(each.entities) > 1:
                    for other_number, other in enumerate(several):
                        if other is not each and other_number < MOST_CONTEXT:
                            a, b = len(each.entities), len(other.entities)
                            candidates.append(np.repeat(each.entities, b))
                            others.append(np.tile(other.entities, a))
                            names.append(np.full(a * b, other_number))
                            owners.append(np.repeat(np.arange(number, number + a), b))
                number += len(each.entities)
        counts = np.zeros(number, np.int64)
        if candidates:
            is_near = self.graph.adjacency.find(np.concatenate(candidates), np.concatenate(others)) >= 0
            owners, names = np.concatenate(owners)[is_near], np.concatenate(names)[is_near]
            supported = np.unique(owners * MOST_CONTEXT + names) // MOST_CONTEXT  # each other name counts once
            counts += np.bincount(supported, minlength=number)
        return iter(np.split(counts, np.cumsum(sizes)[:-1]) if sizes else ())

    def _mention(self, text: str, found: _Found, context: np.ndarray) -> Mention:
        graph = self.graph
        if len(found.entities) == 1:
            order, scores = [0], [found.form]
        else:
            weights = found.priors * (1.0 + context) ** CONTEXT_POWER
            weights = weights / weights.sum() * found.form
            order = np.argsort(-weights, kind="stable").tolist()
            scores = weights.tolist()
        several = [
            Candidate(graph.entities[found.entities[i]], graph.label(int(found.entities[i])), round(scores[i], 4))
            for i in order
        ]
        best = several[0]
        surface = text[found.start : found.end]
        return Mention(found.start, found.end, surface, best.entity, best.label, best.score, tuple(several[1:]))


def _code(number: int) -> str:
    """The two characters of a word: 0xD700 * 50,000 words fit, more than two thousand million."""
    return chr(FIRST + number // NUM_SECOND) + chr(SECOND + number % NUM_SECOND)


def _senses_of(several: list[tuple[int, float, str]]) -> tuple[np.ndarray, np.ndarray, frozenset[str]]:
    """(entities, priors, names as written) of one key: each entity once, the likeliest first."""
    best: dict[int, float] = {}
    for entity, prior, _ in several:
        best[entity] = max(prior, best.get(entity, 0.0))
    kept = sorted(best.items(), key=lambda each: (-each[1], each[0]))[:MOST_CANDIDATES]
    names = frozenset(name for _, _, name in several)
    return np.array([entity for entity, _ in kept]), np.array([max(prior, 1e-9) for _, prior in kept]), names


def _automaton(patterns: list[str]):
    try:
        import ahocorasick_rs
    except ImportError:
        raise ValueError(
            "linking needs the package ahocorasick-rs, which is not installed: pip install 'hornbook[graph]'"
        ) from None
    return ahocorasick_rs.AhoCorasick(
        patterns,
        matchkind=ahocorasick_rs.MatchKind.LeftmostLongest,
        implementation=ahocorasick_rs.Implementation.ContiguousNFA,
    )
