"""What went wrong or was left out on the way from files to shards: counted by kind and by file, with examples."""

from dataclasses import asdict, dataclass

KINDS = {
    "empty_file": "files without any text",
    "unknown_extension": "files in a folder that are not of a known kind, left out",
    "unreadable": "files that could not be read to their end (what came before is kept)",
    "byte_order_mark": "byte order marks at the start of a file, removed",
    "invalid_utf8": "byte runs that are not UTF-8, replaced by U+FFFD",
    "lone_surrogate": "escaped halves of surrogate pairs, replaced by U+FFFD",
    "nul_character": "NUL characters, removed",
    "carriage_return": "carriage returns at line ends, turned into plain line ends",
    "not_json": "lines that are not a JSON object, left out",
    "line_too_long": "JSON lines too long to be read safely, left out",
    "no_text_column": "rows without the text column, left out",
    "null_text": "rows whose text is null, left out",
    "text_not_string": "rows whose text is not a string, left out",
    "empty_document": "documents with only white space, left out",
    "long_document": "documents so long that they were handled in parts",
    "divided_document": "documents that go over from one shard into the next, and count as one in each",
    "duplicate_document": "documents (or parts of long ones) seen before, left out",
    "no_tokens": "documents that the tokenizer turns into nothing, left out",
    "bad_quotes": "rows whose quotes are not closed or not doubled, read as they stand",
    "repeated_name": "JSON objects that name a field twice, of which the last is taken",
    "repeated_key": "examples whose name another one has, given another",
    "moved_span": "answers that are not where the file says, taken where they are nearest to it",
    "several_spans": "answers that occur more than once in a passage, the file not saying where: the first is taken",
    "broken_tags": "tags that continue an entity which was not begun, made the start of one",
    "unseen_label": "labels of a dev or test part that training does not have: they can only be wrong",
}
LEFT_OUT_OF_TRAINING = {
    "bad_json": "lines or elements that are not a JSON object",
    "bad_row": "rows with another number of fields than there are columns",
    "empty_text": "examples without text",
    "no_label": "examples without a label",
    "bad_number": "labels that are not a finite number",
    "bad_choice": "labels that are none of the endings",
    "bad_endings": "examples with another number of endings than the others",
    "bad_tags": "sentences with another number of tags than of words",
    "no_span": "answers that do not occur in their passage",
}
KINDS |= {kind: f"{what}, left out of training" for kind, what in LEFT_OUT_OF_TRAINING.items()}
# A dev or test part loses no example, for each is one prediction.
KINDS |= {f"kept_{kind}": f"{what}, kept with what they have" for kind, what in LEFT_OUT_OF_TRAINING.items()}
DROPPED = (
    "not_json",
    "line_too_long",
    "no_text_column",
    "null_text",
    "text_not_string",
    "empty_document",
    "duplicate_document",
    "no_tokens",
    *LEFT_OUT_OF_TRAINING,
)
EXAMPLES_A_KIND = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """`count` things of one kind in one file, the first of them at `place` ("line 12", "row 3", or "")."""

    kind: str
    file: str
    place: str = ""
    detail: str = ""
    count: int = 1


class Problems:
    """A tally of problems. Memory grows with the number of files, never with the number of problems."""

    def __init__(self, saved: dict | None = None):
        self._kinds: dict[str, dict] = saved or {}

    def add(self, problem: Problem) -> None:
        entry = self._entry(problem.kind)
        entry["count"] += problem.count
        entry["files"][problem.file] = entry["files"].get(problem.file, 0) + problem.count
        if len(entry["examples"]) < EXAMPLES_A_KIND:
            example = asdict(problem)
            entry["examples"].append({key: example[key] for key in ("file", "place", "detail") if example[key]})

    def merge(self, other: "Problems") -> None:
        for kind, theirs in other._kinds.items():
            entry = self._entry(kind)
            entry["count"] += theirs["count"]
            for file, count in theirs["files"].items():
                entry["files"][file] = entry["files"].get(file, 0) + count
            entry["examples"] = (entry["examples"] + theirs["examples"])[:EXAMPLES_A_KIND]

    def count(self, kind: str) -> int:
        return self._kinds[kind]["count"] if kind in self._kinds else 0

    def first(self, *kinds: str) -> str:
        """The first example of the first of `kinds` that occurred, as words; empty when none did."""
        for kind in kinds:
            if kind in self._kinds:
                example = self._kinds[kind]["examples"][0]
                where = " ".join(filter(None, (example["file"], example.get("place"))))
                return f"{where}: {example.get('detail') or KINDS[kind]}"
        return ""

    def as_dict(self) -> dict:
        return self._kinds

    def _entry(self, kind: str) -> dict:
        assert kind in KINDS, kind
        return self._kinds.setdefault(kind, {"count": 0, "what": KINDS[kind], "files": {}, "examples": []})


def problem_lines(problems: dict) -> list[str]:
    """What `Problems.as_dict` tells, a line for each kind: how many, and where the first two are."""
    lines = []
    for entry in problems.values():
        places = [" ".join(filter(None, map(each.get, ("file", "place", "detail")))) for each in entry["examples"][:2]]
        lines.append(f"  note: {entry['what']}: {entry['count']:,} ({'; '.join(places)})")
    return lines
