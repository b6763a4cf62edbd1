"""How a process is stopped: Ctrl-C (SIGINT), SIGTERM and SIGHUP.

The first signal ends the work in order: a training loop saves and ends, everything else gets a KeyboardInterrupt. A
second Ctrl-C ends the process at once. Until there is something to put in order, as during imports, the first one does.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from hornbook.lifecycle.locking import holds_a_lock

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
STATUS = 130  # of a process that was stopped, as a shell gives it
STOPPED = "hornbook: stopped"

_is_process = False  # whether this process is a command, rather than a program that uses the library
_is_working = False  # whether a command is running, so that a KeyboardInterrupt is caught and reported
_is_asked = False  # whether a signal came already


def heeded() -> list[signal.Signals]:
    """The signals that stop this process: SIGHUP not where it is ignored, as `nohup` does."""
    hangup = getattr(signal, "SIGHUP", None)
    return [each for each in SIGNALS if each != hangup or signal.getsignal(each) != signal.SIG_IGN]


def install() -> None:
    """For the first line of a command: from here on no signal shows a traceback."""
    global _is_process
    _is_process = True
    for each in heeded():
        signal.signal(each, _stop)
    sys.unraisablehook = _unraisable


def begin_work() -> None:
    """From here on a KeyboardInterrupt is caught and reported."""
    global _is_working
    _is_working = True


def finish() -> None:
    """The command has ended and reported: a signal while Python shuts down ends it without another line."""
    for each in heeded():
        signal.signal(each, lambda *_: os._exit(STATUS))


def second_interrupt() -> None:
    """Ends a command at once; a program that uses the library gets a KeyboardInterrupt."""
    if _is_process:
        end_at_once()
    raise KeyboardInterrupt


def note() -> None:
    """A signal was heard by a handler of its own: the next Ctrl-C is the second one."""
    global _is_asked
    _is_asked = True


def end_at_once() -> None:
    """Ends this process and its children without unwinding, with one line on the screen."""
    if "multiprocessing.process" in sys.modules:
        for child in sys.modules["multiprocessing.process"].active_children():
            child.kill()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    show_cursor = "\x1b[?25h\n" if os.isatty(2) else ""  # a progress bar hides it
    with contextlib.suppress(OSError):
        os.write(2, f"{show_cursor}{STOPPED}\n".encode())
    os._exit(STATUS)


def _stop(number: int, frame: FrameType | None) -> None:
    if _is_asked:
        if number == signal.SIGINT:
            end_at_once()
        return
    note()
    if not _is_working or (_is_importing(frame) and not holds_a_lock()):
        end_at_once()
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    """An import that is broken off may swallow the KeyboardInterrupt, or show it."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _unraisable(found: "sys.UnraisableHookArgs") -> None:
    """A KeyboardInterrupt that came where nothing can be raised, such as in a destructor, still stops the command."""
    if isinstance(found.exc_value, KeyboardInterrupt):
        end_at_once()
    sys.__unraisablehook__(found)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within, SIGTERM and SIGHUP raise a KeyboardInterrupt as Ctrl-C does, also where the library is used."""
    if _is_process or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupt) for each in heeded() if each != signal.SIGINT}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextlib.contextmanager
def postponed() -> Iterator[None]:
    """Within, signals wait."""
    with _blocked(set(SIGNALS)):
        yield


@contextlib.contextmanager
def starting_children() -> Iterator[None]:
    """Processes that are spawned within do not hear Ctrl-C and SIGHUP, which a terminal sends to all: their parent
    alone answers. SIGTERM ends them, as a pool does with the others when one is lost."""
    from multiprocessing import resource_tracker

    with _blocked(set(SIGNALS) - {signal.SIGINT, signal.SIGTERM}):
        if os.name != "nt":
            resource_tracker.ensure_running()  # started with a child, it would unblock SIGINT
        with _blocked({signal.SIGINT}):
            yield


@contextlib.contextmanager
def _blocked(signals: set[signal.Signals]) -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore() -> None:
    """In a child process: its parent answers signals."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)


def die_with_parent() -> None:
    """In a child process of `multiprocessing`: ends it as soon as its parent is gone, however that ended."""
    from multiprocessing import parent_process

    parent = parent_process()
    if sys.platform == "linux":
        import ctypes

        set_parent_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
        if not parent.is_alive():  # it ended before
            os._exit(1)

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
