"""Terminal output: the result of a command goes to stdout, the log to stderr.

The result is the output that the user requested: a table of scores, predictions, generated text, the path of what was
written. It is printed once, as text or (`--json`) as one JSON document. The log is everything else: progress, notes,
warnings. On a terminal progress is a live bar, elsewhere a line every few seconds.
"""

import contextlib
import functools
import inspect
import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from hornbook.lifecycle.requests import SETTING_OF

if TYPE_CHECKING:
    from hornbook.data.build import BuildProgress
    from hornbook.data.web.build import WebProgress
    from hornbook.train.job import TrainingProgress


def _console(stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 100_000  # no line wrapping in pipes and files
    return console


log_console = _console(stderr=True)
result_console = _console(stderr=False)
PAGE_WIDTH = 100
LINE_EVERY_SECONDS, MAX_LINES = 10.0, 20  # of a run whose progress is logged in lines,
RARELY_SECONDS = 600.0  # but a run of hours logs a line this often
_rewritten: Callable[[str], str] = str


def set_quiet(quiet: bool) -> None:
    """`--quiet`: turns the log off; the result and errors are still printed."""
    log_console.quiet = quiet


def set_json(as_json: bool) -> None:
    """`--json`: turns the text result off, as the JSON document replaces it."""
    result_console.quiet = as_json


def set_rewriting(rewriting: Callable[[str], str]) -> None:
    """Rewrites each line before it is logged: the command line names its options where the library names arguments."""
    global _rewritten
    _rewritten = rewriting


def wants_json() -> bool:
    return result_console.quiet


def log(text: str) -> None:
    """Logs a line."""
    log_console.print(_rewritten(text))


def print_result(text: str, end: str = "\n") -> None:
    """Prints text of the result unchanged (rich would wrap lines and replace tabs)."""
    if not result_console.quiet:
        print(text, end=end, flush=True)


def _is_live() -> bool:
    return log_console.is_terminal and not log_console.quiet


def with_progress_bar(function: Callable) -> Callable:
    """Wraps a function with the argument `on_progress`: it shows a progress bar on a terminal or in a notebook, unless
    called with `progress=False`."""

    signature = inspect.signature(function)
    parameters = signature.parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())

    @functools.wraps(function)
    def call(*args: Any, progress: bool = True, **kwargs: Any) -> Any:
        for name in SETTING_OF if not takes_any else ():
            if name in kwargs and name not in parameters:
                override = f'overrides={{"{SETTING_OF[name]}": {kwargs[name]!r}}}'
                raise TypeError(f"{function.__name__} has no argument {name}: set it by {override}")
        has_bar = progress and (log_console.is_terminal or log_console.is_jupyter)
        if not has_bar or kwargs.get("on_progress") is not None:
            return function(*args, **kwargs)
        with TrainingDisplay(is_live=True) as display:
            return function(*args, **(kwargs | {"on_progress": display}))

    own = inspect.Parameter("progress", inspect.Parameter.KEYWORD_ONLY, default=True, annotation=bool)
    last = len(parameters) - takes_any
    call.__signature__ = signature.replace(
        parameters=[*[*parameters.values()][:last], own, *[*parameters.values()][last:]]
    )
    return call


def short(number: float) -> str:
    """Abbreviates a number to three digits and a unit.

    >>> short(1234567), short(999600), short(950)
    ('1.23M', '1M', '950')
    """
    rounded = float(f"{number:.3g}")  # 999,600 is 1M
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rounded >= limit:
            return f"{rounded / limit:.3g}{unit}"
    return f"{number:.0f}"


def rounded_duration(seconds: float) -> str:
    """Time left: seconds, minutes, or hours and minutes.

    >>> rounded_duration(42), rounded_duration(3725), rounded_duration(7325)
    ('42 s', '62 min', '2 h 02 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


class TrainingDisplay:
    """Shows each `TrainingProgress`: step, losses, tokens per second, time left. Of several runs in sequence, the bar
    shows the current one. By default there is a live bar on a terminal, unless the log is off."""

    def __init__(self, is_live: bool | None = None) -> None:
        self.is_live = _is_live() if is_live is None else is_live
        self.logged_at, self.logged_step = 0.0, 0
        self.logged_validation: dict[str, float] = {}
        self.pending: str | None = None
        self.progress = Progress(
            TextColumn("{task.completed}/{task.total}"),
            BarColumn(8),
            TextColumn("{task.fields[text]}"),
            console=log_console,
        )
        self.task = None
        self.validation: dict[str, float] | None = None  # the scores of the last validation, and its step if known
        self.validated_at: int | None = None

    def __enter__(self) -> "TrainingDisplay":
        if self.is_live:
            self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_live:
            self.progress.stop()
        elif self.pending:
            log(self.pending)

    def __call__(self, progress: "TrainingProgress") -> None:
        validation = {name: value for name, value in progress.values.items() if name.startswith("validation_")}
        if validation != self.validation:
            self.validated_at = progress.step if self.validation is not None else None  # a resumed run has earlier ones
            self.validation = validation
        text = self._text(progress)
        if progress.message:
            log(progress.message)
        if self.is_live:
            if self.task is None:
                self.task = self.progress.add_task("", total=progress.num_steps, text="")
            self.progress.update(self.task, total=progress.num_steps, completed=progress.step, text=text)
            return
        self.pending = f"{progress.unit} {progress.step:,} of {progress.num_steps:,}  {text}".rstrip()
        # The last step may be reported twice, the second time with its validation: it is logged in __exit__.
        is_last = progress.step == progress.num_steps
        if (self._is_due(progress) and not is_last) or (is_last and progress.unit != "step"):
            log(self.pending)
            self.logged_at, self.logged_step, self.pending = time.monotonic(), progress.step, None
            self.logged_validation = validation

    def _is_due(self, progress: "TrainingProgress") -> bool:
        """Whether a line is logged, without a terminal: not more often than every few seconds and 20 times per run, but
        at least every ten minutes."""
        seconds, steps = time.monotonic() - self.logged_at, progress.step - self.logged_step
        # steps < 0: the display now shows the next run.
        are_enough = not 0 <= steps < progress.num_steps / MAX_LINES or not self.logged_at
        return seconds >= (LINE_EVERY_SECONDS if are_enough else RARELY_SECONDS)

    def _text(self, progress: "TrainingProgress") -> str:
        values = progress.values
        parts = [f"loss {values['loss']:.2f}"] if "loss" in values else []
        is_logged = not self.is_live and self.validation == self.logged_validation
        if (name := f"validation_{progress.metric_for_best}") in values and not is_logged:
            metric, value = progress.metric_for_best, values[name]
            text = f"validation {value:.2f}" if metric == "loss" else f"validation {metric} {value:.4g}"
            is_earlier = self.validated_at is not None and self.validated_at < progress.step
            parts.append(f"{text} (step {self.validated_at:,})" if is_earlier else text)
        if progress.tokens_per_second:
            parts.append(f"{short(progress.tokens_per_second)} tokens/s")
        if progress.step == progress.num_steps:
            parts.append("done")
        elif math.isfinite(progress.seconds_left):
            parts.append(f"{rounded_duration(progress.seconds_left)} left")
        return "  ".join(parts)


def _line_every_seconds() -> Callable[[str], None]:
    """A function that logs a line unless the last one, or the call of this function, was only a few seconds ago."""
    last_line = time.monotonic()

    def log_if_due(line: str) -> None:
        nonlocal last_line
        if time.monotonic() - last_line >= LINE_EVERY_SECONDS:
            last_line = time.monotonic()
            log(line)

    return log_if_due


@contextlib.contextmanager
def _bar(column: str, start: str) -> Iterator[Callable[[int, int, str, str], None]]:
    """Yields a function that takes (number done, total, text next to the bar, start of the log line without a bar); the
    time left is added to the text. What was done at the first call, by an earlier process, does not count as fast."""
    log_if_due, progress, task = _line_every_seconds(), None, None
    first: tuple[float, int] | None = None  # time and number done at the first call

    def show(done: int, total: int, text: str, line: str) -> None:
        nonlocal first
        first = first or (time.monotonic(), done)
        if (newly_done := done - first[1]) > 0:
            text += f"  {rounded_duration((time.monotonic() - first[0]) * (total - done) / newly_done)} left"
        if progress is None:
            log_if_due(f"{line}  {text}")
        else:
            progress.update(task, completed=done, total=total, text=text)

    if not _is_live():
        yield show
        return
    progress = Progress(BarColumn(12), TextColumn(column), TextColumn("{task.fields[text]}"), console=log_console)
    task = progress.add_task("", total=None, text=start)
    with progress:
        yield show


@contextlib.contextmanager
def building_display() -> Iterator:
    """Shows the progress of building a corpus: yields a function that takes `BuildProgress`."""
    with _bar("{task.percentage:>3.0f}%", "starting") as bar:

        def show(state: "BuildProgress") -> None:
            speed, total = state.bytes_read / max(state.seconds, 1e-9), max(state.bytes_total, 1)
            text = f"{state.documents:,} documents  {short(state.tokens)} tokens  {speed / 1e6:.1f} MB/s"
            bar(state.bytes_read, total, text, f"read {100 * state.bytes_read / total:.0f}%")

        yield show


@contextlib.contextmanager
def web_display() -> Iterator:
    """Shows the progress of extracting web pages: yields a function that takes `WebProgress`."""
    with _bar("{task.percentage:>3.0f}%", "starting") as bar:

        def show(state: "WebProgress") -> None:
            text = f"{state.pages:,} pages  {state.pages / max(state.seconds, 1e-9):.0f} pages/s"
            is_reading = state.stage == "pages"
            done, total = (state.bytes_read, state.bytes_total) if is_reading else (state.tasks, state.tasks_total)
            bar(done, max(total, 1), text, f"{state.stage} {100 * done / max(total, 1):.0f}%")

        yield show


@contextlib.contextmanager
def counting_display(activity: str, unit: str = "") -> Iterator:
    """Shows a counter, at first the `activity`: yields a function that takes (activity, number done so far) or, with
    a `unit`, such as "texts", (number done so far, total)."""
    with log_console.status(activity) if _is_live() else contextlib.nullcontext() as status:
        show = _line_every_seconds() if status is None else status.update

        def count(activity: str, num_done: int) -> None:
            show(f"{activity}: {num_done:,}" if num_done else activity)

        yield (lambda num_done, total: show(f"{activity}: {num_done:,} of {total:,} {unit}")) if unit else count


@contextlib.contextmanager
def answering_display() -> Iterator:
    """Shows the progress of prompting: yields a function that takes (questions done, number of questions, activity)."""
    with _bar("{task.completed}/{task.total}", "reading") as bar:
        yield lambda done, total, activity: bar(done, total, activity, f"answered {done:,} of {total:,}")


def table(rows: list[tuple], headings: tuple[str, ...] = (), title: str | None = None, is_prose: bool = False) -> None:
    """Prints a table of the result, as wide as its cells need. Cells with whole sentences (`is_prose`) are wrapped to
    100 columns when stdout is not a terminal."""
    if title is not None:
        result_console.print(title, soft_wrap=True)  # the title of rich would be wrapped to the width of the table
    grid = Table(show_header=bool(headings), box=None, padding=(0, 2, 0, 0))
    for heading in headings or [""] * len(rows[0] if rows else ()):
        grid.add_column(Text(heading), overflow="fold")
    for row in rows:
        grid.add_row(*(Text(str(cell)) for cell in row))
    result_console.print(grid, width=PAGE_WIDTH if is_prose and not result_console.is_terminal else None)
