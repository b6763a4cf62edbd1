"""The pages of docs/ are all in the navigation of mkdocs.yml, their links and anchors resolve, and the site builds."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import hornbook

ROOT = Path(__file__).parent.parent
OUTSIDE = {"index.md": "README.md", "README.ko.md": "README.ko.md", "RESULTS.md": "RESULTS.md"}  # by docs/site.py
PAGES = sorted([*(ROOT / name for name in OUTSIDE.values()), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]+))?\)")


def prose(page: Path) -> str:
    """The text of a page without its code."""
    return re.sub(r"^```.*?^```$|`[^`\n]+`", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and docs/site.py name them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    found: list[str] = []
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{found.count(slug)}")
    return set(found)


def entries(nav) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [entry for each in nav for entry in entries(next(iter(each.values())) if isinstance(each, dict) else each)]


def test_every_page_is_in_the_navigation_once():
    listed = entries(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    there = [*OUTSIDE, *(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))]
    assert sorted(listed) == sorted(there)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_lead_somewhere(page):
    for target, anchor in LINK.findall(prose(page)):
        if "://" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page}: {target} does not exist"
        assert not anchor or anchor in anchors(file), f"{page}: {target}#{anchor} names no heading"


def test_there_are_links_to_check():
    found = [link for page in PAGES for link in LINK.findall(prose(page))]
    assert len(found) > 100 and sum(bool(anchor) for _, anchor in found) > 10


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "families").glob("*.md")), ids=lambda page: page.stem)
def test_scores_of_a_family_are_in_the_results(page):
    results, scored = (
        re.sub(r"\]\([^)]*\)", "]", text).replace("−", "-")
        for text in (
            (ROOT / "RESULTS.md").read_text(encoding="utf-8"),
            prose(page).partition("\n## Results\n")[2],
        )
    )
    for number in re.findall(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?:e\d+)?", scored):
        assert re.search(rf"(?<![\d.,]){re.escape(number.rstrip(','))}(?!\d)", results), f"{page.name}: {number}"
    assert "(../../RESULTS.md#" in page.read_text(encoding="utf-8")


def test_the_reference_has_every_public_name():
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^::: (\S+)\n    options:\n      heading: hornbook\.(\w+)$", text, re.M))
    assert {name: path for path, name in listed.items()} == {
        name: f"{module}.{name}" for name, module in hornbook._MODULES.items()
    }


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="needs pip install -e '.[docs]'")
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES)  # and 404.html
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:link|script|img|iframe)\b[^>]*?\b(?:href|src)=\"?(https?:[^\s\">]+)", text)
        assert not loaded, f"{page.name} loads {loaded}"
