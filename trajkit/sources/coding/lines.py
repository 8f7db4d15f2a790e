"""The session files of coding agents: lines of JSON; the last one may be incomplete."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.times import utc_of
from trajkit.errors import DataError, RequestError
from trajkit.formats.reading.document import BadDocument, object_at, shown
from trajkit.sources.files.texts import lines_of, opened, value_of
from trajkit.sources.files.walk import files_under, shown_path

CUT_LINE = "the end of a session whose last line is cut: it was read up to there"
"""Sessions that a program was still writing."""
NO_SYSTEM_PROMPT = "the system prompt, which the program does not log"
"""Sessions whose prompts lack the text that the program puts before the first message."""
NO_ANSWER = "a session in which no model answered"
"""Files of sessions without a call."""

Row = dict[str, Any]
"""An object as a program wrote it."""
_N_LOOKED_AT = 50
_N_LINES_LOOKED_AT = 5


class Place(NamedTuple):
    """A file or folder that is imported."""

    root: Path
    within: Path | None
    """The folder that no link may lead out of; None if the user named the file."""

    def shown(self, path: Path) -> str:
        """Return the name of one of its files for messages."""
        return path.name if self.root.is_file() else shown_path(path, self.root)


def place_of(place: str) -> Place:
    """Return a path as a place.

    Raises:
        RequestError: It is a URL.
    """
    if "://" in place:
        raise RequestError(f"{place} is a URL", hint="the sessions of this program are files: name a path")
    root = Path(place)
    return Place(root, root if root.is_dir() else None)


def session_files(place: Place) -> Iterator[Path]:
    """The files with lines of JSON, in order."""
    if place.root.is_file():
        yield place.root
        return
    yield from (path for path in files_under(place.root) if path.suffix == ".jsonl")


class Lines:
    """The objects of a file, line by line. Afterwards `is_cut` is whether the last line is cut."""

    def __init__(self, path: Path, place: Place) -> None:
        self._path = path
        self._place = place
        self.is_cut = False
        self.at = place.shown(path)
        """The place of the latest line, such as `a.jsonl:12`."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the object of each line.

        Raises:
            BadDocument: A line is not a JSON object; the last line is skipped instead.
        """
        name = self.at
        with opened(self._path, self._place.within) as file:
            for line in lines_of(file):
                self.at = f"{name}:{line.number}"
                try:
                    value = value_of(line)
                except BadDocument:
                    if not line.is_last:
                        raise
                    self.is_cut = True
                    return
                yield object_at(value, "")


def looks_like(is_one: Callable[[Mapping[str, Any]], bool], place: str) -> bool:
    """Whether one of the first lines in the first session file has the form of a program."""
    try:
        where = place_of(place)
        if not where.root.exists():
            return False
        some = islice(files_under(where.root), _N_LOOKED_AT) if where.within else [where.root]
        path = next((one for one in some if one.suffix == ".jsonl"), None)
        return path is not None and any(map(is_one, islice(Lines(path, where), _N_LINES_LOOKED_AT)))
    except (DataError, RequestError):
        return False


def home_folder(variable: str, *below: str, default: tuple[str, ...]) -> Path:
    """Return a program's folder: below the one in an environment variable, else in the home folder."""
    named = os.environ.get(variable)
    return Path(named).expanduser().joinpath(*below) if named else Path.home().joinpath(*default)


def moment_at(value: Any, where: str) -> datetime | None:
    """Return a time: ISO, or milliseconds since 1970; None for null.

    Raises:
        BadDocument: It is neither.
    """
    try:
        match value:
            case None:
                return None
            case str():
                return utc_of(value)
            case int() | float() if not isinstance(value, bool):
                return datetime.fromtimestamp(value / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    raise BadDocument("not a time", where, shown(value))


def count_at(value: Any, where: str) -> int | None:
    """Return a number of tokens; None for null.

    Raises:
        BadDocument: It is not a whole number of at least 0.
    """
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise BadDocument("not a number of tokens", where, shown(value))


def sum_at(values: Mapping[str, Any], *names: str, where: str) -> int | None:
    """Return the sum of numbers of tokens; None if all are null."""
    found = [count_at(values.get(name), f"{where}.{name}") for name in names]
    known = [one for one in found if one is not None]
    return sum(known) if known else None
