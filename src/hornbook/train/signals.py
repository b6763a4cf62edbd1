"""How a run is asked to stop."""

import signal

from hornbook.lifecycle import stopping

_are_left_alone = False


def leave_alone() -> None:
    """From here on nothing heeds signals in this process: another one stops it its own way."""
    global _are_left_alone
    _are_left_alone = True


class Signals:
    """SIGTERM, SIGHUP and Ctrl-C ask the loop to stop after this step; a second Ctrl-C stops at once.

    Of several that are within each other all are asked: a run may end by itself before it looks."""

    def __init__(self) -> None:
        self.stop: str | None = None
        self.before: dict = {}

    def __enter__(self) -> "Signals":
        if _are_left_alone:
            return self
        for each in stopping.heeded():
            try:
                self.before[each] = signal.signal(each, self._ask)
            except ValueError:  # not in the main thread: the caller stops us its own way
                break
        return self

    def __exit__(self, *_: object) -> None:
        for each, handler in self.before.items():
            signal.signal(each, handler)

    def _ask(self, number: int, _: object) -> None:
        if self.stop and number == signal.SIGINT:
            stopping.second_interrupt()
        stopping.note()
        self._hear(signal.Signals(number).name)

    def _hear(self, name: str) -> None:
        self.stop = name
        for handler in self.before.values():
            if isinstance(around := getattr(handler, "__self__", None), Signals):
                around._hear(name)
