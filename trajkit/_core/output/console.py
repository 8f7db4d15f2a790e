"""Print everything: results on stdout, notes and progress on stderr.

Any text may come from outside: every function here escapes characters that could control a terminal. In a
Python program (the console is not open) notes are log records, and there is no progress and no question.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TextIO

import click

from trajkit._core.outside import visible, visible_json
from trajkit._core.secrets import hidden
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


_is_open = False
_is_quiet = False
_json_rows: TextIO | None = None
_LOGGED_EVERY_S = 30.0


class Styled(NamedTuple):
    """A piece of a line with its style."""

    text: str
    style: dict[str, Any]
    """Of `click.style`."""


def styled(text: str, **style: Any) -> Styled:
    """Return the text with a style of `click.style`, used if stdout is a terminal and NO_COLOR is not set."""
    return Styled(text, style)


def result(*pieces: str | Styled) -> None:
    """Print a line of the result on stdout. Line breaks and control characters in it are escaped."""
    click.echo("".join(map(_shown, pieces)))


def preview(*pieces: str | Styled) -> None:
    """Print a line of the result before a question about it; a Python program has it in the result."""
    if _is_open:
        result(*pieces)


def result_text(text: str) -> None:
    """Print a text of several lines on stdout."""
    click.echo(visible(text, is_line=False))


def json_text(value: Any) -> str:
    """Return a value as a JSON document; characters that could control a terminal are escaped."""
    return visible_json(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def result_json(value: Any) -> None:
    """Print the result as one JSON document on stdout."""
    click.echo(json_text(value))


def result_json_line(value: Any) -> None:
    """Print one row of the result as a line of JSON on stdout."""
    click.echo(visible_json(json.dumps(value, ensure_ascii=False, default=str)))


def result_row(value: Any) -> None:
    """Print one row of a result as soon as it is known, as a line of JSON; only if rows are JSON."""
    if _json_rows is not None:
        with contextlib.redirect_stdout(_json_rows):
            result_json_line(value)


@contextlib.contextmanager
def rows_as_json(is_on: bool) -> Iterator[None]:
    """Leave stdout to `result_row` and print all else on stderr, for a command with `--json`.

    Args:
        is_on: False for a command without `--json`, even inside one that has it: it prints no rows.
    """
    global _json_rows
    before, _json_rows = _json_rows, sys.stdout if is_on else None
    try:
        with contextlib.redirect_stdout(sys.stderr) if is_on else contextlib.nullcontext():
            yield
    finally:
        _json_rows = before


def talk(text: str) -> None:
    """Print a line that is not part of the result on stderr; in a Python program, log it."""
    if _is_open:
        if not _is_quiet:
            click.echo(visible(text), err=True)
    else:
        logging.getLogger("trajkit").info(visible(text))


def notes(texts: Iterable[str]) -> None:
    """Warn the user about a result."""
    for text in texts:
        talk(f"note: {text}")


@contextlib.contextmanager
def opened() -> Iterator[None]:
    """Let notes, progress and questions reach the terminal: the command line runs in this."""
    global _is_open
    before, _is_open = _is_open, True
    try:
        yield
    finally:
        _is_open = before


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Leave out notes and progress."""
    global _is_quiet
    before, _is_quiet = _is_quiet, True
    try:
        yield
    finally:
        _is_quiet = before


def confirm(
    question: str, *, yes: bool, verb: str, refused: str, unasked: str = "there is no terminal to ask on"
) -> None:
    """Ask before something is started, unless `yes` is given.

    Args:
        question: The question, such as "Train?".
        yes: Whether the answer was given beforehand.
        verb: What --yes does, such as "trains", for the hint if no question can be asked.
        refused: Printed when the answer was no.
        unasked: The error if no question can be asked.

    Raises:
        RequestError: No question can be asked, or notes are left out, so that its subject is not shown.
        Exit: The answer was no.
    """
    if yes:
        return
    if not can_ask() or _is_quiet:
        raise RequestError(unasked, hint=f"--yes {verb}, --dry-run only shows the plan")
    if not click.confirm(question, err=True):
        talk(refused)
        raise click.exceptions.Exit(1)


def choose(question: str, names: Sequence[str]) -> str:
    """Ask for one of several names. Only if `can_ask`."""
    chosen: str = click.prompt(question, type=click.Choice(names), err=True)
    return chosen


def can_ask() -> bool:
    """Whether a question reaches a person: the console is open, on a terminal."""
    return _is_open and sys.stdin.isatty() and sys.stderr.isatty()


def is_open() -> bool:
    """Whether this is the command line; False in a Python program, where nothing is printed or asked."""
    return _is_open


def error_line(message: str, *, hint: str | None = None) -> None:
    """Print an error on stderr: one line, and a hint on the next when there is one."""
    for name, text in (("error", message), ("hint", hint)):
        if text:  # further lines are indented: none can look like a separate error or result
            indented = visible(text, is_line=False).replace("\n", "\n  ")
            click.echo(f"{name}: {indented}", err=True)


def usage_error(error: click.UsageError) -> None:
    """Print on stderr that a command was typed wrong, with its usage."""
    text = io.StringIO()
    error.show(text)
    click.echo(visible(hidden(text.getvalue()), is_line=False), nl=False, err=True)


def _shown(piece: str | Styled) -> str:
    if isinstance(piece, str):
        return visible(piece)
    is_plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return visible(piece.text) if is_plain else click.style(visible(piece.text), **piece.style)


class Cell(NamedTuple):
    """A column of a table: its heading, and whether it is right-aligned (numbers)."""

    heading: str
    is_number: bool = False


def line(*pieces: str | Styled) -> str:
    """Return a line of a result without styles, with control characters and line breaks escaped."""
    return "".join(visible(piece if isinstance(piece, str) else piece.text) for piece in pieces)


def table_text(columns: Sequence[Cell], rows: Iterable[Sequence[str]]) -> str:
    """Return a plain table: aligned, only a rule under the headings; never cut to the terminal."""
    cells = [[visible(text) for text in row] for row in ([cell.heading for cell in columns], *rows)]
    widths = [max(width_of(row[i]) for row in cells) for i in range(len(columns))]
    lines = []
    for number, row in enumerate(cells):
        padded = [
            " " * (width - width_of(text)) + text
            if column.is_number
            else text + " " * (width - width_of(text))
            for column, text, width in zip(columns, row, widths, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
        if number == 0:
            lines.append("  ".join("-" * width for width in widths))
    return "\n".join(lines)


def width_of(text: str) -> int:
    """Return the number of columns that a text takes on a terminal."""
    from rich.cells import cell_len

    return cell_len(text)


def count(number: int) -> str:
    """Write a number with separators: 12,345."""
    return f"{number:,}"


def size(n_bytes: int) -> str:
    """Write a size in bytes, kB, MB or GB (powers of 1000)."""
    value = float(n_bytes)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0}


def duration(least_s: float, most_s: float | None = None) -> str:
    """Write a time such as `3.2 s`, or a range such as `2 to 5 min`, with two digits."""
    most_s = least_s if most_s is None else most_s
    unit = next((name for name in reversed(_UNITS) if most_s >= 1.5 * _UNITS[name]), "ms")
    least, most = (f"{float(f'{each / _UNITS[unit]:.2g}'):,g}" for each in (least_s, most_s))
    return f"{most} {unit}" if least == most else f"{least} to {most} {unit}"


def plural(number: int, noun: str, many: str | None = None) -> str:
    """`1 episode`, `1,200 episodes`."""
    return f"{count(number)} {noun if number == 1 else many or noun + 's'}"


def is_terminal() -> bool:
    """Whether progress may be drawn: the console is open, not quiet, and stderr is a terminal."""
    return _is_open and not _is_quiet and sys.stderr.isatty()


class Meter:
    """A progress line on stderr, erased at the end; if stderr is not a terminal, a line now and then."""

    def __init__(self) -> None:
        self._first: tuple[int | None, int, float] | None = None
        """Total, done and seconds of the monotonic clock when the count began."""
        self._said_s = time.monotonic()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if is_terminal():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task("connecting", total=None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def say(self, text: str) -> None:
        """Print a lasting line above the progress line."""
        if self._progress is None:
            talk(text)
        else:
            self._progress.console.print(visible(text), markup=False, highlight=False, soft_wrap=True)

    def show(self, what: str, n_done: int, n_total: int | None) -> None:
        """Show what is being done, how much of it is done, and the total (None when unknown)."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=visible(what), completed=n_done, total=n_total)
            return
        now_s = time.monotonic()
        if self._first is None or self._first[0] != n_total:
            self._first = (n_total, n_done, now_s)
        if _is_open and now_s - self._said_s >= _LOGGED_EVERY_S:
            self._said_s = now_s
            _, n_before, begun_s = self._first
            of, left = "" if n_total is None else f" of {count(n_total)}", ""
            if n_total is not None and n_done > n_before:
                left_s = (now_s - begun_s) * (n_total - n_done) / (n_done - n_before)
                left = f", about {timedelta(seconds=round(left_s))} left"
            talk(f"{what}  {count(n_done)}{of}{left}")
