"""Show a dataset in a notebook: its size, the first episodes, and how it was made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajkit._core.output import notebook as html
from trajkit.store.tally import lines_of, tally_rows

if TYPE_CHECKING:
    from trajkit.schema import LineageEntry
    from trajkit.store.dataset import Dataset

_MOST_ROWS = 5
_MOST_METRICS = 4
_ID = 13
"""Shown characters of an id: the time in a UUIDv7, which distinguishes most ids."""


def dataset_html(dataset: Dataset) -> str:
    """Return HTML for the output of a notebook cell."""
    return html.framed(_dataset(dataset))


def _dataset(dataset: Dataset) -> Iterator[str]:
    manifest = dataset.store.manifest
    n_episodes, n_steps = dataset.n_episodes, dataset.n_steps
    verbs = "".join(f".{verb}" for verb in dataset.verbs)
    yield html.title(
        f"{dataset.store.path.name}{verbs}",
        f"{n_episodes:,} {_many('episode', n_episodes)}, {n_steps:,} {_many('step', n_steps)}",
    )
    split = f"  ·  split {manifest.split}" if manifest.split else ""
    yield html.line(f"{manifest.kind}, digest {manifest.digest[:12]}{split}")
    rows = dataset.limit(min(_MOST_ROWS, n_episodes)).arrow("episodes").read_all().to_pylist()
    if rows:
        yield _table(rows)
    if (n_more := n_episodes - len(rows)) > 0:
        yield html.line(f"… and {n_more:,} {_many('episode', n_more)} more")
    entries = dataset.why()
    if len(entries):
        made = "".join(html.block("\n".join(lines_of(entry))) for entry in entries)
        yield html.folded(f"how it was made ({len(entries)} {_many('step', len(entries))})", made)


def _table(rows: list[dict[str, Any]]) -> str:
    metrics = [name for name, value in (rows[0].get("metrics") or {}).items()][:_MOST_METRICS]
    headings = ("episode", "environment", "task", "outcome", "seed", "steps", "reward", *metrics)
    cells = [
        (
            str(row["episode_id"])[:_ID],
            _text(row["env_id"]),
            _text(row["task"]),
            _text(row["outcome"]),
            _text(row["seed"]),
            _text(row["n_steps"]),
            _text(row["total_reward"]),
            *(_text((row.get("metrics") or {}).get(name)) for name in metrics),
        )
        for row in rows
    ]
    return html.table(headings, cells, n_text=4)


def entry_html(entry: LineageEntry, path: Path | None) -> str:
    """Show the counts of a verb as a table: seen, left out by reason, kept."""
    lines = tally_rows(entry)
    lines += [(f"of them not learned: {each.reason}", "", f"{each.n_steps:,}") for each in entry.masked]
    where = "dry run: nothing was written" if path is None else str(path)
    return html.framed((html.title(entry.verb, where), html.table(("", "episodes", "steps"), lines)))


def _many(noun: str, n: int) -> str:
    return noun if n == 1 else f"{noun}s"


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
