"""The examples of docs/archive.md and docs/large.md do what is shown; `...` stands for what differs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.pages import printed
from trajkit.cli.main import run
from trajkit.sources.tensorzero.archive.layout import TABLES
from trajkit.store.reader import open_store

ROOT = Path(__file__).parents[2]
ARCHIVE, LARGE = ((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("archive", "large"))


@pytest.fixture
def snapshot(rows: Any, client: Any) -> Iterator[None]:
    """A configuration: that of the gateway which made the schema may be gone."""
    rows.insert("ConfigSnapshot", config="", extra_templates={}, hash=5, tensorzero_version="2026.6.0")
    yield
    client.command("DELETE FROM ConfigSnapshot WHERE hash = 5")


@pytest.mark.full
@pytest.mark.usefixtures("snapshot")
def test_the_page_of_archives_prints_what_is_shown(rows: Any, url: str, tmp_path: Path) -> None:
    for value in (0.1, 0.7, 0.9):
        rows.episode(value, tags={"trajkit.task": f"task {value}"})
    rows.write()
    shown = printed(ARCHIVE, tmp_path, TENSORZERO_CLICKHOUSE_URL=url)
    assert len(shown) == 4
    (sql,) = re.findall(r"^```sql\n(.*?)^```$", ARCHIVE, flags=re.MULTILINE | re.DOTALL)
    with duckdb.connect() as connection:
        found = connection.execute(sql.replace("archive/", f"{tmp_path}/archive/")).fetchall()
    assert found == [("task 0.1", 2), ("task 0.7", 2), ("task 0.9", 2)]


def test_the_page_of_archives_names_every_table() -> None:
    named = set(re.findall(r"`([a-z_]+)`", ARCHIVE))
    assert {table.name for table in TABLES} <= named


@pytest.mark.full
def test_the_page_of_large_data_prints_what_is_shown(
    rows: Any, url: str, tmp_path: Path, monkeypatch: Any
) -> None:
    for number in range(20):
        rows.episode(number / 20)
    rows.write()
    assert len(printed(LARGE, tmp_path, COLUMNS="100", TENSORZERO_CLICKHOUSE_URL=url)) == 3
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TENSORZERO_CLICKHOUSE_URL", url)
    assert run(["export", "--metric", "episode_return", "-o", "at-once"]) == 0
    whole, shared, at_once = (
        open_store(tmp_path / name).manifest for name in ("stores/whole", "stores/shared", "at-once")
    )
    assert whole.digest == shared.digest == at_once.digest


def test_the_limits_are_those_that_the_benchmarks_hold() -> None:
    rows = {
        name: _constants(name) for name in ("export_million", "long_prompts", "curate", "convert", "redact")
    }
    assert f"at most {rows['export_million']['MAX_COPY_RATIO']:g} times as long" in LARGE
    assert f"at most {rows['export_million']['MAX_MEMORY_MB'] / 1000:g} GB of memory" in LARGE
    assert f"or {rows['export_million']['MAX_MEMORY_GROWTH']:g} times what a tenth takes" in LARGE
    assert f"| {rows['long_prompts']['MAX_GROWTH']:g} times the time" in LARGE
    assert f"at least {rows['curate']['MIN_SPEED_UP']:g} times as fast" in LARGE
    assert f"at most {rows['curate']['MAX_MINUTES']:g} minutes each" in LARGE
    assert f"at least {rows['convert']['MIN_MB_PER_CPU_S']:g} MB per second" in LARGE
    assert f"{rows['convert']['MAX_GROWTH']:g} times the memory for four times the steps" in LARGE
    assert f"at least {rows['redact']['MIN_MB_PER_S']:g} MB of text" in LARGE


def _constants(name: str) -> dict[str, float]:
    text = (ROOT / "bench" / f"{name}.py").read_text(encoding="utf-8")
    found = {
        key: float(value.replace("_", ""))
        for key, value in re.findall(r"^(M(?:IN|AX)_\w+)(?:: \w+)? = ([0-9._]+)$", text, re.MULTILINE)
    }
    (several,) = re.findall(r"^(MAX_\w+, .*) = (.*)$", text, re.MULTILINE) or [("", "")]
    if several[0]:
        found |= dict(zip(several[0].split(", "), map(float, several[1].split(", ")), strict=True))
    return found
