"""What came in, what went out, and why the rest left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trajkit.schema import LineageEntry


@dataclass(frozen=True)
class Tally:
    """The verbs on the way from the source, oldest first. As text: a block per verb."""

    entries: tuple[LineageEntry, ...]
    """One per verb."""

    def __iter__(self) -> Iterator[LineageEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __str__(self) -> str:
        return "\n".join(line for entry in self.entries for line in lines_of(entry))


def lines_of(entry: LineageEntry) -> list[str]:
    """A verb as lines: what went in and out, then a line per reason."""
    lines = [
        f"{entry.verb}: {entry.n_episodes_in:,} episodes in, {entry.n_episodes_out:,} out; "
        f"{entry.n_steps_in:,} steps in, {entry.n_steps_out:,} out"
    ]
    lines += [
        f"  left: {left.n_episodes:,} episodes, {left.n_steps:,} steps: {left.reason}" for left in entry.left
    ]
    lines += [f"  kept as context only: {masked.n_steps:,} steps: {masked.reason}" for masked in entry.masked]
    return lines
