"""The Python object of a report: its numbers, and every way to display them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trajkit._core.result import Result
from trajkit.evaluation.report_model import ReportData


class Report(Result, ReportData):
    """What evaluation stores say of the variants in them; notebooks show it with its charts.

    Its fields are those of `report.json`.
    """

    def markdown(self) -> str:
        """Every table as Markdown."""
        from trajkit.evaluation.report_markdown import markdown

        return markdown(self)

    def page(self) -> str:
        """One page of HTML that needs nothing but itself.

        Raises:
            MissingExtra: Altair or vl-convert is not installed.
        """
        from trajkit.evaluation.report_page import page

        return page(self)

    def save(self, folder: str | Path) -> list[Path]:
        """Write `report.html`, `report.md`, `report.json` and every chart as PNG and SVG.

        Args:
            folder: Where; nothing may have that name.

        Returns:
            The files.

        Raises:
            StoreError: Something has that name.
            MissingExtra: Altair or vl-convert is not installed.
        """
        from trajkit.evaluation.report_files import save

        return save(self, Path(folder))

    def to_json(self) -> dict[str, Any]:
        """What `report.json` holds."""
        return self.model_dump(mode="json")

    def __str__(self) -> str:
        from trajkit.evaluation.report_text import text

        return text(self)

    def __repr__(self) -> str:
        names = ", ".join(group.name for group in self.groups)
        episodes = f"{self.n_episodes:,} {'episode' if self.n_episodes == 1 else 'episodes'}"
        return f"<Report of {episodes}: {names}>"

    def _repr_markdown_(self) -> str:
        return self.markdown()

    def _repr_html_(self) -> str:
        from trajkit.evaluation.report_notebook import notebook_html

        return notebook_html(self)


def report_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `report.json`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:trajkit:v1:report",
        **Report.model_json_schema(mode="validation"),
    }
