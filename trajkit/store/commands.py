"""Print lineage as the commands that would repeat it."""

from __future__ import annotations

import json
import shlex
from typing import Any

from trajkit.schema import LineageEntry

_RESULTS = frozenset({"result", "found", "report", "stores", "n_workers"})
"""Fields of entries that describe results and are not options."""
_LONGEST = 400


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
    return _line(" ".join(["trajkit", entry.verb, *_options(entry.arguments)]))


def quoted(text: str) -> str:
    """Quote a word for a shell; in double quotes where it has single ones, which is easier to read."""
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
