"""Augmented copies of labelled examples, as in TinyBERT (Jiao et al. 2019, arXiv 1909.10351, algorithm 1).

    hornbook.augment(["the old lamp fell"], "runs/first", copies=3)

Purely alphabetic words that are not stop words are replaceable, as in TinyBERT's code; words are the units of the
tokenizer's pre-tokenization. For a word that is one token, the candidates are the likeliest predictions of a
masked-language model at its position; for a word of several tokens they are the words with the nearest vectors. In
each copy, each word is replaced with probability 0.4 by one of its candidates. Copies equal to the text or to another
copy are dropped, so there may be fewer than requested.

Shapes: T tokens, K masked tokens (one per sequence), D hidden or vector size, V vocabulary or words with a vector, Q
query words.
"""

import contextlib
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from hornbook.batch import length_batches, pack
from hornbook.devices import device_of
from hornbook.inference.encoder import EncoderModel
from hornbook.inference.load import load
from hornbook.inference.loaded_model import BATCH_TOKENS
from hornbook.runs.finetuning.settings import AugmentationSettings
from hornbook.tasks.encoded import l2_normalized
from hornbook.tasks.records import Changeable, Example, Replacement, TextExample, spliced
from hornbook.text.lemmas import whole_character
from hornbook.text.tokenizer import Tokenizer
from hornbook.text.word_vectors import lookup, read_vectors
from hornbook.train.randomness import seed_of

# The list in TinyBERT's code, cut at apostrophes. Unlike in `text/lemmas.py`, question words are not in it: they
# may be replaced.
_STOP_WORDS = """
    a an the this that these those and but if or because as until while of at by for with about against between into
    through during before after above below to from up down in out on off over under again further then once here there
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it
    its itself they them their theirs themselves am is are was were be been being have has had having do does did doing
    all any both each few more most other some such no nor not only own same so than too very can will just should now
    s t d m o y ll re ve ma don ain aren couldn didn doesn hadn hasn haven isn mightn mustn needn shan shouldn wasn
    weren won wouldn
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
MAX_WORDS = 100_000  # read from a file of vectors, which lists frequent words first; as published
QUERY_BATCH = 128


class Word(NamedTuple):
    text: str
    start: int  # in characters
    stop: int
    token: int | None  # index of its token; None if it has several


def replaceable(text: str, encoding) -> list[Word]:
    """The replaceable words of a text, from its encoding without special tokens."""
    tokens_of: dict[int, list[int]] = {}
    for token, word in enumerate(encoding.word_ids):
        tokens_of.setdefault(word, []).append(token)
    words = []
    for tokens in tokens_of.values():
        start, stop = _stripped(text, encoding.offsets[tokens[0]][0], encoding.offsets[tokens[-1]][1])
        whole = [token for token in tokens if _stripped(text, *encoding.offsets[token]) == (start, stop)]
        stop = whole_character(text, stop) if stop > start else stop
        word = text[start:stop]
        # Letters and combining marks.
        is_alphabetic = all(unicodedata.category(character)[0] in "LM" for character in word)
        if not word or not is_alphabetic or word.lower() in STOP_WORDS:
            continue
        words.append(Word(word, start, stop, whole[0] if whole else None))
    return words


def _stripped(text: str, start: int, stop: int) -> tuple[int, int]:
    """The span without spaces and punctuation at its ends, which tokens and words may include."""
    while start < stop and not text[start].isalnum():
        start += 1
    while start < stop and not text[stop - 1].isalnum():
        stop -= 1
    return start, stop


def in_case_of(word: str, other: str) -> str:
    """`other`, capitalised if `word` is.

    >>> in_case_of("River", "stream")
    'Stream'
    """
    return other.title() if word.istitle() and other.islower() else other


class _Masked(NamedTuple):
    """A text with one masked word. All maskings of a text share its arrays."""

    ids: np.ndarray
    segments: np.ndarray
    position: int
    owner: tuple[int, int]  # index of the text, index of the word in it


class WordFilling:
    """The likeliest words at masked positions, for every one-token word of many texts, in batched forward passes."""

    def __init__(self, encoder: EncoderModel, num_candidates: int, with_unmasked: bool, autocast: Callable[[], object]):
        self.masked_lm, self.tokenizer = encoder.masked_lm, encoder.tokenizer
        if self.tokenizer.mask_id is None:
            raise ValueError(
                f"the tokenizer in {encoder.folder} has no mask token, which augmentation needs: name another model"
            )
        self.num_candidates, self.with_unmasked, self.autocast = num_candidates, with_unmasked, autocast
        self.forms = _word_forms(self.tokenizer)
        self.num_tokens = 0  # processed so far

    @torch.no_grad()
    def candidates(self, texts: Sequence[tuple[object, list[Word]]]) -> list[dict[int, tuple[str, ...]]]:
        """For each text, given as its encoding and its words, the candidates of each one-token word, by the index of
        the word. Tokens among the likeliest that are not whole words are dropped, as published."""
        masked = [copy for i, (encoding, words) in enumerate(texts) for copy in self._masked(i, encoding, words)]
        candidates: list[dict[int, tuple[str, ...]]] = [{} for _ in texts]
        for indices in length_batches({i: len(copy.ids) for i, copy in enumerate(masked)}, BATCH_TOKENS):
            copies = [masked[i] for i in indices]
            for copy, tokens in zip(copies, self._likeliest(copies), strict=True):
                text, word = copy.owner
                original = self.forms.get(copy.ids[copy.position])
                starts_word = original is None or original[1]
                forms = (self.forms.get(token) for token in tokens)
                candidates[text][word] = tuple(form[0] for form in forms if form and form[1] == starts_word)
        return candidates

    def _masked(self, text: int, encoding, words: list[Word]) -> list[_Masked]:
        """The text once for each one-token word; the unmasked text is added as the second segment if that fits."""
        max_length = self.masked_lm.config.max_positions
        encoding.truncate(min(len(encoding.ids), max_length - self.tokenizer.num_special(False)))
        fits = 2 * len(encoding.ids) + self.tokenizer.num_special(True) <= max_length
        joined = self.tokenizer.with_special_tokens(encoding, encoding if self.with_unmasked and fits else None)
        first = joined.special_tokens_mask.index(0) if len(encoding.ids) else 0
        ids, segments = np.array(joined.ids, np.int64), np.array(joined.type_ids, np.int64)
        return [
            _Masked(ids, segments, first + word.token, (text, i))
            for i, word in enumerate(words)
            if word.token is not None and word.token < len(encoding.ids)
        ]

    def _likeliest(self, masked: list[_Masked]) -> list[list[int]]:
        """The ids of the likeliest tokens at the masked position of each text."""
        batch = pack([copy.ids for copy in masked], [copy.segments for copy in masked])
        indices_K = torch.from_numpy(batch.offsets_host[:-1] + np.array([copy.position for copy in masked]))
        batch.ids_T[indices_K] = self.tokenizer.mask_id
        device = device_of(self.masked_lm)
        self.num_tokens += batch.num_tokens
        with self.autocast():
            x_TD = self.masked_lm(batch.to(device))
            logits_KV = self.masked_lm.vocabulary_logits(x_TD.index_select(0, indices_K.to(device)))
        logits_KV = logits_KV[:, : self.tokenizer.vocab_size].float()
        return logits_KV.topk(min(self.num_candidates, logits_KV.shape[1])).indices.tolist()


def _word_forms(tokenizer: Tokenizer) -> dict[int, tuple[str, bool]]:
    """Tokens that spell a word on their own: the word without markers, and whether the token starts a word. Tokens that
    continue a word are recognised by their spelling."""
    forms = {}
    special = set(tokenizer.special_ids)
    for token, token_id in tokenizer.backend.get_vocab(with_added_tokens=False).items():
        is_reserved = len(token) > 2 and token[0] == "[" and token[-1] == "]"  # such as BERT's [unused1]
        if token_id in special or is_reserved or (tokenizer.kind == "wordpiece" and token.startswith("##")):
            continue
        word = tokenizer.decode([token_id], skip_special=False).strip()
        if word and len(word.split()) == 1 and "\ufffd" not in word:
            forms[token_id] = (word, tokenizer.kind == "wordpiece" or token[0] in "Ġ▁" or token.endswith("</w>"))
    return forms


class NearestWords:
    """Searches `words` by the cosine similarity of their vectors, the rows of `vectors_VD`. `vector_of` returns the
    vector of a query word, or None if it has none."""

    def __init__(self, words: Sequence[str], vectors_VD: np.ndarray, vector_of: Callable[[str], np.ndarray | None]):
        self.words, self.vector_of = list(words), vector_of
        self.vectors_VD = l2_normalized(np.asarray(vectors_VD, np.float32))
        self.known: dict[tuple[str, int], tuple[str, ...]] = {}  # by word and number

    @classmethod
    def from_file(cls, file: Path) -> "NearestWords":
        """Vectors from a text file. A query word is looked up as written, then in lower case."""
        vectors, _ = read_vectors(file, None, MAX_WORDS)
        return cls(list(vectors), np.stack(list(vectors.values())), lambda word: lookup(word, vectors))

    @classmethod
    def from_model(cls, encoder: EncoderModel) -> "NearestWords":
        """The token embeddings of a model: the vector of a query word is the mean over its tokens, and its neighbours
        are the tokens that are whole words."""
        tokenizer = encoder.tokenizer
        embeddings_VD = encoder.masked_lm.embeddings.tokens.weight.detach().float().cpu().numpy()
        token_ids: dict[str, int] = {}  # of the tokens that are whole words
        for token_id, (word, starts_word) in _word_forms(tokenizer).items():
            if starts_word and word.isalpha():
                token_ids.setdefault(word, token_id)
        prefix = " " if tokenizer.kind == "bpe" else ""  # BPE tokens include the space before a word

        def vector_of(word: str) -> np.ndarray | None:
            ids = [i for i in tokenizer.encode_batch([prefix + word])[0].ids if i != tokenizer.unk_id]
            return embeddings_VD[ids].mean(0) if ids else None

        return cls(list(token_ids), embeddings_VD[list(token_ids.values())], vector_of)

    def near(self, words: Sequence[str], num: int) -> dict[str, tuple[str, ...]]:
        """For each word the `num` nearest other words, nearest first; empty if it has no vector."""
        new = [word for word in dict.fromkeys(words) if (word, num) not in self.known]
        for first in range(0, len(new), QUERY_BATCH):
            vectors = {word: self.vector_of(word) for word in new[first : first + QUERY_BATCH]}
            queries = [word for word, vector in vectors.items() if vector is not None]
            self.known |= {(word, num): () for word in vectors}
            if queries:
                cosines_QV = l2_normalized(np.stack([vectors[word] for word in queries])) @ self.vectors_VD.T
                for word, cosines_V in zip(queries, cosines_QV, strict=True):
                    self.known[word, num] = self._best(word, cosines_V, num)
        return {word: self.known[word, num] for word in words}

    def _best(self, word: str, cosines_V: np.ndarray, num: int) -> tuple[str, ...]:
        most = min(len(self.words), num + 2)  # the word itself may be among them, as written and in lower case
        indices = np.argpartition(-cosines_V, most - 1)[:most]
        indices = indices[np.lexsort((indices, -cosines_V[indices]))]
        others = (self.words[i] for i in indices)
        return tuple(other for other in others if other.lower() != word.lower())[:num]


# ---- copies


CHUNK = 256  # examples per batch of work
Candidates = dict[int, tuple[str, ...]]  # by the index of the word


class Augmenter:
    """Proposes augmented copies of examples with a masked-language model and word vectors."""

    def __init__(
        self,
        encoder: EncoderModel,
        settings: AugmentationSettings,
        seed: int = 0,
        autocast: Callable[[], object] = contextlib.nullcontext,
    ):
        self.settings, self.seed, self.tokenizer = settings, seed, encoder.tokenizer
        self.filling = WordFilling(encoder, settings.candidates, settings.unmasked_segment, autocast)
        file = settings.vectors
        self.nearest = NearestWords.from_model(encoder) if file is None else NearestWords.from_file(Path(file))

    def changes(self, examples: Sequence[Example]) -> list[list[dict[str, Any]]]:
        """For each example, the changed fields of each of its copies. They depend only on the seed and the example."""
        candidates = self._candidates({field.text for example in examples for field in example.changeable()})
        return [
            [
                example.changes(field.field, replacements)
                for field in example.changeable()
                for replacements in self._draw(example, field, *candidates[field.text])
            ]
            for example in examples
        ]

    def _candidates(self, texts: set[str]) -> dict[str, tuple[list[Word], Candidates]]:
        """The replaceable words of each text with their candidates."""
        ordered = sorted(texts)
        encodings = self.tokenizer.encode_batch(ordered)
        words = [replaceable(text, encoding) for text, encoding in zip(ordered, encodings, strict=True)]
        candidates = self.filling.candidates(list(zip(encodings, words, strict=True)))
        multi_token = [word.text for text_words in words for word in text_words if word.token is None]
        nearest = self.nearest.near(multi_token, self.settings.candidates)
        for text_words, text_candidates in zip(words, candidates, strict=True):
            text_candidates |= {i: nearest[word.text] for i, word in enumerate(text_words) if word.token is None}
        return dict(zip(ordered, zip(words, candidates, strict=True), strict=True))

    def _draw(
        self, example: Example, field: Changeable, words: list[Word], candidates: Candidates
    ) -> list[list[Replacement]]:
        """The replacements of each copy of one text."""
        options = [
            (word, candidates[i])
            for i, word in enumerate(words)
            if candidates.get(i) and field.allows(word.start, word.stop)
        ]
        generator = np.random.default_rng(seed_of(self.seed, "augment", field.field, repr(example)))
        is_replaced = generator.random((self.settings.copies, len(options))) < self.settings.replace_probability
        draws = generator.random((self.settings.copies, len(options)))
        copies, seen = [], {field.text}
        for copy_is_replaced, copy_draws in zip(is_replaced, draws, strict=True):
            replacements = [
                (word.start, word.stop, in_case_of(word.text, others[int(draw * len(others))]))
                for (word, others), replace, draw in zip(options, copy_is_replaced, copy_draws, strict=True)
                if replace
            ]
            if (text := spliced(field.text, replacements)) not in seen:
                seen.add(text)
                copies.append(replacements)
        return copies


def open_masked_lm(name: str | Path, device: str = "auto") -> EncoderModel:
    """Loads a model that fills in masks; raises a `ValueError` for any other."""
    encoder = load(name, device=device)
    if not isinstance(encoder, EncoderModel):
        raise ValueError(f"{name} is a decoder and cannot fill in masks: name an encoder for augmentation")
    _ = encoder.masked_lm  # raises if the model has no mlm head
    return encoder


def augment(
    examples: Sequence[Example | str],
    model: str | Path,
    copies: int = 20,
    *,
    vectors: str | Path | None = None,
    replace_probability: float = 0.4,
    candidates: int = 15,
    seed: int = 0,
) -> list[list[Example | str]]:
    """Augmented copies of each example or plain text: at most `copies` for each of its texts.

    >>> import hornbook
    >>> len(hornbook.augment(["the river and the bridge"], "runs/first", copies=2))
    1

    `model` fills in masked words. `vectors` is a text file of word vectors; it defaults to the token embeddings of the
    model.
    """
    settings = AugmentationSettings(copies, replace_probability, candidates, model, vectors)
    augmenter = Augmenter(open_masked_lm(model), settings, seed)
    augmented: list[list[Example | str]] = []
    for first in range(0, len(examples), CHUNK):
        chunk = examples[first : first + CHUNK]
        records = [TextExample("", example) if isinstance(example, str) else example for example in chunk]
        for example, record, changes in zip(chunk, records, augmenter.changes(records), strict=True):
            new = [record.copy(changed) for changed in changes]
            augmented.append([copy.text for copy in new] if isinstance(example, str) else new)
    return augmented
