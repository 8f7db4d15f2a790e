"""`trajkit stats`: numbers about a dataset, with their intervals."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trajkit._core import console
from trajkit.cli.option import confidence_option
from trajkit.commands.place import last_store

if TYPE_CHECKING:
    from trajkit.curation.stats_model import Stats
    from trajkit.curation.stats_text import Table

_LONGEST = 60
"""Characters of an action that are printed."""
_BAR = 30
"""Columns of a bar that is all."""
_GAP = 2
"""Columns between those of a table."""

_EPILOG = """\
Shares have Wilson's interval, means Student's t, or with --bootstrap the percentiles of so many resamples.
The intervals take episodes as independent: several attempts at one seed say less than they claim.
"""


@click.command(epilog=_EPILOG)
@click.argument("stores", metavar="[STORE]...", nargs=-1)
@click.option(
    "--score",
    metavar="NAME",
    help="The metric whose mean is told.  [default: episode_return, else total_reward]",
)
@confidence_option
@click.option(
    "--bootstrap",
    "resamples",
    type=click.IntRange(min=100),
    metavar="N",
    help="Intervals of means from N resamples instead of Student's t.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the bootstrap."
)
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write a page of charts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def stats(
    stores: tuple[str, ...],
    score: str | None,
    confidence: float,
    resamples: int | None,
    seed: int,
    html: Path | None,
    as_json: bool,
) -> None:
    """Describe STORE in numbers; without one, the last store that was written here.

    Several stores, or a folder of stores such as `split` leaves, are taken together and compared by split.

    \b
    trajkit stats stores/train --html stats.html
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit._core.files import refuse_existing, write_text
    from trajkit.curation.stats import stats as stats_of
    from trajkit.curation.stats_page import page

    if html is not None:
        refuse_existing(html)
    found = stats_of(
        *(stores or (last_store(console.talk),)),
        score=score,
        confidence=confidence,
        resamples=resamples or 0,
        seed=seed,
    )
    if html is not None:
        write_text(html, page(found))
    if as_json:
        console.result_json(found.model_dump(mode="json"))
    else:
        _print(found)
    if html is not None:
        console.talk(f"{html}  {console.size(html.stat().st_size)}")


def _print(found: Stats) -> None:
    from trajkit.curation.stats_page import shown_groups
    from trajkit.curation.stats_text import facts, funnel_rows, group_rows, metric_rows, spread_rows

    console.result(console.styled(", ".join(map(str, found.stores)), bold=True))
    console.result(f"{100 * found.confidence:.4g}% intervals: Wilson for success, {found.interval} for means")
    console.result()
    groups = shown_groups(found)
    _table(group_rows(found, groups))
    unjudged = next(group.n_unjudged for group in groups if group.by == "all")
    if unjudged:
        console.result(f"success leaves out {console.plural(unjudged, 'episode')} whose outcome is not known")
    for by, n_groups in found.n_groups.items():
        n_shown = sum(group.by == by for group in groups)
        if n_shown and n_groups > n_shown:
            console.result(f"… and {console.plural(n_groups - n_shown, by)} more")
    console.result()
    _table(spread_rows(found.spreads))
    console.result()
    headings, rows = metric_rows(found)
    if rows:
        _table((headings, rows))
        console.result()
    lines = list(facts(found))
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        console.result(console.styled(f"{name:<{width}}", dim=True), f"  {text}")
    if found.coverage.actions:
        console.result()
        _table(_actions(found))
    console.result()
    _table(funnel_rows(found))


def _actions(found: Stats) -> Table:
    """Which actions there were; on a terminal with a bar for each share."""
    total = found.n_steps - found.coverage.n_without_action
    rows: list[tuple[str, ...]] = [
        (_cut(one.action), console.count(one.n), f"{one.n / total:.1%}") for one in found.coverage.actions
    ]
    if not sys.stdout.isatty():
        return ("action", "steps", "share"), rows
    bars = [(*row, _bar(one.n / total)) for row, one in zip(rows, found.coverage.actions, strict=True)]
    return ("action", "steps", "share", f"{'of all':<{_BAR}}"), bars


def _bar(share: float) -> str:
    return f"{'━' * round(_BAR * share):<{_BAR}}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _table(table: Table) -> None:
    """Print a table; on a terminal that is narrower, as several with the same first column."""
    headings, rows = table
    blocks = [tuple(range(len(headings)))]
    if sys.stdout.isatty():
        widths = [max(map(console.width_of, column)) for column in zip(headings, *rows, strict=True)]
        blocks = list(_blocks(widths, shutil.get_terminal_size().columns))
    for n_before, block in enumerate(blocks):
        if n_before:
            console.result()
        cells = [console.Cell(headings[place], is_number=place > 0) for place in block]
        console.table(cells, [[row[place] for place in block] for row in rows])


def _blocks(widths: list[int], n_columns: int) -> Iterator[tuple[int, ...]]:
    """The columns of each part: the first, and as many as fit, at least one."""
    block, taken = [0], widths[0]
    for place, width in enumerate(widths[1:], start=1):
        if len(block) > 1 and taken + _GAP + width > n_columns:
            yield tuple(block)
            block, taken = [0], widths[0]
        block.append(place)
        taken += _GAP + width
    yield tuple(block)
