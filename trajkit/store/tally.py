"""Count a command's episodes: in, kept, and left out by reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trajkit._core.output.console import Cell, count, table_text

if TYPE_CHECKING:
    from trajkit.schema import LineageEntry


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
        f"{entry.verb}: {entry.n_episodes_in:,} episodes in, {entry.n_episodes_out:,} out; "
        f"{entry.n_steps_in:,} steps in, {entry.n_steps_out:,} out"
    ]
    lines += [
        f"  left: {left.n_episodes:,} episodes, {left.n_steps:,} steps: {left.reason}" for left in entry.left
    ]
    lines += [f"  kept as context only: {masked.n_steps:,} steps: {masked.reason}" for masked in entry.masked]
    return lines


def tally_text(entry: LineageEntry, *more: tuple[str, str, str]) -> str:
    """Write an entry as a table: seen, left by reason, kept.

    Args:
        entry: The lineage entry.
        more: Further rows, below the kept ones.
    """
    rows = [("seen", count(entry.n_episodes_in), count(entry.n_steps_in))]
    rows += [(f"left: {left.reason}", count(left.n_episodes), count(left.n_steps)) for left in entry.left]
    rows += [("kept", count(entry.n_episodes_out), count(entry.n_steps_out)), *more]
    rows += [
        (f"  of them not learned: {masked.reason}", "", count(masked.n_steps)) for masked in entry.masked
    ]
    return table_text([Cell(""), Cell("episodes", is_number=True), Cell("steps", is_number=True)], rows)
