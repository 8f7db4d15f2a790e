"""`trajkit stats` on a terminal: tables as wide as it is, and nothing but text elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.terminal import plain, seen
from trajkit.cli.main import run


def test_tables_fit_a_terminal_and_lose_no_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = seen(["stats", "sample:babyai"], columns=80, folder=tmp_path)
    lines = plain(printed).splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b[1m" in printed
    headings = " ".join(line for line in lines if "  " in line)
    for heading in ("success", "episode_return", "steps each", "input tokens", "output tokens", "p99", "max"):
        assert heading in headings
    assert sum(line.startswith("variant baseline ") for line in lines) == 3
    assert any(line.startswith("turn right    538  28.4%  ━━━━━━━━━") for line in lines)

    assert run(["stats", "sample:babyai"]) == 0
    whole = capsys.readouterr().out
    assert sum(line.startswith("variant baseline ") for line in whole.splitlines()) == 1
    assert "\x1b" not in whole
    assert "━" not in whole


def test_every_metric_of_the_feedback_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    rows = [{"messages": messages, "rating": rating, "solved": rating > 3} for rating in (1, 3, 5, 5)]
    rows.append({"messages": messages})
    Path("shop.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    columns = [f"--metric={name}=columns.{name}" for name in ("rating", "solved")]
    assert run(["import", "shop.jsonl", *columns, "-o", "shop"]) == 0
    capsys.readouterr()

    assert run(["stats", "shop", "--html", "page.html"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["rating", "episode", "4", "3.5", "[0.453,", "6.55]"] in lines  # 3.5 -+ 3.182 * 1.915 / 2
    assert ["solved", "episode", "4", "50.0%", "[15.0%,", "85.0%]"] in lines
    assert "<h2>Metrics</h2>" in Path("page.html").read_text(encoding="utf-8")

    assert run(["stats", "shop", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["metrics"]
    found = [(one["name"], one["level"], one["is_share"], one["value"]["value"]) for one in told]
    assert found == [("rating", "episode", False, 3.5), ("solved", "episode", True, 0.5)]
