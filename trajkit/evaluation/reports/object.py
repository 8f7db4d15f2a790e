"""The Python object of a report: its numbers, and the ways to display and write them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trajkit._core.files import building_folder, refuse_existing
from trajkit._core.output import notebook as html
from trajkit._core.output.result import Result
from trajkit.errors import MissingExtra
from trajkit.evaluation.reports.charts import charts
from trajkit.evaluation.reports.markdown import markdown
from trajkit.evaluation.reports.model import ReportData
from trajkit.evaluation.reports.page import page
from trajkit.evaluation.reports.pictures import png, svg
from trajkit.evaluation.reports.text import Table, difference_table, group_table, said_of, text

PAGE, MARKDOWN, JSON, CHARTS = "report.html", "report.md", "report.json", "charts"


class Report(Result, ReportData):
    """Results of the variants in evaluation stores; notebooks show them with charts.

    Its fields are those of `report.json`.
    """

    def markdown(self) -> str:
        """Return every table as Markdown."""
        return markdown(self)

    def page(self) -> str:
        """Return one self-contained page of HTML.

        Raises:
            MissingExtra: Altair or vl-convert is not installed.
        """
        return page(self, list(charts(self)))

    def save(self, folder: str | Path) -> list[Path]:
        """Write `report.html`, `report.md`, `report.json` and every chart as PNG and SVG, or nothing.

        Args:
            folder: A new folder; nothing may have that name yet.

        Returns:
            Paths of the files.

        Raises:
            StoreError: The folder already exists.
            MissingExtra: Altair or vl-convert is not installed.
        """
        goal = Path(folder)
        refuse_existing(goal)  # before the charts, which take seconds
        drawn = list(charts(self))
        pictures = [(each.title, f"{CHARTS}/{each.name}.svg") for each in drawn]
        files: dict[str, bytes] = {
            PAGE: page(self, drawn).encode(),
            MARKDOWN: markdown(self, pictures).encode(),
            JSON: f"{self.model_dump_json(indent=2)}\n".encode(),
            **{f"{CHARTS}/{each.name}.svg": svg(each).encode() for each in drawn},
            **{f"{CHARTS}/{each.name}.png": png(each) for each in drawn},
        }
        with building_folder(goal) as made:
            (made / CHARTS).mkdir()
            for name, content in files.items():
                (made / name).write_bytes(content)
        return [goal / name for name in files]

    def __str__(self) -> str:
        return text(self)

    def __repr__(self) -> str:
        names = ", ".join(group.name for group in self.groups)
        episodes = f"{self.n_episodes:,} {'episode' if self.n_episodes == 1 else 'episodes'}"
        return f"<Report of {episodes}: {names}>"

    def _repr_markdown_(self) -> str:
        return self.markdown()

    def _repr_html_(self) -> str:
        return html.framed(_parts(self))


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `report.json`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:trajkit:v1:report",
        **Report.model_json_schema(mode="validation"),
    }


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
