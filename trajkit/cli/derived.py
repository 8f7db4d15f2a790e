"""What several commands that are written with click have in common: names in a list, and a tally."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trajkit._core.console import Cell, count, table

if TYPE_CHECKING:
    from trajkit.schema import LineageEntry


def columns_given(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Names that may come one by one, or several with commas."""
    return tuple(name.strip() for text in value for name in text.split(",") if name.strip())


def print_entry(entry: LineageEntry) -> None:
    """The tally of a verb as a table on stdout: seen, left by reason, kept."""
    rows = [("seen", entry.n_episodes_in, entry.n_steps_in)]
    rows += [(f"left: {left.reason}", left.n_episodes, left.n_steps) for left in entry.left]
    rows += [("kept", entry.n_episodes_out, entry.n_steps_out)]
    lines = [(name, count(n_episodes), count(n_steps)) for name, n_episodes, n_steps in rows]
    lines += [
        (f"  of them not learned: {masked.reason}", "", count(masked.n_steps)) for masked in entry.masked
    ]
    table([Cell(""), Cell("episodes", is_number=True), Cell("steps", is_number=True)], lines)
