"""Problems found while reading files, counted by kind and by file, with examples."""

from dataclasses import dataclass

DESCRIPTIONS = {  # of each kind of problem, as manifests and logs hold them
    "empty_file": "files without any text",
    "unknown_extension": "files in a folder with an unknown extension, skipped",
    "not_text": "files that are no text in spite of their extension, skipped",
    "unreadable": "files that could not be read to the end (the text before the error is kept)",
    "other_encoding": "files that are not UTF-8, read in the encoding that their bytes look like",
    "invalid_utf8": "byte runs that are not UTF-8, replaced by U+FFFD",
    "lone_surrogate": "escaped halves of surrogate pairs, replaced by U+FFFD",
    "nul_character": "NUL characters, removed",
    "not_json": "lines that are not a JSON object, dropped",
    "line_too_long": "JSON lines that are too long to read safely, dropped",
    "inferred_column": "tables whose text column was inferred from its name",
    "no_text_column": "rows without the text column, dropped",
    "null_text": "rows whose text is null, dropped",
    "text_not_string": "rows whose text is not a string, dropped",
    "empty_document": "documents of white space only, dropped",
    "long_document": "long documents, processed in parts",
    "divided_document": "documents that continue in the next shard, counted as one document in each",
    "duplicate_document": "duplicate documents (or parts of long ones), dropped",
    "near_duplicate": "documents (or parts of long ones) that hardly differ from earlier ones, dropped",
    "evaluation_text": "documents (or parts of long ones) with 13 consecutive words of an excluded set, dropped",
    "no_tokens": "documents without any token, dropped",
    "unknown_token": "words or signs that the vocabulary cannot write, replaced by its unknown token",
    "bad_link": "rows of a list of links that are not a URL and a number of votes, skipped",
    "bad_record": "web pages that cannot be read, dropped",
    "extraction_failed": "web pages whose text could not be extracted, dropped",
    "bad_quotes": "rows with unclosed or undoubled quotes, read literally",
    "repeated_key": "examples with the name of another example, renamed",
    "moved_span": "answers that are not at their stated position, taken from the nearest occurrence",
    "several_spans": "answers that occur more than once in a passage, without a stated position: the first is used",
    "broken_tags": "tags that continue an entity without a start, changed to a start",
    "bad_triple": "rows that are not a head, a relation and a tail, dropped",
    "other_language": "edges of another language than the requested one, dropped",
    "no_name": "identifiers without a label in a file of names, ignored",
    "not_names": "JSON files in a folder that hold no labels, skipped",
    "duplicate_edge": "edges that are given more than once, merged with their weights added",
    "missing_surface": "linked words that do not occur in their sentence, dropped",
    "unseen_label": "labels of a dev or test split that do not occur in training, so that no prediction can be right",
}
LEFT_OUT_OF_TRAINING = {
    "bad_json": "lines or elements that are not a JSON object",
    "bad_row": "rows whose number of fields is not the number of columns",
    "empty_text": "examples without text",
    "no_label": "examples without a label",
    "bad_number": "labels that are not a finite number",
    "bad_flag": "labels that are neither 0 nor 1",
    "bad_choice_label": "labels that are not one of the choices",
    "bad_choices": "examples whose number of choices differs from the others",
    "bad_tags": "sentences whose number of tags is not the number of words",
    "no_span": "answers that do not occur in their passage",
    "no_mention": "examples without a marked mention",
}
DESCRIPTIONS |= {kind: f"{examples}, dropped from training" for kind, examples in LEFT_OUT_OF_TRAINING.items()}
# A dev or test split keeps every example, because each one needs a prediction.
DESCRIPTIONS |= {f"kept_{kind}": f"{examples}, kept as they are" for kind, examples in LEFT_OUT_OF_TRAINING.items()}
DROPPED = (
    "not_json",
    "line_too_long",
    "no_text_column",
    "null_text",
    "text_not_string",
    "empty_document",
    "duplicate_document",
    "near_duplicate",
    "evaluation_text",
    "no_tokens",
    *LEFT_OUT_OF_TRAINING,
)
EXAMPLES_PER_KIND = 5
FILES_PER_KIND = 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """`count` problems of one kind in one file, the first of them at `place` ("line 12", "row 3", or "")."""

    kind: str
    file: str
    place: str = ""
    detail: str = ""
    count: int = 1


class Problems:
    """Counts problems, also by file for the first 1,000 files with problems of a kind."""

    def __init__(self, saved: dict | None = None):
        self._kinds: dict[str, dict] = saved or {}

    def add(self, problem: Problem) -> None:
        details = {"file": problem.file, "place": problem.place, "detail": problem.detail}
        example = {name: value for name, value in details.items() if value}
        self._add(problem.kind, problem.count, {problem.file: problem.count}, [example])

    def merge(self, other: "Problems") -> None:
        for kind, entry in other._kinds.items():
            self._add(kind, entry["count"], entry["files"], entry["examples"])

    def _add(self, kind: str, count: int, files: dict[str, int], examples: list[dict[str, str]]) -> None:
        description = DESCRIPTIONS[kind]
        entry = self._kinds.setdefault(kind, {"count": 0, "what": description, "files": {}, "examples": []})
        entry["count"] += count
        entry["examples"] += examples[: max(0, EXAMPLES_PER_KIND - len(entry["examples"]))]
        for file, num in files.items():
            if file in entry["files"] or len(entry["files"]) < FILES_PER_KIND:
                entry["files"][file] = entry["files"].get(file, 0) + num

    def count(self, kind: str) -> int:
        return self._kinds[kind]["count"] if kind in self._kinds else 0

    def most_frequent(self, *kinds: str) -> str:
        """The first example of the most frequent of `kinds`, as text; empty if none occurred."""
        kind = max(kinds, key=self.count)
        if not self.count(kind):
            return ""
        example = self._kinds[kind]["examples"][0]
        where = " ".join(filter(None, (example["file"], example.get("place"))))
        return f"{where}: {example.get('detail') or DESCRIPTIONS[kind]}"

    def to_dict(self) -> dict:
        return self._kinds


def problem_lines(problems: dict) -> list[str]:
    """`Problems.to_dict` as text, one line per kind: the count and the places of the first two."""
    lines = []
    for entry in problems.values():
        examples = entry["examples"][:2]
        places = [" ".join(filter(None, map(each.get, ("file", "place", "detail")))) for each in examples]
        lines.append(f"  note: {entry['what']}: {entry['count']:,} ({'; '.join(places)})")
    return lines
