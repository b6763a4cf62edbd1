"""Using an encoder: fill in masks, judge whether a sentence follows, find replaced words, compare how likely texts are,
turn texts into vectors.

model = hornbook.load("runs/first")
model.fill_mask("Paris is the [MASK] of France.")
model.detect("Paris is the apple of France.")                   # of an ELECTRA
model.embed(["a text", "another"], pooling="mean").shape        # (2, width)
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from hornbook.batch import Batch, pack
from hornbook.config import checked
from hornbook.infer.loaded import LoadedModel, grouped
from hornbook.infer.scoring import Score, masked_scores, next_token_scores
from hornbook.interop.folder import load_model
from hornbook.models.electra import GENERATOR
from hornbook.text.tokenizer import Tokenizer

NUM_MASKS = 10  # that are put at the end of a text without any


@dataclass(frozen=True)
class Guess:
    token: str  # as the vocabulary writes it
    word: str  # as a person reads it
    probability: float
    text: str  # the input with this mask filled in


@dataclass(frozen=True)
class JudgedWord:
    word: str
    start: int  # where it stands in the text
    stop: int
    probability: float  # that it was replaced


class EncoderModel(LoadedModel):
    """A model that reads both sides (or, with `direction=left`, one), with its tokenizer, ready to use."""

    def __init__(self, model: nn.Module, tokenizer: Tokenizer, folder: Path):
        super().__init__(model, tokenizer, folder)
        self._generator: nn.Module | None = None

    @torch.no_grad()
    def fill_mask(self, text: str, top: int = 5) -> list[list[Guess]]:
        """For each mask in the text, in order, the `top` most likely tokens. Write the mask as [MASK] or as the
        tokenizer's own mask token."""
        filler = self.mask_filler
        top = checked(top, int, "top", low=1)
        mask = self._mask_token
        text = text.replace("[MASK]", mask)
        encoded = self.tokenizer.encode(text)
        places = [i for i, token in enumerate(encoded.ids) if token == self.tokenizer.mask_id]
        if not places:
            raise ValueError(f"the text has no mask: put {mask} where a word is missing")
        batch = self._pack([encoded.ids], [encoded.segments])
        logits = filler.mlm_logits(filler(batch)[places])[:, : filler.config.vocab_size]
        # A model may have rows that no token of its vocabulary has: they take their share, but are no guess.
        probabilities = torch.softmax(logits.float(), -1)[:, : self.tokenizer.vocab_size]
        best = probabilities.topk(min(top, probabilities.shape[-1]))
        return [
            [
                self._guess(text, encoded.offsets[place], token, probability)
                for token, probability in zip(tokens, probabilities, strict=True)
            ]
            for place, tokens, probabilities in zip(places, best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    @property
    def _mask_token(self) -> str:
        if self.tokenizer.mask_token is None:
            raise ValueError(f"the tokenizer in {self.folder} has no mask token, which filling in masks needs")
        return self.tokenizer.mask_token

    @property
    def mask_filler(self) -> nn.Module:
        """This model or, beside a discriminator, the generator that it was trained with: only that read masks."""
        if self.model.family == "electra" and (folder := filler_folder(self.folder)) != Path(self.folder):
            if self._generator is None:
                self._generator = load_model(folder)
            return self._generator.to(self.device)
        if self.is_left_to_right:
            raise ValueError(
                f"{self.folder} has direction=left: it predicts next tokens and never saw a mask, so it cannot fill in "
                "any; compare texts by `score`, or use a model with direction=both"
            )
        self._needs("mlm", "filling in masks")
        return self.model

    @property
    def is_left_to_right(self) -> bool:
        return self.model.config.direction == "left"

    def generate(self, *_: object, **__: object) -> None:
        self._refuse_left_to_right("generate text")
        raise ValueError(
            f"{self.folder} is {self.model.in_words()}, which learned to fill gaps with both sides in view and not to "
            "go on with a text: use a GPT, or let it fill in masks one by one (--fill)"
        )

    def perplexity(self, *_: object, **__: object) -> None:
        self._refuse_left_to_right("measure perplexity")
        raise ValueError(
            f"{self.folder} is {self.model.in_words()}, which sees both sides of a token, so that its probabilities "
            "multiply to none of a text: use a GPT, or compare texts by `score`"
        )

    def _refuse_left_to_right(self, what: str) -> None:
        if self.is_left_to_right:
            raise ValueError(
                f"{self.folder} is {self.model.in_words()} with direction=left, made for tasks and for comparing texts "
                f"by `score`: use a GPT to {what}"
            )

    @torch.no_grad()
    def fill(self, text: str, num_masks: int = NUM_MASKS) -> str:
        """Fills in the masks of a text one by one from left to right, each with the likeliest token that is not
        special; in a text without any, so many masks at its end."""
        filler, mask = self.mask_filler, self._mask_token
        num_masks = checked(num_masks, int, "the number of masks", low=1, high=100_000)
        text = text.replace("[MASK]", mask)
        if mask not in text:
            text = " ".join([text, *[mask] * num_masks])
        encoded = self.tokenizer.encode(text)
        ids = list(encoded.ids)
        places = [i for i, token in enumerate(ids) if token == self.tokenizer.mask_id]
        never = [number for number in self.tokenizer.special_ids if number < self.tokenizer.vocab_size]
        for place in places:
            logits = filler.mlm_logits(filler(self._pack([ids], [encoded.segments]))[place : place + 1])
            logits = logits[0, : self.tokenizer.vocab_size].float()
            logits[never] = -torch.inf
            ids[place] = int(logits.argmax())
        return self.tokenizer.decode(ids)

    def score(self, texts: list[str] | str) -> list[Score]:
        """The pseudo-log-likelihood of each text: the log-probability of each of its tokens where it alone is masked.
        It compares texts, and is the probability of none, as every token is seen by the others. Of a left-to-right
        model: the log-probability of each token after those before it."""
        if self.is_left_to_right:
            return self._scored_left_to_right([texts] if isinstance(texts, str) else texts)
        filler = self.mask_filler
        assert self._mask_token
        found = []
        for text in [texts] if isinstance(texts, str) else texts:
            encoded = self.tokenizer.encode(text)
            self._check_length(len(encoded.ids))
            places = [i for i, word in enumerate(encoded.word_ids) if word is not None]
            scores = masked_scores(filler, encoded.ids, places, self.tokenizer.mask_id)
            found.append(Score(text, [self.tokenizer.token(encoded.ids[i]) for i in places], scores.tolist()))
        return found

    def _scored_left_to_right(self, texts: list[str]) -> list[Score]:
        self._needs("mlm", "scoring texts")
        encoded = [self.tokenizer.encode(text) for text in texts]
        self._check_length(max((len(each.ids) for each in encoded), default=0))
        scores = next_token_scores(self.model, [each.ids for each in encoded], self.model.config.max_positions)
        found = []
        for text, each, its in zip(texts, encoded, scores, strict=True):
            places = [i for i, word in enumerate(each.word_ids) if word is not None]
            tokens = [self.tokenizer.token(each.ids[i]) for i in places]
            found.append(Score(text, tokens, [float(its[i - 1]) for i in places]))
        return found

    @torch.no_grad()
    def detect(self, text: str) -> list[JudgedWord]:
        """Each word of the text with the probability that it was replaced: that of the piece that looks most so."""
        self._needs("rtd", "finding replaced words")
        encoded = self.tokenizer.encode(text)
        scores_T = self.model.rtd_logits(self.model(self._pack([encoded.ids], [encoded.segments])))
        found: dict[int, JudgedWord] = {}
        for number, (start, stop), score in zip(encoded.word_ids, encoded.offsets, scores_T.tolist(), strict=True):
            if number is None:
                continue
            start += len(text[start:stop]) - len(text[start:stop].lstrip())  # pieces may carry the space before them
            before = found.get(number, JudgedWord("", start, stop, 0.0))
            probability = max(before.probability, 1 / (1 + math.exp(-score)))
            found[number] = JudgedWord(text[before.start : stop], before.start, stop, probability)
        return [word for word in found.values() if word.word.strip()]

    def _guess(self, text: str, span: tuple[int, int], token: int, probability: float) -> Guess:
        piece = self.tokenizer.token(token)
        word = self.tokenizer.decode([token], skip_special=False).strip()
        before = text[: span[0]]
        if self.tokenizer.kind != "wordpiece":  # pieces carry the space before them
            before = before.rstrip() + (" " if before.strip() and piece.startswith(("Ġ", "▁")) else "")
        elif piece.startswith("##"):
            before, word = before.rstrip(), word.removeprefix("##")
        return Guess(piece, word, probability, before + word + text[span[1] :])

    @torch.no_grad()
    def next_sentence(self, first: str, second: str) -> float:
        """The probability that `second` follows `first`."""
        if self.is_left_to_right:
            raise ValueError(f"{self.folder} has direction=left: its [CLS] sees neither sentence; use direction=both")
        for head in ("sentence", "pooler"):
            self._needs(head, "judging whether a sentence follows")
        encoded = self.tokenizer.encode(first, second)
        batch = self._pack([encoded.ids], [encoded.segments])
        cls_ND = self.model(batch)[batch.starts[:-1].long()]
        return float(torch.softmax(self.model.sentence_logits(cls_ND).float(), -1)[0, 0])

    @torch.no_grad()
    def embed(self, texts: list[str] | str, pooling: Literal["cls", "mean"] = "cls") -> np.ndarray:
        """One vector per text from the last layer: at `[CLS]` (of a left-to-right model at the last token), or the mean
        over its tokens. float32, texts x width.

        A text longer than the model takes is cut. One without any token, not even a special one, gets zeros.
        """
        if pooling not in ("cls", "mean"):
            raise ValueError(f"pooling must be cls or mean, not '{pooling}'")
        texts = [texts] if isinstance(texts, str) else list(texts)
        encoded = [self.tokenizer.encode(text) for text in texts]
        ids = [self._cut(each.ids) for each in encoded]
        vectors = np.zeros((len(texts), self.model.config.width), np.float32)
        # Longest first, so that what is grouped together is alike in length.
        order = sorted((i for i in range(len(texts)) if ids[i]), key=lambda i: -len(ids[i]))
        for group in grouped(order, [len(each) for each in ids]):
            batch = self._pack([ids[i] for i in group], None)
            x_TD = self.model(batch)
            vectors[group] = self._pooled(x_TD, batch, pooling).float().cpu().numpy()
        return vectors

    def _pooled(self, x_TD: Tensor, batch: Batch, pooling: str) -> Tensor:
        if pooling == "cls":
            return x_TD[self.model.sequence_tokens(x_TD, batch)]
        lengths = (batch.starts[1:] - batch.starts[:-1]).long()
        return torch.segment_reduce(x_TD.float(), "mean", lengths=lengths)

    def _cut(self, ids: list[int]) -> list[int]:
        """A text longer than the model keeps its start and its last special token."""
        limit = self.model.config.max_positions
        return ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]]

    def _check_length(self, longest: int) -> None:
        limit = self.model.config.max_positions
        if longest > limit:
            raise ValueError(f"the text has {longest} tokens, {longest - limit} more than this model takes ({limit})")

    def _pack(self, ids: list[list[int]], segments: list[list[int]] | None) -> Batch:
        self._check_length(max(map(len, ids)))
        as_arrays = [np.array(each, np.int64) for each in ids]
        kinds = None if segments is None else [np.array(each, np.int64) for each in segments]
        return pack(as_arrays, kinds).to(self.device)


def filler_folder(folder: Path | str) -> Path:
    """The folder of what fills in masks: an ELECTRA's generator, where one stands beside it, or the model itself."""
    generator = Path(folder) / GENERATOR
    return generator if generator.is_dir() else Path(folder)
