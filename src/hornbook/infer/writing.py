"""Tokens to text while they come: no half characters, and nothing of a text that is to stop there."""

from collections.abc import Sequence

from hornbook.text.tokenizer import Tokenizer

NUM_BEFORE = 8  # tokens of the prompt that are decoded along, as what stands before decides on a space
HALF = "\ufffd"  # what bytes decode to that are no character, or not yet


class Writer:
    """The text that goes on from a prompt.

    `add` gives what can be shown now. Held back are bytes that may become a character with those of the next token, and
    what may be the beginning of a stop string. A half character at the very end is left out.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str] = ()):
        self.tokenizer = tokenizer
        self.stop = tuple(stop)
        self.ids = list(prompt[-NUM_BEFORE:])  # those that the next text depends on
        self.num_shown = len(tokenizer.decode(self.ids))  # characters of their text
        self.text = ""  # what was shown
        self.held = ""  # what may be the beginning of a stop string
        self.is_stopped = False

    def add(self, tokens: Sequence[int]) -> str:
        """Goes on; nothing comes after a stop string."""
        if self.is_stopped:
            return ""
        self.ids += tokens
        text = self.tokenizer.decode(self.ids)
        if text.endswith(HALF):  # whole characters before it may be shown
            text = text.rstrip(HALF)
            new = text[self.num_shown :]
            self.num_shown = max(self.num_shown, len(text))
        else:
            new = text[self.num_shown :]
            self.ids = self.ids[-NUM_BEFORE:]
            self.num_shown = len(self.tokenizer.decode(self.ids))
        return self._show(self.held + new)

    def finish(self) -> str:
        """What was held back for a stop string that did not come."""
        rest, self.held = self.held, ""
        self.text += rest
        return rest

    def _show(self, text: str) -> str:
        places = [place for stop in self.stop if (place := text.find(stop)) >= 0]
        if places:
            self.is_stopped = True
            text, self.held = text[: min(places)], ""
        else:
            num_held = max((_overlap(text, stop) for stop in self.stop), default=0)
            text, self.held = text[: len(text) - num_held], text[len(text) - num_held :]
        self.text += text
        return text


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text may begin the stop string.

    >>> _overlap("one two", "two three"), _overlap("one", "two")
    (3, 0)
    """
    return next((num for num in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-num:])), 0)
