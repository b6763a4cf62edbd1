"""Stopping a run by a signal."""

import signal

from hornbook.lifecycle import stopping

_are_disabled = False


def disable_signal_handlers() -> None:
    """Installs no signal handlers in this process from here on: its parent process stops it."""
    global _are_disabled
    _are_disabled = True


class Signals:
    """Context manager: SIGTERM, SIGHUP and Ctrl-C set `stop`, and the loop stops after this step; a second Ctrl-C stops
    immediately.

    When nested, a signal also sets `stop` of the outer instances, as the inner run may end before it reads its own."""

    def __init__(self) -> None:
        self.stop: str | None = None  # name of the signal
        self.previous: dict = {}  # the handlers before

    def __enter__(self) -> "Signals":
        if _are_disabled:
            return self
        for each in stopping.stop_signals():
            try:
                self.previous[each] = signal.signal(each, self._handle)
            except ValueError:  # not in the main thread: stopping is up to the caller
                break
        return self

    def __exit__(self, *_: object) -> None:
        for each, handler in self.previous.items():
            signal.signal(each, handler)

    def _handle(self, signal_number: int, _: object) -> None:
        if self.stop and signal_number == signal.SIGINT:
            stopping.second_interrupt()
        if not self.stop:
            stopping.announce()
        stopping.note()
        self._set_stop(signal.Signals(signal_number).name)

    def _set_stop(self, name: str) -> None:
        self.stop = name
        for handler in self.previous.values():
            if isinstance(outer := getattr(handler, "__self__", None), Signals):
                outer._set_stop(name)
