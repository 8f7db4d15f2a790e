"""Format a report as sentences and table rows, shared by the terminal, Markdown and the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from trajkit._core.output.console import Cell, line, table_text
from trajkit.curation.statistics.chart import brief
from trajkit.evaluation.estimates.compare import Comparison
from trajkit.evaluation.estimates.estimate import SHARES, Estimate
from trajkit.evaluation.groups import PROMPTS
from trajkit.evaluation.reports.model import GroupResult, Regression, ReportData

HEADINGS = {
    "success": "success",
    "episode_return": "return",
    "total_reward": "return",
    "n_steps": "length",
    "n_output_tokens": "generated tokens",
    "n_input_tokens": "input tokens",
    "invalid": "invalid answers",
    "cost_usd": "cost (USD)",
}
"""Measures in words; other metrics are shown by their names."""

ALL = "all"
"""All tasks together, each with the same weight."""

_OUTCOMES = ("success", "failure", "truncated", "error", "unknown")


class Table(NamedTuple):
    """Headings, and rows of the same length; the first columns are text."""

    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    n_text: int = 1
    """Number of leading text columns; the others are numbers."""


def heading(measure: str) -> str:
    """Return a measure in words."""
    return HEADINGS.get(measure, measure)


def number(value: float | None, measure: str = "", *, signed: bool = False, like: float | None = None) -> str:
    """Format a value: three decimals for a share, a return or a small value, otherwise fewer.

    Args:
        value: The value; None gives `-`.
        measure: The measure of the value.
        signed: Put a plus before a value above 0.
        like: Use as many decimals as this value would have.
    """
    if value is None:
        return "-"
    size = abs(value if like is None else like)
    if size >= 1000:
        text = brief(value)
    elif measure in SHARES or measure.endswith("return") or size < 10:
        text = f"{value:.3f}" if abs(value) >= 0.0005 or value == 0 else f"{value:.2g}"
    else:
        text = f"{value:.1f}"
    return f"+{text}" if signed and value > 0 else text


def interval(low: float | None, high: float | None, measure: str = "", *, signed: bool = False) -> str:
    """Format an interval as `[0.105, 0.348]`; `-` if there is none."""
    if low is None and high is None:
        return "-"
    ends = (
        number(low, measure, signed=signed),
        "∞" if high is None else number(high, measure, signed=signed),
    )
    return f"[{ends[0]}, {ends[1]}]"


def _estimate_cells(found: Estimate, measure: str) -> tuple[str, str]:
    """Return the cells `0.200 ± 0.065` and `[0.105, 0.348]`."""
    error = found.standard_error
    spread = "" if error is None else f" ± {number(error, measure, like=found.value)}"
    return f"{number(found.value, measure)}{spread}", interval(found.low, found.high, measure)


def _with_interval(found: Estimate | None, measure: str) -> str:
    """Return `0.200 [0.105, 0.348]`."""
    if found is None:
        return "-"
    bounds = "" if found.low is None else f" {interval(found.low, found.high, measure)}"
    return f"{number(found.value, measure)}{bounds}"


def text(report: ReportData) -> str:
    """Format the report for a terminal: a sentence, then every table that has rows."""
    tables = [
        group_table(report),
        difference_table(report.comparisons),
        regression_table(report.regressions),
        learning_table(report),
        outcome_table(report.groups),
        per_success_table(report.groups),
    ]
    pieces = [line(said_of(report)), *_as_text(tables)]
    if (rest := report.unaliased) is not None:
        others = "; only the others:" if rest.n_aliased and rest.groups else ""
        pieces.append(f"aliased text: {rest.n_aliased:,} of {rest.n_worlds:,} worlds{others}")
        if others:
            pieces += _as_text([group_table(report, rest.groups), difference_table(rest.comparisons)])
    return "\n\n".join(pieces)


def _as_text(tables: Iterable[Table]) -> Iterator[str]:
    for table in tables:
        if table.rows:
            cells = [Cell(each, is_number=place >= table.n_text) for place, each in enumerate(table.headings)]
            yield table_text(cells, table.rows)


def group_table(report: ReportData, groups: Sequence[GroupResult] | None = None) -> Table:
    """Return a row per group, over all tasks: the mean of each measure with its interval."""
    shown = report.groups if groups is None else groups
    measures = [each for each in report.measures if any(group.estimate(each) for group in shown)]
    headings = ("variant", "episodes", *(heading(each) for each in measures))
    rows = [
        (
            group.name,
            f"{group.n_episodes:,}",
            *(_with_interval(group.estimate(each), each) for each in measures),
        )
        for group in shown
    ]
    return Table(headings, rows)


def measure_table(groups: Sequence[GroupResult], measure: str) -> Table:
    """Return the rows of one measure: a row per group and task, then one over all tasks."""
    rows = []
    for group in groups:
        mine = [each for each in group.estimates if each.metric == measure]
        for found in [*(each for each in mine if each.task), *(each for each in mine if not each.task)]:
            mean, bounds = _estimate_cells(found, measure)
            rows.append((group.name, found.task or ALL, f"{found.n:,}", mean, bounds))
    return Table(("variant", "task", "worlds", "mean ± s.e.", "interval"), rows, 2)


def difference_table(comparisons: Sequence[Comparison], *, is_by_task: bool = False) -> Table:
    """Return a row per comparison: over all tasks, or one for each task."""
    rows = [
        (
            each.candidate,
            each.baseline,
            heading(each.metric),
            *((each.task or ALL,) if is_by_task else ()),
            number(each.baseline_value, each.metric),
            number(each.candidate_value, each.metric),
            number(each.difference, each.metric, signed=True),
            interval(each.low, each.high, each.metric, signed=True),
            f"{each.n_pairs:,}",
            "-" if each.p_value is None else p_text(each.p_value),
        )
        for each in comparisons
        if is_by_task or each.task is None
    ]
    names = ("variant", "against", "measure", *(("task",) if is_by_task else ()))
    numbers = ("baseline", "candidate", "difference", "interval", "pairs", "McNemar p")
    return Table((*names, *numbers), rows, len(names))


def p_text(value: float) -> str:
    """Format a p-value as `0.031` or `< 0.001`."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def outcome_table(groups: Sequence[GroupResult]) -> Table:
    """Return a row per group: its outcomes, and its answers that named no action."""
    ends = [each for each in _OUTCOMES if any(group.outcomes.get(each) for group in groups)]
    reasons = list(dict.fromkeys(each for group in groups for each in group.finish_reasons))
    rows = [
        (
            group.name,
            *(f"{group.outcomes.get(each, 0):,}" for each in ends),
            f"{group.n_invalid:,} of {group.n_judged:,}" if group.n_judged else "-",
            *(f"{group.finish_reasons.get(each, 0):,}" for each in reasons),
        )
        for group in groups
    ]
    return Table(("variant", *ends, "invalid answers", *(f"answers: {each}" for each in reasons)), rows)


def per_success_table(groups: Sequence[GroupResult]) -> Table:
    """Return a row per group and spending: tokens and cost per success."""
    rows = [
        (
            group.name,
            "cost (USD)" if each.of == "cost_usd" else each.of,
            f"{each.n_successes:,} of {each.n:,}",
            "no success" if each.value is None else number(each.value),
            interval(each.low, each.high) if each.value is not None and each.low is not None else "-",
        )
        for group in groups
        for each in group.per_success
    ]
    return Table(("variant", "what", "successes", "per success", "interval"), rows, 2)


def learning_table(report: ReportData) -> Table:
    """Return a row per tuned variant: its training data and result."""
    score = report.measures[1] if len(report.measures) > 1 else "success"
    rows = [
        (
            group.name,
            group.training.model,
            f"{group.training.n_episodes:,}",
            f"{group.training.n_learned:,}",
            *(_with_interval(group.estimate(each), each) for each in ("success", score)),
        )
        for group in report.groups
        if group.training is not None
    ]
    return Table(("variant", "model", "episodes", "steps learned", "success", heading(score)), rows, 2)


def regression_table(regressions: Sequence[Regression]) -> Table:
    """Count the worlds that got worse, by comparison and task."""
    counted: dict[tuple[str, str, str], int] = {}
    for each in regressions:
        key = (each.candidate, each.baseline, each.task)
        counted[key] = counted.get(key, 0) + 1
    rows = [(*key, f"{n:,}") for key, n in counted.items()]
    return Table(("variant", "against", "task", "worlds that got worse"), rows, 3)


def stores_table(report: ReportData) -> Table:
    """Return a row per store that was read."""
    return Table(("store", "digest"), [(str(each.path), each.digest[:12]) for each in report.stores], 2)


def said_of(report: ReportData) -> str:
    """Explain the intervals: their method, and whether they are about a model or its training method."""
    of_methods = [group.name for group in report.groups if any(each.n_models > 1 for each in group.estimates)]
    scope = (
        f"Those of {', '.join(of_methods)} are for the method, over worlds and models" if of_methods else ""
    )
    if len(of_methods) < len(report.groups):
        scope += "; the others" if of_methods else "They"
        scope += " are for this model on other worlds, not for another training run"
    counted = "a world (environment, task and seed) counts once"
    if all(each.startswith(PROMPTS) for each in report.tasks):
        counted = "a world is a prompt, and the prompts of one group are not independent samples"
    return (
        f"{100 * report.confidence:.4g}% intervals. Success: Wilson's. Other means and all differences: "
        f"bootstrap of worlds within tasks, {report.resamples:,} resamples, seed {report.seed}; those of "
        "success are widened to Newcombe's interval, which also holds where hardly any pair differs. Tasks "
        f"weigh the same; {counted}. {scope}."
    )


def caution(report: ReportData) -> str | None:
    """Return a caution about many comparisons; None if there are few."""
    n = sum(each.low is not None for each in report.comparisons)
    expected = n * (1 - report.confidence)
    if expected < 1:
        return None
    return (
        f"{n:,} differences are reported: about {expected:.0f} of them would exclude zero by chance alone if "
        "no variant differed."
    )


def notes(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Note the differences over all tasks that could not be computed; equal notes appear once."""
    measures_by_note: dict[tuple[str, str, str], list[str]] = {}
    for each in comparisons:
        if each.note is not None and each.task is None:
            for why in each.note.split("; "):
                key = (each.candidate, each.baseline, why)
                measures_by_note.setdefault(key, []).append(heading(each.metric))
    for (candidate, baseline, why), measures in measures_by_note.items():
        yield f"{candidate} against {baseline}, {', '.join(measures)}: {why}"
