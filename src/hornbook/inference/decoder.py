"""A loaded GPT: generate text, score texts, measure perplexity.

model = hornbook.load("runs/gpt")
model.generate("Once upon a time", max_new_tokens=50, top_p=0.9)[0].text
model.score(["a likely text", "unlikely a text"])[0].total
model.perplexity("book.txt").per_word
"""

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hornbook.config import checked
from hornbook.data.corpus import Corpus
from hornbook.data.problems import Problems
from hornbook.data.readers import DocumentBoundary, read_documents
from hornbook.inference.beams import BeamSettings, beam_search
from hornbook.inference.encoder import HybridEncoder
from hornbook.inference.generation import MAX_NEW_TOKENS, Generated, GenerationConfig, OnText, generate
from hornbook.inference.loaded_model import LoadedModel, as_texts
from hornbook.inference.ngrams import COPIED, ORDER, NGrams
from hornbook.inference.scoring import (
    ContinuationScore,
    Perplexity,
    Score,
    check_stride,
    continuation_scores,
    next_token_scores,
    perplexity_of,
)


class DecoderModel(LoadedModel):
    """A left-to-right model with its tokenizer, ready to use."""

    @property
    def eos_id(self) -> int | None:
        """The end-of-text token, which also precedes every text; None if the config has none or one out of range."""
        eos_id = self.model.config.eos_id
        return eos_id if eos_id is not None and eos_id < self.model.config.vocab_size else None

    def generate(
        self,
        prompts: str | Sequence[str],
        max_new_tokens: int = MAX_NEW_TOKENS,
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float = 1.0,
        num_beams: int = 1,
        length_penalty: float = 1.0,
        early_stopping: bool = False,
        stop_strings: str | Sequence[str] = (),
        seed: int = 0,
        num_return_sequences: int = 1,
        slide: bool = False,
        begin_suppress_tokens: Collection[int] = (),
        on_text: OnText | None = None,
    ) -> list[Generated] | list[list[Generated]]:
        """Returns `num_return_sequences` continuations of a prompt; for a list of prompts, a list of these lists.

        `temperature` defaults to 1; 0 is greedy decoding. `top_k` and `top_p` sample from the most likely tokens only.
        `num_beams` above 1 is beam search, without sampling. `on_text` is called with (index of the prompt, index of
        the sample, new text) during generation; with beams, at the end.

        A text ends with the model's end-of-text token, before the first of the `stop_strings`, after `max_new_tokens`,
        or when the context is full. With `slide`, generation drops the first half of a full context and continues, and
        a prompt longer than the context is truncated on the left; without it, such a prompt is a `ValueError`. No text
        starts with one of the tokens `begin_suppress_tokens`.
        """
        if num_beams > 1:
            sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
            if name := next((name for name, value in sampling.items() if value), None):
                raise ValueError(f"beam search does not sample: leave out {name}= or num_beams=")
            if begin_suppress_tokens:
                raise ValueError("beam search does not support begin_suppress_tokens: leave it out, or num_beams=")
        elif length_penalty != 1 or early_stopping:
            name = "early_stopping" if early_stopping else "length_penalty"
            raise ValueError(f"{name}= is for beam search: leave it out, or set num_beams= above 1")
        config = GenerationConfig(
            max_new_tokens=max_new_tokens,
            temperature=1.0 if num_beams > 1 or temperature is None else temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            stop_strings=(stop_strings,) if isinstance(stop_strings, str) else tuple(stop_strings),
            seed=seed,
            num_return_sequences=num_return_sequences,
            slide=slide,
            begin_suppress_tokens=frozenset(begin_suppress_tokens),
        )
        ids = self.prompt_ids(as_texts(prompts, "prompts"))
        beam_settings = BeamSettings(num_beams, length_penalty, early_stopping)
        if num_beams > 1:
            generated = beam_search(self.model, self.tokenizer, ids, config, beam_settings, self.eos_id)
            if on_text is not None:
                for i, samples in enumerate(generated):
                    for sample, text in enumerate(samples):
                        on_text(i, sample, text.text)
        else:
            generated = generate(self.model, self.tokenizer, ids, config, self.eos_id, on_text)
        return generated[0] if isinstance(prompts, str) else generated

    def prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        """The token ids of prompts; an empty one is the end-of-text token, where the model has one."""
        self._require_head("clm", "text generation")
        return [encoded.ids or self._start for encoded in self.tokenizer.encode_batch(list(prompts))]

    @property
    def _start(self) -> list[int]:
        return [] if self.eos_id is None else [self.eos_id]

    def score(
        self, texts: str | Sequence[str], within_word: bool = False, on_progress: Callable[[int], None] | None = None
    ) -> list[Score]:
        """Returns the log-probability of each text as the beginning of a document: the first token given the
        end-of-text token (where the model has one), each later token given all tokens before it. A text longer than
        the context is scored in windows that overlap by half. `within_word` is for encoders."""
        self._require_head("clm", "scoring texts")
        if within_word:
            raise ValueError(
                "within_word= is for encoders, which mask tokens; a GPT reads from left to right: leave it out"
            )
        texts = as_texts(texts)
        ids = [self._start + encoded.ids for encoded in self.tokenizer.encode_batch(texts)]
        scores = next_token_scores(self.model, ids, check_stride(None, self.model.config.max_positions))
        if on_progress is not None:
            on_progress(len(texts))
        return [
            Score(text, [self.tokenizer.token(token) for token in of_text[1:]], log_probabilities.tolist())
            for text, of_text, log_probabilities in zip(texts, ids, scores, strict=True)
        ]

    def score_definition(self, within_word: bool = False) -> str:
        """Describes the log-probabilities of `score`."""
        return "natural logarithm, each token given those before it"

    def continuations(self, pairs: Sequence[tuple[str, str]]) -> list[ContinuationScore]:
        """Scores the second text of each (context, continuation) pair given the first. The two are tokenized together;
        a token that spans both counts as part of the continuation. An empty context is the beginning of a document."""
        self._require_head("clm", "scoring texts")
        ids = [(context or self._start, text) for context, text in self.tokenizer.split_encode(pairs)]
        return continuation_scores(self.model, ids)

    def perplexity(
        self,
        file: str | Path,
        stride: int | None = None,
        documents: DocumentBoundary = "blank-line",
        on_progress: Callable[[int, int], None] | None = None,
        text_column: str | None = None,
        problems: Problems | None = None,
    ) -> Perplexity:
        """Measures the perplexity per token and word, and the bits per byte, of a .txt, .jsonl, .csv, .tsv or .parquet.

        Documents are scored separately, each after the end-of-text token; in a .txt, blank lines separate documents, or
        the file is one document. A document longer than the context is scored in windows that start `stride` tokens
        apart: each token once, with at least context - stride tokens before it. `on_progress` is called with (tokens
        done, total tokens). Problems of the file, such as bytes that are not UTF-8, are added to `problems`.
        """
        self._require_head("clm", "measuring perplexity")
        context = self.model.config.max_positions
        stride = check_stride(stride, context)
        texts, ids = self._read(file, documents, text_column, problems)
        ids = [[*self._start, *each.tolist()] for each in ids]
        num_tokens = sum(max(len(each) - 1, 0) for each in ids)
        if not num_tokens:
            raise ValueError(f"{file} has no token to predict: give a longer text")
        show = None if on_progress is None else lambda done: on_progress(done, num_tokens)
        scores = next_token_scores(self.model, ids, stride, show)
        return perplexity_of(texts, scores, self._definition(context, stride))

    def ngram_perplexity(
        self,
        file: str | Path,
        learned_from: str | Path,
        documents: DocumentBoundary = "blank-line",
        order: int = ORDER,
        text_column: str | None = None,
    ) -> Perplexity:
        """Measures the perplexity of an n-gram baseline over the same tokens, trained on a corpus folder (without its
        held-out documents) or a text file. See `inference/ngrams.py`."""
        order = checked(order, int, "the order of n-grams", low=1, high=20)
        texts, ids = self._read(file, documents, text_column)
        is_corpus = Path(learned_from).is_dir()
        train = (
            self._corpus_documents(learned_from) if is_corpus else self._read(learned_from, documents, text_column)[1]
        )
        ngrams = NGrams.train(train, self.model.config.vocab_size, order)
        scores = ngrams.scores(ids)
        if not self._start:
            scores = [each[1:] for each in scores]
        definition = (
            f"{order}-grams of the same tokens, interpolated modified Kneser-Ney, trained on "
            f"{sum(map(len, train)):,} tokens of {learned_from}"
        )
        if order >= ORDER and (known := ngrams.known_fraction(ids)) > COPIED:
            definition += f"; {known:.0%} of the {order}-grams of the text occur there: it is probably a part of it"
        return perplexity_of(texts, scores, definition)

    def _read(
        self,
        file: str | Path,
        documents: DocumentBoundary,
        text_column: str | None = None,
        problems: Problems | None = None,
    ) -> tuple[list[str], list[np.ndarray]]:
        """Returns the documents of a file and their token ids."""
        texts: list[str] = []
        for document in read_documents(file, text_column=text_column, documents=documents, problems=problems):
            if document.part:
                texts[-1] += document.text
            else:
                texts.append(document.text)
        encoded = self.tokenizer.encode_plain(texts)
        return texts, np.split(encoded.ids, np.cumsum(encoded.lengths)[:-1])

    def _corpus_documents(self, folder: str | Path) -> list[np.ndarray]:
        """Returns the token ids of the documents of a corpus that are not held out."""
        corpus = Corpus(folder)
        # Special tokens are ignored: a GPT's tokenizer adds none, and a corpus stores none.
        if corpus.tokenizer.without_special_tokens().fingerprint != self.tokenizer.without_special_tokens().fingerprint:
            raise ValueError(
                f"{folder} was built with a different tokenizer than that of {self.name}: build a corpus with "
                f"'hornbook corpus build TEXTS --tokenizer {self.folder}', or give a text file"
            )
        documents = []
        for shard_index, shard in enumerate(corpus.shards):
            offsets = np.asarray(shard.sentences, np.int64)[np.asarray(shard.documents, np.int64)]
            in_train = np.flatnonzero(~corpus.held_out_in(shard_index))
            documents += [shard.tokens[offsets[i] : offsets[i + 1]] for i in in_train]
        return documents

    def _definition(self, context: int, stride: int) -> str:
        first = "the first after the end-of-text token" if self._start else "except the first, which nothing precedes"
        return (
            f"p is the product over the tokens of each document, {first}, in windows of {context:,} tokens that start "
            f"{stride:,} apart: each token once, with at least {context - stride:,} tokens before it where there are "
            "as many; per token p^(-1/tokens), per word p^(-1/whitespace-separated words), bits per byte -log2(p) / "
            "bytes (UTF-8)"
        )

    @cached_property
    def encoder(self) -> HybridEncoder:
        """A hybrid model read in both directions, as an encoder with the same weights."""
        if not self.model.config.is_hybrid:
            self._refuse("was not trained on masked text (objective.mlm_fraction): it cannot be used as an encoder")
        return HybridEncoder(self.model.with_direction("bidirectional"), self.tokenizer, self.folder)

    def fill_mask(self, text: str | Sequence[str], top_k: int = 5, graph: str | Path | None = None) -> list:
        """The likeliest tokens of each mask, by a hybrid model; see `EncoderModel.fill_mask`."""
        if not self.model.config.is_hybrid:
            self._refuse("cannot fill in masks: use generate")
        return self.encoder.fill_mask(text, top_k, graph)

    def next_sentence(self, *_: object, **__: object) -> None:
        """Raises a `ValueError`: only an encoder pre-trained on sentence pairs judges them."""
        self._refuse("has no next-sentence head: compare the scores of both orders")

    def detect(self, *_: object, **__: object) -> None:
        """Raises a `ValueError`: only an ELECTRA detects replaced words."""
        self._refuse("cannot detect replaced words: use an ELECTRA, or score for the log-probability of each token")

    def embed(self, *arguments: Any, **options: Any) -> np.ndarray:
        """One vector per text, by a hybrid model; see `LoadedModel.embed`."""
        if not self.model.config.is_hybrid:
            self._refuse("has no vector for a whole text: use hornbook.extract_features for its hidden states")
        return self.encoder.embed(*arguments, **options)

    def _require_head(self, head: str, purpose: str) -> None:
        if self.model.config.direction == "bidirectional":
            raise ValueError(
                f"{self.name} was fine-tuned to read in both directions, which {purpose} does not do: use the "
                "pre-trained model, or fine-tune with task.direction=causal"
            )
        super()._require_head(head, purpose)

    def _refuse(self, why: str) -> None:
        raise ValueError(f"{self.name} is {self.model.described()}, which reads from left to right and {why}")
