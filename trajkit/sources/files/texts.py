"""Read JSON from files within size limits: whole files or lines, with an error text for invalid ones."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from pydantic_core import from_json

from trajkit._core.outside import regular_file
from trajkit.errors import DataError
from trajkit.formats.reading.document import BadDocument, shown
from trajkit.sources.files.found import MOST_BYTES

_BOM = b"\xef\xbb\xbf"
_PIECE = 1 << 20
_ALIKE = bytes.maketrans(b"123456789E", b"000000000e")
_LONG = (10_000, 4_000_000)
"""Bytes of the texts in which numpy looks for such numbers: it starts slowly, and takes memory."""
_POWER = re.compile(rb"[0-9][eE][0-9]{3,}(?![^\s,\]}])")
_N_DIGITS = 200
_HUGE = (b"0e000", b"0" * _N_DIGITS)
"""The pattern of too large numbers, and of some texts, with every digit 0 and without plus signs."""


class Line(NamedTuple):
    """A line of a file."""

    number: int
    """From 1."""
    data: bytes
    """Without the line break."""
    is_cut: bool = False
    """Whether it is too long to read; `data` is empty then."""
    is_last: bool = False
    """Whether the file ends in this line, without a line break."""


def lines_of(file: IO[bytes], *, most_bytes: int = MOST_BYTES) -> Iterator[Line]:
    """Yield the lines of a file that are not empty; of one that is too long, only its number."""
    number = 0
    while data := file.readline(most_bytes + 1):
        number += 1
        is_whole = data.endswith(b"\n")
        if len(data) > most_bytes and not is_whole:
            while (rest := file.readline(_PIECE)) and not rest.endswith(b"\n"):
                pass
            yield Line(number, b"", is_cut=True)
            continue
        if number == 1:
            data = data.removeprefix(_BOM)
        stripped = data.strip()
        if stripped:
            yield Line(number, stripped, is_last=not is_whole)


def value_of(line: Line) -> Any:
    """Return the JSON value of a line.

    Raises:
        BadDocument: It is not JSON, or too long.
    """
    if line.is_cut:
        raise BadDocument(f"longer than {MOST_BYTES // 1_000_000} MB")
    return json_of(line.data, is_last_line=line.is_last)


def json_of(data: bytes, *, is_last_line: bool = False) -> Any:
    """Return the value of a JSON text.

    Args:
        data: The text.
        is_last_line: Whether it is the last line of a file, which may be cut off.

    Raises:
        BadDocument: It is not JSON.
    """
    try:
        value = from_json(data, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        raise _why_not(data, str(error), is_last_line=is_last_line) from None
    if _may_have_huge(data):
        _refuse_huge(value)
    return value


def _may_have_huge(data: bytes) -> bool:
    """Whether a text has a number that is too large, or a string that looks like one."""
    if not _LONG[0] < len(data) < _LONG[1]:
        alike = data.translate(_ALIKE, b"+")  # twenty times as fast as a regular expression
        return any(huge in alike for huge in _HUGE)
    # the same with numpy, in half the time; hashes such as 3e1234ab are told apart
    text = data.replace(b"+", b"")
    codes = np.frombuffer(text, np.uint8)
    is_e, is_digit = codes | np.uint8(32) == ord("e"), codes - np.uint8(ord("0")) < 10
    is_power = is_digit[:-4] & is_e[1:-3]
    if is_power.any():
        places = np.flatnonzero(is_power & is_digit[2:-2] & is_digit[3:-1] & is_digit[4:])
        if any(_POWER.match(text, place) for place in places.tolist()):
            return True
    return b"\1" * _N_DIGITS in is_digit.tobytes()


def opened(path: Path, within: Path | None) -> IO[bytes]:
    """Open a file to read: the only way in which an import opens files.

    Args:
        path: The file.
        within: The folder that is imported: a link out of it is refused. None if the user named the file.

    Raises:
        BadDocument: It is a link out of the folder, not a regular file, or cannot be read.
    """
    try:
        regular_file(path, within=within)
        # O_NONBLOCK: the path may have become a FIFO since the check, and open() would wait for a writer
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except DataError as error:
        what = error.message.removeprefix(f"{path} ").removeprefix("is ").removeprefix("cannot be read: ")
        raise BadDocument(what) from error
    except OSError as error:
        raise BadDocument(error.strerror or str(error)) from error


def read_whole(path: Path, within: Path | None, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the bytes of a file.

    Raises:
        BadDocument: It is too large, or cannot be opened.
    """
    with opened(path, within) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise BadDocument(f"longer than {most_bytes // 1_000_000} MB")
    return data.removeprefix(_BOM)


def read_json(path: Path, name: str, within: Path | None) -> Any:
    """Return the value of a JSON file.

    Args:
        path: The file.
        name: Its name in errors.
        within: The folder that is imported; see `opened`.

    Raises:
        BadDocument: It is not JSON.
    """
    try:
        return json_of(read_whole(path, within), is_last_line=True)
    except BadDocument as error:
        place = name if error.problem.where == "the document" else f"{name}: {error.problem.where}"
        raise BadDocument(error.problem.kind, place, error.problem.value) from error


def _refuse_huge(value: Any) -> None:
    """Refuse a number that does not fit a column: `1e999` is read as infinity."""
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while waiting:
        place, found = waiting.pop()
        match found:
            case int() | float() as number if abs(number) > sys.float_info.max:
                where = ".".join(map(str, place))
                raise BadDocument("a number that is too large", where, shown(str(number)[:20]))
            case list() as items:
                waiting += [((*place, index), item) for index, item in enumerate(items)]
            case dict() as items:
                waiting += [((*place, name), item) for name, item in items.items()]


def _why_not(data: bytes, message: str, *, is_last_line: bool) -> BadDocument:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return BadDocument("not UTF-8", f"byte {error.start}", shown(data[error.start : error.start + 8]))
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except BadDocument as bad:
        return bad
    except (ValueError, RecursionError):
        pass
    if is_last_line and message.startswith("EOF"):
        return BadDocument("cut off: the file ends in the middle of it")
    return BadDocument("not JSON", value=message)


def _refuse_constant(name: str) -> Any:
    raise BadDocument("NaN or Infinity, which JSON does not have", value=name)
