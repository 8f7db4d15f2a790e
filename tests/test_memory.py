"""Which allocator Arrow works with, in processes of their own: it is chosen once for each."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pyarrow as pa
import pytest

from trajkit._core.process import memory as _memory

NAME = "ARROW_DEFAULT_MEMORY_POOL"


BEFORE = (
    "from trajkit._core.process.memory import *; "
    "prefer_little_memory(); prefer_little_memory(); import pyarrow as pa"
)
SAID = "said = lambda: print(pa.default_memory_pool().backend_name)"


def unwished() -> dict[str, str]:
    """The environment without what another test, in this process, may have wished for."""
    return {name: value for name, value in os.environ.items() if name not in _memory._WISHES}


def printed_by(code: str, environment: dict[str, str]) -> str:
    """What a process of its own prints."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def backends(**environment: str) -> list[str]:
    """Before, in and after a block that keeps what is freed."""
    code = f"{BEFORE}; {SAID}; said()\nwith keeping_freed_memory(): said()\nsaid()"
    return printed_by(code, unwished() | environment).split()


@pytest.mark.skipif("mimalloc" not in pa.supported_memory_backends(), reason="Arrow was built without it")
def test_freed_memory_is_kept_where_the_work_asks_for_it() -> None:
    assert backends() == ["system", "mimalloc", "system"]


def test_what_the_environment_says_is_left_as_it_is() -> None:
    assert backends(**{NAME: "system"}) == ["system"] * 3
    assert backends(**{NAME: "mimalloc"}) == ["mimalloc"] * 3


HAS_PANDAS = "import sys; print('pandas' in sys.modules)"
WITH_PYARROW = "import pyarrow as pa; pa.array([1]); pa.table({'a': [1]})"


def test_pyarrow_does_not_import_pandas_for_a_command_that_leaves_it() -> None:
    left = "from trajkit._core.process.memory import *; prefer_little_memory(); leave_pandas()"
    wanted = "frame = pa.table({'a': [1, None]}).to_pandas(); print(type(frame).__name__)"
    again = "print(pa.Table.from_pandas(frame).num_rows, pa.array(frame['a']).null_count)"
    assert (
        printed_by("\n".join((left, WITH_PYARROW, HAS_PANDAS, wanted, again)), unwished())
        == "False\nDataFrame\n2 1\n"
    )


def test_a_process_that_is_not_the_command_lines_keeps_its_pandas() -> None:
    begin = "from trajkit._core.process.memory import leave_pandas; leave_pandas()"
    assert printed_by("\n".join((begin, WITH_PYARROW, HAS_PANDAS)), unwished()) == "True\n"


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is the C library's of Linux")
@pytest.mark.parametrize("before", [{}, {"MALLOC_TRIM_THRESHOLD_": "131072"}])
def test_the_c_library_is_told_what_the_environment_does_not_say(before: dict[str, str]) -> None:
    code = (
        "import ctypes; told = []; "
        "library = type('C', (), {'mallopt': lambda *said: told.append(said[-2:])})();"
        "ctypes.CDLL = lambda name: library;"
        "from trajkit._core.process.memory import *; prefer_little_memory(); print(sorted(told))"
    )
    environment = unwished()
    for name in _memory._MALLOC_WISHES:
        environment.pop(name, None)
    numbers = [number for number, _ in ast.literal_eval(printed_by(code, environment | before))]
    assert numbers == ([-8, -3] if before else [-8, -3, -1])
