"""Write statistics as rows of text, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trajkit._core.output.console import Cell, Styled, count, plural, styled, table_text, width_of
from trajkit.curation.statistics.chart import brief
from trajkit.curation.statistics.model import Estimate, Group, Spread, Stats

_MOST_ROWS = 30
"""Maximum shown groups per kind."""
_LONGEST = 60
"""Maximum shown characters per action."""
_BAR = 30
"""Terminal columns of a bar of 100 %."""
_GAP = 2
"""Terminal columns between those of a table."""

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""Headings, and rows of the same length."""


def estimate_text(estimate: Estimate | None, *, is_share: bool = False) -> str:
    """Write an estimate as `0.64 [0.35, 0.85]`, or as percent."""
    if estimate is None:
        return "-"
    numbers = (estimate.value, estimate.low, estimate.high)
    value, low, high = ("" if x is None else _number(x, is_share) for x in numbers)
    return f"{value} [{low}, {high}]" if low and high else value


def _number(number: float, is_share: bool) -> str:
    if is_share:
        return f"{number:.1%}"
    return brief(number) if abs(number) >= 1000 else f"{number:.3g}"


def group_rows(stats: Stats, groups: Sequence[Group]) -> Table:
    """Return a row per group, with the mean of each measure that any of them has."""
    measures = (
        ("success", "success", True),
        (stats.score_name or "score", "score", False),
        ("steps each", "n_steps_each", False),
        ("input tokens", "n_input_tokens", False),
        ("output tokens", "n_output_tokens", False),
    )
    present = [one for one in measures if any(getattr(group, one[1]) is not None for group in groups)]
    headings = ("", "episodes", "steps", *(heading for heading, _, _ in present))
    rows = [
        (
            group_name(group),
            f"{group.n_episodes:,}",
            f"{group.n_steps:,}",
            *(estimate_text(getattr(group, field), is_share=is_share) for _, field, is_share in present),
        )
        for group in groups
    ]
    return headings, rows


def group_name(group: Group) -> str:
    """Name a group as in `task babyai/goto`."""
    return "all" if group.by == "all" else f"{group.by} {'unknown' if group.name is None else group.name}"


def spread_rows(spreads: Sequence[Spread]) -> Table:
    """Return a row per measure with its percentiles."""
    names = ("least", "p5", "p25", "p50", "p75", "p95", "p99", "most")
    headings = ("", "n", "min", *names[1:-1], "max")
    rows = [
        (spread.of, f"{spread.n:,}", *(brief(getattr(spread, name)) for name in names)) for spread in spreads
    ]
    return headings, rows


def metric_rows(stats: Stats) -> Table:
    """Return a row per metric that has values."""
    rows: list[tuple[str, ...]] = [
        (each.name, str(each.level), f"{each.value.n:,}", estimate_text(each.value, is_share=each.is_share))
        for each in stats.metrics
        if each.value is not None
    ]
    return ("metric", "level", "n", "mean or share"), rows


def funnel_rows(stats: Stats) -> Table:
    """Return a row per stage, preceded by one per reason for leaving out episodes or steps."""
    rows: list[tuple[str, ...]] = []
    for stage in stats.funnel:
        rows += [
            (
                f"  left: {left.reason}" if left.n_episodes else f"  not learned: {left.reason}",
                f"-{left.n_episodes:,}" if left.n_episodes else "",
                f"-{left.n_steps:,}" if left.n_episodes else f"{left.n_steps:,}",
                "",
            )
            for left in stage.left
        ]
        tokens = "" if stage.n_tokens is None else f"{stage.n_tokens:,}"
        rows.append((stage.name, f"{stage.n_episodes:,}", f"{stage.n_steps:,}", tokens))
    rows[-1:-1] = [
        (f"  not learned: {reason}", "", f"-{n:,}", "") for reason, n in stats.weights.not_learned.items()
    ]
    return ("", "episodes", "steps", "output tokens"), rows


def facts(stats: Stats) -> Iterator[tuple[str, str]]:
    """Yield name and text of each other statistic."""
    coverage, same, weights = stats.coverage, stats.duplicates, stats.weights
    if coverage.n_tasks:
        yield "tasks", f"{coverage.n_tasks:,}"
    if coverage.n_worlds:
        unknown = _unknown(coverage.n_without_seed, "without a seed")
        yield "worlds (task and seed)", f"{coverage.n_worlds:,}{unknown}"
    if coverage.n_initial_states:
        unknown = _unknown(coverage.n_without_state, "unknown")
        yield "initial states", f"{coverage.n_initial_states:,}{unknown}"
    entropy = f"{coverage.n_actions:,} distinct, entropy {coverage.entropy_bits:.3f} bits"
    if coverage.entropy_share is not None:
        entropy += f" ({coverage.entropy_share:.0%} of the maximum)"
    yield "actions", entropy + _unknown(coverage.n_without_action, "steps without")
    judged = stats.n_steps - coverage.n_unjudged
    if judged:
        yield "invalid answers", f"{coverage.n_invalid:,} of {judged:,} ({coverage.n_invalid / judged:.2%})"
    if same.n_episodes:
        yield (
            "repeated episodes",
            f"{same.n_same_episodes:,} of {same.n_episodes:,} (same actions from the same start)",
        )
    yield "repeated answers", f"{same.n_same_answers:,} of {same.n_answers:,} (same prompt and same answer)"
    yield "distinct prompts", f"{same.n_prompts:,} of {same.n_answers:,}"
    yield "learned", f"{weights.n_learned:,} of {stats.n_steps:,} steps"
    if weights.n_tokens is not None:
        yield "trained tokens", f"{weights.n_tokens:,}" + _unknown(weights.n_uncounted, "steps not counted")
    if weights.effective_steps is not None and weights.effective_episodes is not None:
        yield (
            "weights",
            f"{brief(weights.least or 0)} to {brief(weights.most or 0)}, mean {brief(weights.mean or 0)}",
        )
        yield (
            "effective sample size",
            f"{weights.effective_steps:,.1f} of {weights.n_learned:,} steps, "
            f"{weights.effective_episodes:,.1f} of {weights.n_episodes_learned:,} episodes",
        )


def _unknown(n: int, what: str) -> str:
    return f" ({n:,} {what})" if n else ""


def shown_groups(stats: Stats) -> list[Group]:
    """Return the largest groups of each kind, without kinds whose only group is unknown."""
    shown: list[Group] = []
    for by in stats.n_groups:
        mine = [group for group in stats.groups if group.by == by]
        if by == "all" or [group.name for group in mine] not in ([None], ["unknown"]):
            shown += mine[:_MOST_ROWS]
    return shown


def lines(stats: Stats, n_columns: int | None = None) -> Iterator[tuple[str | Styled, ...]]:
    """Yield the lines that `trajkit stats` prints, each as pieces.

    Args:
        stats: The statistics.
        n_columns: Width of the terminal, for bars and for splitting wide tables; None if there is none.
    """
    yield (styled(", ".join(map(str, stats.stores)), bold=True),)
    yield (f"{100 * stats.confidence:.4g}% intervals: Wilson for success, {stats.interval} for means",)
    yield ()
    groups = shown_groups(stats)
    yield from _table(group_rows(stats, groups), n_columns)
    unjudged = next(group.n_unjudged for group in groups if group.by == "all")
    if 0 < unjudged < stats.n_episodes:
        yield (f"success leaves out {plural(unjudged, 'episode')} whose outcome is not known",)
    for by, n_groups in stats.n_groups.items():
        n_shown = sum(group.by == by for group in groups)
        if n_shown and n_groups > n_shown:
            yield (f"… and {count(n_groups - n_shown)} more of {by}",)
    yield ()
    yield from _table(spread_rows(stats.spreads), n_columns)
    yield ()
    headings, metrics = metric_rows(stats)
    if metrics:
        yield from _table((headings, metrics), n_columns)
        yield ()
    rows = list(facts(stats))
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        yield styled(f"{name:<{width}}", dim=True), f"  {text}"
    if stats.coverage.actions:
        yield ()
        yield from _table(_action_rows(stats, has_bars=n_columns is not None), n_columns)
    yield ()
    yield from _table(funnel_rows(stats), n_columns)


def _action_rows(stats: Stats, *, has_bars: bool) -> Table:
    total = stats.n_steps - stats.coverage.n_without_action
    rows: list[tuple[str, ...]] = [
        (_cut(one.action), count(one.n), f"{one.n / total:.1%}") for one in stats.coverage.actions
    ]
    if not has_bars:
        return ("action", "steps", "share"), rows
    bars = [
        (*row, f"{'━' * round(_BAR * one.n / total):<{_BAR}}")
        for row, one in zip(rows, stats.coverage.actions, strict=True)
    ]
    return ("action", "steps", "share", f"{'of all':<{_BAR}}"), bars


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _table(table: Table, n_columns: int | None) -> Iterator[tuple[str]]:
    """Yield a table; if it is too wide for the terminal, several with the same first column."""
    headings, rows = table
    blocks = [tuple(range(len(headings)))]
    if n_columns is not None:
        widths = [max(map(width_of, column)) for column in zip(headings, *rows, strict=True)]
        blocks = list(_blocks(widths, n_columns))
    for n_before, block in enumerate(blocks):
        if n_before:
            yield ("",)
        cells = [Cell(headings[place], is_number=place > 0) for place in block]
        text = table_text(cells, [[row[place] for place in block] for row in rows])
        yield from ((line,) for line in text.split("\n"))


def _blocks(widths: list[int], n_columns: int) -> Iterator[tuple[int, ...]]:
    """Yield the columns of each part: the first one, and as many others as fit, at least one."""
    block, taken = [0], widths[0]
    for place, width in enumerate(widths[1:], start=1):
        if len(block) > 1 and taken + _GAP + width > n_columns:
            yield tuple(block)
            block, taken = [0], widths[0]
        block.append(place)
        taken += _GAP + width
    yield tuple(block)
