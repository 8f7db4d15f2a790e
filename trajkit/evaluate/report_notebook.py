"""The report in a notebook: its first tables, and its charts as drawings, without any program."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from html import escape

from trajkit.errors import MissingExtra
from trajkit.evaluate.report_charts import charts
from trajkit.evaluate.report_model import ReportData
from trajkit.evaluate.report_pictures import svg
from trajkit.evaluate.report_text import Table, difference_table, group_table, said_of


def notebook_html(report: ReportData) -> str:
    """HTML to stand among other things; without the packages that draw, the tables alone."""
    return f"<div>{''.join(_parts(report))}</div>"


def _parts(report: ReportData) -> Iterator[str]:
    yield f"<p>{escape(said_of(report))}</p>"
    yield _table(group_table(report))
    if report.comparisons:
        yield _table(difference_table(report.comparisons))
    try:
        drawn = list(charts(report))
        pictures = [base64.b64encode(svg(each).encode()).decode() for each in drawn]
    except MissingExtra as error:
        yield f"<p>{escape(str(error))}</p>"
        return
    for each, picture in zip(drawn, pictures, strict=True):
        yield f'<h4>{escape(each.title)}</h4><img alt="{escape(each.title)}" style="max-width: 100%" '
        yield f'src="data:image/svg+xml;base64,{picture}">'


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.headings)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
