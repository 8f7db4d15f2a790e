"""Print lineage: counts of the episodes of each command, and the commands that would repeat it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trajkit._core.output.console import Cell, count, plural, table_text

if TYPE_CHECKING:
    from trajkit.schema import LineageEntry

_RESULTS = frozenset({"result", "found", "report", "stores", "n_workers"})
"""Fields of entries that describe results and are not options."""
_LONGEST = 400


@dataclass(frozen=True)
class Tally:
    """The commands since the source, oldest first. As text: a block per command."""

    entries: tuple[LineageEntry, ...]

    def __iter__(self) -> Iterator[LineageEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __str__(self) -> str:
        return "\n".join(line for entry in self.entries for line in lines_of(entry))


def lines_of(entry: LineageEntry) -> list[str]:
    """Write an entry as lines: episodes and steps in and out, then a line per reason."""
    lines = [
        f"{entry.verb}: {plural(entry.n_episodes_in, 'episode')} in, {entry.n_episodes_out:,} out; "
        f"{plural(entry.n_steps_in, 'step')} in, {entry.n_steps_out:,} out"
    ]
    for left in entry.left:
        lost = f"{plural(left.n_episodes, 'episode')}, {plural(left.n_steps, 'step')}"
        lines.append(f"  left: {lost}: {left.reason}")
    for masked in entry.masked:
        lines.append(f"  kept as context only: {plural(masked.n_steps, 'step')}: {masked.reason}")
    return lines


def tally_rows(entry: LineageEntry) -> list[tuple[str, str, str]]:
    """Return what an entry counts, its episodes and its steps: seen, left out by reason, kept."""
    rows = [("seen", count(entry.n_episodes_in), count(entry.n_steps_in))]
    rows += [(f"left: {left.reason}", count(left.n_episodes), count(left.n_steps)) for left in entry.left]
    return [*rows, ("kept", count(entry.n_episodes_out), count(entry.n_steps_out))]


def tally_text(entry: LineageEntry, *more: tuple[str, str, str]) -> str:
    """Write an entry as a table: seen, left out by reason, kept.

    Args:
        entry: The lineage entry.
        more: Further rows, below the kept ones.
    """
    rows = [*tally_rows(entry), *more]
    rows += [
        (f"  of them not learned: {masked.reason}", "", count(masked.n_steps)) for masked in entry.masked
    ]
    return table_text([Cell(""), Cell("episodes", is_number=True), Cell("steps", is_number=True)], rows)


def command_of(entry: LineageEntry) -> str:
    """Return the command of an entry, with the kept episodes as a comment."""
    command = as_recorded(entry)
    return f"{command}{chr(10) if chr(10) in command else '  '}# {_kept(entry)}"


def as_recorded(entry: LineageEntry) -> str:
    """Return the command of an entry with the options as they are spelled there.

    If the entry has whole commands, those are returned, a line for each.
    """
    commands = entry.arguments.get("commands")
    if isinstance(commands, list):
        return "\n".join(map(_line, commands))
    if entry.verb == "forget":  # its history does not name the episodes
        return f"trajkit forget: {plural(entry.n_episodes_in - entry.n_episodes_out, 'episode')}"
    return _line(" ".join(["trajkit", entry.verb, *_options(entry.arguments)]))


def quoted(text: str) -> str:
    """Quote a word for a shell; in double quotes if it has single ones, which is easier to read."""
    is_plain = shlex.quote(text) == text or "'" not in text or any(each in text for each in '"$`\\!')
    return shlex.quote(text) if is_plain else f'"{text}"'


def _kept(entry: LineageEntry) -> str:
    kept = f"{entry.n_episodes_out:,} of {entry.n_episodes_in:,} episodes"
    left = "; ".join(f"{each.n_episodes:,} {_line(each.reason)}" for each in entry.left if each.n_episodes)
    return f"{kept}, left: {left}" if left else kept


def _options(arguments: Any) -> list[str]:
    words: list[str] = []
    for name, value in arguments.items():
        if name in _RESULTS or value is None or value is False or value in ("", [], {}):
            continue
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif isinstance(value, dict) and all(
            each is None or isinstance(each, str) for each in value.values()
        ):
            words += [
                word
                for key, each in value.items()
                for word in (option, quoted(f"{key}={'…' if each is None else each}"))
            ]
        elif isinstance(value, list) and all(isinstance(each, str | int | float) for each in value):
            words += [word for each in value for word in (option, quoted(str(each)))]
        elif isinstance(value, str | int | float):
            words += [option, quoted(str(value))]
        else:
            words += [option, quoted(json.dumps(value, ensure_ascii=False))]
    return words


def _line(text: Any) -> str:
    shown = " ".join(str(text).split())
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]} …"
