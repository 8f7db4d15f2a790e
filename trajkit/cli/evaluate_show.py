"""What an evaluation came to: a row per variant, and how each differs from the first on the same worlds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trajkit._core.console import Cell, count, plural, result, result_json, table, talk

if TYPE_CHECKING:
    from pathlib import Path

    from trajkit.evaluation.compare import Comparison
    from trajkit.evaluation.report_object import Report
    from trajkit.evaluation.report_text import Table
    from trajkit.rollouts.session import Run

_LENGTH = "n_steps"
_MOSTLY = 0.5
"""Share of answers that named no action from which on that is said."""


def print_result(run: Run, store: Path, leaks: Sequence[str], *, quiet: bool, as_json: bool) -> None:
    """Print how the variants did in what was played so far.

    Args:
        run: The run.
        store: The store that it has written.
        leaks: What was not held out, each in words.
        quiet: Print the result alone.
        as_json: As one document, with every measure and task.

    Raises:
        StoreError: The store cannot be read.
    """
    from trajkit.evaluation.report import report

    found = report(store)
    plan = run.plan
    n_planned = plan.n_jobs // (len(plan.variants) * max(1, len(plan.decodings)))
    if as_json:
        result_json(_document(run, store, found, n_planned))
    else:
        _print(found, n_planned)
        for leak in leaks:
            result(f"not held out: {leak}")
    if not quiet:
        for note in _notes(found):
            talk(f"note: {note}")


def _document(run: Run, store: Path, found: Report, n_planned: int) -> dict[str, Any]:
    plan = run.plan
    groups = [group.model_dump(mode="json") for group in found.groups]
    return {
        "store": str(store),
        "run": plan.run,
        "env": plan.env_name or plan.env_id,
        "tasks": list(plan.tasks),
        "seeds": str(plan.seeds),
        **run.session.remarks,
        "n_planned": n_planned,
        "groups": [{**group, "n_missing": n_planned - group["n_episodes"]} for group in groups],
        "comparisons": [each.model_dump(mode="json") for each in found.comparisons],
        "notes": list(found.notes),
    }


def _print(found: Report, n_planned: int) -> None:
    """The report's own tables: all measures of each variant, and the differences that matter first."""
    from trajkit.evaluation.report_text import difference_table, group_table

    groups = group_table(found)
    missing = [count(n_planned - group.n_episodes) for group in found.groups]
    rows = [(*row, n) for row, n in zip(groups.rows, missing, strict=True)]
    _print_table(groups._replace(headings=(*groups.headings, "missing"), rows=rows))
    if found.comparisons:
        result()
        _print_table(difference_table(_shown(found)))


def _shown(found: Report) -> list[Comparison]:
    """Differences of success, return and length."""
    return [each for each in found.comparisons if each.metric in (*found.measures[:2], _LENGTH)]


def _print_table(shown: Table) -> None:
    columns = [Cell(name, is_number=place >= shown.n_text) for place, name in enumerate(shown.headings)]
    table(columns, shown.rows)


def _notes(found: Report) -> Iterator[str]:
    """What a reader must know beside the numbers."""
    from trajkit.evaluation.report_text import notes

    yield from notes(_shown(found))
    yield from found.notes
    for group in found.groups:
        if group.n_judged and group.n_invalid >= _MOSTLY * group.n_judged:
            share = f"{group.n_invalid / group.n_judged:.0%} of {plural(group.n_judged, 'answer')}"
            yield f"{group.name}: {share} named no action; the environment's default was carried out instead"
