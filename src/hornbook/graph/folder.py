"""The folder of a graph: its files, its manifest, and the checks when it is read.

entities.txt   identifiers, one per line                names.tsv   entity, name, prior of the name
relations.tsv  identifier and name of each relation
heads, kinds (relation ids), tails, weights, splits .npy   edges (E), sorted by head, relation, tail; splits if given
pairs.npy         int64, head * N + neighbour for every two entities (P) with an edge in either direction, sorted
pair_offsets.npy  where the pairs of each entity start (N + 1)
pair_edges.npy    the edges of each pair; ~edge where it is followed from tail to head
edge_offsets.npy  where the edges of each pair start (P + 1)
"""

from pathlib import Path

import numpy as np

from hornbook.config import checked
from hornbook.data.shards import MANIFEST, hash_of, refuse_changed, refuse_other_format
from hornbook.files import read_json, refusing_damage, replacing, sha256

FORMAT_VERSION = 1
ARRAYS = {
    "heads": np.int32,
    "kinds": np.int32,
    "tails": np.int32,
    "weights": np.float32,
    "splits": np.uint8,
    "pairs": np.int64,
    "pair_offsets": np.int64,
    "pair_edges": np.int32,
    "edge_offsets": np.int64,
}
TEXTS = ("entities.txt", "relations.tsv", "names.tsv")
FILES = (*TEXTS, *(f"{name}.npy" for name in ARRAYS))
REPAIR = "copy the graph again, or build it again into another folder"
NEEDED = "make a graph with 'hornbook graph build'"


def write_lines(path: Path, lines: list[str]) -> None:
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def file_hashes(folder: Path) -> dict[str, str]:
    return {name: sha256(folder / name) for name in FILES if (folder / name).exists()}


def read_manifest(folder: Path) -> dict:
    """The manifest of a graph; raises a `ValueError` if the folder holds none or if it is damaged."""
    file = folder / MANIFEST
    if not folder.exists():
        raise ValueError(f"there is no folder {folder}: {NEEDED}")
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file, not the folder of a graph: {NEEDED}")
    if not file.exists():
        raise ValueError(f"{folder} is not a graph: it has no {MANIFEST}; {NEEDED}")
    manifest = read_json(file)
    if manifest.get("kind") != "graph":
        raise ValueError(f"{folder} is not a graph: its {MANIFEST} describes something else; {NEEDED}")
    with refusing_damage(file, REPAIR):
        refuse_other_format(file, manifest, FORMAT_VERSION, "graph")
        for name in ("entities", "edges", "relations"):
            checked(manifest["totals"][name], int, name, low=1)
        if manifest["fingerprint"] != hash_of(manifest["sha256"]):
            raise ValueError("its fingerprint does not match the hashes of its files")
    return manifest


def verify(folder: Path, manifest: dict) -> None:
    for name, expected in manifest["sha256"].items():
        refuse_changed(folder / name, expected, REPAIR)
