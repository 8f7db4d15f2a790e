"""The wheel and the source distribution, and an environment that has the wheel and the core only."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return _built("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of this checkout."""
    return _built("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def rebuilt(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the source distribution makes, with nothing else around it."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (inside,) = folder.iterdir()
    return _built("wheel", inside, tmp_path_factory.mktemp("rebuilt"))


@pytest.fixture(scope="session")
def narrow(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment with the wheel and what it requires, which is linked from here."""
    folder = tmp_path_factory.mktemp("narrow") / "venv"
    _run(sys.executable, "-m", "venv", "--without-pip", folder)
    install = ("--python", folder / "bin" / "python", "install", "--quiet", "--no-compile", "--no-deps")
    _run(sys.executable, "-m", "pip", *install, wheel)
    (site,) = folder.glob("lib/python*/site-packages")
    (ours,) = metadata.distributions(path=[str(site)])
    waiting = [*map(Requirement, ours.requires or ())]
    while waiting:
        each = waiting.pop()
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            found = metadata.distribution(each.name)
            assert found.version in each.specifier, each
            for name in {path.parts[0] for path in found.files or ()} - {".."}:
                if not (site / name).exists():
                    (site / name).symlink_to(str(found.locate_file(name)))
            waiting += map(Requirement, found.requires or ())
    return folder / "bin"


def _built(target: str, source: Path, folder: Path) -> Path:
    """What the build backend makes of a source folder; the one that is pinned, so no network is needed."""
    _run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder, cwd=source)
    (built,) = folder.glob("trajkit-*")
    return built


def _run(*command: object, cwd: Path | None = None) -> None:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, timeout=280, cwd=cwd
    )
    assert done.returncode == 0, done.stdout + done.stderr
