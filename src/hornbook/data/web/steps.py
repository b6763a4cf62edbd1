"""Steps of the datatrove pipelines of `corpus web` that datatrove lacks, or whose models it would download. Each counts
the pages that it drops; bad pages are recorded with their place in the input."""

import re
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import regex
from datatrove.data import Document
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.dedup.minhash import MinhashDedupFilter
from datatrove.pipeline.extractors.base import ExtractorSandbox
from datatrove.pipeline.filters.base_filter import BaseFilter
from datatrove.pipeline.filters.gopher_quality_filter import GopherQualityFilter
from datatrove.pipeline.filters.gopher_repetition_filter import GopherRepetitionFilter
from datatrove.pipeline.readers.jsonl import JsonlReader
from datatrove.utils.word_tokenizers import WordTokenizer

from hornbook.data.hash_set import contains_sorted
from hornbook.data.problems import Problem, Problems
from hornbook.data.web.build import RECORD
from hornbook.data.web.inputs import PageFile, page_hash, page_key, read_pages
from hornbook.files import read_json, write_json
from hornbook.lifecycle.stopping import die_with_parent

EXTRACTION_SECONDS = 20.0  # a page that takes longer is dropped; most take 0.02
LANGUAGE_CHARACTERS = 20_000
LANGUAGE_PROBABILITY = 0.65  # as in FineWeb
REPORT_SECONDS = 1.0
FILTERS = (PAGES, VOTES, HOSTS, TEXT, LANGUAGE, REPETITION, QUALITY, NEAR_DUPLICATES) = (
    *("pages", "votes", "hosts", "text", "language", "repetition", "quality", "near-duplicates"),
)


class _Step(PipelineStep):
    """A step that notes problems in `work/problems`, in a file of its own per task."""

    type = "hornbook"

    def __init__(self, work: Path):
        super().__init__()
        self.work = str(work)

    def _write(self, problems: Problems, rank: int) -> None:
        write_json(Path(self.work) / "problems" / f"{self.name}-{rank:05d}.json", problems.to_dict())


class ReadPages(_Step):
    """Reads the pages of the files in `work/inputs`."""

    name = PAGES

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        problems, num_pages, num_bytes, reported = Problems(), 0, 0, 0.0
        for row in read_json(Path(self.work) / "inputs" / f"{rank:05d}.json", list):
            file = PageFile(*row)
            for item in read_pages(file):
                if isinstance(item, Problem):
                    problems.add(item)
                    continue
                num_pages += 1
                self.stat_update("total", "forwarded")
                place = {"file": file.path, "place": item.place} if item.place else {"file": file.path}
                yield Document(item.html, " ".join(place.values()), metadata={"url": item.url, **place})
                if time.monotonic() - reported > REPORT_SECONDS:
                    reported = time.monotonic()
                    self._report(rank, num_pages, num_bytes)
            num_bytes += file.bytes
        self._report(rank, num_pages, num_bytes)
        self._write(problems, rank)

    def _report(self, rank: int, num_pages: int, num_bytes: int) -> None:
        write_json(Path(self.work) / "progress" / f"{rank:05d}.json", {"pages": num_pages, "bytes": num_bytes})


class HasVotes(BaseFilter):
    """Keeps the pages whose links are in `work/links.npy`."""

    name = VOTES

    def __init__(self, work: Path):
        super().__init__()
        self.file = str(Path(work) / "links.npy")
        self._hashes: np.ndarray | None = None

    def filter(self, doc: Document) -> bool:
        if self._hashes is None:
            self._hashes = np.load(self.file, mmap_mode="r")  # shared by all processes
        return bool(contains_sorted(self._hashes, np.uint64(page_hash(doc.metadata["url"]))))


class NotOnHosts(BaseFilter):
    """Drops the pages of these hosts and of those below them, such as en.wikipedia.org for wikipedia.org."""

    name = HOSTS

    def __init__(self, hosts: tuple[str, ...]):
        super().__init__()
        self.hosts = tuple(host.lower().removeprefix("www.") for host in hosts)

    def filter(self, doc: Document) -> bool:
        try:
            host = re.split(r"[/:?]", page_key(doc.metadata["url"]), maxsplit=1)[0]
        except ValueError:
            return True
        return not any(host == each or host.endswith(f".{each}") for each in self.hosts)


class ExtractText(_Step):
    """Replaces a page by its main text (trafilatura), in a process that may hang or run out of memory. Repeated text is
    not removed here, as trafilatura does it by what the same process has seen before."""

    name = TEXT

    def run(self, data, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        import trafilatura  # noqa: F401  # before the sandbox is forked, so that it does not import it for each task

        problems = Problems()
        with ExtractorSandbox(timeout=EXTRACTION_SECONDS, warmup_text="") as sandbox:
            for doc in data:
                self.stat_update("total")
                try:
                    with self.track_time():
                        text, failure = sandbox.process_document(doc.text, extract_text)
                except TimeoutError:
                    text, failure = "", f"it takes more than {EXTRACTION_SECONDS:.0f} s"
                except EOFError:
                    text, failure = "", "the process was killed, probably for lack of memory"
                if failure:
                    place = doc.metadata.get("place", "")
                    problems.add(Problem("extraction_failed", doc.metadata["file"], place, failure))
                if text:
                    doc.text = text
                    self.stat_update("forwarded")
                    self.update_doc_stats(doc)
                    yield doc
                else:
                    self.stat_update("dropped")
        self._write(problems, rank)


_is_bound = False


def extract_text(html: str) -> tuple[str, str]:
    """(main text of a page, why it could not be extracted)."""
    global _is_bound
    if not _is_bound:  # the first call in the sandbox
        _is_bound = True
        die_with_parent()
    from trafilatura import extract

    try:
        return extract(html, favor_precision=True, include_comments=False, deduplicate=False) or "", ""
    except Exception as error:  # the parser raises many kinds on broken pages
        return "", f"{type(error).__name__}: {error}"[:200]


class InLanguage(BaseFilter):
    """Keeps the pages in one language, by py3langid: its model is in the package (4 MB), while those of datatrove's
    own filter (fastText) have to be downloaded."""

    name = LANGUAGE

    def __init__(self, language: str):
        super().__init__()
        self.language = language

    def filter(self, doc: Document) -> bool | tuple[bool, str]:
        language, probability = language_identifier(self.language).classify(doc.text[:LANGUAGE_CHARACTERS])
        doc.metadata["language"] = language
        is_kept = language == self.language and probability >= LANGUAGE_PROBABILITY
        return is_kept or (False, language if language != self.language else "unsure")


@lru_cache(1)
def language_identifier(language: str):
    """py3langid's classifier, with probabilities. Nigerian Pidgin (pcm) is known only if it is `language`: of 244 pages
    of Debian's documentation, which are English, 15 are taken for it otherwise."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    if language != "pcm":
        identifier.set_languages([each for each in map(str, identifier.nb_classes) if each != "pcm"])
    return identifier


class Words(WordTokenizer):
    """Words and punctuation marks, for any language that has spaces; datatrove's own would need spaCy."""

    PARTS = regex.compile(r"\w+(?:['’]\w+)*|[^\w\s]+")  # to `re`, the vowel signs of Hindi are no letters

    def word_tokenize(self, text: str) -> list[str]:
        return self.PARTS.findall(text)

    def sent_tokenize(self, text: str) -> list[str]:
        raise NotImplementedError

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        raise NotImplementedError


class NotRepetitive(GopherRepetitionFilter):
    name = REPETITION


class HasQuality(GopherQualityFilter):
    name = QUALITY


class NotNearDuplicate(MinhashDedupFilter):
    name = NEAR_DUPLICATES


class ReadKept(JsonlReader):
    """Reads the file that the same task of an earlier stage wrote; there is none if it kept no page."""

    name = "kept"

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        file = f"{rank:05d}.jsonl.gz"
        yield from self.read_files_shard([file] if self.data_folder.isfile(file) else [])


class Publish(PipelineStep):
    """The last step: sums the counts of all tasks and moves the texts into place."""

    type, name = "hornbook", "publish"

    def __init__(self, out: Path, work: Path, record: dict):
        super().__init__()
        self.out, self.work, self.record = str(out), str(work), record

    def run(self, data=None, rank: int = 0, world_size: int = 1) -> None:
        out, work = Path(self.out), Path(self.work)
        problems = Problems(read_json(work / "links.json"))
        for file in sorted((work / "problems").iterdir()):
            problems.merge(Problems(read_json(file)))
        steps = _summed(work / "logs" / "pages" / "stats") | _summed(work / "logs" / "texts" / "stats")
        filters = [{"name": name, **steps[name]} for name in FILTERS if name in steps]
        texts = {"documents": filters[-1]["pages"], "characters": steps["Jsonl"]["characters"]}
        record = {**self.record, "filters": filters, "texts": texts, "problems": problems.to_dict()}
        (work / "texts").mkdir(exist_ok=True)
        if not (out / "texts").exists():
            (work / "texts").rename(out / "texts")
        write_json(out / RECORD, record)


def _summed(folder: Path) -> dict[str, dict]:
    totals: dict[str, dict] = {}
    for file in sorted(folder.iterdir()):
        for step in read_json(file, list):
            total = totals.setdefault(step["name"].rpartition(" ")[2], {"pages": 0, "characters": 0, "dropped": {}})
            # datatrove writes a number, or its total together with mean and variance
            counts = {name: each["total"] if isinstance(each, dict) else each for name, each in step["stats"].items()}
            total["pages"] += counts.get("forwarded", 0)
            total["characters"] += counts.get("doc_len", 0)
            for name, count in counts.items():
                if name.startswith("dropped_"):
                    reason = name.removeprefix("dropped_")
                    total["dropped"][reason] = total["dropped"].get(reason, 0) + count
    return totals
