"""Write the files of a report: page, Markdown, JSON, and each chart as PNG and SVG."""

from __future__ import annotations

from pathlib import Path

from trajkit._core.files import building_folder
from trajkit.evaluation.report_charts import charts
from trajkit.evaluation.report_markdown import markdown
from trajkit.evaluation.report_model import ReportData
from trajkit.evaluation.report_page import page
from trajkit.evaluation.report_pictures import png, svg

PAGE, MARKDOWN, JSON, CHARTS = "report.html", "report.md", "report.json", "charts"


def save(report: ReportData, goal: Path) -> list[Path]:
    """Write all of them into a new folder, whole or not at all.

    Args:
        report: The report.
        goal: The folder; nothing may have that name.

    Raises:
        StoreError: Something has that name.
        MissingExtra: Altair or vl-convert is not installed.
    """
    drawn = list(charts(report))
    pictures = [(each.title, f"{CHARTS}/{each.name}.svg") for each in drawn]
    texts = {
        PAGE: page(report),
        MARKDOWN: markdown(report, pictures),
        JSON: report.model_dump_json(indent=2) + "\n",
        **{f"{CHARTS}/{each.name}.svg": svg(each) for each in drawn},
    }
    images = {f"{CHARTS}/{each.name}.png": png(each) for each in drawn}
    with building_folder(goal) as folder:
        (folder / CHARTS).mkdir()
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        for name, image in images.items():
            (folder / name).write_bytes(image)
    return [goal / name for name in [*texts, *images]]
