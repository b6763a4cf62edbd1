"""How GPT-1 writes the texts of a task as one sequence (Radford et al. 2018, section 3.3): a start token, the text, an
extract token, at which the task is read; of a pair, a delimiter between the two.

    _start_ text _classify_
    _start_ premise _delimiter_ hypothesis _classify_
"""

import tokenizers
from tokenizers import processors

from hornbook.text.tokenizer import Tokenizer

START, DELIMITER, EXTRACT = MARKS = ("_start_", "_delimiter_", "_classify_")  # as its published code calls them


def marked(tokenizer: Tokenizer) -> Tokenizer:
    """The same vocabulary with the three tokens behind it, if it lacks them, which now stand around every text."""
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    lacking = [token for token in MARKS if tokenizer.id(token) is None]
    backend.add_special_tokens(list(MARKS))
    if any(backend.token_to_id(token) < tokenizer.vocab_size for token in lacking):
        raise ValueError("the vocabulary has gaps in its ids, so new tokens would share them: renumber it first")
    template = processors.TemplateProcessing(
        single=f"{START} $A {EXTRACT}",
        pair=f"{START} $A {DELIMITER} $B:0 {EXTRACT}",
        special_tokens=[(token, backend.token_to_id(token)) for token in MARKS],
    )
    backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    names = tokenizer.names | {"sep_token": DELIMITER, "cls_token": EXTRACT}
    return Tokenizer(backend, names, tokenizer.model_inputs)


def filled_up(tokenizer: Tokenizer) -> Tokenizer:
    """The same with a pad token, for batches in `transformers`, which judges a text at its last token that is no pad:
    where there is none, what ends a text, or what starts it; no text of a task has these at its end."""
    if tokenizer.pad_id is not None:
        return tokenizer
    fillers = [tokenizer.end_id, tokenizer.id(START)]
    filler = next((number for number in fillers if number is not None), None)
    if filler is None:
        return tokenizer
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    return Tokenizer(backend, tokenizer.names | {"pad_token": tokenizer.token(filler)}, tokenizer.model_inputs)
