"""What Together's own check says of files: of their lines, no more; the rows are checked by its service."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.wheels import unpacked
from tests.formats.validation.rows import called, chat
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
print(json.dumps({path: check_file(path)["is_check_passed"] for path in sys.argv[2:]}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return unpacked("together", "3.1.1", tmp_path_factory.mktemp("together"))
    except OSError as error:
        pytest.skip(f"together's wheel cannot be fetched: {error}")


GOOD = (json.dumps(chat("hi", "yo")) + "\n").encode()
TAKEN = [chat("hi", "yo", "and", "so"), called(), {"text": "hi"}, {"prompt": "a", "completion": "b"}]
BROKEN = {
    "empty": b"",
    "not JSON": GOOD + b"oops\n",
    "no object": GOOD + b"[1]\n",
    "not UTF-8": GOOD + b'{"text": "\xff"}\n',
    "cut off": GOOD + b'{"messages": [',
}


def test_what_together_takes_and_refuses_we_take_and_refuse(wheel: Path, tmp_path: Path) -> None:
    files = {str(place): json.dumps(row).encode() + b"\n" for place, row in enumerate(TAKEN)} | BROKEN
    paths = [tmp_path / f"{name}.jsonl" for name in files]
    for path, data in zip(paths, files.values(), strict=True):
        path.write_bytes(data)
    for unit in ("step", "episode"):  # what we write for it
        paths.append(tmp_path / f"{unit}.jsonl")
        convert(open_dataset("sample:babyai").where("purpose <> 'eval'"), paths[-1], to="together", unit=unit)
    command = [sys.executable, "-c", JUDGE, str(wheel), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = json.loads(done.stdout.splitlines()[-1])
    assert {Path(path).stem for path, is_taken in theirs.items() if not is_taken} == set(BROKEN)
    assert theirs == {str(path): validate(path, target="together").n_errors == 0 for path in paths}
