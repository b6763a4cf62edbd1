"""Steps common to all layouts: unique keys, tags in BIO, a held-out dev split, the list of labels."""

from dataclasses import replace

from hornbook.data.problems import LEFT_OUT_OF_TRAINING
from hornbook.tasks.datasets import KnownDataSet
from hornbook.tasks.kinds import KINDS
from hornbook.tasks.reading.notes import Notes
from hornbook.tasks.reading.split import FEWEST, hold_out
from hornbook.tasks.reading.texts import sorted_labels
from hornbook.tasks.records import SPLITS, DataSet, Example, Splits

REASONS = ("empty_file", "unreadable", *LEFT_OUT_OF_TRAINING)


def finished(entry: KnownDataSet, splits: Splits, notes: Notes, *, seed: int, held_out: float) -> DataSet:
    splits = {split: splits[split] for split in sorted(splits, key=_order)}
    if not any(splits.values()):
        reason = notes.problems.first(*REASONS) or ", ".join(notes.files)
        raise ValueError(f"no example could be read ({reason}): check the data")
    for split in [split for split in splits if not splits[split]]:
        notes.log(f"the {split} split has no examples and is ignored")
        del splits[split]
    splits, scheme = KINDS[entry.kind].prepared(splits, notes)
    splits = {split: _with_unique_keys(examples, split, notes) for split, examples in splits.items()}
    if held_out and "dev" not in splits and len(splits.get("train", ())) > 1:
        splits = _with_dev(splits, notes, seed, held_out)
    splits = KINDS[entry.kind].scorable(splits, notes)
    labels = _labels(entry, splits, scheme, notes) if KINDS[entry.kind].has_labels else ()
    return DataSet(
        kind=entry.kind,
        splits=splits,
        labels=labels,
        problems=notes.problems,
        messages=tuple(notes.messages),
        files=tuple(dict.fromkeys(notes.files)),
        scheme=scheme,
        roles=notes.roles,
        columns=tuple(notes.tables[0].columns) if notes.tables else (),
    )


def _order(split: str) -> tuple[int, str]:
    return (SPLITS.index(split.partition("-")[0]), split)


def _with_unique_keys(examples: list[Example], split: str, notes: Notes) -> list[Example]:
    """Examples with unique keys, as predictions are stored by key; repeated keys get a number."""
    if len({example.key for example in examples}) == len(examples):
        return examples
    seen: set[str] = set()
    found = []
    for example in examples:
        key, number = example.key, 2
        while key in seen:
            key, number = f"{example.key}#{number}", number + 1
        if key != example.key:
            notes.example_problem(
                "repeated_key", split, example.key, f"'{example.key}' occurs twice, renamed to '{key}'"
            )
            example = replace(example, key=key)
        seen.add(key)
        found.append(example)
    return found


def _with_dev(splits: Splits, notes: Notes, seed: int, share: float) -> Splits:
    if len(splits["train"]) < FEWEST and (skipped := notes.problems.first(*REASONS)):
        raise ValueError(
            f"only {len(splits['train'])} examples can be used, too few to hold some out; the rest were skipped "
            f"({skipped}): repair them, or give at least {FEWEST} rows"
        )
    train, dev, how = hold_out(splits["train"], share, seed)
    notes.log(f"no dev split: {len(dev)} of {len(train) + len(dev)} train examples were held out {how} (seed {seed})")
    return {"train": train, "dev": dev, **{split: each for split, each in splits.items() if split != "train"}}


def _labels(entry: KnownDataSet, splits: Splits, scheme: str, notes: Notes) -> tuple[str, ...]:
    """The labels of the training split, or of all splits if there is none; labels only in other splits are recorded as
    problems."""
    seen_in = ["train"] if splits.get("train") else list(splits)
    seen = {name for split in seen_in for example in splits[split] for name in example.label_names}
    if scheme not in ("", "plain"):
        types = sorted({name[2:] for name in seen if name != "O"})
        labels = ("O", *(f"{mark}-{name}" for name in types for mark in "BI"))
        seen = set(labels)
    else:
        labels = entry.labels if seen <= set(entry.labels) else sorted_labels(seen)
    for split in splits:
        for example in splits[split] if split not in seen_in else ():
            for name in example.label_names:
                if name not in seen:
                    notes.example_problem("unseen_label", split, example.key, f"'{name}' is not in train")
    return labels
