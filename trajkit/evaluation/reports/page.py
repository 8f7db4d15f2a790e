"""Write the report as one HTML page that draws its own charts and loads nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from trajkit.curation.statistics.html_page import document
from trajkit.evaluation.reports.charts import Drawn
from trajkit.evaluation.reports.model import Played, Regression, ReportData
from trajkit.evaluation.reports.pictures import DARK, LIGHT, script_json, vega
from trajkit.evaluation.reports.text import (
    Table,
    caution,
    difference_table,
    group_table,
    heading,
    interval,
    notes,
    number,
    p_text,
    regression_table,
    said_of,
    stores_table,
)

_MOST_OPEN = 10

# the page loads nothing: the policy lets the browser refuse every other address
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; img-src data:"
)
_STYLE = """
.chart { width: 100%; margin: .5rem 0; }
.chart svg { min-width: 0; width: auto; height: auto; max-width: 100%; }
.vega-embed { width: 100%; } #vg-tooltip-element { font-family: system-ui, sans-serif; }
ul { color: var(--soft); padding-left: 1.2rem; } li { margin: .2rem 0; overflow-wrap: anywhere; }
li b { color: var(--ink); } a { color: var(--accent); } code { overflow-wrap: anywhere; }
th.name, td.name { text-align: left; } .inner { padding-left: 1rem; }
td.text { text-align: left; white-space: normal; min-width: 12rem; } .wrong { color: var(--second); }
@media (min-width: 900px) { body > .scroll { width: max-content; min-width: 100%;
  max-width: calc(100vw - 4rem); margin-left: 50%; transform: translateX(-50%); } }
"""
_DRAW = """
const night = matchMedia("(prefers-color-scheme: dark)");
function draw() {
  for (const [id, spec] of Object.entries(charts))
    vegaEmbed("#" + id, spec, {config: night.matches ? dark : light, actions: false, renderer: "svg",
      tooltip: {theme: night.matches ? "dark" : "light"}});
}
night.addEventListener("change", draw);
draw();
function show() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  if (target) target.scrollIntoView();
}
addEventListener("hashchange", show);
show();
"""


_WIDE = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}


def page(report: ReportData, drawn: Sequence[Drawn]) -> str:
    """Return the page with these charts as HTML text.

    Raises:
        MissingExtra: vl-convert is not installed.
    """
    names = _names(report)
    body = "".join(
        [
            f"<style>{_STYLE}</style>",
            f"<h1>{escape(names)}</h1>",
            f"<p>{report.n_episodes:,} episodes, {len(report.tasks):,} tasks. {escape(said_of(report))}</p>",
            *_first(report),
            *_charts(drawn),
            *_regressions(report),
            *_unaliased(report),
            "<h2>Stores</h2>",
            _html(stores_table(report)),
        ]
    )
    specs = {f"chart-{each.name}": each.spec | _WIDE for each in drawn}
    scripts = (
        f"<script>{vega()}</script><script>const charts = {script_json(specs)};"
        f"const light = {script_json(LIGHT)}, dark = {script_json(DARK)};{_DRAW}</script>"
    )
    text = document(f"{names}: report", body)
    head, _, rest = text.partition("<title>")
    text = f'{head}<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><title>{rest}'
    before, _, after = text.rpartition("</body>")
    return f"{before}{scripts}</body>{after}"


def _names(report: ReportData) -> str:
    """Return the compared variants; one with several decodings is listed once."""
    names = [group.name.removesuffix(f", {group.decoding or 'config'}") for group in report.groups]
    return ", ".join(dict.fromkeys(names))


def _first(report: ReportData) -> Iterator[str]:
    """Write the first section: the main results and the necessary caveats."""
    lines = []
    for each in report.comparisons:
        if each.task is None and each.metric in ("success", *report.measures[1:2]):
            test = "" if each.p_value is None else f", McNemar p {p_text(each.p_value)}"
            lines.append(
                f"<b>{escape(each.candidate)}</b> against {escape(each.baseline)}, "
                f"{escape(heading(each.metric))}: "
                f"{number(each.baseline_value, each.metric)} → {number(each.candidate_value, each.metric)}, "
                f"<b>{number(each.difference, each.metric, signed=True)} "
                f"{interval(each.low, each.high, each.metric, signed=True)}</b> "
                f"({each.n_pairs:,} pairs{escape(test)})"
            )
    if lines:
        yield _listed(lines)
    remarks = [*report.notes, *notes(report.comparisons), *filter(None, [caution(report)])]
    if remarks:
        yield _listed([escape(text) for text in remarks])
    yield _html(group_table(report))
    if report.comparisons:
        yield "<h3>Differences</h3>"
        yield _html(difference_table(report.comparisons))


def _charts(drawn: Sequence[Drawn]) -> Iterator[str]:
    for each in drawn:
        yield f"<h2>{escape(each.title)}</h2><p>{escape(each.said)}</p>"
        yield f'<div class="chart" id="chart-{each.name}" role="img" aria-label="{escape(each.title)}"></div>'
        yield f"<details><summary>As a table</summary>{_html(each.table)}</details>"


def _regressions(report: ReportData) -> Iterator[str]:
    if not report.comparisons:
        return
    yield "<h2>What got worse</h2><p>Worlds in which the baseline succeeded and the candidate did not.</p>"
    shown: set[str] = set()
    for pair, n_improved in report.n_improved.items():
        worse = [each for each in report.regressions if f"{each.candidate} against {each.baseline}" == pair]
        yield f"<h3>{escape(pair)}: {len(worse):,} worse, {n_improved:,} better</h3>"
        if not worse:
            continue
        yield _html(regression_table(worse))
        is_open = " open" if len(worse) <= _MOST_OPEN else ""
        yield f"<details{is_open}><summary>Each of them</summary>{_worlds(worse)}</details>"
        ends = []
        for each in worse:
            for played in each.episodes:
                if played.moments and played.episode_id not in shown:
                    shown.add(played.episode_id)
                    ends.append(_episode(each, played))
        if ends:
            inner = f'<div class="inner">{"".join(ends)}</div>'
            yield f"<details><summary>How the first ended</summary>{inner}</details>"


def _worlds(worse: Sequence[Regression]) -> str:
    rows = "".join(
        f"<tr><td>{escape(each.task)} {each.seed}</td>{''.join(map(_link, each.episodes))}</tr>"
        for each in worse
    )
    heads = "".join(f"<th>{escape(name)}</th>" for name in ("world", worse[0].baseline, worse[0].candidate))
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _link(played: Played) -> str:
    name = escape(played.episode_id)
    shown = f'<a href="#episode-{name}">{name}</a>' if played.moments else f"<code>{name}</code>"
    return f"<td>{shown}<br>{escape(played.outcome)}, {played.n_steps:,} steps</td>"


def _episode(regression: Regression, played: Played) -> str:
    """Show the last steps of an episode."""
    rows = "".join(
        f"<tr><td>{played.n_steps - len(played.moments) + number}</td>"
        f'<td class="text">{escape(moment.observation or "-")}</td>'
        f'<td class="text{" wrong" if moment.is_valid is False else ""}">{escape(moment.action or "-")}</td>'
        f"<td>{'-' if moment.reward is None else f'{moment.reward:.3g}'}</td></tr>"
        for number, moment in enumerate(played.moments)
    )
    command = f"trajkit show {played.store} {played.episode_id}"
    said = f"{regression.task} seed {regression.seed}, {played.group}: {played.outcome}"
    head = "".join(f"<th>{name}</th>" for name in ("step", "observation", "action", "reward"))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return (
        f'<details id="episode-{escape(played.episode_id)}"><summary>{escape(said)}</summary>'
        f"<p>The last steps; all of it: <code>{escape(command)}</code></p>"
        f'<div class="scroll">{table}</div></details>'
    )


def _unaliased(report: ReportData) -> Iterator[str]:
    found = report.unaliased
    if found is None:
        return
    yield "<h2>Worlds whose text is in no training store</h2>"
    yield (
        f"<p>Aliased text: {found.n_aliased:,} of {found.n_worlds:,} worlds share mission and first text "
        f"with one of a training store.{' Only the others:' if found.n_aliased and found.groups else ''}</p>"
    )
    if found.leaks:
        yield _listed([f'<b class="wrong">leak</b> {escape(text)}' for text in found.leaks])
    if not found.groups:
        yield "<p>No world is left.</p>"
        return
    if found.n_aliased:
        yield _html(group_table(report, found.groups))
        yield _html(difference_table(found.comparisons))


def _html(table: Table) -> str:
    """Return a table that scrolls if it is too wide, with text to the left and numbers to the right."""

    def row(cells: Sequence[str], tag: str) -> str:
        inner = "".join(
            f"<{tag}{' class=name' if place < table.n_text else ''}>{escape(cell)}</{tag}>"
            for place, cell in enumerate(cells)
        )
        return f"<tr>{inner}</tr>"

    body = "".join(row(cells, "td") for cells in table.rows)
    head = row(table.headings, "th")
    return f'<div class="scroll"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def _listed(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>"
