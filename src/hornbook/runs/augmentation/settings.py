"""The settings of augmentation, with the published values (TinyBERT, Jiao et al. 2019, arXiv 1909.10351)."""

from dataclasses import dataclass

from hornbook.config import Typed, setting


@dataclass(frozen=True)
class AugmentationSettings(Typed, group="augment"):
    copies: int = setting(
        0, "augmented copies per training text (published: 20; small sets 30, large sets 10)", low=0, high=10_000
    )
    share: float = setting(0.4, "probability that a word is replaced in a copy", above=0, high=1)
    candidates: int = setting(
        15, "number of likeliest or nearest words that a replacement is drawn from", low=1, high=100_000
    )
    model: str | None = setting(
        None, "masked-language model that proposes words; none: the pre-trained model that the run fine-tunes"
    )
    vectors: str | None = setting(
        None, "text file of word vectors for words of several tokens; none: the token embeddings of the model"
    )
    beside: bool = setting(
        True, "add the unmasked text as a second segment when filling in masks, as in TinyBERT's code"
    )
