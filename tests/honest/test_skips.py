"""CI allows no skip but a GPU test's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parent.parent / "conftest.py"

SKIPS = """
import pytest

def test_runs():
    pass

@pytest.mark.skip(reason="no such service here")
def test_marked():
    pass

def test_inside():
    pytest.skip("no such service here")

@pytest.mark.gpu
def test_gpu():
    pytest.skip("no GPU")
"""

MODULE_SKIP = """
import pytest

pytest.skip("no such package here", allow_module_level=True)
"""


def said(folder: Path, *, require_all: bool) -> str:
    """What pytest says of a file with skips and of one that skips itself, with the hooks of these tests."""
    shutil.copy(CONFTEST, folder / "conftest.py")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = gpu: needs a GPU\n")
    (folder / "test_it.py").write_text(SKIPS)
    (folder / "test_none.py").write_text(MODULE_SKIP)
    environment = {name: value for name, value in os.environ.items() if name != "TRAJKIT_REQUIRE_ALL"}
    if require_all:
        environment["TRAJKIT_REQUIRE_ALL"] = "1"
    options = ("-q", "-rfEs", "-p", "no:cacheprovider", "--continue-on-collection-errors")
    command = [sys.executable, "-m", "pytest", *options, str(folder)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout


def test_a_skip_fails_in_ci_and_a_gpu_skip_does_not(tmp_path: Path) -> None:
    output = said(tmp_path, require_all=True)
    assert "1 failed, 1 passed, 1 skipped, 2 errors" in output  # a mark or a file is an error of the set-up
    assert (
        "test_marked: TRAJKIT_REQUIRE_ALL=1 allows no skip but a GPU test's: Skipped: no such service here"
        in output
    )
    assert "no such package here" in output


def test_a_skip_is_a_skip_elsewhere(tmp_path: Path) -> None:
    assert "1 passed, 4 skipped" in said(tmp_path, require_all=False)
