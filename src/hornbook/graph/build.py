"""Builds a graph folder from files of triples, files of names and WordNet folders."""

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from hornbook import __version__
from hornbook.data.problems import Problem, Problems
from hornbook.data.shards import MANIFEST, write_array
from hornbook.data.sources import Source, format_of
from hornbook.files import hash_of, replacing, sha256, write_json
from hornbook.graph.graph import ARRAYS, FILES, FORMAT_VERSION, read_manifest
from hornbook.graph.triples import (
    COLUMNS,
    OPAQUE,
    READABLE,
    SPLITS,
    TRIPLE_SUFFIXES,
    Triples,
    is_names_file,
    read_file,
    split_of,
)
from hornbook.graph.wordnet import is_wordnet, read_wordnet
from hornbook.lifecycle.locking import run_lock
from hornbook.lifecycle.run_folder import OnCount, ignore
from hornbook.lifecycle.stopping import interruptible

MAX_ENTITIES = 2**31 - 1  # their numbers are stored as int32, and head * N + tail as int64


def build_graph(
    sources: Sequence[str | Path] | str | Path,
    out: str | Path,
    *,
    columns: Sequence[str] | None = None,
    language: str = "en",
    on_progress: OnCount = ignore,
) -> dict:
    """Builds the graph folder `out` from files of triples or names, folders of such files, and WordNet `dict` folders;
    returns its manifest.

    >>> import hornbook
    >>> hornbook.build_graph("facts.tsv", "another-graph")["totals"]["edges"]
    5

    `columns` is the order of the columns in tables without a header row (default: head, relation, tail, weight).
    `language` selects the edges of a ConceptNet 5 file ("" for all). A finished graph of the same sources is not built
    again: its manifest is returned at once, with `already_built` set.
    """
    out, began = Path(out), time.perf_counter()
    columns = _check_columns(columns)
    problems = Problems()
    folders, files = _find(sources, problems)
    read_files = [*files, *(str(path) for folder in folders for path in sorted(Path(folder).glob("*.*")))]
    request = {
        "sources": [asdict(Source.from_path(path)) for path in read_files],
        "settings": {"columns": list(columns) if columns else None, "language": language},
    }
    with run_lock(out), interruptible():
        if manifest := _already_built(out, request):
            return {**manifest, "already_built": True}
        _refuse_foreign(out)
        triples = Triples(problems)
        for folder in folders:
            read_wordnet(Path(folder), triples, on_progress)
        for path in files:
            read_file(path, triples, columns, language, on_progress)
        if not triples.heads:
            kinds = ("bad_triple", "unreadable", "not_json", "other_language", "empty_file", "not_names")
            reason = problems.most_frequent(*kinds)
            raise ValueError(
                f"no triple could be read ({reason or 'the files are empty'}): check the files or columns="
            )
        on_progress("writing", len(triples.heads))
        totals = _write(out, triples)
        hashes = {name: sha256(out / name) for name in FILES if (out / name).exists()}
        manifest = {
            "kind": "graph",
            "format_version": FORMAT_VERSION,
            "hornbook_version": __version__,
            "fingerprint": hash_of(hashes),
            "totals": totals,
            "seconds": round(time.perf_counter() - began, 3),
            "problems": problems.to_dict(),
            "sha256": hashes,
            **request,
        }
        write_json(out / MANIFEST, manifest)
        return manifest


def _check_columns(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    if columns is None:
        return None
    columns = tuple(column.strip().lower() for column in columns)
    if not set(COLUMNS[:3]) <= set(columns) or len(set(columns)) < len(columns):
        raise ValueError(
            f"columns= must name head, relation and tail once each, as in relation,head,tail, not {','.join(columns)}"
        )
    return columns


def _find(sources: Sequence[str | Path] | str | Path, problems: Problems) -> tuple[list[str], list[str]]:
    """(WordNet folders, files): triples first, so that names are known to belong to a relation or an entity."""
    paths = [sources] if isinstance(sources, str | Path) else list(sources)
    if not paths:
        raise ValueError("no sources: give at least one file of triples or a WordNet folder")
    folders, files = [], []
    for path in (os.path.normpath(path) for path in paths):
        if not os.path.exists(path):
            raise ValueError(f"{path} does not exist: check the spelling")
        if not os.path.isdir(path):
            if not _is_readable(path):
                raise ValueError(f"{path} has an unknown extension: give {READABLE}")
            files.append(path)
        elif is_wordnet(Path(path)) or is_wordnet(Path(path) / "dict"):
            folders.append(path if is_wordnet(Path(path)) else os.path.join(path, "dict"))
        else:
            files += _files_in(path, problems)
    if not folders and not files:
        raise ValueError(f"no triples in {', '.join(map(str, paths))}: give {READABLE}")
    return folders, sorted(files, key=lambda path: path.lower().endswith(".json"))


def _is_readable(path: str) -> bool:
    return format_of(path, TRIPLE_SUFFIXES) is not None or path.lower().endswith(".json")


def _files_in(folder: str, problems: Problems) -> list[str]:
    """The readable files of a folder, those named train first, then valid and test."""
    readable = []
    for path in sorted(str(path) for path in Path(folder).iterdir() if path.is_file()):
        if not _is_readable(path):
            problems.add(Problem("unknown_extension", path))
        elif path.lower().endswith(".json") and not is_names_file(Path(path)):
            problems.add(Problem("not_names", path))
        else:
            readable.append(path)
    return sorted(readable, key=split_of)


def _already_built(out: Path, request: dict) -> dict | None:
    if not (out / MANIFEST).exists():
        return None
    manifest = read_manifest(out)
    if all(manifest.get(name) == value for name, value in request.items()):
        return manifest
    raise ValueError(
        f"{out} already holds a graph of other sources or options: remove the folder, or choose another one"
    )


def _refuse_foreign(out: Path) -> None:
    others = [path.name for path in out.iterdir() if path.name not in FILES and not path.name.endswith(".tmp")]
    if others:
        raise ValueError(f"{out} holds {min(others)}, which is not of a graph: choose another folder, or empty it")


def _write(out: Path, triples: Triples) -> dict:
    """Writes all files but the manifest; returns the totals."""
    num_entities = len(triples.entities)
    if num_entities > MAX_ENTITIES:
        raise ValueError(f"the graph has {num_entities:,} entities, but at most {MAX_ENTITIES:,} can be stored")
    edges = _merge_duplicates(triples)
    pairs = _adjacency(edges["heads"], edges["tails"], num_entities)
    degrees = np.diff(pairs["pair_offsets"])
    names = _names(triples, edges, num_entities)
    _write_lines(out / "entities.txt", triples.entities)
    relation_names = {each: triples.relation_names.get(each, each) for each in triples.relations}
    _write_lines(out / "relations.tsv", (f"{identifier}\t{name}" for identifier, name in relation_names.items()))
    _write_lines(out / "names.tsv", (f"{entity}\t{name}\t{prior:.6g}" for (entity, name), prior in names))
    for name, values in (edges | pairs).items():
        if name != "splits" or values.any():
            write_array(out / f"{name}.npy", values.astype(ARRAYS[name]))
        else:
            (out / "splits.npy").unlink(missing_ok=True)
    num_named = len({entity for (entity, _), _ in names})
    sizes = np.bincount(edges["splits"], minlength=len(SPLITS)).tolist()
    return {
        "entities": num_entities,
        "relations": len(triples.relations),
        "edges": len(edges["heads"]),
        "names": len(names),
        "entities_without_name": num_entities - num_named,
        "isolated_entities": int((degrees == 0).sum()),
        "splits": dict(zip(SPLITS, sizes, strict=True)) if edges["splits"].any() else None,
    }


def _merge_duplicates(triples: Triples) -> dict[str, np.ndarray]:
    """The edges sorted by head, relation and tail, each once. Weights of duplicates are added; a duplicate belongs to
    the first of its splits."""
    heads, relation_ids, tails = (
        np.frombuffer(each, np.int32) for each in (triples.heads, triples.relation_ids, triples.tails)
    )
    weights, splits = np.frombuffer(triples.weights, np.float32), np.frombuffer(triples.splits, np.int8)
    order = np.lexsort((splits, tails, relation_ids, heads))
    columns = np.stack([heads, relation_ids, tails])[:, order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (columns[:, 1:] != columns[:, :-1]).any(0)
    starts = np.flatnonzero(is_new)
    if num_duplicates := len(order) - len(starts):
        entities, relations = list(triples.entities), list(triples.relations)
        head, relation, tail = columns[:, np.flatnonzero(~is_new)[0]]
        edge = f"{entities[head]} {relations[relation]} {entities[tail]}"
        triples.problems.add(Problem("duplicate_edge", edge, count=num_duplicates))
    heads, relation_ids, tails = columns[:, starts]
    sums = np.add.reduceat(weights[order].astype(np.float64), starts)
    return {"heads": heads, "kinds": relation_ids, "tails": tails, "weights": sums, "splits": splits[order][starts]}


def _adjacency(heads: np.ndarray, tails: np.ndarray, num_entities: int) -> dict[str, np.ndarray]:
    """Adjacency in both directions: every two connected entities once each way, and their edges."""
    edges = np.arange(len(heads), dtype=np.int64)
    is_loop = heads == tails  # followed in one direction only
    sources = np.concatenate([heads, tails[~is_loop]]).astype(np.int64)
    targets = np.concatenate([tails, heads[~is_loop]]).astype(np.int64)
    keys = sources * num_entities + targets
    order = np.argsort(keys, kind="stable")
    pairs, starts = np.unique(keys[order], return_index=True)
    return {
        "pairs": pairs,
        "pair_offsets": np.searchsorted(pairs, np.arange(num_entities + 1, dtype=np.int64) * num_entities),
        "pair_edges": np.concatenate([edges, ~edges[~is_loop]])[order],
        "edge_offsets": np.concatenate([starts, [len(keys)]]),
    }


def _names(triples: Triples, edges: dict[str, np.ndarray], num_entities: int) -> list[tuple[tuple[int, str], float]]:
    """((entity, name), prior), sorted by entity, the likeliest name first. Entities without a name of their own are
    named by their identifier, unless these are codes such as Q42. The prior of a name is its weight times the total
    weight of the entity's edges, unless the source gives the prior, as WordNet does."""
    names = dict(triples.names)
    named = {entity for entity, _ in names}
    unnamed = [(entity, identifier) for identifier, entity in triples.entities.items() if entity not in named]
    is_code = [bool(OPAQUE.fullmatch(identifier)) for _, identifier in unnamed]
    has_codes = sum(is_code) > len(unnamed) / 2  # in a graph of words, a number is a word too
    names |= {each: 1.0 for each, code in zip(unnamed, is_code, strict=True) if not (code and has_codes)}
    mass = np.ones(num_entities)
    for ends in (edges["heads"], edges["tails"]):
        mass += np.bincount(ends, np.abs(edges["weights"]), num_entities)
    names = {key: weight * mass[key[0]] for key, weight in names.items()} | triples.priors
    return sorted(names.items(), key=lambda each: (each[0][0], -each[1], each[0][1]))


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
