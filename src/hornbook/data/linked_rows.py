"""Rows of JSON lines whose text is linked to entities already: the text, and where it mentions which entity.

{"evidences": [{"sub_surface", "obj_surface", "masked_sentence"}], "sub_uri", "obj_uri"}    T-REx facts, as in LAMA
{"text", "entities": [{"uri", "boundaries", "surfaceform"}]}                                T-REx documents
{"text", "mentions": [{"start", "end", "entity"}]}                                          `hornbook graph link --out`
{"tokens": [...], "entities": ["Q42", "Q42", null, ...]}                                    an entity per token
"""

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

MASK = "[MASK]"
NO_ENTITY = (None, "", "#UNK#", "UNK")  # of a token; ERNIE's files have the last two

Spans = list[tuple[int, int, str]]  # (start, end, identifier of the entity), in characters


def is_linked(row: Mapping[str, Any]) -> bool:
    """Whether a row is linked to entities.

    >>> is_linked({"text": "Two trowels.", "mentions": []}), is_linked({"text": "Two trowels."})
    (True, False)
    """
    is_annotated_text = "text" in row and ("entities" in row or "mentions" in row)
    return "evidences" in row or is_annotated_text or ("tokens" in row and "entities" in row)


def linked_texts(row: Mapping[str, Any]) -> Iterator[tuple[str, Spans]]:
    """The texts of a linked row, each with the spans of its mentions. A span that cannot be found is (-1, ...).

    >>> list(linked_texts({"tokens": ["New", "York", "is", "large"], "entities": ["Q60", "Q60", None, None]}))
    [('New York is large', [(0, 8, 'Q60')])]
    """
    if "evidences" in row:
        return _facts(row)
    return _tokens(row) if "tokens" in row else _documents(row)


def _facts(row: Mapping[str, Any]) -> Iterator[tuple[str, Spans]]:
    """The sentences of a T-REx fact: [MASK] is replaced by the object, and the subject is looked for."""
    names = ("sub_surface", "obj_surface", "masked_sentence")
    seen = {""}
    for evidence in row["evidences"] if isinstance(row["evidences"], list) else ():
        subject, other, masked = (str(evidence.get(name) or "") for name in names)
        if masked in seen:
            continue
        seen.add(masked)
        text, mask = masked.replace(MASK, other), masked.find(MASK)
        other_spans = [] if mask < 0 else [(mask, mask + len(other), str(row.get("obj_uri")))]
        whole_word = rf"(?<!\w){re.escape(subject)}(?!\w)"
        starts = [match.start() for match in re.finditer(whole_word, text)] if subject else []
        start = next((start for start in starts if mask < 0 or not mask <= start < mask + len(other)), -1)
        yield text, [*other_spans, (start, start + len(subject), str(row.get("sub_uri")))]


def _documents(row: Mapping[str, Any]) -> Iterator[tuple[str, Spans]]:
    spans = []
    for mention in row.get("mentions") or row.get("entities") or ():
        if not isinstance(mention, dict):
            continue
        bounds = mention.get("boundaries") or (mention.get("start", -1), mention.get("end", -1))
        entity = str(mention.get("entity") or mention.get("uri") or "")
        is_valid = len(bounds) == 2 and all(isinstance(bound, int) for bound in bounds)
        spans.append((*(bounds if is_valid else (-1, -1)), entity.rpartition("/")[2] or entity))
    yield str(row["text"]), spans


def _tokens(row: Mapping[str, Any]) -> Iterator[tuple[str, Spans]]:
    """Words with spaces between them; a run of words with the same entity is one mention."""
    words, entities = row["tokens"], row["entities"]
    if not isinstance(words, list) or not isinstance(entities, list):
        return
    spans, start = [], 0
    for entity, run in groupby(zip(map(str, words), entities, strict=False), key=lambda each: each[1]):
        length = sum(len(word) + 1 for word, _ in run) - 1
        if entity not in NO_ENTITY:
            spans.append((start, start + length, str(entity)))
        start += length + 1
    yield " ".join(map(str, words)), spans
