"""A tokenizer folder as `transformers` reads it, with the fast path that corpora are built through."""

import hashlib
import json
import re
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tokenizers
from tokenizers import AddedToken, normalizers, processors

from hornbook.files import read_json, write_json, write_text
from hornbook.text.published import BPE_FILES, GUESSES, add_published_tokens, content_of, published_bpe, read_wordpiece

OTHER_NAMES = ("bos_token", "eos_token")
# What ends a text, where the settings name no eos_token: GPT-2's own; what RoBERTa and BERT close a text with; and the
# line end in GPT-1's vocabulary, which has nothing for it and drops the line ends of a text.
ENDS = ("<|endoftext|>", "</s>", "[SEP]", "\n</w>")
MODEL_INPUTS = ("input_ids", "token_type_ids", "attention_mask")


class EncodedSentences(NamedTuple):
    """Tokens of many texts end to end: `ids` uint32, `word_starts` bool (both one a token), `lengths` int64 a text."""

    ids: np.ndarray
    word_starts: np.ndarray
    lengths: np.ndarray


class Encoded(NamedTuple):
    """One text or pair with its special tokens; `word_ids` is None at a special token."""

    ids: list[int]
    segments: list[int]
    offsets: list[tuple[int, int]]
    word_ids: list[int | None]


class Tokenizer:
    """Wraps a `tokenizers.Tokenizer` and knows which of its tokens are special, and for what.

    >>> tokenizer = Tokenizer.load("my-tokenizer")  # doctest: +SKIP
    >>> tokenizer.encode("The cat [MASK].").ids  # doctest: +SKIP
    [2, 81, 905, 4, 18, 3]
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
        found = (backend.token_to_id(token) for token in ENDS)
        self.end_id: int | None = special.get("eos_token", next((each for each in found if each is not None), None))

    def __reduce__(self):
        return Tokenizer, (self.backend, self.names, self.model_inputs)

    # ---- folders

    @classmethod
    def load(cls, folder: Path | str) -> "Tokenizer":
        """Opens a folder with a `tokenizer.json`, or a published one with the files of a vocabulary alone: BERT's
        `vocab.txt`, or the tokens and merges of a GPT or RoBERTa."""
        folder = Path(folder)
        settings = _read_if_there(folder / "tokenizer_config.json")
        stated = _read_if_there(folder / "special_tokens_map.json") | settings
        if (folder / "tokenizer.json").is_file():
            backend = _read_backend(folder / "tokenizer.json")
            _apply_stated_normalisation(backend, settings)
        elif (folder / "vocab.txt").is_file():
            backend = read_wordpiece(folder / "vocab.txt", stated)
            add_published_tokens(backend, settings, _read_if_there(folder / "added_tokens.json"))
        elif bpe := next((pair for pair in BPE_FILES if all((folder / name).is_file() for name in pair)), None):
            backend, usual = published_bpe(*(folder / name for name in bpe))
            stated = usual | stated
            add_published_tokens(backend, settings, _read_if_there(folder / "added_tokens.json"))
        elif not folder.is_dir():
            raise ValueError(f"{folder} is not a folder: give the folder that holds tokenizer.json or vocab.txt")
        else:
            raise ValueError(
                f"{folder} has no vocab.json with merges.txt, no tokenizer.json and no vocab.txt: train a tokenizer, "
                "or write tokenizer.json there by transformers.AutoTokenizer.from_pretrained(...).save_pretrained(...)"
            )
        names = {name: content_of(stated[name]) for name in (*GUESSES, *OTHER_NAMES) if stated.get(name)}
        inputs = settings.get("model_input_names") or MODEL_INPUTS
        return cls(backend, guess_names(backend, names), tuple(inputs))

    def save(self, folder: Path | str, model_max_length: int = 512, num_segments: int = 2) -> None:
        """Writes `tokenizer.json` and the settings without which `AutoTokenizer` would rebuild another normaliser.

        Beside a model with one kind of segment, `AutoTokenizer` is told to give none: it has no row for a second.
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
        write_text(Path(folder) / "tokenizer.json", self.backend.to_str(pretty=True))  # last: its presence says whole

    def without_special_tokens(self) -> "Tokenizer":
        """The same vocabulary with nothing put around a text, as a left-to-right model goes on from its last token."""
        backend = tokenizers.Tokenizer.from_str(self.backend.to_str())
        backend.post_processor = processors.ByteLevel(trim_offsets=False)
        names = dict(self.names)
        if self.end_id is not None:
            names |= {name: self.token(self.end_id) for name in OTHER_NAMES}
        return Tokenizer(backend, names, self.model_inputs)

    # ---- what it is

    @cached_property
    def vocab_size(self) -> int:
        return max(self.backend.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def special_ids(self) -> list[int]:
        added = self.backend.get_added_tokens_decoder()
        return sorted(number for number, token in added.items() if token.special)

    @cached_property
    def fingerprint(self) -> str:
        canonical = json.dumps(json.loads(self.backend.to_str()), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def mask_token(self) -> str | None:
        return self.names.get("mask_token")

    def token(self, number: int) -> str:
        token = self.backend.id_to_token(number)
        if token is None:
            raise ValueError(f"the vocabulary has no token {number}: ids run from 0 to {self.vocab_size - 1}")
        return token

    def id(self, token: str) -> int | None:
        return self.backend.token_to_id(token)

    # ---- using it

    def encode(self, text: str, pair: str | None = None) -> Encoded:
        """One text or pair with special tokens around; "[MASK]" written in the text is the special token."""
        for part in (text, pair or ""):
            refuse_surrogates(part)
        encoding = self.backend.encode(text, pair)
        return Encoded(encoding.ids, encoding.type_ids, encoding.offsets, encoding.word_ids)

    def encode_batch(self, texts: list[str]) -> list[tokenizers.Encoding]:
        """Each text without special tokens, on all cores; `joined` puts them around. One that comes again, as a passage
        under several questions, is encoded once and copied: an encoding can be cut."""
        once = list(dict.fromkeys(texts))
        for text in once:
            refuse_surrogates(text)
        encoded = self.backend.encode_batch(once, add_special_tokens=False)
        if len(once) == len(texts):
            return encoded
        found = dict(zip(once, encoded, strict=True))
        return [tokenizers.Encoding.merge([found[text]], growing_offsets=False) for text in texts]

    def split_encode(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        """The tokens of two texts that follow each other, encoded together, as those of the first and those of the
        second; one that reaches from the one into the other counts to the second."""
        found = []
        for (first, _), pieces in zip(
            pairs, self.encode_batch([first + second for first, second in pairs]), strict=True
        ):
            num_first = sum(end <= len(first) for _, end in pieces.offsets) if first else 0
            found.append((pieces.ids[:num_first], pieces.ids[num_first:]))
        return found

    def pieces_of_words(self, texts: list[list[str]]) -> list[tokenizers.Encoding]:
        """The same for texts that are split into words already: `word_ids` says which word a piece is of."""
        for word in chain.from_iterable(texts):
            refuse_surrogates(word)
        return self.backend.encode_batch(texts, is_pretokenized=True, add_special_tokens=False)

    def joined(self, first: tokenizers.Encoding, second: tokenizers.Encoding | None = None) -> tokenizers.Encoding:
        """One or two encodings with the special tokens and segments that this tokenizer puts around them."""
        return self.backend.post_process(first, second)

    def num_special(self, is_pair: bool) -> int:
        """How many special tokens `joined` adds."""
        return self.backend.num_special_tokens_to_add(is_pair)

    @property
    def is_unsegmented(self) -> bool:
        """Whether it writes pairs as RoBERTa does: two separators between them, and all in one segment."""
        return self.num_special(True) == 4

    def decode(self, ids: list[int], skip_special: bool = True) -> str:
        return self.backend.decode([int(number) for number in ids], skip_special_tokens=skip_special)

    def encode_sentences(self, texts: list[str]) -> EncodedSentences:
        """Tokens and word starts of many texts; no special token is added, and none is read out of the text."""
        try:
            encoded = self._encode_plain(texts)
        except (TypeError, UnicodeEncodeError):
            for text in texts:
                refuse_surrogates(text)
            raise
        if self._forbidden[encoded.ids].any():
            encoded = self._encode_plain([self._spell_out_special_tokens(text) for text in texts])
        return encoded

    def _encode_plain(self, texts: list[str]) -> EncodedSentences:
        table = self._word_start_table
        encode_batch = self._plain.encode_batch if table is None else self._plain.encode_batch_fast
        encodings = encode_batch(texts, add_special_tokens=False)
        pieces = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        num_tokens = int(lengths.sum())
        ids = np.fromiter(chain.from_iterable(pieces), np.uint32, num_tokens)
        if table is not None:
            return EncodedSentences(ids, table[ids], lengths)
        word_ids = [encoding.word_ids for encoding in encodings]
        words = np.fromiter(chain.from_iterable(word_ids), np.int64, num_tokens)
        word_starts = np.ones(num_tokens, bool)
        np.not_equal(words[1:], words[:-1], out=word_starts[1:])
        word_starts[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
        return EncodedSentences(ids, word_starts, lengths)

    @cached_property
    def _plain(self) -> tokenizers.Tokenizer:
        """A second instance that reads "[MASK]" in a corpus as ordinary characters."""
        plain = tokenizers.Tokenizer.from_str(self.backend.to_str())
        plain.encode_special_tokens = True
        plain.post_processor = None
        return plain

    @cached_property
    def _word_start_table(self) -> np.ndarray | None:
        """Whether each token starts a word, where that follows from the token alone; else None.

        With BERT's pre-tokeniser "#" is always apart, so no word starts with "##" and neither does its first piece,
        while every later piece does: the table equals `Encoding.word_ids`, and offsets need not be computed.
        """
        state = json.loads(self.backend.to_str())
        apart = (state["pre_tokenizer"] or {}).get("type") == "BertPreTokenizer"
        added = [token["content"] for token in state["added_tokens"]]
        if self.kind != "wordpiece" or not apart or state["model"]["continuing_subword_prefix"] != "##":
            return None
        if any(content.startswith("##") for content in added):
            return None
        table = np.ones(self.vocab_size, bool)
        vocabulary = state["model"]["vocab"]
        table[[number for token, number in vocabulary.items() if token.startswith("##")]] = False
        return table

    @cached_property
    def _forbidden(self) -> np.ndarray:
        table = np.zeros(self.vocab_size, bool)
        table[[number for number in self.special_ids if number != self.unk_id]] = True
        return table

    def _spell_out_special_tokens(self, text: str) -> str:
        """Some models (unigram) hold their special tokens as ordinary pieces: spaces keep them from matching."""
        literals = "|".join(re.escape(self.token(number)) for number in self.special_ids)
        seen = self.normalise(text)
        spelled, num_found = re.subn(literals, lambda found: " ".join(found[0]), seen, flags=re.IGNORECASE)
        return spelled if num_found else text

    def normalise(self, text: str) -> str:
        """The text as the model sees it: lower-cased, accents stripped, or whatever the tokenizer does."""
        return self.backend.normalizer.normalize_str(text) if self.backend.normalizer else text

    # ---- domain words

    def add_words(self, words: list[str]) -> list[tuple[int, list[int]]]:
        """Adds whole words; returns each new id with the ids of the pieces that the word was made of before.

        A word that already is one token is left out. A bpe or unigram tokenizer keeps the space before an added word
        as a token of its own, so that decoding gives the text back.
        """
        pieces_of: dict[str, list[int]] = {}
        for word in words:
            refuse_surrogates(word)
            if len(word.split()) != 1 or word != word.strip():
                raise ValueError(f"{word!r} is not one word: give words without white space")
            form = self.normalise(word)
            content = form if form and self.normalise(form) == form else word
            written = [self._plain.encode(space + content, add_special_tokens=False).ids for space in ("", " ")]
            is_known = any(len(ids) == 1 and ids[0] != self.unk_id for ids in written)
            # A unigram vocabulary may hold a word as a piece that a likelier split hides.
            if not is_known and self.backend.token_to_id(content) is None:
                pieces_of.setdefault(content, written[0])
        first_id = self.vocab_size
        self.backend.add_tokens([AddedToken(word, single_word=True, normalized=True) for word in pieces_of])
        for name in ("vocab_size", "fingerprint", "_plain", "_word_start_table", "_forbidden"):
            self.__dict__.pop(name, None)
        added = [(self.backend.token_to_id(word), pieces) for word, pieces in pieces_of.items()]
        if any(number < first_id for number, _ in added):
            raise ValueError("the vocabulary has gaps in its ids, so new words would share them: renumber it first")
        return added


def refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"character {error.start} of the text is a lone surrogate ({text[error.start]!r}), which is no character: "
            "remove it or decode the file with the right encoding"
        ) from None


def guess_names(backend: tokenizers.Tokenizer, stated: dict[str, str]) -> dict[str, str]:
    """The stated names that the vocabulary has, and for the others the usual ones."""
    names = {name: token for name, token in stated.items() if backend.token_to_id(token) is not None}
    for name, usual in GUESSES.items():
        found = next((token for token in usual if backend.token_to_id(token) is not None), None)
        if name not in names and found:
            names[name] = found
    return names


def _read_if_there(path: Path) -> dict:
    return read_json(path) if path.is_file() else {}


def _read_backend(path: Path) -> tokenizers.Tokenizer:
    state = read_json(path)
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(state, ensure_ascii=False))
    except Exception as error:  # the library raises bare Exception
        raise ValueError(
            f"{path} is not a tokenizer that tokenizers {tokenizers.__version__} can read ({error}): write it anew "
            "with save_pretrained, or train one"
        ) from None


def _apply_stated_normalisation(backend: tokenizers.Tokenizer, settings: dict) -> None:
    """Where tokenizer_config.json and BERT's normaliser disagree, the settings are what was published."""
    generic = settings.get("tokenizer_class") in (None, "PreTrainedTokenizerFast", "TokenizersBackend")
    if generic or not isinstance(backend.normalizer, normalizers.BertNormalizer):
        return
    keys = {"do_lower_case": "lowercase", "strip_accents": "strip_accents"}
    for key, attribute in (keys | {"tokenize_chinese_chars": "handle_chinese_chars"}).items():
        if settings.get(key) is not None:
            setattr(backend.normalizer, attribute, settings[key])
