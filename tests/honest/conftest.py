"""The wheel, and an environment of its own with the wheel and the core only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (built,) = folder.glob("trajkit-*.whl")
    return built


@pytest.fixture(scope="session")
def narrow(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment with the wheel and what it cannot do without."""
    folder = tmp_path_factory.mktemp("narrow") / "venv"
    _run(sys.executable, "-m", "venv", folder)
    _run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    return folder / "bin"


def _run(*command: object) -> None:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
