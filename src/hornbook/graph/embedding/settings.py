"""Settings of `hornbook graph embed`."""

from dataclasses import dataclass
from typing import Literal

from hornbook.config import LARGEST_SEED, MAX_COUNT, ValidatedSettings, setting

ModelName = Literal["transe", "distmult", "rotate"]
LossName = Literal["auto", "all", "sampled"]


@dataclass(frozen=True)
class GraphEmbeddingSettings(ValidatedSettings, group=""):
    """`loss=all` is the cross-entropy over all entities (1-to-all), `sampled` that of sampled negatives with
    self-adversarial weights (Sun et al. 2019, arXiv 1902.10197); `auto` is `all` for DistMult."""

    model: ModelName = setting("rotate", "transe, distmult or rotate")
    width: int = setting(200, "width of the entity vectors", low=2, high=10_000)
    epochs: int = setting(100, "passes over the training triples", low=1, high=MAX_COUNT)
    batch_size: int = setting(1024, "triples per step, in one direction", low=1, high=MAX_COUNT)
    lr: float = setting(0.1, "learning rate of Adagrad", above=0, high=100)
    loss: LossName = setting("auto", "all, sampled or auto")
    num_negatives: int = setting(128, "sampled negatives per step, shared by its triples", low=1, high=MAX_COUNT)
    margin: float = setting(9.0, "margin of the sampled loss", above=0, high=1000)
    temperature: float = setting(1.0, "of the self-adversarial weights; 0 weighs negatives equally", low=0, high=1000)
    n3_weight: float = setting(0.0, "weight of the cubed norm of the vectors used (N3), for loss=all", low=0, high=100)
    validate_every: int = setting(10, "epochs between validations", low=1, high=MAX_COUNT)
    seed: int = setting(0, "random seed", low=0, high=LARGEST_SEED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model == "rotate" and self.width % 2:
            raise ValueError(f"width must be even for rotate, whose vectors are complex, not {self.width}")

    @property
    def uses_all(self) -> bool:
        return self.loss == "all" or (self.loss == "auto" and self.model == "distmult")
