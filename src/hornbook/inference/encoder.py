"""A loaded encoder: fill in masks, predict the next sentence, detect replaced words, score texts, embed texts.

model = hornbook.load("runs/first")
model.fill_mask("Paris is the [MASK] of France.")
model.detect("Paris is the apple of France.")                   # an ELECTRA
model.embed(["a text", "another"]).shape                        # (2, width)
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from hornbook.batch import Batch, length_batches, pack
from hornbook.config import checked
from hornbook.data.tokenizing import mention_tokens
from hornbook.graph.linking import EntitySpans, open_linker
from hornbook.inference.loaded_model import BATCH_TOKENS, LoadedModel, as_texts, which_text
from hornbook.inference.scoring import ContinuationScore, MaskedText, Score, masked_scores, next_token_scores
from hornbook.interop.folder import load_model
from hornbook.models.electra import GENERATOR
from hornbook.text.lemmas import whole_character
from hornbook.text.tokenizer import Encoded

NUM_MASKS = 10  # appended by `fill` to a text without masks


@dataclass(frozen=True)
class MaskPrediction:
    token: str  # as in the vocabulary
    word: str  # decoded
    probability: float
    text: str  # the input with this mask filled in


@dataclass(frozen=True)
class DetectedWord:
    word: str
    start: int  # character offsets in the text
    end: int
    probability: float


@dataclass(frozen=True)
class MaskProbabilities:
    """Shapes: K masks, V vocabulary."""

    text: str
    spans: list[tuple[int, int]]  # character offsets of the masks
    probabilities_KV: Tensor  # float32, on the CPU


class EncoderModel(LoadedModel):
    """A bidirectional model (or, with `direction=causal`, a left-to-right one) with its tokenizer, ready to use."""

    def fill_mask(
        self, text: str | Sequence[str], top_k: int = 5, graph: str | Path | None = None
    ) -> list[list[MaskPrediction]] | list[list[list[MaskPrediction]]]:
        """Returns the `top_k` most likely tokens of each mask in the text, in order; for several texts, a list of these
        lists. The mask is written as [MASK] or as the tokenizer's own mask token. An ERNIE reads the entities of its
        `graph` that the text mentions."""
        top_k = checked(top_k, int, "top_k", low=1)
        texts = as_texts(text, "text")
        mentions = None if graph is None else open_linker(graph, self.model).link(texts)
        predictions = []
        for masked in self.mask_probabilities(texts, mentions):
            best = masked.probabilities_KV.topk(min(top_k, masked.probabilities_KV.shape[-1]))
            masks = zip(masked.spans, best.indices.tolist(), best.values.tolist(), strict=True)
            predictions.append(
                [
                    [self._prediction(masked.text, span, *pair) for pair in zip(*pairs, strict=True)]
                    for span, *pairs in masks
                ]
            )
        return predictions[0] if isinstance(text, str) else predictions

    @torch.no_grad()
    def mask_probabilities(
        self, texts: Sequence[str], mentions: Sequence[EntitySpans] | None = None
    ) -> list[MaskProbabilities]:
        """Returns the probability of every token at each mask of each text. `mentions`: for an ERNIE, the entities
        that each text mentions; those without a vector are not read."""
        masked_lm, mask = self.masked_lm, self._mask_token
        texts = [text.replace("[MASK]", mask) for text in texts]
        encoded = [self._encode(text) for text in texts]
        positions = [self._mask_positions(each.ids) for each in encoded]
        for i, of_text in enumerate(positions):
            if not of_text:
                raise ValueError(f"{which_text(i, texts)} has no mask: write {mask} where a word is missing")
        results: dict[int, MaskProbabilities] = {}
        for indices, batch in self._batches(encoded, None if mentions is None else self._aligned(encoded, mentions)):
            x_TD = masked_lm(batch)
            for i, start in zip(indices, batch.offsets_host.tolist(), strict=False):
                rows = [start + position - masked_lm.mask_offset for position in positions[i]]
                logits_KV = masked_lm.vocabulary_logits(x_TD[rows])[:, : masked_lm.config.vocab_size].float()
                # Embedding rows without a token count in the softmax, but are not returned.
                probabilities_KV = torch.softmax(logits_KV, -1)[:, : self.tokenizer.vocab_size].cpu()
                spans = [encoded[i].offsets[position] for position in positions[i]]
                results[i] = MaskProbabilities(texts[i], spans, probabilities_KV)
        return [results[i] for i in range(len(texts))]

    def _mask_positions(self, ids: Sequence[int]) -> list[int]:
        return [i for i, token in enumerate(ids) if token == self.tokenizer.mask_id]

    def _encode(self, text: str) -> Encoded:
        return self.tokenizer.encode(text)

    @property
    def _mask_token(self) -> str:
        if self.tokenizer.mask_token is None:
            raise ValueError(f"the tokenizer in {self.name} has no mask token, so the model cannot fill in masks")
        return self.tokenizer.mask_token

    @property
    def _mask_id(self) -> int:
        return self.tokenizer.backend.token_to_id(self._mask_token)

    @property
    def masked_lm(self) -> nn.Module:
        """The model that fills in masks: this one or, for an ELECTRA discriminator, its generator."""
        if self._generator is not None:
            return self._generator.to(self.device)
        if self.is_left_to_right:
            raise ValueError(
                f"{self.name} has direction=causal: it predicts next tokens and was not trained on masks; use "
                "`score` to compare texts, or a model with direction=bidirectional"
            )
        self._require_head("mlm", "filling in masks")
        return self.model

    @cached_property
    def _generator(self) -> nn.Module | None:
        if self.model.model_type != "electra" or (folder := masked_lm_folder(self.folder)) == Path(self.folder):
            return None
        return load_model(folder)

    @property
    def is_left_to_right(self) -> bool:
        """Whether each token attends only to those before it (`direction=causal`)."""
        return self.model.config.direction == "causal"

    def generate(self, *_: object, **__: object) -> None:
        """Raises a `ValueError`: only a GPT generates text."""
        self._refuse_left_to_right("generate text")
        raise ValueError(
            f"{self.name} is {self.model.described()}, which is bidirectional and cannot generate text: use a GPT, "
            "or fill in masks one by one with model.fill(text)"
        )

    def perplexity(self, *_: object, **__: object) -> None:
        """Raises a `ValueError`: only a GPT has a perplexity."""
        self._refuse_left_to_right("measure perplexity")
        raise ValueError(
            f"{self.name} is {self.model.described()}, which is bidirectional, so its token probabilities do not "
            "multiply to the probability of a text: use a GPT, or `score` to compare texts"
        )

    def _refuse_left_to_right(self, purpose: str) -> None:
        if self.is_left_to_right:
            raise ValueError(
                f"{self.name} is {self.model.described()} with direction=causal, which supports tasks and `score` "
                f"only: use a GPT to {purpose}"
            )

    @torch.no_grad()
    def fill(self, text: str, num_masks: int = NUM_MASKS) -> str:
        """Fills in the masks of a text one by one from left to right, each with the most likely token that is not
        special. To a text without masks, `num_masks` masks are appended."""
        masked_lm, mask = self.masked_lm, self._mask_token
        num_masks = checked(num_masks, int, "the number of masks", low=1, high=100_000)
        text = text.replace("[MASK]", mask)
        if mask not in text:
            text = " ".join([text, *[mask] * num_masks])
        encoded = self._encode(text)
        self._check_lengths([encoded])
        ids = list(encoded.ids)
        special = [token for token in self.tokenizer.special_ids if token < self.tokenizer.vocab_size]
        for position in self._mask_positions(ids):
            x_TD = masked_lm(self._pack([ids], [encoded.segments]))
            logits = masked_lm.vocabulary_logits(x_TD[[position - masked_lm.mask_offset]])[0].float()
            logits = logits[: self.tokenizer.vocab_size]
            logits[special] = -torch.inf
            ids[position] = int(logits.argmax())
        return self.tokenizer.decode(ids)

    def score(
        self, texts: Sequence[str] | str, within_word: bool = False, on_progress: Callable[[int], None] | None = None
    ) -> list[Score]:
        """Returns the pseudo-log-likelihood of each text: the log-probability of each token when only that token is
        masked or, with `within_word`, also the tokens after it of the same word (Kauf and Ivanova 2023, arXiv
        2305.10588). It ranks texts but is not the log-probability of a text. For a left-to-right model: the
        log-probability of each token given those before it. `on_progress` is called with the number of texts done."""
        texts = as_texts(texts)
        encoded = [self._encode(text) for text in texts]
        self._check_lengths(encoded)
        words = [np.array([-1 if word is None else word for word in each.word_ids]) for each in encoded]
        positions = [np.flatnonzero(word_ids >= 0) for word_ids in words]
        if self.is_left_to_right:
            self._require_head("mlm", "scoring texts")
            positions = [where[where > 0] for where in positions]  # nothing precedes a first token
            scores = next_token_scores(self.model, [each.ids for each in encoded], self.model.config.max_positions)
            scores = [of_text[where - 1] for of_text, where in zip(scores, positions, strict=True)]
            if on_progress is not None:
                on_progress(len(texts))
        else:
            masked = [
                MaskedText(np.array(each.ids), where, word_ids[where] if within_word else None)
                for each, where, word_ids in zip(encoded, positions, words, strict=True)
            ]
            scores = masked_scores(self.masked_lm, masked, self._mask_id, on_progress)
        return [
            Score(text, [self.tokenizer.token(each.ids[i]) for i in where], of_text.tolist())
            for text, each, where, of_text in zip(texts, encoded, positions, scores, strict=True)
        ]

    def continuations(self, pairs: Sequence[tuple[str, str]]) -> list[ContinuationScore]:
        """The pseudo-log-likelihood of the second text of each (context, continuation) pair: each of its tokens is
        masked in turn and predicted from all others. The two are tokenized together; a token that spans both counts as
        part of the continuation."""
        encoded = [self._encode(context + text) for context, text in pairs]
        self._check_lengths(encoded)
        masked = []
        for (context, _), each in zip(pairs, encoded, strict=True):
            follows = [
                word is not None and end > len(context)
                for word, (_, end) in zip(each.word_ids, each.offsets, strict=True)
            ]
            masked.append(MaskedText(np.array(each.ids), np.flatnonzero(follows)))
        scores = masked_scores(self.masked_lm, masked, self._mask_id)
        return [ContinuationScore(each) for each in scores]

    def score_definition(self, within_word: bool = False) -> str:
        """Describes the log-probabilities of `score`."""
        if self.is_left_to_right:
            return "natural logarithm, each token given those before it"
        also = ", together with the later tokens of its word" if within_word else ""
        return f"pseudo-log-likelihood (natural logarithm): each token is masked in turn{also}"

    @torch.no_grad()
    def detect(self, text: str | Sequence[str]) -> list[DetectedWord] | list[list[DetectedWord]]:
        """Returns each word of the text with the probability that it was replaced: the maximum over its tokens. For
        several texts, a list of these lists."""
        self._require_head("rtd", "detecting replaced words")
        texts = as_texts(text, "text")
        encoded = [self.tokenizer.encode(each) for each in texts]
        words: dict[int, list[DetectedWord]] = {}
        for indices, batch in self._batches(encoded):
            logits = self.model.rtd(self.model(batch)).tolist()
            for i, start in zip(indices, batch.offsets_host.tolist(), strict=False):
                words[i] = _detected_words(texts[i], encoded[i], logits[start : start + len(encoded[i].ids)])
        return words[0] if isinstance(text, str) else [words[i] for i in range(len(texts))]

    def _prediction(self, text: str, span: tuple[int, int], token: int, probability: float) -> MaskPrediction:
        token_text = self.tokenizer.token(token)
        word = self.tokenizer.decode([token], skip_special=False).strip()
        before = text[: span[0]]
        if self.tokenizer.kind != "wordpiece":  # tokens include the space before them
            before = before.rstrip() + (" " if before.strip() and token_text.startswith(("Ġ", "▁")) else "")
        elif token_text.startswith("##"):
            before, word = before.rstrip(), word.removeprefix("##")
        return MaskPrediction(token_text, word, probability, before + word + text[span[1] :])

    @torch.no_grad()
    def next_sentence(self, first: str, second: str) -> float:
        """Returns the probability that `second` follows `first` (BERT's next-sentence prediction)."""
        if self.is_left_to_right:
            raise ValueError(
                f"{self.name} has direction=causal, so its [CLS] attends to neither sentence: use a model with "
                "direction=bidirectional"
            )
        for head in ("sentence", "pooler"):
            self._require_head(head, "next-sentence prediction")
        encoded = self.tokenizer.encode(first, second)
        self._check_lengths([encoded])
        batch = self._pack([encoded.ids], [encoded.segments])
        cls_ND = self.model(batch)[batch.offsets[:-1].long()]
        return float(torch.softmax(self.model.sentence_logits(cls_ND).float(), -1)[0, 0])

    def _check_lengths(self, encoded: Sequence[Encoded]) -> None:
        limit = self.model.config.max_positions
        for i, length in enumerate(len(each.ids) for each in encoded):
            if length > limit:
                raise ValueError(
                    f"{which_text(i, encoded)} has {length} tokens, {length - limit} more than the model's maximum of "
                    f"{limit}: shorten it"
                )

    def _batches(
        self, encoded: Sequence[Encoded], entities: list[tuple[np.ndarray, np.ndarray]] | None = None
    ) -> Iterator[tuple[list[int], Batch]]:
        """Yields the indices of texts of similar length, and their batch."""
        self._check_lengths(encoded)
        for indices in length_batches({i: len(each.ids) for i, each in enumerate(encoded)}, BATCH_TOKENS):
            of_batch = None if entities is None else [entities[i] for i in indices]
            ids, segments = [encoded[i].ids for i in indices], [encoded[i].segments for i in indices]
            yield indices, self._pack(ids, segments, of_batch)

    def _pack(
        self,
        ids: list[list[int]],
        segments: list[list[int]],
        entities: list[tuple[np.ndarray, np.ndarray]] | None = None,
    ) -> Batch:
        return pack(ids, segments, entities=entities).to(self.device)

    def _aligned(
        self, encoded: Sequence[Encoded], mentions: Sequence[EntitySpans]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """(positions, entities) of each text, without the entities that have no vector."""
        has_vector = self.model.has_vector
        return [
            mention_tokens(np.array(each.offsets), [mention for mention in of_text if has_vector[mention[2]]])
            for each, of_text in zip(encoded, mentions, strict=True)
        ]


class HybridEncoder(EncoderModel):
    """A hybrid GPT, read in both directions: a text follows the end-of-text token, and a masked token is predicted at
    the position before it."""

    def _encode(self, text: str) -> Encoded:
        encoded, start = self.tokenizer.encode(text), self.model.config.eos_id
        return Encoded(
            [start, *encoded.ids], [0, *encoded.segments], [(0, 0), *encoded.offsets], [None, *encoded.word_ids]
        )

    @property
    def masked_lm(self) -> nn.Module:
        self._require_head("clm", "filling in masks")
        return self.model


def _detected_words(text: str, encoded: Encoded, logits: list[float]) -> list[DetectedWord]:
    words: dict[int, DetectedWord] = {}
    for word_id, (start, end), logit in zip(encoded.word_ids, encoded.offsets, logits, strict=True):
        if word_id is None:
            continue
        start += len(text[start:end]) - len(text[start:end].lstrip())  # tokens may include the space before them
        end = whole_character(text, end) if end > start else end
        before = words.get(word_id, DetectedWord("", start, end, 0.0))
        probability = max(before.probability, 1 / (1 + math.exp(-logit)))
        words[word_id] = DetectedWord(text[before.start : end], before.start, end, probability)
    return [word for word in words.values() if word.word.strip()]


def mark_words(text: str, words: Sequence[DetectedWord]) -> str:
    """The text with these words, in the order of the text, in brackets.

    >>> mark_words("open two the public", [DetectedWord("two", 5, 8, 0.9)])
    'open [two] the public'
    """
    for word in reversed(words):
        text = f"{text[: word.start]}[{text[word.start : word.end]}]{text[word.end :]}"
    return text


def masked_lm_folder(folder: Path | str) -> Path:
    """Returns the folder of the model that fills in masks: an ELECTRA's generator, if there is one, or the folder."""
    generator = Path(folder) / GENERATOR
    return generator if generator.is_dir() else Path(folder)
