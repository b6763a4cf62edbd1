"""Text from web pages, on datatrove: which pages to keep (links with votes), reading WARC and HTML, extraction, filters
and the run over all of them. The result is read by `data/build.py` as any other text."""
