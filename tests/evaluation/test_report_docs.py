"""docs/report.md: its commands print what is shown, its Python runs, its options and expressions exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click

from tests.pages import blocks, printed
from trajkit.cli.main import cli
from trajkit.evaluation.require import requirement

PAGE = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")


def test_the_page_prints_what_is_shown(tmp_path: Path) -> None:
    assert len(printed(PAGE, tmp_path, OMP_NUM_THREADS="1")) == 3
    found = {path.name for path in (tmp_path / "report").iterdir()}
    assert found == set(re.findall(r"`(report\.(?:html|md|json))`", PAGE)) | {"charts"}


def test_the_python_of_the_page_runs(tmp_path: Path) -> None:
    (code,) = blocks(PAGE, "python")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "metric='success'" in done.stdout
    assert (tmp_path / "report" / "report.html").is_file()


def test_the_page_names_only_options_and_expressions_that_there_are() -> None:
    command = cli.get_command(click.Context(cli), "report")
    assert command is not None
    known = {flag for parameter in command.params for flag in parameter.opts}
    rollout = {"--task", "--policy", "--seeds", "--purpose", "--quiet", "--noise"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) - known - rollout == set()
    rows = re.findall(r"^\| `([^`]+[<>][^`]+)` \|", PAGE, flags=re.MULTILINE)
    assert len([requirement(row) for row in rows]) == 6
