"""Special tokens that tasks add to a vocabulary: marks around mentions; GPT-1's input format; and the padding
token of a GPT.

GPT-1 (Radford et al. 2018, section 3.3): a start token, the text, and an extract token, whose
hidden state the task head reads; the two texts of a pair are separated by a delimiter.

    _start_ text _classify_
    _start_ premise _delimiter_ hypothesis _classify_
"""

from collections.abc import Sequence

import tokenizers
from tokenizers import AddedToken, processors

from hornbook.text.tokenizer import Tokenizer, refuse_gaps

START, DELIMITER, EXTRACT = GPT1_TOKENS = ("_start_", "_delimiter_", "_classify_")  # names of the published code


def with_gpt1_format(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that puts the three special tokens around every text, appended to the vocabulary if they are missing."""
    backend = _with_special_tokens(tokenizer, list(GPT1_TOKENS))
    template = processors.TemplateProcessing(
        single=f"{START} $A {EXTRACT}",
        pair=f"{START} $A {DELIMITER} $B:0 {EXTRACT}",
        special_tokens=[(token, backend.token_to_id(token)) for token in GPT1_TOKENS],
    )
    backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    names = tokenizer.names | {"sep_token": DELIMITER, "cls_token": EXTRACT}
    return Tokenizer(backend, names, tokenizer.model_inputs)


def with_mention_marks(tokenizer: Tokenizer, marks: Sequence[str]) -> Tokenizer:
    """A copy that knows the special tokens around mentions, such as `[ENT]`, appended to the vocabulary if they are
    missing. A mark includes the white space before it."""
    missing = [AddedToken(mark, lstrip=True, normalized=False) for mark in marks if tokenizer.id(mark) is None]
    if not missing:
        return tokenizer
    return Tokenizer(_with_special_tokens(tokenizer, missing), tokenizer.names, tokenizer.model_inputs)


def _with_special_tokens(tokenizer: Tokenizer, tokens: Sequence[str | AddedToken]) -> tokenizers.Tokenizer:
    """A copy of the backend with these special tokens, appended to the vocabulary if they are missing."""
    backend = tokenizer.copy_backend()
    backend.add_special_tokens(list(tokens))
    refuse_gaps(backend, tokenizer.vocab_size, [str(token) for token in tokens if tokenizer.id(str(token)) is None])
    return backend


def with_pad_token(tokenizer: Tokenizer) -> Tokenizer:
    """A copy of the tokenizer with a padding token, if it has none, for batches in `transformers`, which reads the task
    at the last token that is not padding. The padding token is the end-of-text or the start token, because no text of a
    task ends with these."""
    if tokenizer.pad_id is not None:
        return tokenizer
    pad_id = tokenizer.id(START) if tokenizer.eos_id is None else tokenizer.eos_id
    if pad_id is None:
        return tokenizer
    names = tokenizer.names | {"pad_token": tokenizer.token(pad_id)}
    return Tokenizer(tokenizer.copy_backend(), names, tokenizer.model_inputs)
