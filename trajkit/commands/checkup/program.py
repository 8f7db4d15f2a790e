"""Programs outside of Python, each for the one feature that needs it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import trajkit
from trajkit.commands.checkup.check import Check, broken, note, well
from trajkit.commands.checkup.package import Installed

_JAVA = 17
"""The oldest that TextWorldExpress runs on."""
_ASKING_S = 10.0
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_GET_JAVA = "install Java 17 or newer, such as Debian's default-jre-headless, or set JAVA_HOME"


_OF_TESTS: dict[str, tuple[str, ...]] = {
    "chromium": ("google-chrome", "chromium-browser", "chrome"),
    "node": ("nodejs",),
    **dict.fromkeys(("npm", "postgres", "openssl"), ()),
}
"""Programs that only the tests of a checkout run, each with its alternatives."""


def programs() -> Iterator[Check]:
    """Java, git and scanners for secrets; in a checkout also what its tests run."""
    yield _java()
    yield _git()
    yield _scanner()
    root = Path(trajkit.__file__).parents[1]
    if (root / "pyproject.toml").is_file() and (root / "tests").is_dir():
        yield _of_tests()


def _java() -> Check:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    is_wanted = Installed().has("textworld")
    if found is None and home and is_wanted:
        return broken("java", "JAVA_HOME names a folder without bin/java", _GET_JAVA)
    if found is None:
        return note("java", "none; TextWorldExpress runs in it", _GET_JAVA)
    version = _java_version(found)
    if version is None:
        said = f"{found} does not report its version"
        return broken("java", said, _GET_JAVA) if is_wanted else note("java", said, _GET_JAVA)
    if version < _JAVA:
        said = f"{version} in {found} is too old for TextWorldExpress"
        return broken("java", said, _GET_JAVA) if is_wanted else note("java", said, _GET_JAVA)
    return well("java", f"{version}  {found}", version=version, path=found)


def _java_version(program: str) -> int | None:
    """The common version number: `1.8.0_392` is 8; None when it does not report one."""
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_ASKING_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    if found is None or done.returncode != 0:
        return None
    return int(found[2] or 0) if found[1] == "1" else int(found[1])


def _git() -> Check:
    if (found := shutil.which("git")) is None:
        return note("git", "none: jobs and runs do not record the commit of your code", "install git")
    return well("git", found, path=found)


def _scanner() -> Check:
    from trajkit.curation.redaction.gate import PROGRAMS

    for name in PROGRAMS:
        if (found := shutil.which(name)) is not None:
            return well("scanner", f"{name}, which `trajkit redact` also runs  {found}", path=found)
    words = " or ".join(PROGRAMS)
    return note("scanner", f"no {words}: `trajkit redact` has no second opinion", f"install {words}")


def _of_tests() -> Check:
    there = {name: any(map(shutil.which, (name, *others))) for name, others in _OF_TESTS.items()}
    there["postgres"] = there["postgres"] or any(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    missing = [name for name, is_there in there.items() if not is_there]
    if missing:
        return note("tests", f"missing for this checkout's tests: {', '.join(missing)}", "make system")
    return well("tests", f"{', '.join(there)} for this checkout's tests", programs=list(there))
