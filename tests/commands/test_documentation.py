"""What `docs/python.md` shows is run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.pages import blocks
from tests.warm import Forked

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")


@pytest.mark.full
def test_its_code_runs(folder):
    environment = dict(os.environ)
    for name, code in zip(("shown", "classes"), blocks(PAGE, "python"), strict=True):
        (folder / f"{name}.py").write_text(code)
        out, err = folder / "out", folder / "err"
        for each in (out, err):
            each.write_text("")
        assert Forked(name, [], folder, environment, ("/dev/null", str(out), str(err))).wait() == 0, (
            err.read_text()
        )
        if name == "shown":
            lines = out.read_text().splitlines()
            assert [line.split()[:2] for line in lines[2:3]] == [["seen", "55"]]
            assert lines[-3:] == ["False", "succeeded 2", "4"]
