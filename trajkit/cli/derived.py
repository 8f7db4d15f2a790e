"""What every command that makes a store of a store has in common: its tally, its last line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._core.console import Cell, count, plural, result, result_json, table, talk
from trajkit.commands.place import remember_store

if TYPE_CHECKING:
    from trajkit.schema import LineageEntry, Manifest


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


def print_derived(
    entry: LineageEntry,
    manifest: Manifest | None,
    goal: Path | None,
    *,
    as_json: bool,
    more: dict[str, Any] | None = None,
) -> None:
    """Print what a verb did, and remember the store it left as the last one.

    Args:
        entry: The verb's entry of the lineage.
        manifest: Of the new store; None after a dry run.
        goal: Where it is; None after a dry run.
        as_json: One JSON document instead of the table and the last line.
        more: Further fields of that document.
    """
    if as_json:
        result_json(
            {
                "store": None if goal is None else str(goal),
                "digest": None if manifest is None else manifest.digest,
                **entry.model_dump(mode="json"),
                **(more or {}),
            }
        )
    else:
        print_entry(entry)
    if goal is None or manifest is None:
        talk("dry run: nothing was written")
        return
    remember_store(goal)
    if not as_json:
        result(store_line(goal, manifest))


def store_line(goal: Path, manifest: Manifest) -> str:
    """The line that says which store now exists."""
    kept = f"{plural(manifest.counts.n_episodes, 'episode')}  {plural(manifest.counts.n_steps, 'step')}"
    return f"{goal}  {kept}  digest {manifest.digest[:12]}"
