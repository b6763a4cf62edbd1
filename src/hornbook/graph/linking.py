"""Entity linking: which entities of a graph a text mentions, where, and how surely.

The words of all names are numbered, and each name becomes a run of two characters per word; so does a text, once as
written and once in base forms. Aho-Corasick (the package ahocorasick-rs) finds the longest names from left to right in
both. As every word is two characters from disjoint ranges, a name can only match whole words.

A mention's candidates are the entities of that name. The weight of a candidate is its prior (the weight of its edges,
or WordNet's order of senses) times (1 + the number of other mentions whose entities are its neighbours) to the power
of `CONTEXT_POWER`; its score is its share of the weights, lowered if the text has the name in another form.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hornbook.extras import import_extra
from hornbook.graph.graph import Graph
from hornbook.graph.paths import expand_ranges
from hornbook.text.lemmas import STOP_WORDS, base_form, normalized, split_words

CONTEXT_POWER = 2.0
MAX_CANDIDATES = 20  # of a mention, by prior
MAX_SHOWN = 4  # candidates that a mention lists next to the best
MAX_NEIGHBOURS = 200  # of a candidate that are looked up in the text; for a hub the text's entities are looked up
MIN_PRIOR = 1e-9
MIN_SCORE = 0.3  # of a mention that is given to a model, as published for ERNIE (there: of TagMe)
AS_WRITTEN, OTHER_CASE, BASE_FORM = 1.0, 0.9, 0.8  # factors of the score
# A word is one character of the first range and one of the second; no surrogates are among them.
FIRST, SECOND, NUM_SECOND = 0x100, 0x10000, 50_000
UNKNOWN = "\0\0"

EntitySpans = list[tuple[int, int, int]]  # (start, end, entity id) of each mention of a text, in characters


class Candidate(NamedTuple):
    """An entity that a mention may stand for; the scores of a mention's candidates add up to at most 1."""

    entity: str
    label: str
    score: float


class Mention(NamedTuple):
    """Characters `start` to `end` (exclusive) of a text and the entity they stand for, by its identifier."""

    start: int
    end: int
    text: str
    entity: str
    label: str
    score: float
    candidates: tuple[Candidate, ...] = ()  # the next likeliest, at most `MAX_SHOWN`

    def to_dict(self) -> dict:
        return {**self._asdict(), "candidates": [each._asdict() for each in self.candidates]}


@dataclass
class LinkedText:
    """A text and the entities that it mentions, in order."""

    text: str
    mentions: list[Mention] = field(default_factory=list)

    def to_dict(self) -> dict:
        return {"text": self.text, "mentions": [each.to_dict() for each in self.mentions]}


class _Senses(NamedTuple):
    """What a run of words may stand for: entities with priors, likeliest first, and the names as they are written."""

    entities: list[int]
    priors: list[float]
    names: frozenset[str]
    are_stop_words: bool


class _NameMatch(NamedTuple):
    """A name in a text: its characters, what it may stand for, and the factor for the form it is written in."""

    start: int
    end: int
    senses: _Senses
    form: float


class MentionLinker:
    """Finds the names of a graph in texts, as mentions with scores and candidates. Stop words alone ("the", "in") are
    no mentions.

    Making one reads all names of the graph; `Graph.link` keeps it for the next call.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        names = [[normalized(word) for word in split_words(name)] for _, name, _ in graph.names]
        frequencies = Counter(word for words in names for word in words)
        # The two characters of each word: 0xD700 * 50,000 words fit, more than two thousand million.
        self._ids = {w: chr(FIRST + i // NUM_SECOND) + chr(SECOND + i % NUM_SECOND) for i, w in enumerate(frequencies)}
        self._base = cache(lambda word: base_form(word, frequencies))
        self._codes: dict[str, tuple[str, str, int]] = {}  # by the words of texts: see `_encode`
        self._names_of = cache(lambda entity: (graph.entities[entity], graph.label(entity)))  # identifier and label
        keys: dict[str, list[tuple[int, str, float]]] = {}
        stop_words = set()
        for row, words in zip(graph.names, names, strict=True):
            if not words:
                continue
            forms = {tuple(words)}
            if len(words) > 1:  # "building sites" is looked up as "build site", so the name is listed under it too
                forms.add(tuple(self._base(word) or word for word in words))
            for form in forms:
                keys.setdefault(key := "".join(map(self._ids.__getitem__, form)), []).append(row)
                if STOP_WORDS.issuperset(form):
                    stop_words.add(key)
        self._senses = [_senses_of(rows, key in stop_words) for key, rows in keys.items()]
        self._automaton = _automaton(list(keys)) if keys else None

    def _encode(self, word: str) -> tuple[str, str, int]:
        """(Characters of a word as written, of its base form, and how much of the word a mention includes): the
        ending of an English word is part of the mention, the particle of a Korean one is not."""
        form = normalized(word)
        base = self._base(form)
        code = self._ids.get(form, UNKNOWN)
        length = len(base) if base and "가" <= form[-1] <= "힣" and len(form) == len(word) else len(word)
        encoded = self._codes[word] = code, self._ids[base] if base else code, length
        return encoded

    def link(self, texts: Sequence[str]) -> list[LinkedText]:
        matches = [self._find(text) for text in texts]
        scores = self._scores(matches)
        return [
            LinkedText(text, [self._mention(text, match, scores) for match in of_text])
            for text, of_text in zip(texts, matches, strict=True)
        ]

    def _find(self, text: str) -> list[_NameMatch]:
        """The longest names from left to right; of two of the same length at a position, the one as written."""
        if self._automaton is None:
            return []
        words, codes, search = split_words(text), self._codes, self._automaton.find_matches_as_indexes
        encoded = [codes.get(word) or self._encode(word) for word in words]
        written, based = ("".join([code[i] for code in encoded]) for i in (0, 1))
        matches = [(start >> 1, -(end >> 1), False, key) for key, start, end in search(written)]
        if based != written:
            matches += [(start >> 1, -(end >> 1), True, key) for key, start, end in search(based)]
            matches.sort()
        if not matches:
            return []
        starts, end = [], 0
        for word in words:
            starts.append(text.index(word, end))
            end = starts[-1] + len(word)
        chosen, num_used = [], 0  # words that belong to a name already
        for first, minus_end, is_base, key in matches:
            if first < num_used:
                continue
            last = -minus_end - 1
            start, end = starts[first], starts[last] + (encoded[last][2] if is_base else len(words[last]))
            surface, senses = text[start:end], self._senses[key]
            is_as_written = surface in senses.names
            if senses.are_stop_words and not (is_as_written and _is_capitalized(surface)):
                continue
            form = AS_WRITTEN if is_as_written else BASE_FORM if is_base else OTHER_CASE
            chosen.append(_NameMatch(start, end, senses, form))
            num_used = last + 1
        return chosen

    def _scores(self, matches: list[list[_NameMatch]]) -> Iterator[float]:
        """Yields the score of every candidate of every name, in order; all texts are looked up together."""
        flat = [match for of_text in matches for match in of_text]
        if not flat:
            return iter(())
        sizes = np.array([len(match.senses.entities) for match in flat])
        names = np.repeat(np.arange(len(flat)), sizes)  # the index of each candidate's name, and of its text
        texts = np.repeat(np.arange(len(matches)), [len(of_text) for of_text in matches])[names]
        entities = np.array([entity for match in flat for entity in match.senses.entities], np.int64)
        weights = np.array([prior for match in flat for prior in match.senses.priors])
        weights *= (1.0 + self._context(entities, names, texts, sizes[names] > 1)) ** CONTEXT_POWER
        sums = np.add.reduceat(weights, np.cumsum(sizes) - sizes)
        forms = np.array([match.form for match in flat])
        return iter((weights * (forms / sums)[names]).tolist())

    def _context(
        self, entities: np.ndarray, names: np.ndarray, texts: np.ndarray, is_ambiguous: np.ndarray
    ) -> np.ndarray:
        """For each candidate of an ambiguous name, how many other names of its text have an entity next to it."""
        adjacency, num_names = self.graph.adjacency, int(names[-1]) + 1
        counts = np.zeros(len(entities), np.int64)
        degrees = adjacency.degree(entities)
        chosen = np.flatnonzero(is_ambiguous & (degrees <= MAX_NEIGHBOURS))
        rows, neighbours = adjacency.expand(entities[chosen])
        owners = chosen[rows]
        keys = texts * self.graph.num_entities + entities
        order = np.argsort(keys, kind="stable")
        neighbour_keys = texts[owners] * self.graph.num_entities + neighbours
        # An entity may be a candidate of several names of a text.
        ranges = (np.searchsorted(keys[order], neighbour_keys, side) for side in ("left", "right"))
        rows, indices = expand_ranges(*ranges)
        owners, others = owners[rows], names[order[indices]]
        is_other = others != names[owners]
        supported = np.unique(owners[is_other] * num_names + others[is_other]) // num_names  # a name counts once
        counts += np.bincount(supported, minlength=len(counts))
        for hub in np.flatnonzero(is_ambiguous & (degrees > MAX_NEIGHBOURS)):
            low, high = np.searchsorted(texts, texts[hub]), np.searchsorted(texts, texts[hub], "right")
            near = adjacency.find(np.full(high - low, entities[hub]), entities[low:high]) >= 0
            counts[hub] = len(set(names[low:high][near].tolist()) - {int(names[hub])})
        return counts

    def _mention(self, text: str, match: _NameMatch, scores: Iterator[float]) -> Mention:
        start, end, senses, _ = match
        if len(senses.entities) == 1:
            return Mention(start, end, text[start:end], *self._names_of(senses.entities[0]), round(next(scores), 4))
        ranked = sorted(zip((-next(scores) for _ in senses.entities), senses.entities, strict=True))
        best, *others = (
            Candidate(*self._names_of(entity), round(-score, 4)) for score, entity in ranked[: MAX_SHOWN + 1]
        )
        return Mention(start, end, text[start:end], *best, tuple(others))


class EntityLinker:
    """Links texts to entity ids, as model inputs: the best entity of each mention that a graph's `MentionLinker` finds,
    without uncertain ones (`MIN_SCORE`). It can be sent to a worker process, which opens the graph itself.

    >>> EntityLinker("graph").link(["Two trowels lay in the garden."])
    [[(4, 11, 2), (23, 29, 1)]]
    """

    def __init__(self, graph: str | Path | Graph):
        self.graph = graph if isinstance(graph, Graph) else Graph(graph)

    def __reduce__(self):
        return EntityLinker, (self.graph.folder,)

    @property
    def fingerprint(self) -> str:
        return self.graph.fingerprint

    def link(
        self, texts: Sequence[str], links: Sequence[Sequence[tuple[int, int, str]] | None] | None = None
    ) -> list[EntitySpans]:
        """The mentions of each text. Where `links` has those of a text already (start, end, identifier), they are
        used as they are; entities that the graph does not have are left out."""
        links = [None] * len(texts) if links is None else links
        linked = iter(self.graph.link([text for text, mentions in zip(texts, links, strict=True) if mentions is None]))
        spans = []
        for mentions in links:
            if mentions is None:
                mentions = [(m.start, m.end, m.entity) for m in next(linked).mentions if m.score >= MIN_SCORE]
            entities = ((start, end, self.graph.candidates(entity)) for start, end, entity in mentions)
            spans.append([(start, end, candidates[0]) for start, end, candidates in entities if candidates])
        return spans


def open_linker(graph: str | Path, model: Any) -> EntityLinker:
    """The entity linker for a graph. Raises a `ValueError` if the model does not read the entities of this graph."""
    if model.model_type != "hornbook-ernie":
        raise ValueError(
            f"graph= is for ERNIE, and the model is {model.described()}, which reads no entities: leave it out"
        )
    opened = Graph(graph)
    if opened.fingerprint != model.config.graph:
        raise ValueError(f"{graph} is not the graph that the model was trained with: give that one")
    return EntityLinker(opened)


def _is_capitalized(surface: str) -> bool:
    """Whether stop words are capitalised like a proper name: "US" and "The Who", but not "It"."""
    words = surface.split()
    return len(surface) > 1 and (surface.isupper() if len(words) == 1 else all(word[0].isupper() for word in words))


def _senses_of(rows: list[tuple[int, str, float]], are_stop_words: bool) -> _Senses:
    """What a key stands for, from its rows (entity, name, prior): each entity once."""
    if len(rows) == 1:  # as for most names
        entity, name, prior = rows[0]
        return _Senses([entity], [max(prior, MIN_PRIOR)], frozenset((name,)), are_stop_words)
    best: dict[int, float] = {}
    for entity, _, prior in rows:
        best[entity] = max(prior, MIN_PRIOR, best.get(entity, 0.0))
    entities = sorted(best, key=lambda entity: (-best[entity], entity))[:MAX_CANDIDATES]
    names = frozenset(name for _, name, _ in rows)
    return _Senses(entities, [best[entity] for entity in entities], names, are_stop_words)


def _automaton(patterns: list[str]):
    ahocorasick_rs = import_extra("ahocorasick_rs", "graph", "linking needs")
    return ahocorasick_rs.AhoCorasick(
        patterns,
        matchkind=ahocorasick_rs.MatchKind.LeftmostLongest,
        implementation=ahocorasick_rs.Implementation.ContiguousNFA,
    )
