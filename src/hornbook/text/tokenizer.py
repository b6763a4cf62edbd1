"""A tokenizer that is saved and loaded in the format of `transformers`, with a fast path for building corpora."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tokenizers
from tokenizers import AddedToken, normalizers, processors

from hornbook.files import read_json, read_json_if_exists, write_json, write_text
from hornbook.text.published import (
    BPE_FILES,
    DEFAULT_TOKENS,
    add_published_tokens,
    content_of,
    published_bpe,
    published_wordpiece,
    read_vocabulary,
)
from hornbook.text.word_cache import WordCache, find_words

OTHER_TOKENS = ("bos_token", "eos_token")
# End-of-text tokens to try if the settings name no eos_token: GPT-2's; the final tokens of RoBERTa and BERT; and the
# line end in the vocabulary of GPT-1, which has no end-of-text token and drops line ends in a text.
END_TOKENS = ("<|endoftext|>", "</s>", "[SEP]", "\n</w>")
MODEL_INPUTS = ("input_ids", "token_type_ids", "attention_mask")
NORMALIZER_SETTINGS = {  # names in tokenizer_config.json and in BERT's normaliser
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}


class PlainEncoding(NamedTuple):
    """Concatenated tokens of texts, without special tokens: `ids` (uint32) and `word_starts` (bool) per token,
    `lengths` (int64) per text; `offsets`, if requested: first and last character (exclusive) of each token in its text,
    T x 2."""

    ids: np.ndarray
    word_starts: np.ndarray
    lengths: np.ndarray
    offsets: np.ndarray | None = None


class Encoded(NamedTuple):
    """One encoded text or pair with special tokens; `word_ids` is None at a special token."""

    ids: list[int]
    segments: list[int]
    offsets: list[tuple[int, int]]
    word_ids: list[int | None]


class Tokenizer:
    """A `tokenizers.Tokenizer` together with the roles of its special tokens (`names`, such as cls_token: [CLS]).

    >>> tokenizer = Tokenizer.load("my-tokenizer")  # doctest: +SKIP
    >>> tokenizer.encode("The cat [MASK].").ids  # doctest: +SKIP
    [2, 81, 905, 4, 18, 3]

    encode         one text or pair, with special tokens
    encode_batch   many texts, without adding special tokens; those in the text are recognised
    encode_words   the same for texts that are split into words
    split_encode   pairs of texts, each encoded as one text and split again
    encode_plain   many texts as arrays; special tokens in the text are ordinary characters, as for a corpus
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        names: dict[str, str],
        model_inputs: tuple[str, ...] = MODEL_INPUTS,
    ) -> None:
        self.backend = backend
        self.model_inputs = tuple(model_inputs)
        self.kind = type(backend.model).__name__.lower()
        if self.kind not in ("wordpiece", "bpe", "unigram"):
            raise ValueError(f"a tokenizer of kind {self.kind} is not supported: use wordpiece, bpe or unigram")
        backend.no_truncation()
        backend.no_padding()
        self.names = {name: token for name, token in names.items() if backend.token_to_id(token) is not None}
        added = {token.content for token in backend.get_added_tokens_decoder().values()}
        backend.add_special_tokens([token for token in dict.fromkeys(self.names.values()) if token not in added])
        special = {name: backend.token_to_id(token) for name, token in self.names.items()}
        self.cls_id: int | None = special.get("cls_token")
        self.sep_id: int | None = special.get("sep_token")
        self.mask_id: int | None = special.get("mask_token")
        self.pad_id: int | None = special.get("pad_token")
        self.unk_id: int | None = special.get("unk_token")
        end_ids = (backend.token_to_id(token) for token in END_TOKENS)
        self.eos_id: int | None = special.get("eos_token", next((each for each in end_ids if each is not None), None))

    def __repr__(self) -> str:
        return f"Tokenizer({self.kind}, {self.vocab_size:,} tokens)"

    def __reduce__(self):
        return Tokenizer, (self.backend, self.names, self.model_inputs)

    # ---- folders

    @classmethod
    def load(cls, folder: Path | str) -> "Tokenizer":
        """Loads a folder with a `tokenizer.json`, or with published vocabulary files only: BERT's `vocab.txt`, or the
        tokens and merges of a GPT or RoBERTa."""
        folder = Path(folder)
        settings = read_json_if_exists(folder / "tokenizer_config.json")
        configured = read_json_if_exists(folder / "special_tokens_map.json") | settings
        if (folder / "tokenizer.json").is_file():
            backend = _read_backend(folder / "tokenizer.json")
            _apply_configured_normalization(backend, settings)
        elif (folder / "vocab.txt").is_file():
            backend = published_wordpiece(read_vocabulary(folder / "vocab.txt"), configured)
            add_published_tokens(backend, settings, read_json_if_exists(folder / "added_tokens.json"))
        elif bpe_files := next((pair for pair in BPE_FILES if all((folder / name).is_file() for name in pair)), None):
            backend, defaults = published_bpe(*(folder / name for name in bpe_files))
            configured = defaults | configured
            add_published_tokens(backend, settings, read_json_if_exists(folder / "added_tokens.json"))
        elif not folder.is_dir():
            raise ValueError(f"{folder} is not a folder: give the folder that holds tokenizer.json or vocab.txt")
        else:
            raise ValueError(
                f"{folder} has no vocab.json with merges.txt, no tokenizer.json and no vocab.txt: train a tokenizer, "
                "or write tokenizer.json with transformers.AutoTokenizer.from_pretrained(...).save_pretrained(...)"
            )
        names = {
            name: content_of(configured[name]) for name in (*DEFAULT_TOKENS, *OTHER_TOKENS) if configured.get(name)
        }
        inputs = settings.get("model_input_names") or MODEL_INPUTS
        return cls(backend, guess_names(backend, names), tuple(inputs))

    def save(self, folder: Path | str, model_max_length: int = 512, num_segments: int = 2) -> None:
        """Writes `tokenizer.json` and the settings without which `AutoTokenizer` would rebuild another normaliser.

        For a model with one segment, `AutoTokenizer` is configured to return no segment ids, because the model has no
        embedding for a second one.
        """
        inputs = [name for name in self.model_inputs if num_segments > 1 or name != "token_type_ids"]
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": model_max_length,
            "model_input_names": inputs,
            "clean_up_tokenization_spaces": False,
            **self.names,
        }
        write_json(Path(folder) / "tokenizer_config.json", settings)
        # Last: its presence means that the folder is complete.
        write_text(Path(folder) / "tokenizer.json", self.backend.to_str(pretty=True))

    def copy_backend(self) -> tokenizers.Tokenizer:
        return tokenizers.Tokenizer.from_str(self.backend.to_str())

    def without_special_tokens(self) -> "Tokenizer":
        """A copy that adds no special tokens, for left-to-right models, which continue a text after its last token."""
        backend = self.copy_backend()
        backend.post_processor = processors.ByteLevel(trim_offsets=False)
        names = dict(self.names)
        if self.eos_id is not None:
            names |= {name: self.token(self.eos_id) for name in OTHER_TOKENS}
        return Tokenizer(backend, names, self.model_inputs)

    # ---- properties

    @cached_property
    def vocab_size(self) -> int:
        return max(self.backend.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def special_ids(self) -> list[int]:
        added = self.backend.get_added_tokens_decoder()
        return sorted(token_id for token_id, token in added.items() if token.special)

    @cached_property
    def fingerprint(self) -> str:
        canonical = json.dumps(json.loads(self.backend.to_str()), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def mask_token(self) -> str | None:
        return self.names.get("mask_token")

    def token(self, token_id: int) -> str:
        token = self.backend.id_to_token(token_id)
        if token is None:
            raise ValueError(f"the vocabulary has no token {token_id}: ids run from 0 to {self.vocab_size - 1}")
        return token

    def id(self, token: str) -> int | None:
        return self.backend.token_to_id(token)

    # ---- encoding and decoding

    def encode(self, text: str, pair: str | None = None) -> Encoded:
        """Encodes one text or pair with special tokens; "[MASK]" in the text is read as the special token."""
        for part in (text, pair or ""):
            refuse_surrogates(part)
        encoding = self.backend.encode(text, pair)
        return Encoded(encoding.ids, encoding.type_ids, encoding.offsets, encoding.word_ids)

    def encode_batch(self, texts: list[str]) -> list[tokenizers.Encoding]:
        """Encodes each text without special tokens, on all cores; `with_special_tokens` adds them. A repeated text,
        such as a passage with several questions, is encoded once and copied, as callers may truncate it in place."""
        distinct = list(dict.fromkeys(texts))
        for text in distinct:
            refuse_surrogates(text)
        encodings = self.backend.encode_batch(distinct, add_special_tokens=False)
        if len(distinct) == len(texts):
            return encodings
        encoding_of = dict(zip(distinct, encodings, strict=True))
        return [tokenizers.Encoding.merge([encoding_of[text]], growing_offsets=False) for text in texts]

    def split_encode(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        """Encodes the concatenation of each pair and splits the token ids into those of the first and the second text;
        a token that spans the boundary belongs to the second."""
        encodings = self.encode_batch([first + second for first, second in pairs])
        ids = []
        for (first, _), encoding in zip(pairs, encodings, strict=True):
            num_first = sum(end <= len(first) for _, end in encoding.offsets) if first else 0
            ids.append((encoding.ids[:num_first], encoding.ids[num_first:]))
        return ids

    def encode_words(self, texts: list[list[str]]) -> list[tokenizers.Encoding]:
        """Like `encode_batch`, for texts that are already split into words: `word_ids` maps each token to its word."""
        for word in chain.from_iterable(texts):
            refuse_surrogates(word)
        return self.backend.encode_batch(texts, is_pretokenized=True, add_special_tokens=False)

    def with_special_tokens(
        self, first: tokenizers.Encoding, second: tokenizers.Encoding | None = None
    ) -> tokenizers.Encoding:
        """One encoding or a pair, with the special tokens and segments of this tokenizer added."""
        return self.backend.post_process(first, second)

    def num_special(self, is_pair: bool) -> int:
        return self.backend.num_special_tokens_to_add(is_pair)

    @property
    def is_unsegmented(self) -> bool:
        """Whether pairs are encoded as in RoBERTa: two separators between the texts, and one segment for all tokens."""
        return self.num_special(True) == 4

    def decode(self, ids: list[int], skip_special: bool = True) -> str:
        return self.backend.decode([int(token_id) for token_id in ids], skip_special_tokens=skip_special)

    def encode_plain(self, texts: list[str], with_offsets: bool = False) -> PlainEncoding:
        """Tokens and word starts of many texts; no special tokens are added, and none are recognised in the text."""
        try:
            encoded = self._encode(texts, with_offsets)
        except (TypeError, UnicodeEncodeError):
            for text in texts:
                refuse_surrogates(text)
            raise
        if self._forbidden[encoded.ids].any():
            encoded = self._encode([self._spell_out_special_tokens(text) for text in texts], with_offsets)
        return encoded

    def _encode(self, texts: list[str], with_offsets: bool) -> PlainEncoding:
        if self._word_cache is None or with_offsets:
            return self._encode_whole(texts, with_offsets)
        return PlainEncoding(*self._word_cache.encode(texts))

    def _encode_whole(self, texts: list[str], with_offsets: bool = False) -> PlainEncoding:
        encodings = self._plain.encode_batch(texts, add_special_tokens=False)
        id_lists = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, id_lists), np.int64, len(id_lists))
        num_tokens = int(lengths.sum())
        ids = np.fromiter(chain.from_iterable(id_lists), np.uint32, num_tokens)
        offsets = None
        if with_offsets:
            pairs = chain.from_iterable(encoding.offsets for encoding in encodings)
            offsets = np.fromiter(chain.from_iterable(pairs), np.int64, 2 * num_tokens).reshape(-1, 2)
        word_ids = [encoding.word_ids for encoding in encodings]
        words = np.fromiter(chain.from_iterable(word_ids), np.int64, num_tokens)
        word_starts = np.ones(num_tokens, bool)
        np.not_equal(words[1:], words[:-1], out=word_starts[1:])
        word_starts[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
        return PlainEncoding(ids, word_starts, lengths, offsets)

    @cached_property
    def _plain(self) -> tokenizers.Tokenizer:
        """A second backend that reads "[MASK]" in a corpus as ordinary characters."""
        plain = self.copy_backend()
        plain.encode_special_tokens = True
        plain.post_processor = None
        return plain

    @cached_property
    def _word_cache(self) -> WordCache | None:
        words = find_words(self._plain)
        return None if words is None else WordCache(lambda texts: self._encode_whole(texts)[:3], words)

    @cached_property
    def _forbidden(self) -> np.ndarray:
        """For each token of the vocabulary, whether a plain text must not contain it."""
        table = np.zeros(self.vocab_size, bool)
        table[[token_id for token_id in self.special_ids if token_id != self.unk_id]] = True
        return table

    def _spell_out_special_tokens(self, text: str) -> str:
        """Inserts spaces into special tokens in a text, for models (unigram) that have them as ordinary tokens."""
        literals = "|".join(re.escape(self.token(token_id)) for token_id in self.special_ids)
        normalized = self.normalize(text)
        spelled, num_matches = re.subn(literals, lambda match: " ".join(match[0]), normalized, flags=re.IGNORECASE)
        return spelled if num_matches else text

    def normalize(self, text: str) -> str:
        """The text after the tokenizer's normalisation, such as lower-casing and accent stripping."""
        return self.backend.normalizer.normalize_str(text) if self.backend.normalizer else text

    # ---- domain words

    def add_words(self, words: list[str]) -> list[tuple[int, list[int]]]:
        """Adds whole words; returns each new id with the ids of the tokens that the word was split into before.

        A word that is already one token is skipped. A bpe or unigram tokenizer keeps the space before an added word as
        a separate token, so that decoding restores the text.
        """
        old_ids: dict[str, list[int]] = {}
        for word in words:
            refuse_surrogates(word)
            if len(word.split()) != 1 or word != word.strip():
                raise ValueError(f"{word!r} is not one word: give words without white space")
            form = self.normalize(word)
            content = form if form and self.normalize(form) == form else word
            encoded = [self._plain.encode(space + content, add_special_tokens=False).ids for space in ("", " ")]
            is_known = any(len(ids) == 1 and ids[0] != self.unk_id for ids in encoded)
            # A unigram vocabulary may contain a word as a token but prefer a more probable split.
            if not is_known and self.backend.token_to_id(content) is None:
                old_ids.setdefault(content, encoded[0])
        first_id = self.vocab_size
        self.backend.add_tokens([AddedToken(word, single_word=True, normalized=True) for word in old_ids])
        for name in ("vocab_size", "fingerprint", "_plain", "_word_cache", "_forbidden"):
            self.__dict__.pop(name, None)
        refuse_gaps(self.backend, first_id, old_ids)
        return [(self.backend.token_to_id(word), ids) for word, ids in old_ids.items()]


def refuse_gaps(backend: tokenizers.Tokenizer, first_id: int, new_tokens: Iterable[str]) -> None:
    """Raises a `ValueError` if new tokens have ids before `first_id`, the size of the vocabulary without them."""
    if any(backend.token_to_id(token) < first_id for token in new_tokens):
        raise ValueError("the vocabulary has gaps in its ids, so new tokens would share them: renumber it first")


def refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"character {error.start} of the text is a lone surrogate ({text[error.start]!r}), not a character: "
            "remove it or decode the file with the right encoding"
        ) from None


def guess_names(backend: tokenizers.Tokenizer, configured: dict[str, str]) -> dict[str, str]:
    """The special tokens by name: the configured ones that the vocabulary contains, and defaults for the others."""
    names = {}
    for name in (*configured, *DEFAULT_TOKENS):
        for token in (configured.get(name), *DEFAULT_TOKENS.get(name, ())):
            if isinstance(token, str) and backend.token_to_id(token) is not None:
                names.setdefault(name, token)
    return names


def _read_backend(path: Path) -> tokenizers.Tokenizer:
    state = read_json(path)
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(state, ensure_ascii=False))
    except Exception as error:  # the library raises bare Exception
        raise ValueError(
            f"{path} is not a tokenizer that tokenizers {tokenizers.__version__} can read ({error}): write it again "
            "with save_pretrained, or train a new one"
        ) from None


def _apply_configured_normalization(backend: tokenizers.Tokenizer, settings: dict) -> None:
    """Applies the settings of tokenizer_config.json, which take precedence, to BERT's normaliser."""
    generic = settings.get("tokenizer_class") in (None, "PreTrainedTokenizerFast", "TokenizersBackend")
    if generic or not isinstance(backend.normalizer, normalizers.BertNormalizer):
        return
    for key, attribute in NORMALIZER_SETTINGS.items():
        if settings.get(key) is not None:
            setattr(backend.normalizer, attribute, settings[key])
