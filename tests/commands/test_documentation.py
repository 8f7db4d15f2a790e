"""What `docs/python.md` shows is run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.pages import blocks

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")


def test_its_code_runs(folder):
    code, classes = blocks(PAGE, "python")
    subprocess.run([sys.executable, "-c", classes], cwd=folder, check=True, capture_output=True)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[2:3]] == [["seen", "55"]]
    assert lines[-3:] == ["False", "succeeded 2", "4"]
