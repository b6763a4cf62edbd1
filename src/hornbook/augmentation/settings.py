"""The settings of augmentation, with the published values (TinyBERT, Jiao et al. 2019, arXiv 1909.10351)."""

from dataclasses import dataclass

from hornbook.config import Typed, setting


@dataclass(frozen=True)
class AugmentationSettings(Typed, group="augment"):
    copies: int = setting(
        0, "changed copies of each training text; published: 20, of small sets 30, of large ones 10", low=0, high=10_000
    )
    share: float = setting(0.4, "how likely a word of a copy is replaced", above=0, high=1)
    candidates: int = setting(15, "likeliest or nearest words that a replacement is drawn from", low=1, high=100_000)
    model: str | None = setting(
        None, "a model that fills in masked words; none: the one that was fine-tuned, before its fine-tuning"
    )
    vectors: str | None = setting(
        None, "a text file of word vectors for words of several pieces; none: the embeddings of the model"
    )
    beside: bool = setting(True, "the whole text stands beside the one with the mask, as in TinyBERT's code")
