"""Settings of reasoning over a knowledge graph."""

from dataclasses import dataclass
from typing import Literal

from hornbook.config import ValidatedSettings, setting

Method = Literal["kagnet"]
Control = Literal["none", "shuffled-graph", "random-vectors"]


@dataclass(frozen=True)
class KagnetSettings(ValidatedSettings, group="reason"):
    """The defaults are KagNet's (Lin et al. 2019, arXiv 1909.02151), except for the numbers of paths and pairs, which
    it does not limit."""

    method: Method | None = setting(None, "how paths of a knowledge graph are read: kagnet; none: they are not")
    graph: str | None = setting(None, "folder of the graph")
    vectors: str | None = setting(None, "folder of its vectors; none: fixed random vectors, and paths are not scored")
    hops: int = setting(2, "largest number of edges of a path", low=1, high=4)
    paths: int = setting(8, "largest number of paths of a pair of concepts", low=1, high=1000)
    pairs: int = setting(
        16, "largest number of pairs of concepts of a question and one of its answers", low=1, high=1000
    )
    min_score: float = setting(0.15, "least score of a path, if there are vectors", low=0, high=1)
    width: int = setting(128, "width of the vectors of paths and pairs", low=1, high=100_000)
    convolution: bool = setting(True, "graph convolution; false: only the vectors of concepts")
    lstm: bool = setting(True, "LSTM over paths; false: the mean of their steps")
    attention: bool = setting(True, "attention over paths and pairs; false: their mean")
    control: Control = setting("none", "shuffled-graph or random-vectors: the same network without the knowledge")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method is not None and self.graph is None:
            raise ValueError(f"reason={self.method!r} needs a graph: give graph=, from 'hornbook graph build'")
        if self.method is None and (self.graph or self.vectors):
            argument = "graph=" if self.graph else "vectors="
            raise ValueError(f"{argument} has no effect without reason=: add reason='kagnet', or leave it out")
