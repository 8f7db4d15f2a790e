"""A TOML file that is changed without losing a comment or the order of anything; every change is checked."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from trajkit.errors import ConfigError

Names = Sequence[str]
"""Names from the top of a document to a table or a value."""


class TomlFile:
    """The text of a file, and what it says.

    Args:
        path: The file, for errors.
        text: What is in it.

    Raises:
        ConfigError: It is not TOML; the message has the line.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text
        self.data = _parsed(path, text)

    @classmethod
    def read(cls, path: Path) -> TomlFile:
        """Read a file.

        Raises:
            ConfigError: It cannot be read, or is not TOML.
        """
        try:
            return cls(path, path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from error

    def get(self, names: Names) -> Any:
        """The value at a path; None when there is none."""
        found: Any = self.data
        for name in names:
            if not isinstance(found, Mapping) or name not in found:
                return None
            found = found[name]
        return found

    def with_table(self, names: Names, values: Mapping[str, Any], *, after: Names = ()) -> TomlFile:
        """The file with a new table in it.

        Args:
            names: Where it goes; there is nothing yet.
            values: What is in it.
            after: A table that it follows; at the end of the file when there is no such header.
        """
        wanted = copy.deepcopy(self.data)
        _put(wanted, names, dict(values))
        block = "".join([f"[{_dotted(names)}]\n", *_lines(values)])
        for text in (self._inserted(block, after), self._set(names, values)):
            if (made := self._if_it_says(text, wanted)) is not None:
                return made
        raise ConfigError(
            f"{self.path}: [{_dotted(names)}] cannot be added to how the file is written",
            hint="write the table above it as [header], not as an inline table",
        )

    def with_value(self, names: Names, value: Any) -> TomlFile:
        """The file with another value at a path."""
        wanted = copy.deepcopy(self.data)
        _put(wanted, names, value)
        made = self._if_it_says(self._set(names, value), wanted)
        if made is None:
            raise ConfigError(f"{self.path}: {_dotted(names)} cannot be changed as the file is written")
        return made

    def _if_it_says(self, text: str | None, wanted: Mapping[str, Any]) -> TomlFile | None:
        """The file with this text, if that is TOML and says what it should."""
        if text is None:
            return None
        try:
            made = TomlFile(self.path, text)
        except ConfigError:
            return None
        return made if made.data == wanted else None

    def _inserted(self, block: str, after: Names) -> str:
        """The text with a block after a table, the tables inside that one included."""
        lines = self.text.splitlines(keepends=True)
        at = _end_of(lines, after) if after else None
        if at is None:
            return f"{self.text.rstrip()}\n\n{block}" if self.text.strip() else block
        return "".join([*lines[:at], "\n", block, *lines[at:]])

    def _set(self, names: Names, value: Any) -> str | None:
        """The text as tomlkit changes it."""
        document = tomlkit.parse(self.text)
        place: Any = document
        try:
            for name in names[:-1]:
                if name not in place:
                    place[name] = tomlkit.table()
                place = place[name]
            place[names[-1]] = value
            return tomlkit.dumps(document)
        except (TOMLKitError, TypeError, ValueError):
            return None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def _put(data: dict[str, Any], names: Names, value: Any) -> None:
    for name in names[:-1]:
        data = data.setdefault(name, {})
    data[names[-1]] = value


def _lines(values: Mapping[str, Any], before: Names = ()) -> Iterator[str]:
    """The values as lines, those of tables inside with dots in their names."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value and not isinstance(value, tomlkit.items.InlineTable):
            yield from _lines(value, (*before, name))
        else:
            yield f"{_dotted((*before, name))} = {tomlkit.item(value).as_string()}\n"


def _dotted(names: Names) -> str:
    return ".".join(tomlkit.key(name).as_string() for name in names)


def _header(line: str) -> tuple[str, ...] | None:
    """The names of a line that begins a table; None for every other line."""
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
    """The line after the last one of a table and of those inside it, without the comments of the next one."""
    wanted = tuple(names)
    inside, end = False, None
    for number, line in enumerate(lines):
        header = _header(line)
        if header is not None:
            inside = header[: len(wanted)] == wanted
        if inside and line.strip() and not line.lstrip().startswith("#"):
            end = number + 1
    return end
