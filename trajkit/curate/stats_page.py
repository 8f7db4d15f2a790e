"""The statistics as one page of charts that needs nothing but itself: no script, no font, no other file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from trajkit.curate.chart import Bar, Point, bars, brief, histogram, intervals
from trajkit.curate.stats_model import Estimate, Group, Spread, Stats
from trajkit.curate.stats_text import estimate_text, facts, funnel_rows, group_rows, spread_rows

_MOST_ROWS = 30

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #dfe3e8; --paper: #ffffff;
  --accent: #2563a8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --soft: #9aa5b3; --line: #333b46; --paper: #14181d; --accent: #6ea8e6; } }
body { margin: 0 auto; max-width: 820px; padding: 2rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .25rem; border-top: 1px solid var(--line); padding-top: 1.25rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
p { margin: .25rem 0 .75rem; color: var(--soft); overflow-wrap: anywhere; }
svg { display: block; width: 100%; min-width: 560px; height: auto; overflow: visible;
  font: 12px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .tick { fill: var(--soft); font-size: 11px; }
svg .number { font-variant-numeric: tabular-nums; } svg .grid { stroke: var(--line); }
svg .range { stroke: var(--accent); stroke-width: 2; } svg .dot, svg .bar { fill: var(--accent); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; min-width: 100%; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap;
  font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 600; } th:first-child, td:first-child { text-align: left; }
details { margin: .5rem 0 1rem; } summary { cursor: pointer; color: var(--soft); }
"""


def page(stats: Stats) -> str:
    """The page as HTML text."""
    names = ", ".join(path.name for path in stats.stores)
    body = "".join(
        [
            f"<h1>{escape(names)}</h1>",
            f"<p>{stats.n_episodes:,} episodes, {stats.n_steps:,} steps. Intervals: {stats.confidence:.0%}; "
            f"Wilson for shares, {escape(stats.interval)} for means. Digest "
            f"{escape(', '.join(digest[:12] for digest in stats.digests))}.</p>",
            *_estimates(stats),
            *_spreads(stats.spreads),
            *_actions(stats),
            *_funnel(stats),
            "<h2>More numbers</h2>",
            _table(("", ""), [(name, text) for name, text in facts(stats)]),
        ]
    )
    html = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(names)}: numbers about a dataset</title><style>{_STYLE}</style></head>"
        f"<body>{body}</body></html>\n"
    )
    # names come from elsewhere: no control codes, and no marks that turn the direction of writing
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in html)


def _estimates(stats: Stats) -> Iterator[str]:
    charts = (
        ("Success", "success", True, "Share of the episodes whose outcome is known."),
        (stats.score_name or "Score", "score", False, "Mean of an episode."),
        ("Length", "n_steps_each", False, "Mean steps of an episode."),
        ("Input tokens", "n_input_tokens", False, "Mean of an episode's prompts, where they were counted."),
        ("Output tokens", "n_output_tokens", False, "Mean of an episode's answers, where they were counted."),
    )
    for heading, field, is_share, said in charts:
        rows = [(group, getattr(group, field)) for group in shown_groups(stats)]
        points = [_point(group, estimate, is_share) for group, estimate in rows if estimate is not None]
        if points:
            yield f"<h2>{escape(heading)}</h2><p>{said}</p>"
            yield intervals(points, title=heading, is_share=is_share)
    headings, rows_text = group_rows(stats, shown_groups(stats))
    yield f"<details><summary>As a table</summary>{_table(headings, rows_text)}</details>"


def shown_groups(stats: Stats) -> list[Group]:
    """The groups worth a row: the largest of each kind, and none that only says that nothing is known."""
    shown: list[Group] = []
    for by in stats.n_groups:
        mine = [group for group in stats.groups if group.by == by]
        if by == "all" or [group.name for group in mine] != [None]:
            shown += mine[:_MOST_ROWS]
    return shown


def _point(group: Group, estimate: Estimate, is_share: bool) -> Point:
    name = "all episodes" if group.by == "all" else f"{group.by} {group.name or 'unknown'}"
    text = estimate_text(estimate, is_share=is_share)
    return Point(name, estimate.value, estimate.low, estimate.high, text)


def _spreads(spreads: Sequence[Spread]) -> Iterator[str]:
    varied = [spread for spread in spreads if len(spread.heights) > 1]
    if not spreads:
        return
    yield "<h2>How it is spread</h2>"
    for spread in varied:
        yield f"<h3>{escape(spread.of)}</h3>"
        yield histogram(spread.edges, spread.heights, title=f"Histogram of {spread.of}")
    headings, rows = spread_rows(spreads)
    yield f"<h3>Percentiles</h3>{_table(headings, rows)}"


def _actions(stats: Stats) -> Iterator[str]:
    coverage = stats.coverage
    total = stats.n_steps - coverage.n_without_action
    if not coverage.actions:
        return
    yield f"<h2>Actions</h2><p>{coverage.n_actions:,} distinct; entropy {coverage.entropy_bits:.2f} bits"
    if coverage.entropy_share is not None:
        yield f", {coverage.entropy_share:.0%} of what it could be"
    yield ".</p>"
    rows = [Bar(one.action, one.n, f"{one.n:,} ({one.n / total:.1%})") for one in coverage.actions]
    yield bars(rows, title="How often each action was taken")


def _funnel(stats: Stats) -> Iterator[str]:
    yield "<h2>From what was seen to what is learned</h2><p>Steps.</p>"
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
    yield f"<details><summary>As a table</summary>{_table(headings, text)}</details>"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    header = f"<thead><tr>{head}</tr></thead>" if any(headings) else ""
    return f'<div class="scroll"><table>{header}<tbody>{body}</tbody></table></div>'
