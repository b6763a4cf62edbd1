"""What mkdocs needs to show these pages as they are in the repository: pages beside `docs/`, and links out of it."""

import posixpath
import re
from pathlib import Path

import griffe
from mkdocs.structure.files import File
from pymdownx.slugs import slugify

ROOT = Path(__file__).parent.parent
ROOT_PAGES = {"README.md": "index.md", "README.ko.md": "README.ko.md", "RESULTS.md": "RESULTS.md"}
LINK = re.compile(r"`[^`\n]+`|\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")

FENCE = re.compile(r"(^```.*?^```$)", re.M | re.S)
INDENTED_BY_TWO = re.compile(r"^  (?=\S)", re.M)


def on_config(config):
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")  # GitHub's anchors, for Hangul too
    return config


def on_files(files, config):
    for source, name in ROOT_PAGES.items():
        if (ROOT / source).exists():
            files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown, page, **_):
    """Links are written relative to the file in the repository; those to files that the site lacks become text."""
    here = page.file.src_uri
    source = next((source for source, name in ROOT_PAGES.items() if name == here), f"docs/{here}")

    def in_site(link):
        text, target, anchor = link.groups()
        if target is None or "://" in target:  # code, or a page elsewhere
            return link.group(0)
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path not in ROOT_PAGES and not path.startswith("docs/"):
            return text
        name = ROOT_PAGES.get(path) or path.removeprefix("docs/")
        return f"[{text}]({posixpath.relpath(name, posixpath.dirname(here) or '.')}{anchor or ''})"

    parts = FENCE.split(markdown)
    # In a list, Python-Markdown wants an indent of four.
    parts[::2] = [INDENTED_BY_TWO.sub("    ", LINK.sub(in_site, text)) for text in parts[::2]]
    return "".join(parts)


class FencedExamples(griffe.Extension):
    """Examples of docstrings (`>>> ...`, up to the next empty line) as blocks of code."""

    def on_object(self, *, obj, **_):
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^(?:>>> .*)(?:\n(?!\s*\n).+)*",
                lambda found: f"```pycon\n{found[0]}\n```",
                obj.docstring.value,
                flags=re.M,
            )
