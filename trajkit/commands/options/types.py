"""How the parameters of a command are typed on the command line, if their types are not enough.

A command is a function whose signature and docstring are its only declaration. `trajkit.commands.command`
makes the command line of it. A parameter of a plain type needs nothing from here; others are `Annotated` with
an `Option`, and the types below are those that several commands share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Union

from trajkit._core.times import in_utc

if TYPE_CHECKING:
    from datetime import datetime

    from trajkit.commands.result import Made
    from trajkit.store.dataset import Dataset


@dataclass(frozen=True, kw_only=True)
class Option:
    """How one parameter is typed."""

    metavar: str | None = None
    """Placeholder for its value in the help, such as `SQL`."""
    short: str | None = None
    """Its short form, such as `-o`."""
    alias: str | None = None
    """A second name of it, such as `--game`."""
    least: float | None = None
    """Smallest number that is accepted."""
    most: float | None = None
    """Largest number that is accepted."""
    takes_address: bool = False
    """Whether a file or folder may be at an address such as `s3://bucket/x`; stores always may."""
    is_local_because: str = "docs/storage.md lists what takes addresses"
    """The hint when an address is refused."""
    is_open: bool = False
    """Whether `least` and `most` themselves are refused."""
    is_repeated: bool = False
    """Whether it may be typed several times; the function gets a tuple, or a dictionary of NAME=VALUE."""
    is_list: bool = False
    """Whether one value may hold several, separated by commas; the function gets a tuple."""
    read: Callable[[str], Any] | None = None
    """Turns each typed text into the value that the function takes; may raise a `TrajkitError`. For a
    mapping: reads the text after the `=`."""
    pair: Callable[[str], tuple[str, str]] | None = None
    """For a mapping: splits a typed text that is not NAME=VALUE into name and value."""
    default: Any = None
    """Default of an option of a group, which has no signature."""
    of: str | None = None
    """The option that it belongs to: to the last value of it before. The function gets a mapping for that
    option, from each value to a tuple of what belongs to it, None if nothing was typed."""
    listing: Callable[[], str] | None = None
    """For an argument: returns the table of built-in values that `--list` prints."""
    negative: str | None = None
    """The flag for False, if it is not `--no-NAME`."""


Place: TypeAlias = str | Path
"""A file or a folder."""
StoreLike: TypeAlias = Union[str, Path, "Dataset", "Made"]
"""A store: its folder, `sample:NAME`, `@NAME`, a dataset of all of it, or what a command made."""
Many: TypeAlias = Annotated[str | Iterable[str], Option(is_repeated=True)]
"""One text, or several."""
Columns: TypeAlias = Annotated[str | Iterable[str], Option(is_repeated=True, is_list=True, metavar="COLUMNS")]
"""Names of columns, metrics or `tags.NAME`."""
Conditions: TypeAlias = Annotated[str | Iterable[str], Option(is_repeated=True, metavar="SQL")]
"""SQL expressions that all must be true."""
Count: TypeAlias = Annotated[int, Option(least=1, metavar="N")]
"""A whole number, 1 or more."""
Confidence: TypeAlias = Annotated[float, Option(least=0, most=1, is_open=True)]
"""The confidence of an interval, such as 0.95."""
Output: TypeAlias = Annotated[Place | None, Option(short="-o", metavar="PATH", takes_address=True)]
"""Where the result is written, or its address; None for a new name in the folder of stores."""
LocalOutput: TypeAlias = Annotated[Place | None, Option(short="-o", metavar="PATH")]
"""Where the result is written on this machine."""
NewFolder: TypeAlias = Annotated[Place, Option(short="-o", metavar="PATH")]
"""The same, if it is required."""
DataFile: TypeAlias = Annotated[Place, Option(takes_address=True)]
"""A file of rows, or its address."""
File: TypeAlias = Annotated[Place | None, Option(metavar="FILE")]
"""A file."""
ServerMemory: TypeAlias = Annotated[int | str | None, Option(metavar="SIZE")]
"""Memory of a database's server: a number of bytes, or a text such as `2GB`."""
RunsFolder: TypeAlias = Annotated[Place, Option(metavar="FOLDER")]
"""The folder where jobs are kept."""
Tasks: TypeAlias = Annotated[str | Iterable[str], Option(is_repeated=True, alias="--game", metavar="TASK")]
"""Tasks of an environment, or games; none for all."""
TaskList: TypeAlias = Annotated[
    str | Iterable[str],
    Option(is_repeated=True, is_list=True, alias="--game", metavar="TASKS", default=()),
]
"""The same, or several separated by commas."""
Moment: TypeAlias = Annotated[Union[str, "datetime", None], Option(metavar="TIME")]
"""A date or a time (ISO); UTC without an offset."""
NewPath: TypeAlias = Annotated[Place, Option(short="-o", metavar="PATH", takes_address=True)]
"""Where the result is written, or its address, if it is required."""
Settings: TypeAlias = Annotated[Mapping[str, object], Option(is_repeated=True, metavar="NAME=VALUE")]
"""Values by name."""


def moment_of(moment: str | datetime | None, option: str) -> datetime | None:
    """Return an aware time; a text is ISO, and UTC without an offset.

    Raises:
        RequestError: The text is not a time.
    """
    from trajkit.sources.request import parse_time

    if moment is None:
        return None
    if isinstance(moment, str):
        return parse_time(moment, option=option)
    return in_utc(moment)


def many(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """One text, or several, as a tuple."""
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)
