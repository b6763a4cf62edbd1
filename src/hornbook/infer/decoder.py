"""Using a GPT: go on with texts, say how likely they are, measure its perplexity.

model = hornbook.load("runs/gpt")
model.generate("Once upon a time", max_tokens=50, top_p=0.9)[0].text
model.score(["a likely text", "unlikely a text"])[0].total
model.perplexity("book.txt").per_word
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np

from hornbook.config import checked
from hornbook.data.corpus import Corpus
from hornbook.data.problems import Problems
from hornbook.data.readers import DocumentsAre, check_documents, read_documents
from hornbook.infer.beams import BeamSettings, beam_search
from hornbook.infer.generation import MAX_TOKENS, Generated, OnToken, Request, generate
from hornbook.infer.loaded import LoadedModel
from hornbook.infer.ngrams import ORDER, NGrams
from hornbook.infer.sampling import Sampling
from hornbook.infer.scoring import (
    Continuation,
    Perplexity,
    Score,
    check_stride,
    continuation_scores,
    measured,
    next_token_scores,
)
from hornbook.infer.writing import Writer


class DecoderModel(LoadedModel):
    """A model that reads from left to right, with its tokenizer, ready to use."""

    @property
    def end_id(self) -> int | None:
        """The token that ends a text, and that a text begins after. Some folders name one that they do not have."""
        end_id = self.model.config.end_id
        return end_id if end_id is not None and end_id < self.model.config.vocab_size else None

    def generate(
        self,
        prompts: str | Sequence[str],
        max_tokens: int = MAX_TOKENS,
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float = 1.0,
        beams: int = 1,
        length_penalty: float = 1.0,
        early_stopping: bool = False,
        stop: str | Sequence[str] = (),
        seed: int = 0,
        num: int = 1,
        slide: bool = False,
        not_first: Collection[int] = (),
        on_token: OnToken | None = None,
    ) -> list[Generated] | list[list[Generated]]:
        """What follows a prompt, `num` times; for several prompts a list of that for each.

        `temperature` is 1, or 0 for the likeliest token each time; `top_k` and `top_p` draw from the likeliest tokens
        only. `beams` above 1 search for the likeliest text instead, and draw nothing. `on_token` is called with (number
        of the prompt, number of the sample, piece of text) while it is written; of beams, when they are done.

        A text ends with the model's end-of-text token, before the first of the `stop` strings, after `max_tokens`, or
        where the context is full. With `slide` it leaves the first half of a full context behind and goes on, and a
        prompt that is too long loses its beginning; without, such a prompt is a `ValueError`. No text begins with one
        of the tokens `not_first`.
        """
        self._needs("clm", "going on with a text")
        if beams > 1 and temperature:
            raise ValueError(f"beams search and draw nothing: leave temperature={temperature:g} out, or beams")
        usual = 0.0 if beams > 1 else 1.0
        sampling = Sampling(usual if temperature is None else temperature, top_k, top_p, repetition_penalty)
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        if beams > 1 and not_first:
            raise ValueError("beams begin with any token: leave not_first out, or beams")
        request = Request(max_tokens, sampling, stops, seed, num, slide, frozenset(not_first))
        if num > 1 and sampling.is_greedy and beams == 1:
            raise ValueError("temperature 0 writes the same text every time: ask for one, or set a temperature")
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        ids = [pieces.ids or self._start for pieces in self.tokenizer.encode_batch(texts)]
        settings = BeamSettings(beams, length_penalty, early_stopping)
        around = (lambda prompt: Writer(self.tokenizer, prompt, stops), self.end_id, self.tokenizer.vocab_size)
        if beams > 1:
            found = beam_search(self.model, ids, request, settings, *around)
            if on_token is not None:
                for number, its in enumerate(found):
                    for sample, each in enumerate(its):
                        on_token(number, sample, each.text)
        else:
            found = generate(self.model, ids, request, *around, on_token)
        return found[0] if isinstance(prompts, str) else found

    @property
    def _start(self) -> list[int]:
        return [] if self.end_id is None else [self.end_id]

    def score(self, texts: str | Sequence[str]) -> list[Score]:
        """The log-probability of each text as the beginning of a document: of its first token after the end-of-text
        token, where the model has one, and of each later one given all before it. A text longer than the context is
        read in windows that overlap by half."""
        self._needs("clm", "scoring a text")
        texts = [texts] if isinstance(texts, str) else list(texts)
        ids = [self._start + pieces.ids for pieces in self.tokenizer.encode_batch(texts)]
        found = next_token_scores(self.model, ids, check_stride(None, self.model.config.max_positions))
        return [
            Score(text, [self.tokenizer.token(each) for each in its[1:]], scores.tolist())
            for text, its, scores in zip(texts, ids, found, strict=True)
        ]

    def continuations(
        self, pairs: Sequence[tuple[str, str]], progress: Callable[[int], None] | None = None
    ) -> list[Continuation]:
        """How likely the second text of each pair is behind the first. They are encoded together; a token that reaches
        from the one into the other counts to the second. An empty context is the beginning of a document."""
        self._needs("clm", "scoring a text")
        ids = [(context or self._start, text) for context, text in self.tokenizer.split_encode(pairs)]
        return continuation_scores(self.model, ids, progress)

    def perplexity(
        self,
        file: str | Path,
        stride: int | None = None,
        documents: DocumentsAre = "blank-line",
        progress: Callable[[int, int], None] | None = None,
        text_column: str | None = None,
        problems: Problems | None = None,
    ) -> Perplexity:
        """How well the model predicts a file (.txt, .jsonl, .parquet): per token, per word, and in bits per byte.

        Documents are apart, each after the end-of-text token; in a .txt, blank lines separate them, or the file is one.
        One longer than the context is read in windows that begin `stride` tokens apart, each token scored once, with at
        least context - stride tokens before it. `progress` gets (tokens done, tokens in all);
        what was wrong with the file, such as bytes that are not UTF-8, is added to `problems`.
        """
        self._needs("clm", "measuring perplexity")
        check_documents(documents)
        context = self.model.config.max_positions
        stride = check_stride(stride, context)
        texts, ids = self._read(file, documents, text_column, problems)
        ids = [[*self._start, *each.tolist()] for each in ids]
        num_tokens = sum(max(len(each) - 1, 0) for each in ids)
        if not num_tokens:
            raise ValueError(f"{file} holds no token that could be predicted: give a longer text")
        show = None if progress is None else lambda done: progress(done, num_tokens)
        scores = next_token_scores(self.model, ids, stride, show)
        return measured(texts, scores, self._definition(context, stride))

    def ngram_perplexity(
        self,
        file: str | Path,
        learned_from: str | Path,
        documents: DocumentsAre = "blank-line",
        order: int = ORDER,
        text_column: str | None = None,
    ) -> Perplexity:
        """The same measure of a baseline that knows no more than what follows `order` - 1 tokens: n-grams of the same
        tokens, learned from a corpus folder (without what it holds out) or a file of text. See `infer/ngrams.py`."""
        check_documents(documents)
        order = checked(order, int, "the order of n-grams", low=1, high=20)
        texts, ids = self._read(file, documents, text_column)
        is_corpus = Path(learned_from).is_dir()
        known = self._of_corpus(learned_from) if is_corpus else self._read(learned_from, documents, text_column)[1]
        scores = NGrams.trained(known, self.model.config.vocab_size, order).scores(ids)
        if not self._start:
            scores = [each[1:] for each in scores]
        definition = (
            f"{order}-grams of the same tokens, interpolated modified Kneser-Ney, learned from "
            f"{sum(map(len, known)):,} tokens of {learned_from}"
        )
        return measured(texts, scores, definition)

    def _read(
        self,
        file: str | Path,
        documents: DocumentsAre,
        text_column: str | None = None,
        problems: Problems | None = None,
    ) -> tuple[list[str], list[np.ndarray]]:
        """The documents of a file, and their tokens."""
        texts: list[str] = []
        for document in read_documents(file, text_column=text_column, documents=documents, problems=problems):
            if document.part:
                texts[-1] += document.text
            else:
                texts.append(document.text)
        encoded = self.tokenizer.encode_sentences(texts)
        return texts, np.split(encoded.ids, np.cumsum(encoded.lengths)[:-1])

    def _of_corpus(self, folder: str | Path) -> list[np.ndarray]:
        """The tokens of its documents that are not held out."""
        corpus = Corpus(folder)
        # A run's own puts nothing around a text, whatever the corpus's does, and a corpus holds no such tokens.
        if corpus.tokenizer.without_special_tokens().fingerprint != self.tokenizer.without_special_tokens().fingerprint:
            raise ValueError(
                f"{folder} was built with another tokenizer than {self.folder} has: build one with 'hornbook corpus "
                f"build TEXTS --tokenizer {self.folder}', or give a file of text"
            )
        found = []
        for number, shard in enumerate(corpus.shards):
            ends = np.asarray(shard.sentences, np.int64)[np.asarray(shard.documents, np.int64)]
            first = int(corpus.first_document[number])
            is_held_out = corpus.is_held_out(np.arange(first, first + len(ends) - 1))
            found += [shard.tokens[ends[i] : ends[i + 1]] for i in np.flatnonzero(~is_held_out)]
        return found

    def _definition(self, context: int, stride: int) -> str:
        first = (
            "first after the end-of-text token" if self._start else "without the first token, which nothing precedes"
        )
        return (
            f"p is the product over the tokens of each document, {first}, in windows of {context:,} tokens that begin "
            f"{stride:,} apart: each token once, with at least {context - stride:,} before it where there are as many; "
            "per token p^(-1/tokens), per word p^(-1/words between white space), bits per byte -log2(p) / bytes (UTF-8)"
        )

    def fill_mask(self, *_: object) -> None:
        self._refuse("fills in no masks: generate goes on with a text")

    def next_sentence(self, *_: object) -> None:
        self._refuse("has no head that judges whether a sentence follows: score both orders, and compare")

    def detect(self, *_: object) -> None:
        self._refuse("finds no replaced words, which an ELECTRA does: score says how likely each token is")

    def embed(self, *_: object, **__: object) -> None:
        self._refuse("has no vector of a whole text; hornbook.extract_features gives its hidden states")

    def _refuse(self, why: str) -> None:
        raise ValueError(f"{self.folder} is {self.model.in_words()}, which reads from left to right and {why}")
