"""Finds the token of another vocabulary that stands for the same text: `published` of a WordPiece vocabulary is
`Ġpublished` of a byte-level one."""

from hornbook.text.tokenizer import Tokenizer

SPACES = ("Ġ", "▁")  # at the start of a token of a byte-level or unigram vocabulary: it starts a word

Surface = tuple[str, bool | None]  # a text and whether it starts a word; None for a token that is compared as it is


def surface(tokenizer: Tokenizer, token_id: int) -> Surface:
    """The text that a token stands for. Special tokens and parts of a character stand for themselves.

    >>> tokenizer = Tokenizer.load("vocabulary")
    >>> surface(tokenizer, tokenizer.id("river")), surface(tokenizer, tokenizer.id("[MASK]"))
    (('river', True), ('[MASK]', None))
    """
    token = tokenizer.token(token_id)
    if token_id in tokenizer.special_ids:
        return token, None
    if tokenizer.kind == "wordpiece":
        return (token[2:], False) if token.startswith("##") and len(token) > 2 else (token, True)
    text = tokenizer.decode([token_id], skip_special=False).strip()
    return (token, None) if not text or "\ufffd" in text else (text, token.startswith(SPACES))


def find_token(tokenizer: Tokenizer, wanted: Surface) -> int | None:
    """The id of the token that stands for this; None if no single token of the vocabulary does.

    >>> tokenizer = Tokenizer.load("vocabulary")
    >>> tokenizer.token(find_token(tokenizer, ("river", True))), find_token(tokenizer, ("riverbridge", True))
    ('river', None)
    """
    text, starts_word = wanted
    if starts_word is None:
        candidates = [tokenizer.id(text)]
    elif tokenizer.kind == "wordpiece":
        candidates = [tokenizer.id(text if starts_word else f"##{text}")]
    else:
        spaced = f" {text}" if starts_word else text
        (encoding,) = tokenizer.encode_batch([spaced])
        spelled = [tokenizer.id(f"{space}{text}") for space in SPACES] if starts_word else [tokenizer.id(text)]
        candidates = [*(encoding.ids if len(encoding.ids) == 1 else ()), *spelled]
    return next((each for each in candidates if each is not None and surface(tokenizer, each) == wanted), None)
