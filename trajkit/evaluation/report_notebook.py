"""Show a report in a notebook: its first tables and its charts as static drawings, without scripts."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from trajkit._core import notebook as html
from trajkit.errors import MissingExtra
from trajkit.evaluation.report_charts import charts
from trajkit.evaluation.report_model import ReportData
from trajkit.evaluation.report_pictures import svg
from trajkit.evaluation.report_text import Table, difference_table, group_table, said_of


def notebook_html(report: ReportData) -> str:
    """HTML to stand among other things; without the packages that draw, the tables alone."""
    return html.framed(_parts(report))


def _parts(report: ReportData) -> Iterator[str]:
    yield html.line(said_of(report))
    yield _table(group_table(report))
    if report.comparisons:
        yield _table(difference_table(report.comparisons))
    try:
        drawn = list(charts(report))
        pictures = [base64.b64encode(svg(each).encode()).decode() for each in drawn]
    except MissingExtra as error:
        yield html.line(str(error))
        return
    for each, picture in zip(drawn, pictures, strict=True):
        yield html.title(each.title)
        yield f'<img alt="{html.safe(each.title)}" src="data:image/svg+xml;base64,{picture}">'


def _table(table: Table) -> str:
    return html.table(table.headings, table.rows, n_text=table.n_text)
