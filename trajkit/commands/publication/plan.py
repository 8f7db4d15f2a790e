"""What `trajkit push` shows before it asks: what is known of the stores, what would be sent, and to whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trajkit._core.output import console

if TYPE_CHECKING:
    from trajkit.curation.redaction.column import RedactReport
    from trajkit.curation.redaction.gate import Opinion
    from trajkit.publishing.facts import Facts
    from trajkit.publishing.files.contents import Contents
    from trajkit.publishing.push import PushPlan

_MOST_FILES = 12


def fact_lines(facts: Facts) -> Iterator[str]:
    """Leaks, replays, and what the search for secrets found; of that never a value."""
    for each in facts.compared:
        other = "what is reserved" if each.evaluation is None else each.evaluation
        yield f"leak: {each.train} and {other}: {'LEAK' if each.leaks else 'none'}"
        yield from (f"  {line}" for line in each.lines if each.leaks)
    for replay in facts.replayed:
        yield (
            f"replay: {replay.split}: {replay.n_verified:,} of {replay.n_episodes:,} episodes verified, "
            f"{replay.n_different:,} different"
        )
    if not facts.replayed:
        yield "replay: not known (`trajkit replay` plays the episodes again)"
    for scanned in facts.scanned:
        yield from scanned_lines(scanned.report, scanned.split)


def scanned_lines(report: RedactReport, where: str = "files") -> Iterator[str]:
    """What the search for secrets found, by kind and place."""
    if not report.n_found:
        yield f"secrets: {where}: nothing found in {console.plural(report.n_texts, 'text')}"
    for found in report.found:
        yield f"secrets: {where}: {found.n_found:,} {found.kind} in {found.place}"


def opinion_line(opinion: Opinion) -> str:
    """What another scanner says."""
    rules = ", ".join(f"{rule} {n:,}" for rule, n in sorted(opinion.n_by_rule.items()))
    return f"{opinion.program}: {f'it finds {rules}' if rules else 'nothing found'}"


def content_lines(contents: Contents) -> Iterator[str]:
    """Rows by split, and what is in none."""
    for rows in contents.rows:
        yield f"sft: {rows.split}: {console.plural(rows.n_rows, 'row')} to train on"
        if rows.format == "trl-prompt-completion":
            yield f"  written as {rows.format}: trl-messages teaches every answer, and some are only context"
        for reason, number in rows.left.items():
            yield f"  in no row: {console.plural(number, 'step')}: {reason}"
        for kind, number in rows.losses.items():
            yield f"  left out of the rows: {number:,} {kind}"
        if rows.n_evaluation_left:
            yield f"  in no row: {console.plural(rows.n_evaluation_left, 'evaluation episode')}"
    for moved in contents.record.moved:
        what = "row" if moved.table == "sft" else "value"
        yield f"too wide for the viewer: {console.plural(moved.n_values, what)} of {moved.table}, in moved/"


def plan_lines(plan: PushPlan, licence: str | None, *, is_seen: bool = True) -> Iterator[str]:
    """Where to, for whom, and which files.

    Args:
        plan: The plan.
        licence: The licence that the user gave.
        is_seen: Whether the dataset on the Hub was read.
    """
    there = "new" if plan.remote is None else f"there, at {plan.remote.commit[:12]}"
    there = there if is_seen else "the Hub was not asked"
    yield f"{plan.kind}: {plan.repository} ({there})"
    yield f"seen by: {'EVERYBODY' if plan.is_public else 'its owner'}"
    yield f"licence: {licence or 'unknown'}"
    if plan.tag is not None:
        yield f"tag: {plan.tag}"
    change = plan.change
    if change.is_empty:
        yield "nothing has changed: there is nothing to send"
        return
    yield (
        f"files: {len(change.add):,} to send ({console.size(change.n_bytes)}), "
        f"{change.n_same:,} there already, {len(change.delete):,} to remove"
    )
    for path, file in sorted(change.add.items())[:_MOST_FILES]:
        yield f"  {path}  {console.size(file.stat().st_size)}"
    if len(change.add) > _MOST_FILES:
        yield f"  and {len(change.add) - _MOST_FILES:,} more"
