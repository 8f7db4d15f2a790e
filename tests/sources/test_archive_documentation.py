"""The examples of docs/archive.md do what is shown; `...` stands for what differs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.pages import printed
from trajkit.sources.tensorzero.archive.layout import TABLES

PAGE = (Path(__file__).parents[2] / "docs" / "archive.md").read_text(encoding="utf-8")


@pytest.fixture
def snapshot(rows: Any, client: Any) -> Iterator[None]:
    """A configuration: that of the gateway which made the schema may be gone."""
    rows.insert("ConfigSnapshot", config="", extra_templates={}, hash=5, tensorzero_version="2026.6.0")
    yield
    client.command("DELETE FROM ConfigSnapshot WHERE hash = 5")


@pytest.mark.full
@pytest.mark.usefixtures("snapshot")
def test_the_page_prints_what_is_shown(rows: Any, url: str, tmp_path: Path) -> None:
    for value in (0.1, 0.7, 0.9):
        rows.episode(value, tags={"trajkit.task": f"task {value}"})
    rows.write()
    shown = printed(PAGE, tmp_path, TENSORZERO_CLICKHOUSE_URL=url)
    assert len(shown) == 4
    (sql,) = re.findall(r"^```sql\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    with duckdb.connect() as connection:
        found = connection.execute(sql.replace("archive/", f"{tmp_path}/archive/")).fetchall()
    assert found == [("task 0.1", 2), ("task 0.7", 2), ("task 0.9", 2)]


def test_the_page_names_every_table() -> None:
    named = set(re.findall(r"`([a-z_]+)`", PAGE))
    assert {table.name for table in TABLES} <= named
