"""Show statistics as a page of charts in one HTML file, without scripts, fonts or other files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from trajkit.curation.statistics.chart import Bar, Point, bars, brief, histogram, intervals
from trajkit.curation.statistics.html_page import document, html_table
from trajkit.curation.statistics.model import Estimate, Group, Spread, Stats
from trajkit.curation.statistics.text import (
    estimate_text,
    facts,
    funnel_rows,
    group_rows,
    metric_rows,
    shown_groups,
    spread_rows,
)


def page(stats: Stats) -> str:
    """Return the page as HTML text."""
    names = ", ".join(path.name for path in stats.stores)
    headings, metrics = metric_rows(stats)
    body = "".join(
        [
            f"<h1>{escape(names)}</h1>",
            f"<p>{stats.n_episodes:,} episodes, {stats.n_steps:,} steps. Intervals: {stats.confidence:.0%}; "
            f"Wilson for shares, {escape(stats.interval)} for means. Digest "
            f"{escape(', '.join(digest[:12] for digest in stats.digests))}.</p>",
            *_estimates(stats),
            *_spreads(stats.spreads),
            f"<h2>Metrics</h2>{html_table(headings, metrics)}" if metrics else "",
            *_actions(stats),
            *_funnel(stats),
            "<h2>More numbers</h2>",
            html_table(("", ""), [(name, text) for name, text in facts(stats)]),
        ]
    )
    return document(f"{names}: statistics of a dataset", body)


def _estimates(stats: Stats) -> Iterator[str]:
    charts = (
        ("Success", "success", True, "Share of the episodes with a known outcome."),
        (stats.score_name or "Score", "score", False, "Mean per episode."),
        ("Length", "n_steps_each", False, "Mean steps per episode."),
        ("Input tokens", "n_input_tokens", False, "Mean of an episode's prompts, if counted."),
        ("Output tokens", "n_output_tokens", False, "Mean of an episode's answers, if counted."),
    )
    for heading, field, is_share, caption in charts:
        rows = [(group, getattr(group, field)) for group in shown_groups(stats)]
        points = [_point(group, estimate, is_share) for group, estimate in rows if estimate is not None]
        if points:
            yield f"<h2>{escape(heading)}</h2><p>{caption}</p>"
            yield intervals(points, title=heading, is_share=is_share)
    headings, rows_text = group_rows(stats, shown_groups(stats))
    yield f"<details><summary>As a table</summary>{html_table(headings, rows_text)}</details>"


def _point(group: Group, estimate: Estimate, is_share: bool) -> Point:
    name = "all episodes" if group.by == "all" else f"{group.by} {group.name or 'unknown'}"
    text = estimate_text(estimate, is_share=is_share)
    return Point(name, estimate.value, estimate.low, estimate.high, text)


def _spreads(spreads: Sequence[Spread]) -> Iterator[str]:
    varied = [spread for spread in spreads if len(spread.heights) > 1]
    if not spreads:
        return
    yield "<h2>Distributions</h2>"
    for spread in varied:
        yield f"<h3>{escape(spread.of)}</h3>"
        yield histogram(spread.edges, spread.heights, title=f"Histogram of {spread.of}")
    headings, rows = spread_rows(spreads)
    yield f"<h3>Percentiles</h3>{html_table(headings, rows)}"


def _actions(stats: Stats) -> Iterator[str]:
    coverage = stats.coverage
    total = stats.n_steps - coverage.n_without_action
    if not coverage.actions:
        return
    yield f"<h2>Actions</h2><p>{coverage.n_actions:,} distinct; entropy {coverage.entropy_bits:.2f} bits"
    if coverage.entropy_share is not None:
        yield f", {coverage.entropy_share:.0%} of the maximum"
    yield ".</p>"
    rows = [Bar(one.action, one.n, f"{one.n:,} ({one.n / total:.1%})") for one in coverage.actions]
    yield bars(rows, title="How often each action was taken")


def _funnel(stats: Stats) -> Iterator[str]:
    yield "<h2>From the seen steps to the learned ones</h2><p>Steps.</p>"
    rows = [Bar(stage.name, stage.n_steps, f"{stage.n_steps:,}") for stage in stats.funnel]
    yield bars(rows, title="Steps after each stage")
    tokens = [
        Bar(stage.name, stage.n_tokens, brief(stage.n_tokens))
        for stage in stats.funnel
        if stage.n_tokens is not None
    ]
    if tokens:
        yield "<p>Tokens of the answers, as their providers counted them.</p>"
        yield bars(tokens, title="Tokens of answers")
    headings, text = funnel_rows(stats)
    yield f"<details><summary>As a table</summary>{html_table(headings, text)}</details>"
