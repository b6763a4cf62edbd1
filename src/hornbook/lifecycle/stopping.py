"""How a process is stopped: Ctrl-C (SIGINT), SIGTERM and SIGHUP.

On the first signal a training loop saves a checkpoint and ends; all other code gets a KeyboardInterrupt. A second
Ctrl-C ends the process immediately. So does the first signal while there is nothing to clean up, as during imports.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from types import FrameType

from hornbook.lifecycle.locking import holds_a_lock

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
EXIT_STATUS = 130  # exit status of an interrupted process, by shell convention
STOPPED = "hornbook: stopped"
STOPPING = "stopping: a checkpoint is saved after this step; Ctrl-C again ends without saving"

_is_command = False  # whether this process is the hornbook command, not a program that uses the library
_is_working = False  # whether the command has started, so that a KeyboardInterrupt is caught and reported
_was_signalled = False  # whether a signal was already received
_are_handlers_disabled = False  # whether `Signals` leaves the handlers as they are


def stop_signals() -> list[signal.Signals]:
    """The signals that stop this process. SIGHUP is left out if it is ignored, as under `nohup`."""
    hangup = getattr(signal, "SIGHUP", None)
    return [each for each in SIGNALS if each != hangup or signal.getsignal(each) != signal.SIG_IGN]


def install() -> None:
    """Installs the signal handlers; called first in a command, so that no signal prints a traceback."""
    global _is_command
    _is_command = True
    for each in stop_signals():
        signal.signal(each, _stop)
    sys.unraisablehook = _unraisable
    # The tracker of multiprocessing, which inherits this, cleans up after `end_at_once`, and need not say so.
    sys.warnoptions.append("ignore:resource_tracker")


def begin_work() -> None:
    """Marks the point from which the command catches and reports a KeyboardInterrupt."""
    global _is_working
    _is_working = True


def finish() -> None:
    """Called when the command has ended: a signal during interpreter shutdown then exits without further output."""
    for each in stop_signals():
        signal.signal(each, lambda *_: os._exit(EXIT_STATUS))


def end_at_once() -> None:
    """Ends this process and its children without unwinding the stack, and prints one line to stderr."""
    if "multiprocessing.process" in sys.modules:
        for child in sys.modules["multiprocessing.process"].active_children():
            child.kill()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    show_cursor = "\x1b[?25h\n" if os.isatty(2) else ""  # a progress bar hides it
    with contextlib.suppress(OSError):
        os.write(2, f"{show_cursor}{STOPPED}\n".encode())
    os._exit(EXIT_STATUS)


def _stop(signal_number: int, frame: FrameType | None) -> None:
    global _was_signalled
    if _was_signalled:
        if signal_number == signal.SIGINT:
            end_at_once()
        return
    _was_signalled = True
    if not _is_working or (_is_importing(frame) and not holds_a_lock()):
        end_at_once()
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    """Whether an import is in progress: it might swallow a KeyboardInterrupt or print it as a traceback."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    """Stops the command on a KeyboardInterrupt where nothing can be raised, such as in a destructor."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        end_at_once()
    sys.__unraisablehook__(unraisable)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Context in which SIGTERM and SIGHUP raise a KeyboardInterrupt, as Ctrl-C does, also when used as a library."""
    if _is_command or threading.current_thread() is not threading.main_thread():
        yield
        return
    others = [each for each in stop_signals() if each != signal.SIGINT]
    before = {each: signal.signal(each, signal.default_int_handler) for each in others}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def disable_signal_handlers() -> None:
    """Installs no signal handlers in this process from here on: its parent process stops it."""
    global _are_handlers_disabled
    _are_handlers_disabled = True


class Signals:
    """Context manager: SIGTERM, SIGHUP and Ctrl-C set `stop`, and the loop stops after this step; a second Ctrl-C stops
    immediately.

    When nested, a signal also sets `stop` of the outer instances, as the inner run may end before it reads its own."""

    def __init__(self) -> None:
        self.stop: str | None = None  # name of the signal
        self.previous: dict = {}  # the handlers before

    def __enter__(self) -> "Signals":
        is_main_thread = threading.current_thread() is threading.main_thread()  # elsewhere it is up to the caller
        if is_main_thread and not _are_handlers_disabled:
            self.previous = {each: signal.signal(each, self._handle) for each in stop_signals()}
        return self

    def __exit__(self, *_: object) -> None:
        for each, handler in self.previous.items():
            signal.signal(each, handler)

    def _handle(self, signal_number: int, _: object) -> None:
        global _was_signalled
        _was_signalled = True  # the next Ctrl-C counts as the second, also after the loop
        if self.stop and signal_number == signal.SIGINT:
            if _is_command:
                end_at_once()
            raise KeyboardInterrupt
        if not self.stop and _is_command:  # at once, as a step may take a minute
            with contextlib.suppress(OSError):
                os.write(2, f"{chr(10) if os.isatty(2) else ''}{STOPPING}\n".encode())
        self._set_stop(signal.Signals(signal_number).name)

    def _set_stop(self, name: str) -> None:
        self.stop = name
        for handler in self.previous.values():
            if isinstance(outer := getattr(handler, "__self__", None), Signals):
                outer._set_stop(name)


@contextlib.contextmanager
def block_signals(signals: Iterable[signal.Signals] = SIGNALS) -> Iterator[None]:
    """Context in which signals are blocked; they are delivered at its end."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def starting_children() -> Iterator[None]:
    """Context for spawning child processes that ignore Ctrl-C and SIGHUP, which a terminal sends to the whole process
    group: only the parent handles these. SIGTERM still ends them, as a pool needs when it loses one of its workers."""
    from multiprocessing import resource_tracker

    with block_signals(set(SIGNALS) - {signal.SIGINT, signal.SIGTERM}):
        if os.name != "nt":
            resource_tracker.ensure_running()  # if started together with a child, it would unblock SIGINT
        with block_signals({signal.SIGINT}):
            yield


def ignore_signals() -> None:
    """Ignores all stop signals; called in a child process whose parent handles them, and has called `kill_at_exit`."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)


def kill_at_exit() -> None:
    """Kills the daemonic children of this process when it ends, also after an error: `multiprocessing` sends them
    SIGTERM and then waits, for ever if they ignore it."""
    import multiprocessing.util  # noqa: F401  # registers its own function first, which runs last

    atexit.register(_kill_daemons)


def _kill_daemons() -> None:
    if hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler reports killed workers as an error
    for child in sys.modules["multiprocessing.process"].active_children():
        if child.daemon:
            child.kill()


def die_with_parent() -> None:
    """Called in a `multiprocessing` child: ends it as soon as its parent is gone, for whatever reason."""
    from multiprocessing import parent_process

    parent = parent_process()
    if sys.platform == "linux":
        import ctypes

        set_parent_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
        if not parent.is_alive():  # it had ended already
            os._exit(1)

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
