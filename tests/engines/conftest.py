"""A scheduler of a cluster on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for Slurm: its `sbatch` starts the array as processes of this machine."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "sbatch"
    program = Path(__file__).with_name("fake_sbatch.py")
    script.write_text(f'#!/bin/bash\nexec {sys.executable} {program} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
