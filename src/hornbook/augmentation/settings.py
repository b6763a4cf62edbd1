"""The settings of augmentation, with the published values (TinyBERT, Jiao et al. 2019, arXiv 1909.10351)."""

from dataclasses import dataclass

from hornbook.config import setting


@dataclass(frozen=True)
class AugmentationSettings:
    copies: int = setting(0, "changed copies of each training text; published: 20, of small sets 30, of large ones 10")
    share: float = setting(0.4, "how likely a word of a copy is replaced")
    candidates: int = setting(15, "likeliest or nearest words that a replacement is drawn from")
    model: str | None = setting(
        None, "a model that fills in masked words; none: the one that was fine-tuned, before its fine-tuning"
    )
    vectors: str | None = setting(
        None, "a text file of word vectors for words of several pieces; none: the embeddings of the model"
    )
    beside: bool = setting(True, "the whole text stands beside the one with the mask, as in TinyBERT's code")

    def __post_init__(self) -> None:
        if self.copies < 0:
            raise ValueError(f"augment.copies (--augment) must be at least 0, not {self.copies}")
        if not 0 < self.share <= 1:
            raise ValueError(f"augment.share must be above 0 and at most 1, not {self.share:g}")
        if self.candidates < 1:
            raise ValueError(f"augment.candidates must be at least 1, not {self.candidates}")
