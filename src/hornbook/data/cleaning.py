"""Removes wiki markup from text: headings, lists, tables, templates, links, reference markers."""

import html
import re
from collections import Counter
from typing import Literal

Cleaner = Literal["wiki"]

# Each kind has a text without which its pattern cannot match, which is quicker to look for.
# Order matters: comments and references may hold templates, templates may hold links.
REMOVED = {
    "comment": ("<!--", re.compile(r"<!--(?:[^<]|<(?!!--)){0,5000}?-->")),
    "reference": ("<", re.compile(r"<ref\b[^<>]*/>|<ref\b[^<>]*>(?:[^<]|<(?!/?ref\b)){0,5000}+</ref>", re.IGNORECASE)),
    "gallery": ("<", re.compile(r"<gallery\b[^<>]*>(?:[^<]|<(?!/?gallery\b)){0,20000}+</gallery>", re.IGNORECASE)),
    "template": ("{{", re.compile(r"\{\{[^{}]{0,20000}\}\}")),
    "file_link": (
        "[[",  # a caption may hold links
        re.compile(
            r"\[\[(?:File|Image|Category|파일|분류|그림):(?:[^\[\]]|\[\[[^\[\]]*+\]\]|\[[^\[\]]*+\]){0,20000}+\]\]",
            re.IGNORECASE,
        ),
    ),
}
REWRITTEN = {
    "link": ("[[", re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]"), r"\1"),
    "external_link": ("//", re.compile(r"\[(?:https?:)?//[^\s\]]+\s*([^\]\n]*)\]"), r"\1"),
    "reference_marker": (
        "[",
        re.compile(r"\[(?:\d{1,4}|note \d+|citation needed|clarification needed|출처 필요)\]", re.IGNORECASE),
        "",
    ),
    "tag": (
        "<",
        re.compile(
            r"</?(?:ref|br|p|div|span|small|big|sub|sup|center|i|b|u|s|nowiki|references|gallery|blockquote|onlyinclude"
            r"|noinclude|includeonly|table|tr|td|th|ul|ol|li|math|code|pre|poem|font)\b[^<>]*>",
            re.IGNORECASE,
        ),
        "",
    ),
    "emphasis": ("''", re.compile(r"'{2,5}"), ""),
    "bracket_remains": ("", re.compile(r"\[\[|\]\]|\{\{|\}\}"), ""),
    "magic_word": ("__", re.compile(r"__[A-Z]{3,}__"), ""),
}
LINE_KINDS = {
    "heading": re.compile(r"(={1,6})[^=].*\1|Section:{2,}.*"),
    "table_row": re.compile(r"\{\||\|\}|\||!\s.*|!.*(?:!!|\|)"),
    "list_item": re.compile(r"[*#;:]|[•·▪‣]|[-–]\s|BULLET:{2,}"),
}
ENTITY = re.compile(r"&(?:nbsp|amp|lt|gt|quot|ndash|mdash|#\d{1,6});")


def clean_wiki(text: str) -> tuple[str, dict[str, int]]:
    """The text without wiki markup, and the number of removals per kind.

    >>> clean_wiki("== Life ==\\nShe was [[poet|a poet]].[3]\\n* Poems")
    ('She was a poet.', {'heading': 1, 'list_item': 1, 'link': 1, 'reference_marker': 1})
    """
    counts = Counter()
    for kind, (required, pattern) in REMOVED.items():
        # Templates nest, and each round removes the innermost ones; no page nests 20 deep.
        for _ in range(20):
            text, num = pattern.subn("", text) if required in text else (text, 0)
            counts[kind] += num
            if not num:
                break
    lines = []
    for line in text.split("\n"):
        if kind := _kind_of_line(line.strip()):
            counts[kind] += 1
        else:
            lines.append(line)
    text = "\n".join(lines)
    for kind, (required, pattern, replacement) in REWRITTEN.items():
        if required in text:
            text, num = pattern.subn(replacement, text)
            counts[kind] += num
    if "&" in text:
        text, num = ENTITY.subn(lambda entity: html.unescape(entity.group()).replace("\xa0", " "), text)
        counts["entity"] += num
    return text.strip(), {kind: count for kind, count in counts.items() if count}


def _kind_of_line(line: str) -> str | None:
    if not line or (line[0].isalnum() and not line.startswith(("Section:", "BULLET:"))):
        return None
    for kind, pattern in LINE_KINDS.items():
        if pattern.fullmatch(line) if kind == "heading" else pattern.match(line):
            return kind
    return None
