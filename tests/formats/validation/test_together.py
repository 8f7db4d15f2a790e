"""What Together's own check says of files: of their lines, no more; the rows are checked by its service."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.wheels import unpacked
from tests.formats.validation.rows import Check, called, chat
from trajkit.curation.rows.file import convert
from trajkit.formats.validation.file import validate
from trajkit.store.dataset import open_dataset

# of the package only the check is loaded: its client wants packages of other versions than ours
JUDGE = """
import json, sys, types
for name in ("together", "together.lib", "together.lib.utils"):
    package = types.ModuleType(name)
    package.__path__ = [sys.argv[1] + "/" + name.replace(".", "/")]
    sys.modules[name] = package
kinds = types.ModuleType("together.types")
kinds.FilePurpose = str
sys.modules["together.types"] = kinds
from together.lib.utils.files import check_file
print(json.dumps(check_file(sys.argv[2])))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return unpacked("together", "3.1.1", tmp_path_factory.mktemp("together"))
    except OSError as error:
        pytest.skip(f"together's wheel cannot be fetched: {error}")


def judged(wheel: Path, path: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", JUDGE, str(wheel), str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_together_takes_what_we_write_for_it(wheel: Path, tmp_path: Path) -> None:
    for unit in ("step", "episode"):
        path = tmp_path / f"{unit}.jsonl"
        convert(open_dataset("sample:babyai").where("purpose <> 'eval'"), path, to="together", unit=unit)
        assert judged(wheel, path)["is_check_passed"], unit
        assert validate(path, target="together").n_errors == 0


GOOD = (json.dumps(chat("hi", "yo")) + "\n").encode()
BROKEN = {
    "empty": b"",
    "not JSON": GOOD + b"oops\n",
    "no object": GOOD + b"[1]\n",
    "not UTF-8": GOOD + b'{"text": "\xff"}\n',
    "cut off": GOOD + b'{"messages": [',
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_together_refuses_we_refuse(check: Check, wheel: Path, tmp_path: Path, case: str) -> None:
    ours = check(raw=BROKEN[case], target="together")
    assert not judged(wheel, tmp_path / "rows.jsonl")["is_check_passed"]
    assert ours.n_errors > 0


@pytest.mark.parametrize(
    "row", [chat("hi", "yo", "and", "so"), called(), {"text": "hi"}, {"prompt": "a", "completion": "b"}]
)
def test_what_we_take_together_takes(check: Check, wheel: Path, tmp_path: Path, row: dict[str, Any]) -> None:
    assert check(row, target="together").n_errors == 0
    assert judged(wheel, tmp_path / "rows.jsonl")["is_check_passed"]
