"""What the model reads for a text or a pair: tokens, ids, positions, segments; and the forms of inputs of tasks."""

from functools import partial

from hornbook.show.picture import Picture, PictureTable, Strip, token_cells
from hornbook.show.translations import Language, translate, translate_count
from hornbook.text.marks import marked
from hornbook.text.tokenizer import Tokenizer


def show_tokens(tokenizer: Tokenizer, text: str, pair: str | None = None, language: Language = "en") -> Picture:
    """The tokens of a text or pair as the model reads them.

    >>> from hornbook.text.tokenizer import Tokenizer
    >>> picture = show_tokens(Tokenizer.load("vocabulary"), "the river", "a bridge")
    >>> [cell.text for cell in picture.strips[0].cells]
    ['[CLS]', 'the', 'river', '[SEP]', 'a', 'bridge', '[SEP]']
    """
    parts = [text] if pair is None else [text, pair]
    encoding = tokenizer.with_special_tokens(*tokenizer.encode_batch(parts))
    offsets = tokenizer.encode(text, pair).offsets  # those of `encoding` are trimmed twice by a byte-level tokenizer
    # The tokens of a single text may have no sequence id.
    owners = [
        None if word is None else (owner or 0)
        for owner, word in zip(encoding.sequence_ids, encoding.word_ids, strict=True)
    ]
    words = list(zip(owners, encoding.word_ids, strict=True))
    starts = [word[1] is None or i == 0 or word != words[i - 1] for i, word in enumerate(words)]
    texts = [
        "" if part is None else parts[part][start:stop] for part, (start, stop) in zip(owners, offsets, strict=True)
    ]
    cells = token_cells(tokenizer, encoding.ids, starts, texts)
    columns = zip(cells, encoding.ids, encoding.type_ids, texts, strict=True)
    rows = [
        (position, cell.text, token_id, segment, original, cell.mark)
        for position, (cell, token_id, segment, original) in enumerate(columns)
    ]
    num_words = sum(start and word is not None for start, (_, word) in zip(starts, words, strict=True))
    num_unknown = sum(cell.mark == "unknown" for cell in cells)
    message = partial(translate, language)
    counts = {"tokens": len(cells), "words": num_words}
    counts = {name: translate_count(language, name, number) for name, number in counts.items()}
    notes = [message("count", **counts, vocabulary=tokenizer.vocab_size)]
    if num_unknown:
        notes.append(translate_count(language, "unknown", num_unknown))
    headings = (*map(message, ("position", "token", "id", "segment", "text")), "")
    strip, table = Strip(message("input"), cells), PictureTable("", headings, rows)
    return Picture(message("tokens"), notes, [strip], [table], language=language)


def show_forms(tokenizer: Tokenizer, text: str, pair: str, is_gpt: bool, language: Language = "en") -> Picture:
    """The input of each form of task, as in figure 1 of the GPT paper (Radford et al. 2018) and figure 4 of the BERT
    paper (Devlin et al. 2018): one row per sequence that the model reads."""
    tokenizer, message = marked(tokenizer) if is_gpt else tokenizer, partial(translate, language)
    forms = [("classification", (text, None)), ("entailment", (text, pair))]
    if is_gpt:
        forms += [("first order", (text, pair)), ("second order", (pair, text))]
    forms.append(("choice", (text, pair)))
    if not is_gpt:
        forms += [("answering", (text, pair)), ("tagging", (text, None))]
    reads = message("last token" if is_gpt else "first token")
    strips = [
        Strip(message(f"form.{form}", reads=reads), token_cells(tokenizer, tokenizer.encode(*parts).ids))
        for form, parts in forms
    ]
    return Picture(message("forms"), [message("each form")], strips, language=language)
