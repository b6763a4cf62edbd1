"""Tokenizers from published vocabulary files: BERT's `vocab.txt`, and the tokens and merges of GPT-1, GPT-2 and
RoBERTa. Each encodes as `transformers` does with the same files."""

from pathlib import Path

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from hornbook.files import read_json

DEFAULT_TOKENS = {
    "cls_token": ("[CLS]", "<s>"),
    "sep_token": ("[SEP]", "</s>"),
    "mask_token": ("[MASK]", "<mask>"),
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
}
BPE_FILES = (  # (tokens, merges): the names in transformers, and those of OpenAI for GPT-2 and GPT-1
    ("vocab.json", "merges.txt"),
    ("encoder.json", "vocab.bpe"),
    ("encoder_bpe_40000.json", "vocab_40000.bpe"),
)
END_OF_TEXT, WORD_END = "<|endoftext|>", "</w>"


def bert_template(backend: tokenizers.Tokenizer, cls: str, sep: str) -> processors.PostProcessor:
    """`CLS A SEP` in segment 0, followed for a pair by `B SEP` in segment 1."""
    return _template(backend, cls, sep, f"$B:1 {sep}:1")


def roberta_template(backend: tokenizers.Tokenizer, cls: str, sep: str) -> processors.PostProcessor:
    """`CLS A SEP`, followed for a pair by `SEP B SEP` in the same segment, for a byte-level tokenizer."""
    trimmed = processors.ByteLevel(trim_offsets=True)
    return processors.Sequence([trimmed, _template(backend, cls, sep, f"{sep}:0 $B:0 {sep}:0")])


def _template(backend: tokenizers.Tokenizer, cls: str, sep: str, second: str) -> processors.PostProcessor:
    single = f"{cls}:0 $A:0 {sep}:0"
    special_tokens = [(token, backend.token_to_id(token)) for token in dict.fromkeys((cls, sep))]
    return processors.TemplateProcessing(single=single, pair=f"{single} {second}", special_tokens=special_tokens)


def read_vocabulary(path: Path) -> dict[str, int]:
    """The tokens of a `vocab.txt`, one per line."""
    return {token: i for i, token in enumerate(_read_text(path).removesuffix("\n").split("\n"))}


def published_wordpiece(vocabulary: dict[str, int], settings: dict) -> tokenizers.Tokenizer:
    """The tokenization pipeline of the published BERT models for a vocabulary."""
    special = {name: content_of(settings.get(name)) or defaults[0] for name, defaults in DEFAULT_TOKENS.items()}
    for name in ("unk_token", "cls_token", "sep_token"):
        if special[name] not in vocabulary:
            raise ValueError(
                f"the vocabulary lacks {special[name]}: add it to vocab.txt, or set {name} in tokenizer_config.json"
            )
    cased = any(token != token.lower() for token in vocabulary if token not in special.values() and token[:1] != "[")
    lower_case = settings.get("do_lower_case")
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=special["unk_token"]))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=not cased if lower_case is None else lower_case,
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.post_processor = bert_template(backend, special["cls_token"], special["sep_token"])
    backend.add_special_tokens([token for token in special.values() if token in vocabulary])
    return backend


def published_bpe(tokens: Path, merges: Path) -> tuple[tokenizers.Tokenizer, dict[str, str]]:
    """(tokenizer, special tokens by name) from tokens and merges. A vocabulary whose words end in `</w>` is GPT-1's,
    with lower-casing and BERT's pre-tokenization. Any other is byte-level, GPT-2's or RoBERTa's."""
    vocabulary, pairs = read_json(tokens), _read_merges(merges)
    if any(token.endswith(WORD_END) for token in vocabulary):
        backend = tokenizers.Tokenizer(models.BPE(vocabulary, pairs, unk_token="<unk>", end_of_word_suffix=WORD_END))
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.BPEDecoder(suffix=WORD_END)
        return backend, {"unk_token": "<unk>"}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, pairs))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if "<s>" in vocabulary and "</s>" in vocabulary:
        backend.post_processor = roberta_template(backend, "<s>", "</s>")
        return backend, {"bos_token": "<s>", "eos_token": "</s>"}
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    return backend, {"bos_token": END_OF_TEXT, "eos_token": END_OF_TEXT, "unk_token": END_OF_TEXT}


def _read_merges(path: Path) -> list[tuple[str, str]]:
    """The merges in order, from one pair per line; the first line may state the format version."""
    lines = _read_text(path).split("\n")  # not splitlines: some tokens contain other line separators
    pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    if wrong := next((pair for pair in pairs if len(pair) != 2), None):
        raise ValueError(f"{path} has a line that is not a pair of tokens ({' '.join(wrong)!r}): download it again")
    return pairs


def content_of(token: str | dict | None) -> str | None:
    """The text of a special token in the settings, where it may be an object."""
    return token.get("content") if isinstance(token, dict) else token


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}): download it again") from None


def add_published_tokens(backend: tokenizers.Tokenizer, settings: dict, added: dict[str, int]) -> None:
    """Adds the tokens of `added_tokens_decoder` in the settings, and those of `added_tokens.json` by their ids."""
    stated = {int(token_id): token for token_id, token in settings.get("added_tokens_decoder", {}).items()}
    tokens = {token_id: {"content": word, "normalized": True} for word, token_id in added.items()} | stated
    known = backend.get_added_tokens_decoder()
    for token_id, token in sorted(tokens.items()):
        if token_id not in known:
            flags = {key: value for key, value in token.items() if key not in ("content", "__type")}
            backend.add_tokens([AddedToken(token["content"], **flags)])
