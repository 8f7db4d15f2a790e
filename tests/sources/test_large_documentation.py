"""The examples of docs/large.md do what is shown, and its limits are those of the benchmarks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.pages import printed
from trajkit.cli.main import run
from trajkit.store.reader import open_store

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "large.md").read_text(encoding="utf-8")


@pytest.mark.full
def test_the_page_prints_what_is_shown(rows: Any, url: str, tmp_path: Path, monkeypatch: Any) -> None:
    for number in range(20):
        rows.episode(number / 20)
    rows.write()
    assert len(printed(PAGE, tmp_path, COLUMNS="100", TENSORZERO_CLICKHOUSE_URL=url)) == 3
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
    assert f"at most {rows['export_million']['MAX_COPY_RATIO']:g} times as long" in PAGE
    assert f"at most {rows['export_million']['MAX_MEMORY_MB'] / 1000:g} GB of memory" in PAGE
    assert f"or {rows['export_million']['MAX_MEMORY_GROWTH']:g} times what a tenth takes" in PAGE
    assert f"| {rows['long_prompts']['MAX_GROWTH']:g} times the time" in PAGE
    assert f"at least {rows['curate']['MIN_SPEED_UP']:g} times as fast" in PAGE
    assert f"at most {rows['curate']['MAX_MINUTES']:g} minutes each" in PAGE
    assert f"at least {rows['convert']['MIN_MB_PER_CPU_S']:g} MB for a second" in PAGE
    assert f"{rows['convert']['MAX_GROWTH']:g} times the memory for four times the steps" in PAGE
    assert f"at least {rows['redact']['MIN_MB_PER_S']:g} MB of text" in PAGE


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
