"""Read, check and print text from outside safely.

SECURITY.md defines the trust boundary.
"""

from __future__ import annotations

import json
import os
import re
import stat
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajkit._core.address import Address, reaching
from trajkit.errors import DataError, StoreError, TrajkitError

if TYPE_CHECKING:
    from pydantic import ValidationError

_LONGEST_YAML = 200_000
_MOST_ALIASES = 20  # nested in each other, these make a thousand values, not a billion
_LONGEST_NAME = 200
"""Bytes of a name in UTF-8. File systems allow 255, and temporary files add to the name."""


def problem_of(error: ValidationError) -> str:
    """Return the first problem that pydantic found, in a line: its place, and what is wrong."""
    first = error.errors()[0]
    where, text = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return f"{where}: {text}" if where else text


def name_from_outside(name: object, *, what: str, error: type[TrajkitError] = DataError) -> str:
    """Check that a name from outside is one plain name and not a path.

    Args:
        name: The name as it was read.
        what: What it names and where it was read, such as `the split in trajkit.json`.
        error: The error to raise.

    Returns:
        The same name. It can stand as one component of a path.

    Raises:
        TrajkitError: It is not text, is empty or too long, begins with a dot, or holds a separator, a control
            character or half of a surrogate pair.
    """
    reason = _unfit(name)
    if reason is None:
        return str(name)
    shown = repr(name) if len(repr(name)) <= 80 else f"{repr(name)[:77]}..."
    raise error(f"{what} cannot be {shown}: {reason}", hint="a plain name such as train, not a path")


def _unfit(name: object) -> str | None:
    """Return why a value is not a plain name; None when it is one."""
    if not isinstance(name, str):
        return "it is not text"
    if not name.strip():
        return "it is empty"
    if name.startswith("."):
        return "it begins with a dot"
    if "/" in name or "\\" in name or (len(name) > 1 and name[0].isalpha() and name[1] == ":"):
        return "it is a path"
    if any(unicodedata.category(character) in ("Cc", "Cf", "Cs") for character in name):
        return "it holds a control character"
    if len(name.encode()) > _LONGEST_NAME:
        return f"it is longer than {_LONGEST_NAME} bytes"
    return None


def regular_file(path: Path, *, within: Path | None = None, error: type[TrajkitError] = DataError) -> Path:
    """Check, without opening it, that a path is a regular file: not a FIFO, a device, a socket or a folder.

    Args:
        path: The file. Links are followed.
        within: A folder that the file must really be in, after all links are followed; None for anywhere.
        error: The error to raise.

    Returns:
        The same path.

    Raises:
        TrajkitError: It is missing, not a regular file, or lies outside `within`.
    """
    if isinstance(path, Address):  # no service has links, devices or FIFOs
        if not path.is_file():
            raise error(f"there is no file at {path}")
        return path
    try:
        mode = path.stat().st_mode
        really = path.resolve(strict=True)
    except (OSError, ValueError) as failure:  # ValueError: a NUL in the path
        reason = failure.strerror if isinstance(failure, OSError) else str(failure)
        raise error(f"{path} cannot be read: {reason}") from failure
    if not stat.S_ISREG(mode):
        raise error(f"{path} is {_kind(mode)}, not a regular file")
    if within is not None and not really.is_relative_to(within.resolve()):
        raise error(
            f"{path} is a link to a file outside {within}", hint="copy the file into the folder instead"
        )
    return path


def check_size(
    folder: Path, name: str, n_bytes: int, *, listed: Mapping[str, int] | None = None, hint: str
) -> None:
    """Check that a file of a manifest exists, is a regular file and has its size.

    Args:
        folder: The folder of the manifest.
        name: The path of the file below it.
        n_bytes: The size in the manifest.
        listed: The sizes of all files of the folder, if it is at an address; None reads the one size.
        hint: The hint of the error.

    Raises:
        StoreError: One of these does not hold.
    """
    path = folder / name
    size = None
    if listed is not None:
        size = listed.get(name)
    elif isinstance(path, Address) or os.path.lexists(path):
        size = regular_file(path, within=folder, error=StoreError).stat().st_size
    if size is None:
        raise StoreError(f"{path} is missing", hint=hint)
    if size != n_bytes:
        raise StoreError(f"{path} has {size} bytes; the manifest says {n_bytes}", hint=hint)


def _kind(mode: int) -> str:
    names = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return names.get(stat.S_IFMT(mode), "of another kind")


def text_from_outside(
    path: Path, *, within: Path | None = None, max_bytes: int = 1 << 28, error: type[TrajkitError] = DataError
) -> str:
    """Read a whole text file from outside.

    Args:
        path: The file.
        within: A folder that it must really be in; None for anywhere.
        max_bytes: A larger file is refused.
        error: The error to raise.

    Raises:
        TrajkitError: It is missing, not a regular file, too large, outside `within`, or not UTF-8.
    """
    regular_file(path, within=within, error=error)
    if isinstance(path, Address):
        with reaching(path), path.open("rb") as file:
            return _decoded(path, file.read(max_bytes + 1), max_bytes, error)
    try:
        # O_NONBLOCK: the path may have become a FIFO since the check, and open() would wait for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            raw = file.read(max_bytes + 1)
    except OSError as failure:
        raise error(f"{path} cannot be read: {failure.strerror}") from failure
    return _decoded(path, raw, max_bytes, error)


def _decoded(path: Path, raw: bytes, max_bytes: int, error: type[TrajkitError]) -> str:
    if len(raw) > max_bytes:
        raise error(f"{path} is larger than {max_bytes:,} bytes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as failure:
        raise error(f"{path} is not UTF-8 at byte {failure.start:,}") from failure


def json_from_outside(text: str | bytes, *, where: str, error: type[TrajkitError] = DataError) -> Any:
    """Parse JSON from outside.

    Args:
        text: The JSON.
        where: The file or answer that it comes from, for messages.
        error: The error to raise.

    Raises:
        TrajkitError: It is not JSON, is nested too deep, or holds a number with too many digits.
    """
    try:
        return json.loads(text)
    except RecursionError as failure:
        raise error(f"{where} is nested too deep") from failure
    except ValueError as failure:
        raise error(f"{where} is not valid JSON: {failure}") from failure


def yaml_from_outside(text: str, *, where: str, error: type[TrajkitError] = DataError) -> Any:
    """Parse YAML from outside.

    Args:
        text: The YAML.
        where: The file that it comes from, for messages.
        error: The error to raise.

    Raises:
        TrajkitError: It is not YAML, is too large or nested too deep, or has too many aliases.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        n_aliases = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                self.n_aliases += 1
                if self.n_aliases > _MOST_ALIASES:
                    raise error(f"{where} has more than {_MOST_ALIASES} YAML aliases", hint="write them out")
            return super().compose_node(parent, index)

    if len(text) > _LONGEST_YAML:
        raise error(f"{where} has more than {_LONGEST_YAML:,} characters of YAML")
    try:
        return yaml.load(text, Loader)
    except RecursionError as failure:
        raise error(f"{where} is nested too deep") from failure
    except (yaml.YAMLError, ValueError) as failure:  # ValueError: no such date, or too many digits
        raise error(f"{where} is not valid YAML: {str(failure).splitlines()[0]}") from failure


def visible(text: str, *, is_line: bool = True) -> str:
    """Escape the characters of a text that could control a terminal or fake another line.

    Args:
        text: The text to print.
        is_line: Also escape line breaks and tabs.
    """
    if text.isprintable():
        return text
    return _UNUSUAL.sub(
        lambda found: found[0] if found[0] in "\n\t" and not is_line else _spelled(found[0]), text
    )


def visible_json(text: str) -> str:
    """Escape the same characters in JSON text, without changing its meaning."""
    return _UNUSUAL.sub(
        lambda found: found[0] if found[0] == "\n" else _spelled(found[0], is_json=True), text
    )


_UNUSUAL = re.compile(r"[^ -~]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


@lru_cache(maxsize=1 << 14)
def _spelled(character: str, *, is_json: bool = False) -> str:
    """Return a character as an escape; a harmless one unchanged."""
    # Cc: control codes; Cf: invisible marks, also those that turn the direction of writing; Cs: half of a
    # pair, which no stream takes; Zl, Zp: line breaks. U+200D joins emoji.
    if unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp") or character == "\u200d":
        return character
    if is_json:
        return json.dumps(character)[1:-1]
    code = ord(character)
    return _NAMED.get(character) or (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
