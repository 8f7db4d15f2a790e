"""Format the report as Markdown: every table, and links to the chart files where they exist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trajkit.evaluation.reports.model import ReportData
from trajkit.evaluation.reports.text import (
    Table,
    caution,
    difference_table,
    group_table,
    heading,
    learning_table,
    measure_table,
    notes,
    outcome_table,
    per_success_table,
    regression_table,
    said_of,
    stores_table,
)

_MOST_NAMED = 20


def markdown(report: ReportData, pictures: Sequence[tuple[str, str]] = ()) -> str:
    """Format the report as Markdown.

    Args:
        report: The report.
        pictures: Title and address of each chart.
    """
    return "\n".join(_lines(report, pictures)) + "\n"


def _lines(report: ReportData, pictures: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield f"# {_plain(', '.join(group.name for group in report.groups))}"
    yield ""
    yield f"{report.n_episodes:,} episodes, {len(report.tasks):,} tasks. {said_of(report)}"
    yield ""
    remarks = [*report.notes, *notes(report.comparisons), *filter(None, [caution(report)])]
    yield from (f"- {_plain(text)}" for text in remarks)
    yield from _section("Variants", group_table(report), is_first=not remarks)
    if report.comparisons:
        yield from _section("Differences", difference_table(report.comparisons))
        if len(report.tasks) > 1:
            by_task = [each for each in report.comparisons if each.task is not None]
            yield from _section("Differences by task", difference_table(by_task, is_by_task=True))
    for measure in report.measures:
        yield from _section(heading(measure).capitalize(), measure_table(report.groups, measure))
    if any(group.training is not None for group in report.groups):
        yield from _section("What was learned", learning_table(report))
    yield from _section("How episodes ended", outcome_table(report.groups))
    spent = per_success_table(report.groups)
    if spent.rows:
        yield from _section("Per success", spent)
    yield from _regressions(report)
    yield from _unaliased(report)
    for title, address in pictures:
        yield ""
        yield f"![{title}]({address})"
    yield from _section("Stores", stores_table(report))


def _regressions(report: ReportData) -> Iterator[str]:
    table = regression_table(report.regressions)
    if not table.rows:
        return
    yield from _section("What got worse", table)
    yield ""
    for each in report.regressions[:_MOST_NAMED]:
        sides = ", ".join(
            f"{played.group} `{played.episode_id}` ({played.outcome})" for played in each.episodes
        )
        yield f"- {_plain(f'{each.task} seed {each.seed}')}: {_plain(sides)}"
    if len(report.regressions) > _MOST_NAMED:
        yield f"- and {len(report.regressions) - _MOST_NAMED:,} more in report.json"


def _unaliased(report: ReportData) -> Iterator[str]:
    found = report.unaliased
    if found is None:
        return
    yield ""
    yield "## Worlds whose text is in no training store"
    yield ""
    yield f"Aliased text: {found.n_aliased:,} of {found.n_worlds:,} worlds."
    yield from (f"- leak: {_plain(text)}" for text in found.leaks)
    for table in (group_table(report, found.groups), difference_table(found.comparisons)):
        if table.rows and found.n_aliased:
            yield ""
            yield from _table(table)


def _section(title: str, table: Table, *, is_first: bool = False) -> Iterator[str]:
    if not is_first:
        yield ""
    yield f"## {title}"
    yield ""
    yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    yield _row(table.headings)
    yield _row([":--" if place < table.n_text else "--:" for place in range(len(table.headings))])
    yield from map(_row, table.rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_plain(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _plain(text: str) -> str:
    """Put a name from data on one line, without characters that are Markdown or HTML markup."""
    line = "".join(character if character.isprintable() else "\ufffd" for character in text)
    return line.replace("<", "&lt;")
