"""A service's own SDK in a process of its own: a second client, whose types the service itself wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.wheels import unpacked

# of what an SDK wants beside httpx and pydantic, this is only for its headers
_PRELUDE = """
import json, sys, types
class Nothing(dict):
    def __missing__(self, name):
        return None
class Unknown(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments, **options: Nothing()
for name in ("distro", "detect_agent"):
    sys.modules[name] = Unknown(name)
sys.path.insert(0, sys.argv[1])
url, key, given = sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
"""


def wheel_of(name: str, version: str, folder: Path) -> Path:
    """The SDK's wheel, unpacked; where there is no registry the test is skipped."""
    try:
        return unpacked(name, version, folder)
    except OSError as error:
        pytest.skip(f"the wheel of {name} {version} cannot be fetched: {error}")


def run(wheel: Path, script: str, url: str, key: str, **given: Any) -> Any:
    """What a script leaves in `found`. Answers that are not of the SDK's types are an error in it."""
    code = f"{_PRELUDE}\n{script}\nprint(json.dumps(found, default=str))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(wheel), url, key, json.dumps(given, default=str)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
