"""The predictions of several models for the masks of one text, such as those of a teacher and its student."""

from collections.abc import Sequence
from dataclasses import dataclass

from hornbook.inference.encoder import EncoderModel
from hornbook.text.equivalent_tokens import Surface, find_token, surface


@dataclass(frozen=True)
class ComparedToken:
    """A token, as the first model that predicts it writes it, and its probability under each model; None if the model's
    vocabulary has no single token for the same text."""

    token: str
    probabilities: list[float | None]


def compare_masks(models: Sequence[EncoderModel], text: str, top_k: int = 5) -> list[list[ComparedToken]]:
    """For each mask of the text, the `top_k` most likely tokens of every model, the most likely first. Tokens of
    different vocabularies are the same if they stand for the same text.

    >>> import hornbook
    >>> model = hornbook.load("runs/first")
    >>> [len(tokens) for tokens in compare_masks([model, model], "the [MASK] of the [MASK]", top_k=3)]
    [3, 3]
    """
    predictions = [model.fill_mask(text, top_k) for model in models]  # for each model, by mask
    if len({len(by_mask) for by_mask in predictions}) > 1:
        raise ValueError("the models read different numbers of masks in the text: write each mask as [MASK]")
    tokenizers = [model.tokenizer for model in models]
    distributions = [model.mask_probabilities([text])[0].probabilities_KV for model in models]
    masks = []
    for mask, by_model in enumerate(zip(*predictions, strict=True)):
        written: dict[Surface, str] = {}
        for tokenizer, best in zip(tokenizers, by_model, strict=True):
            for prediction in best:
                written.setdefault(surface(tokenizer, tokenizer.id(prediction.token)), prediction.token)
        tokens = []
        for wanted, token in written.items():
            ids = [find_token(tokenizer, wanted) for tokenizer in tokenizers]
            pairs = zip(ids, distributions, strict=True)
            probabilities = [None if i is None else float(distribution[mask, i]) for i, distribution in pairs]
            tokens.append(ComparedToken(token, probabilities))
        masks.append(sorted(tokens, key=lambda each: -max(p or 0.0 for p in each.probabilities)))
    return masks
