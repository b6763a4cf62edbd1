"""The rate of `corpus web` per core, on HTML files of this machine, and what it means for 45 million links (WebText).

    python benchmarks/web.py --pages /usr/share/doc ~/.rustup/toolchains --megabytes 60

CPU time is counted over all processes, so that other load on the machine does not change the result much. The files are
a sample of the given folders, drawn with a fixed seed.
"""

import argparse
import random
import resource
import shutil
import tempfile
import time
from pathlib import Path

from hornbook.data.web.build import build_web_corpus

WEBTEXT_LINKS = 45_000_000  # Radford et al. 2019
WEB_PAGE_BYTES = 60_000  # about the HTML of an article on the web; documentation has less


def sample(folders: list[Path], megabytes: float, target: Path) -> tuple[int, int]:
    """Copies files into a folder; returns their number and size."""
    files = [file for folder in folders for file in sorted(folder.expanduser().rglob("*.html")) if file.is_file()]
    random.Random(0).shuffle(files)
    total = number = 0
    for file in files:
        if total >= megabytes * 1e6:
            break
        shutil.copy(file, target / f"{number:06d}.html")
        total += file.stat().st_size
        number += 1
    return number, total


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", nargs="+", type=Path, required=True, help="folders with HTML files")
    parser.add_argument("--megabytes", type=float, default=60, help="size of the sample")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "pages"
        pages.mkdir()
        number, size = sample(options.pages, options.megabytes, pages)
        before, start = cpu_seconds(), time.perf_counter()
        record = build_web_corpus(pages, Path(folder) / "out", language="en", workers=options.workers)
        seconds, wall = cpu_seconds() - before, time.perf_counter() - start
    print(f"{number:,} pages, {size / 1e6:.0f} MB, {seconds:.0f} s of CPU time, {wall:.0f} s in all")
    print("after: " + ", ".join(f"{each['name']} {each['pages']:,}" for each in record["filters"]))
    print(f"{number / seconds:.1f} pages/s and {size / 1e6 / seconds:.2f} MB/s per core")
    for page_bytes in (size / number, WEB_PAGE_BYTES):
        hours = WEBTEXT_LINKS * page_bytes / (size / seconds) / 3600
        what = f"{WEBTEXT_LINKS / 1e6:.0f} million pages of {page_bytes / 1e3:.0f} KB"
        print(f"{what}: {hours:,.0f} core hours, {hours / 64:.1f} hours on 64 cores")


if __name__ == "__main__":
    main()
