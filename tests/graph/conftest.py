"""A small graph of everyday things, in a folder: do not write into it."""

from pathlib import Path

import pytest

from hornbook.graph.build import build_graph
from hornbook.graph.graph import Graph

FACTS = """head\trelation\ttail\tweight
plant\tAtLocation\tgarden\t3
trowel\tUsedFor\tgarden\t2
trowel\tIsA\ttool\t1
tool\tAtLocation\tgarage\t1
plant\tIsA\tliving thing\t1
garden\tPartOf\tgarden\t1
trowel\tUsedFor\tgarden\t2
plant\tNeeds\twater
water\tAtLocation\tgarden\t1
building site\tAtLocation\tcity\t1
new york\tIsA\tcity\t1
new york city\tIsA\tcity\t4
땅\tIsA\t자연\t1
Café Müller\tAtLocation\tcity\t1
"""
NAMES = '{"moon": {"label": "moon", "aliases": ["Luna"]}}'


@pytest.fixture(scope="session")
def graph_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    (folder / "facts.tsv").write_text(FACTS, encoding="utf-8")
    (folder / "names.json").write_text(NAMES, encoding="utf-8")
    build_graph([folder / "facts.tsv", folder / "names.json"], folder / "graph")
    return folder / "graph"


@pytest.fixture(scope="session")
def graph(graph_folder) -> Graph:
    return Graph(graph_folder)
