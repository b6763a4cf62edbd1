"""Special tokens that tasks add to a vocabulary: marks around mentions, and GPT-1's input format.

GPT-1 (Radford et al. 2018, section 3.3): a start token, the text, and an extract token, whose
hidden state the task head reads; the two texts of a pair are separated by a delimiter.

    _start_ text _classify_
    _start_ premise _delimiter_ hypothesis _classify_
"""

from collections.abc import Sequence

import tokenizers
from tokenizers import AddedToken, processors

from hornbook.text.tokenizer import Tokenizer

START, DELIMITER, EXTRACT = GPT1_TOKENS = ("_start_", "_delimiter_", "_classify_")  # names of the published code


def marked(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that puts the three special tokens around every text, appended to the vocabulary if they are missing."""
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    missing = [token for token in GPT1_TOKENS if tokenizer.id(token) is None]
    backend.add_special_tokens(list(GPT1_TOKENS))
    if any(backend.token_to_id(token) < tokenizer.vocab_size for token in missing):
        raise ValueError("the vocabulary has gaps in its ids, so new tokens would share them: renumber it first")
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
    missing = [mark for mark in marks if tokenizer.id(mark) is None]
    if not missing:
        return tokenizer
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    backend.add_special_tokens([AddedToken(mark, lstrip=True, normalized=False) for mark in missing])
    if any(backend.token_to_id(mark) < tokenizer.vocab_size for mark in missing):
        raise ValueError("the vocabulary has gaps in its ids, so new tokens would share them: renumber it first")
    return Tokenizer(backend, tokenizer.names, tokenizer.model_inputs)


def with_pad_token(tokenizer: Tokenizer) -> Tokenizer:
    """A copy of the tokenizer with a padding token, if it has none, for batches in `transformers`, which reads the task
    at the last token that is not padding. The padding token is the end-of-text or the start token, because no text of a
    task ends with these."""
    if tokenizer.pad_id is not None:
        return tokenizer
    candidates = [tokenizer.eos_id, tokenizer.id(START)]
    pad_id = next((number for number in candidates if number is not None), None)
    if pad_id is None:
        return tokenizer
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    return Tokenizer(backend, tokenizer.names | {"pad_token": tokenizer.token(pad_id)}, tokenizer.model_inputs)
