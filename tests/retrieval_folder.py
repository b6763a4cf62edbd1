"""Documents, queries and judgements in BEIR's layout."""

import json
from pathlib import Path

DOCUMENTS = {"1": "the river and the bridge", "2": "silver bread", "3": "a teacher of the garden", "4": "the harbour"}


def write_beir(folder: Path, documents: dict, queries: dict, judged: list[tuple]) -> Path:
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", documents), ("queries", queries)):
        lines = [json.dumps({"_id": key, "text": text}) for key, text in rows.items()]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    rows = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, each)) for each in judged)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows) + "\n")
    return folder
