"""CI allows no skip but a GPU test's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.fixture
def run(tmp_path):
    shutil.copy(CONFTEST, tmp_path / "conftest.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu: needs a GPU\n")

    def run(text: str, *, require_all: bool) -> str:
        (tmp_path / "test_it.py").write_text(text)
        environment = {name: value for name, value in os.environ.items() if name != "TRAJKIT_REQUIRE_ALL"}
        if require_all:
            environment["TRAJKIT_REQUIRE_ALL"] = "1"
        command = [sys.executable, "-m", "pytest", "-q", "-rfEs", "-p", "no:cacheprovider", str(tmp_path)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout

    return run


def test_a_skip_fails_in_ci_and_a_gpu_skip_does_not(run):
    output = run(SKIPS, require_all=True)
    assert "1 failed, 1 passed, 1 skipped, 1 error" in output  # a skip mark counts as an error of the set-up
    assert (
        "test_marked: TRAJKIT_REQUIRE_ALL=1 allows no skip but a GPU test's: Skipped: no such service here"
        in output
    )


def test_a_skip_is_a_skip_elsewhere(run):
    assert "1 passed, 3 skipped" in run(SKIPS, require_all=False)


def test_a_file_that_skips_itself_fails_in_ci(run):
    assert "1 error" in run(MODULE_SKIP, require_all=True)
    assert "1 skipped" in run(MODULE_SKIP, require_all=False)
