"""Which allocator Arrow works with, in processes of their own: it is chosen once for each."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow as pa
import pytest

NAME = "ARROW_DEFAULT_MEMORY_POOL"


BEFORE = "from trajkit._memory import *; prefer_little_memory(); prefer_little_memory(); import pyarrow as pa"
SAID = "said = lambda: print(pa.default_memory_pool().backend_name)"


def backends(**environment: str) -> list[str]:
    """Before, in and after a block that keeps what is freed."""
    code = f"{BEFORE}; {SAID}; said()\nwith keeping_freed_memory(): said()\nsaid()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**{name: value for name, value in os.environ.items() if name != NAME}, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.skipif("mimalloc" not in pa.supported_memory_backends(), reason="Arrow was built without it")
def test_freed_memory_is_kept_where_the_work_asks_for_it() -> None:
    assert backends() == ["system", "mimalloc", "system"]


def test_what_the_environment_says_is_left_as_it_is() -> None:
    assert backends(**{NAME: "system"}) == ["system"] * 3
    assert backends(**{NAME: "mimalloc"}) == ["mimalloc"] * 3
