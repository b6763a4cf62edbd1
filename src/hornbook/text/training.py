"""Learning a vocabulary from text: WordPiece, byte-level BPE or unigram, the same one every time."""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import IO

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from hornbook.config import checked
from hornbook.text.published import sentence_template, unsegmented_template
from hornbook.text.tokenizer import Tokenizer, guess_names, refuse_surrogates

SPECIAL_TOKENS = {
    "wordpiece": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    "bpe": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],  # RoBERTa's order
    "unigram": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],  # ALBERT's order
}
# A share of the text and not a number of characters: English Wikipedia is written with about 450 characters, Korean
# with about 5,900, and a limit of 1,000 would turn the rarer syllables, with the words around them, into [UNK].
USUAL_COVERAGE = 0.9999
LEAST_COVERAGE = 0.999
PROGRESS_EVERY = 1000
LARGEST_VOCABULARY = 2**24

Progress = Callable[[str, int], None]


def train_tokenizer(
    documents: Iterable[str],
    *,
    kind: str = "wordpiece",
    vocab_size: int = 30000,
    cased: bool = False,
    progress: Progress | None = None,
) -> Tokenizer:
    """Learns a vocabulary of at most `vocab_size` tokens; a small text may give fewer.

    `documents` are read once; wordpiece and unigram keep their normalised text in a temporary file meanwhile.
    `progress` is called with what is being done and the number of documents so far. The same documents give the same
    tokenizer, byte for byte (unigram scores are rounded for this: the library adds them up in varying order).

    >>> tokenizer = train_tokenizer(["The cat sat.", "The cat ran."], vocab_size=60)
    >>> tokenizer.kind
    'wordpiece'
    """
    if kind not in SPECIAL_TOKENS:
        raise ValueError(f"kind {kind!r} is unknown: use one of {', '.join(SPECIAL_TOKENS)}")
    vocab_size = checked(vocab_size, int, "vocab_size", high=LARGEST_VOCABULARY)
    train = {"wordpiece": _train_wordpiece, "bpe": _train_bpe, "unigram": _train_unigram}[kind]
    backend = train(_watched(documents, progress), vocab_size, normaliser(kind, cased), progress)
    special = SPECIAL_TOKENS[kind]
    # the space before a mask is part of what the mask stands for, where pieces carry their spaces
    carries_space = kind != "wordpiece"
    backend.add_special_tokens(
        [AddedToken(token, lstrip=carries_space and "mask" in token.lower(), special=True) for token in special]
    )
    names = guess_names(backend, {})
    ends = [(names[name], backend.token_to_id(names[name])) for name in ("cls_token", "sep_token")]
    backend.post_processor = sentence_template(*ends)
    if kind == "bpe":
        trimmed = processors.ByteLevel(trim_offsets=True)
        backend.post_processor = processors.Sequence([trimmed, unsegmented_template(*ends)])
    return Tokenizer(backend, names)


def normaliser(kind: str, cased: bool) -> normalizers.Normalizer | None:
    """Uncased: clean, strip accents, lower-case. Always composed in the end: stripping accents takes Hangul apart."""
    if kind == "bpe" and cased:
        return None  # every text comes back exactly
    steps = [
        normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=kind == "wordpiece", strip_accents=not cased, lowercase=not cased
        ),
        normalizers.NFC(),
    ]
    if kind == "unigram":
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip(left=False, right=True)]
    return normalizers.Sequence(steps)


def _train_bpe(documents: Iterator[str], vocab_size: int, normalizer, progress: Progress | None):
    special = SPECIAL_TOKENS["bpe"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    _check_vocab_size(vocab_size, len(special) + len(alphabet), "256 bytes")
    backend = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=special,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    backend.train_from_iterator(documents, trainer)
    return backend


def _train_wordpiece(documents: Iterator[str], vocab_size: int, normalizer, progress: Progress | None):
    special = SPECIAL_TOKENS["wordpiece"]
    pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def pieces_of(character: str) -> list[str]:
        apart = len(pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(f"a{character}a"))) > 1
        return [character] if apart else [character, f"##{character}"]

    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as spool:
        counts = _normalise_into(spool, documents, normalizer)
        alphabet = _choose_alphabet(counts, vocab_size, len(special), pieces_of)
        pieces = sorted((piece for character in alphabet for piece in pieces_of(character)), key=lambda p: (len(p), p))
        learner = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        learner.pre_tokenizer = pre_tokenizer
        # Named as special, the characters get the same ids every time: the library numbers "##" pieces as its hash
        # map yields them, and ties between merges are broken by id.
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocab_size,
            min_frequency=2,
            special_tokens=special + pieces,
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            show_progress=False,
        )
        learner.train_from_iterator(_replayed(spool, progress), trainer)
    vocabulary = json.loads(learner.to_str())["model"]["vocab"]
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizer
    backend.decoder = decoders.WordPiece(prefix="##")
    return backend


def _train_unigram(documents: Iterator[str], vocab_size: int, normalizer, progress: Progress | None):
    special = SPECIAL_TOKENS["unigram"]
    # "first" and not "always": a full stop after [MASK] must stay a plain full stop
    pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme="first"), pre_tokenizers.Punctuation()]
    )
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as spool:
        counts = _normalise_into(spool, documents, normalizer)
        # two more: the sign for a space, and one piece, without which the library goes past vocab_size
        alphabet = _choose_alphabet(counts, vocab_size, len(special) + 2, lambda character: [character])
        dropped = str.maketrans(dict.fromkeys(set(counts) - set(alphabet), " "))
        learner = tokenizers.Tokenizer(models.Unigram())
        learner.pre_tokenizer = pre_tokenizer
        trainer = trainers.UnigramTrainer(
            vocab_size=vocab_size, special_tokens=special, unk_token="<unk>", show_progress=False
        )
        learner.train_from_iterator((text.translate(dropped) for text in _replayed(spool, progress)), trainer)
    vocabulary = _settled_scores(json.loads(learner.to_str())["model"]["vocab"], special)
    backend = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=special.index("<unk>"), byte_fallback=False))
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizer
    backend.decoder = decoders.Metaspace(prepend_scheme="first")
    return backend


def _settled_scores(vocabulary: list[list], special: list[str]) -> list[tuple[str, float]]:
    """Scores to four decimals, best first. Characters that were never worth a piece get the lowest score: the library
    ranks them within 0.0001 of each other, in the order of a hash map."""
    learned = [(piece, score) for piece, score in vocabulary if piece not in special]
    lowest = min((score for _, score in learned), default=0.0)
    num_characters = sum(len(piece) == 1 for piece, _ in learned)
    highest_rank = lowest + 0.0001 * (num_characters + 1)
    settled = [
        (piece, round(lowest if len(piece) == 1 and score <= highest_rank else score, 4)) for piece, score in learned
    ]
    return [(token, 0.0) for token in special] + sorted(settled, key=lambda entry: (-entry[1], entry[0]))


def _choose_alphabet(
    counts: Counter, vocab_size: int, num_reserved: int, pieces_of: Callable[[str], list[str]]
) -> list[str]:
    """The most frequent characters that cover nearly all of the text, and the rest of it while there is room."""
    total = counts.total()
    chosen: list[str] = []
    num_pieces = num_covered = 0
    for character, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        roomy = num_pieces < vocab_size // 3
        if num_covered >= total * (USUAL_COVERAGE if roomy else LEAST_COVERAGE):
            break
        chosen.append(character)
        num_pieces += len(pieces_of(character))
        num_covered += count
    _check_vocab_size(vocab_size, num_reserved + num_pieces, f"{len(chosen)} characters of the text")
    return sorted(chosen)


def _check_vocab_size(vocab_size: int, least: int, alphabet: str) -> None:
    if vocab_size < least:
        raise ValueError(
            f"a vocabulary of {vocab_size} cannot hold the {alphabet} and the special tokens: "
            f"use a vocab_size of at least {least}"
        )


def _normalise_into(spool: IO[str], documents: Iterator[str], normalizer: normalizers.Normalizer) -> Counter:
    """Writes one normalised document a line (cleaning has made newlines spaces) and counts its characters."""
    counts: Counter = Counter()
    for document in documents:
        text = normalizer.normalize_str(document)
        counts.update(text)
        spool.write(text + "\n")
    del counts[" "]
    if not counts:
        raise ValueError("the documents hold no text to learn a vocabulary from: check the input files")
    return counts


def _replayed(spool: IO[str], progress: Progress | None) -> Iterator[str]:
    spool.seek(0)
    for number, line in enumerate(spool, start=1):
        yield line.rstrip("\n")
        if progress and number % PROGRESS_EVERY == 0:
            progress("counting words", number)


def _watched(documents: Iterable[str], progress: Progress | None) -> Iterator[str]:
    number = 0
    for number, document in enumerate(documents, start=1):
        refuse_surrogates(document)
        yield document
        if progress and number % PROGRESS_EVERY == 0:
            progress("reading", number)
    if progress:
        progress("learning", number)
