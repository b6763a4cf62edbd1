"""Streaming detokenization: tokens to text as they are generated, without partial characters or stop strings."""

from collections.abc import Sequence

from hornbook.text.tokenizer import Tokenizer

NUM_BEFORE = 8  # preceding tokens decoded together with new ones: they decide whether a space comes first
REPLACEMENT = "\ufffd"  # decoded from bytes that do not form a character, or not yet


class StreamingDetokenizer:
    """Decodes the continuation of a prompt token by token.

    `add` returns the text that can be shown now. Bytes that the next token may complete to a character, and text that
    may be the beginning of a stop string, are held back. An incomplete character at the very end is dropped.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str] = ()):
        self.tokenizer = tokenizer
        self.stop = tuple(stop)
        self.ids = list(prompt[-NUM_BEFORE:])  # tokens that the next text depends on
        self.num_shown = len(tokenizer.decode(self.ids))  # characters of their text that were returned already
        self.text = ""  # all text returned so far
        self.held = ""  # held back: may be the beginning of a stop string
        self.is_stopped = False

    def add(self, tokens: Sequence[int]) -> str:
        """Appends tokens and returns the new text; after a stop string, always an empty one."""
        if self.is_stopped:
            return ""
        self.ids += tokens
        text = self.tokenizer.decode(self.ids)
        if text.endswith(REPLACEMENT):  # complete characters before it can be returned
            text = text.rstrip(REPLACEMENT)
            new = text[self.num_shown :]
            self.num_shown = max(self.num_shown, len(text))
        else:
            new = text[self.num_shown :]
            self.ids = self.ids[-NUM_BEFORE:]
            self.num_shown = len(self.tokenizer.decode(self.ids))
        return self._show(self.held + new)

    def finish(self) -> str:
        """Returns the text that was held back for a stop string that never came."""
        rest, self.held = self.held, ""
        self.text += rest
        return rest

    def _show(self, text: str) -> str:
        starts = [start for stop in self.stop if (start := text.find(stop)) >= 0]
        if starts:
            self.is_stopped = True
            text, self.held = text[: min(starts)], ""
        else:
            num_held = max((_overlap(text, stop) for stop in self.stop), default=0)
            text, self.held = text[: len(text) - num_held], text[len(text) - num_held :]
        self.text += text
        return text


def _overlap(text: str, stop: str) -> int:
    """Returns how many characters at the end of the text may be the beginning of the stop string.

    >>> _overlap("one two", "two three"), _overlap("one", "two")
    (3, 0)
    """
    return next((num for num in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-num:])), 0)
