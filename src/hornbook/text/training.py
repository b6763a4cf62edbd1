"""Trains a tokenizer on text: WordPiece, byte-level BPE or unigram, with reproducible results."""

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import IO

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers

from hornbook.config import checked
from hornbook.files import is_file
from hornbook.text.published import bert_template, roberta_template
from hornbook.text.tokenizer import Tokenizer, guess_names, refuse_surrogates

SPECIAL_TOKENS = {
    "wordpiece": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    "bpe": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],  # RoBERTa's order
    "unigram": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],  # ALBERT's order
}
# The alphabet is limited by coverage of the text, not by a number of characters: English Wikipedia has about 450
# characters, Korean about 5,900, and a limit of 1,000 would turn words with rarer syllables into [UNK].
DEFAULT_COVERAGE = 0.9999
MIN_COVERAGE = 0.999
PROGRESS_EVERY = 1000
LARGEST_VOCABULARY = 2**24

Progress = Callable[[str, int], None]
Trained = tuple[models.Model, pre_tokenizers.PreTokenizer, decoders.Decoder]


def train_tokenizer(
    documents: Iterable[str],
    *,
    kind: str = "wordpiece",
    vocab_size: int = 30000,
    cased: bool = False,
    add_prefix_space: bool = False,
    on_progress: Progress | None = None,
) -> Tokenizer:
    """Trains a vocabulary of at most `vocab_size` tokens; a small text may give fewer. With `add_prefix_space`, a
    byte-level tokenizer reads a text as if a space preceded it: its first word is the same token as inside a sentence.

    `documents` are read once; wordpiece and unigram store the normalised text in a temporary file. `on_progress` is
    called with the current phase and the number of documents so far. The same documents give the same tokenizer, byte
    for byte (unigram scores are rounded for this, because the library sums them in varying order).

    >>> tokenizer = train_tokenizer(["The cat sat.", "The cat ran."], vocab_size=60)
    >>> tokenizer.kind
    'wordpiece'
    """
    if isinstance(documents, str | os.PathLike):
        raise ValueError(f"documents is {str(documents)[:60]!r}: give a list of texts, or another iterable of them")
    if kind not in SPECIAL_TOKENS:
        raise ValueError(f"kind {kind!r} is unknown: use one of {', '.join(SPECIAL_TOKENS)}")
    if add_prefix_space and kind != "bpe":
        raise ValueError(f"add_prefix_space= is for kind='bpe': the tokens of kind={kind!r} do not include spaces")
    vocab_size = checked(vocab_size, int, "vocab_size", high=LARGEST_VOCABULARY)
    train = {"wordpiece": _train_wordpiece, "bpe": _train_bpe, "unigram": _train_unigram}[kind]
    on_progress = on_progress or (lambda phase, num_documents: None)
    normalizer = new_normalizer(kind, cased)
    texts = _valid(documents, on_progress, learns_next=kind == "bpe")
    model, pre_tokenizer, decoder = train(texts, vocab_size, normalizer, on_progress)
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizer
    if add_prefix_space:
        # ByteLevel's own `add_prefix_space` also puts one after each special token, as in "<mask>를", which would make
        # a word of a particle.
        prefix = pre_tokenizers.Metaspace(replacement=" ", prepend_scheme="first", split=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([prefix, pre_tokenizer])
    backend.decoder = decoder
    special = SPECIAL_TOKENS[kind]
    # where tokens include the space before them, the mask replaces that space too
    carries_space = kind != "wordpiece"
    backend.add_special_tokens(
        [AddedToken(token, lstrip=carries_space and "mask" in token.lower(), special=True) for token in special]
    )
    names = guess_names(backend, {})
    template = roberta_template if kind == "bpe" else bert_template
    backend.post_processor = template(backend, names["cls_token"], names["sep_token"])
    return Tokenizer(backend, names)


def new_normalizer(kind: str, cased: bool) -> normalizers.Normalizer | None:
    """The normaliser of a new tokenizer. Uncased: clean, strip accents, lower-case. NFC comes last, because stripping
    accents decomposes Hangul."""
    if kind == "bpe" and cased:
        return None  # decoding restores every text exactly
    steps = [
        normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=kind == "wordpiece", strip_accents=not cased, lowercase=not cased
        ),
        normalizers.NFC(),
    ]
    if kind == "unigram":
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip(left=False, right=True)]
    return normalizers.Sequence(steps)


def _train_bpe(documents: Iterator[str], vocab_size: int, normalizer, on_progress: Progress) -> Trained:
    special = SPECIAL_TOKENS["bpe"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    _check_vocab_size(vocab_size, len(special) + len(alphabet), "256 bytes")
    learner = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    learner.normalizer = normalizer
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=special,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    learner.train_from_iterator(documents, trainer)
    return learner.model, learner.pre_tokenizer, decoders.ByteLevel()


def _train_wordpiece(documents: Iterator[str], vocab_size: int, normalizer, on_progress: Progress) -> Trained:
    special = SPECIAL_TOKENS["wordpiece"]
    pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def pieces_of(character: str) -> list[str]:
        is_split_off = len(pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(f"a{character}a"))) > 1
        return [character] if is_split_off else [character, f"##{character}"]

    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as spool:
        counts = _normalize_into(spool, documents, normalizer)
        alphabet = _choose_alphabet(counts, vocab_size, len(special), pieces_of)
        pieces = sorted((piece for character in alphabet for piece in pieces_of(character)), key=lambda p: (len(p), p))
        learner = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        learner.pre_tokenizer = pre_tokenizer
        # As special tokens, the characters get reproducible ids: the library numbers "##" tokens in the order of its
        # hash map, and breaks ties between merges by id.
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocab_size,
            min_frequency=2,
            special_tokens=special + pieces,
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            show_progress=False,
        )
        learner.train_from_iterator(_replayed(spool, on_progress), trainer)
    vocabulary = json.loads(learner.to_str())["model"]["vocab"]
    return models.WordPiece(vocabulary, unk_token="[UNK]"), pre_tokenizer, decoders.WordPiece(prefix="##")


def _train_unigram(documents: Iterator[str], vocab_size: int, normalizer, on_progress: Progress) -> Trained:
    special = SPECIAL_TOKENS["unigram"]
    # "first", not "always": a full stop after [MASK] must stay a plain full stop
    pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme="first"), pre_tokenizers.Punctuation()]
    )
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as spool:
        counts = _normalize_into(spool, documents, normalizer)
        # two more: the space symbol, and one token, without which the library exceeds vocab_size
        alphabet = _choose_alphabet(counts, vocab_size, len(special) + 2, lambda character: [character])
        dropped = str.maketrans(dict.fromkeys(set(counts) - set(alphabet), " "))
        learner = tokenizers.Tokenizer(models.Unigram())
        learner.pre_tokenizer = pre_tokenizer
        trainer = trainers.UnigramTrainer(
            vocab_size=vocab_size, special_tokens=special, unk_token="<unk>", show_progress=False
        )
        learner.train_from_iterator((text.translate(dropped) for text in _replayed(spool, on_progress)), trainer)
    vocabulary = _rounded_scores(json.loads(learner.to_str())["model"]["vocab"], special)
    model = models.Unigram(vocabulary, unk_id=special.index("<unk>"), byte_fallback=False)
    return model, pre_tokenizer, decoders.Metaspace(prepend_scheme="first")


def _rounded_scores(vocabulary: list[list], special: list[str]) -> list[tuple[str, float]]:
    """Scores rounded to four decimals, best first. Characters that were never selected as tokens get the lowest score:
    the library ranks them within 0.0001 of each other, in the order of a hash map."""
    learned = [(piece, score) for piece, score in vocabulary if piece not in special]
    lowest = min((score for _, score in learned), default=0.0)
    num_characters = sum(len(piece) == 1 for piece, _ in learned)
    highest_rank = lowest + 0.0001 * (num_characters + 1)
    rounded = [
        (piece, round(lowest if len(piece) == 1 and score <= highest_rank else score, 4)) for piece, score in learned
    ]
    return [(token, 0.0) for token in special] + sorted(rounded, key=lambda entry: (-entry[1], entry[0]))


def _choose_alphabet(
    counts: Counter, vocab_size: int, num_reserved: int, pieces_of: Callable[[str], list[str]]
) -> list[str]:
    """The most frequent characters, up to `DEFAULT_COVERAGE` of the text, or once they take a third of the vocabulary
    up to `MIN_COVERAGE`."""
    total = counts.total()
    chosen: list[str] = []
    num_pieces = num_covered = 0
    for character, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        is_small = num_pieces < vocab_size // 3
        if num_covered >= total * (DEFAULT_COVERAGE if is_small else MIN_COVERAGE):
            break
        chosen.append(character)
        num_pieces += len(pieces_of(character))
        num_covered += count
    _check_vocab_size(vocab_size, num_reserved + num_pieces, f"{len(chosen)} characters of the text")
    return sorted(chosen)


def _check_vocab_size(vocab_size: int, least: int, alphabet: str) -> None:
    if vocab_size < least:
        raise ValueError(
            f"a vocabulary of {vocab_size} cannot hold the {alphabet} and the special tokens: give at least {least}"
        )


def _normalize_into(spool: IO[str], documents: Iterator[str], normalizer: normalizers.Normalizer) -> Counter:
    """Writes one normalised document per line (newlines were converted to spaces) and counts the characters."""
    counts: Counter = Counter()
    for document in documents:
        text = normalizer.normalize_str(document)
        counts.update(text)
        spool.write(text + "\n")
    del counts[" "]
    _refuse_no_text(bool(counts))
    return counts


def _refuse_no_text(has_text: bool) -> None:
    if not has_text:
        raise ValueError("the documents contain no text to train a vocabulary on: check the input files")


def _replayed(spool: IO[str], on_progress: Progress) -> Iterator[str]:
    spool.seek(0)
    for num_documents, line in enumerate(spool, start=1):
        yield line.rstrip("\n")
        if num_documents % PROGRESS_EVERY == 0:
            on_progress("counting words", num_documents)
    on_progress("learning", num_documents)


def _valid(documents: Iterable[str], on_progress: Progress, learns_next: bool) -> Iterator[str]:
    """The documents; raises a `ValueError` for one with a lone surrogate, and if none has text. `learns_next`: whether
    the vocabulary is learned next, without counting words first."""
    num_documents, has_text = 0, False
    for num_documents, document in enumerate(documents, start=1):
        if not isinstance(document, str) or (num_documents == 1 and is_file(document)):
            raise ValueError(
                f"documents has {str(document)[-60:]!r}: give texts, not the paths of files (which 'hornbook tokenizer "
                "train' reads)"
            )
        refuse_surrogates(document)
        has_text = has_text or bool(document.strip())
        yield document
        if num_documents % PROGRESS_EVERY == 0:
            on_progress("reading", num_documents)
    _refuse_no_text(has_text)
    if learns_next:
        on_progress("learning", num_documents)
