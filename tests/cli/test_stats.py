"""`trajkit stats` on a terminal: tables as wide as it is, and nothing but text elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.terminal import plain, seen
from trajkit.cli.main import run


def test_tables_fit_a_terminal_and_lose_no_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = seen(["stats", "sample:babyai"], columns=80, folder=tmp_path)
    lines = plain(printed).splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b[1m" in printed
    headings = " ".join(line for line in lines if "  " in line)
    for heading in ("success", "episode_return", "steps each", "input tokens", "output tokens", "p99", "max"):
        assert heading in headings
    assert sum(line.startswith("variant baseline ") for line in lines) == 3
    assert any(line.startswith("turn right    538  28.4%  ━━━━━━━━━") for line in lines)

    monkeypatch.chdir(tmp_path)
    assert run(["stats", "sample:babyai"]) == 0
    whole = capsys.readouterr().out
    assert sum(line.startswith("variant baseline ") for line in whole.splitlines()) == 1
    assert "\x1b" not in whole
    assert "━" not in whole
