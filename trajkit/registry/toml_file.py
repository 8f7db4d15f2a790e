"""Edit TOML files of a configuration without losing comments or order; every edit is verified."""

from __future__ import annotations

import copy
import operator
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from trajkit.errors import ConfigError
from trajkit.registry.change import read_text

_BYTE_ORDER_MARK = "\ufeff"
_SECRET = re.compile("key|token|secret|password|authorization|bearer", re.IGNORECASE)
_LINE = re.compile(r"\(at line (\d+), column \d+\)")

Names = Sequence[str]
"""Path of keys from the top of a document to a table or a value."""


class TomlFile:
    """A TOML file: its text and its parsed values.

    Args:
        path: The file's path, for errors.
        text: Content of the file.

    Raises:
        ConfigError: The text is not TOML; the message has the line.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text
        try:
            self.data = tomllib.loads(text.removeprefix(_BYTE_ORDER_MARK))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not TOML: {_shown(text, error)}") from error
        self._is_crlf = text.count("\n") == text.count("\r\n") > 0

    @classmethod
    def read(cls, path: Path) -> TomlFile:
        """Read a file.

        Raises:
            ConfigError: The file cannot be read, or is not TOML.
        """
        return cls(path, read_text(path))

    def get(self, names: Names) -> Any:
        """Return the value at a path; None when there is none."""
        found: Any = self.data
        for name in names:
            if not isinstance(found, Mapping) or name not in found:
                return None
            found = found[name]
        return found

    def is_inline(self, names: Names) -> bool:
        """Check whether the table at a path is an inline table."""
        found: Any = self._document()[1]
        for name in names:
            found = found[name]
        return isinstance(found, tomlkit.items.InlineTable)

    def with_table(self, names: Names, values: Mapping[str, Any], *, after: Names = ()) -> TomlFile:
        """Return the file with a new table.

        Args:
            names: Path of the new table.
            values: Content of the table.
            after: The table that it follows; at the end of the file when there is no such header.
        """
        wanted = copy.deepcopy(self.data)
        _table(wanted, names)[names[-1]] = dict(values)
        block = "".join([f"[{_dotted(names)}]\n", *_lines(values)])
        for text in (self._inserted(block, after), self._edited(names, operator.setitem, values)):
            if (made := self._if_it_says(text, wanted)) is not None:
                return made
        raise ConfigError(
            f"{self.path}: [{_dotted(names)}] cannot be added to the file in its current form",
            hint="write the table above it as [header], not as an inline table",
        )

    def with_value(self, names: Names, value: Any) -> TomlFile:
        """Return the file with another value at a path."""
        return self._with(names, operator.setitem, value, said="changed")

    def without(self, names: Names) -> TomlFile:
        """Return the file without the value at a path."""
        return self._with(names, operator.delitem, said="removed")

    def _with(self, names: Names, change: Callable[..., None], *values: Any, said: str) -> TomlFile:
        """Return the file after a change of the value at a path."""
        wanted = copy.deepcopy(self.data)
        change(_table(wanted, names), names[-1], *values)
        made = self._if_it_says(self._edited(names, change, *values), wanted)
        if made is None:
            raise ConfigError(f"{self.path}: {_dotted(names)} cannot be {said} in the file's current form")
        return made

    def _if_it_says(self, text: str | None, wanted: Mapping[str, Any]) -> TomlFile | None:
        """Return the file with this text, if it is TOML with the expected values."""
        if text is None:
            return None
        if self._is_crlf:
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        try:
            made = TomlFile(self.path, text)
        except ConfigError:
            return None
        return made if made.data == wanted else None

    def _inserted(self, block: str, after: Names) -> str:
        """Return the text with a block after a table and its inner tables."""
        lines = self.text.splitlines(keepends=True)
        at = _end_of(lines, after) if after else None
        if at is None:
            return f"{self.text.rstrip()}\n\n{block}" if self.text.strip() else block
        return "".join([*lines[:at], "\n", block, *lines[at:]])

    def _edited(self, names: Names, change: Callable[..., None], *values: Any) -> str | None:
        """Return the text after a change of tomlkit's document; None if tomlkit fails."""
        try:
            mark, document = self._document()
            place: Any = document
            for name in names[:-1]:
                if name not in place:
                    place[name] = tomlkit.table()
                place = place[name]
            change(place, names[-1], *values)
            return mark + tomlkit.dumps(document)
        except (TOMLKitError, TypeError, ValueError):
            return None

    def _document(self) -> tuple[str, tomlkit.TOMLDocument]:
        """Return the byte order mark of the file, if any, and the document after it."""
        text = self.text.removeprefix(_BYTE_ORDER_MARK)
        return _BYTE_ORDER_MARK * (text != self.text), tomlkit.parse(text)


def _shown(text: str, error: tomllib.TOMLDecodeError) -> str:
    """Return the error with its line, unless the line may hold a secret."""
    found = _LINE.search(str(error))
    lines = text.splitlines()
    number = int(found[1]) if found else len(lines)
    line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return f"{error}: {line}" if line and not _SECRET.search(line) else str(error)


def _table(data: dict[str, Any], names: Names) -> dict[str, Any]:
    """Return the table that holds the value at a path."""
    for name in names[:-1]:
        data = data.setdefault(name, {})
    return data


def _lines(values: Mapping[str, Any], before: Names = ()) -> Iterator[str]:
    """Yield the values as lines; inner tables become dotted keys."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value and not isinstance(value, tomlkit.items.InlineTable):
            yield from _lines(value, (*before, name))
        else:
            yield f"{_dotted((*before, name))} = {tomlkit.item(value).as_string()}\n"


def _dotted(names: Names) -> str:
    return ".".join(tomlkit.key(name).as_string() for name in names)


def _header(line: str) -> tuple[str, ...] | None:
    """Return the path in a table header; None for every other line."""
    text = line.strip()
    if not text.startswith("["):
        return None
    try:
        found: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
    names = []
    while isinstance(found, dict) and len(found) == 1:
        ((name, found),) = found.items()
        names.append(name)
    return tuple(names)


def _end_of(lines: Sequence[str], names: Names) -> int | None:
    """Return the index after a table and its inner tables, before the comments of the next table."""
    wanted = tuple(names)
    inside, end = False, None
    for number, line in enumerate(lines):
        header = _header(line)
        if header is not None:
            inside = header[: len(wanted)] == wanted
        if inside and line.strip() and not line.lstrip().startswith("#"):
            end = number + 1
    return end


class Configuration:
    """The files of a configuration.

    Args:
        files: At least one.
    """

    def __init__(self, files: Sequence[TomlFile]) -> None:
        self.files = tuple(files)

    @classmethod
    def read(cls, pattern: str | Path) -> Configuration:
        """Read one file, or all files of a pattern such as `config/**/*.toml`, as the gateway does.

        Raises:
            ConfigError: There is no file, or one is not TOML.
        """
        text = str(pattern)
        if any(mark in text for mark in "*?["):
            anchor = Path(Path(text).anchor or ".")
            inside = text.removeprefix(str(anchor)).lstrip("/") if Path(text).is_absolute() else text
            paths = sorted(path for path in anchor.glob(inside) if path.is_file())
        else:
            paths = [Path(text)] if Path(text).is_file() else []
        if not paths:
            raise ConfigError(f"no configuration at {text}", hint="--config tensorzero.toml")
        return cls([TomlFile.read(path) for path in paths])

    def get(self, *names: str) -> Any:
        """Return the value at a path; tables that are spread over several files are merged."""
        found = [value for file in self.files if (value := file.get(names)) is not None]
        if not found:
            return None
        if all(isinstance(value, dict) for value in found):
            merged: dict[str, Any] = {}
            for value in found:
                _merge(merged, value)
            return merged
        return found[0]

    def holder(self, *names: str) -> TomlFile | None:
        """Return the first file that has a value at a path."""
        return next((file for file in self.files if file.get(names) is not None), None)

    def replacing(self, changed: TomlFile) -> Configuration:
        """Return the configuration with one file replaced."""
        return Configuration([changed if file.path == changed.path else file for file in self.files])


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = copy.deepcopy(value)  # a copy, so that reading does not change the files' values
