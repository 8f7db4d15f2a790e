"""A folder of many files is read one by one: memory does not grow with their number."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.formats.test_atif import ASKS, DONE, USER, document

RUN = """
import resource, sys
from pathlib import Path
from trajkit.sources.files.importing import Wish, import_files
imported, _ = import_files(Path(sys.argv[1]), Path(sys.argv[2]), Wish())
print(imported.n_episodes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_mb(folder: Path, goal: Path) -> tuple[int, float]:
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(folder), str(goal)], capture_output=True, text=True, check=True
    )
    n_episodes, kilobytes = done.stdout.split()
    return int(n_episodes), int(kilobytes) / 1024


@pytest.mark.full
@pytest.mark.parametrize("n", [1000])
def test_memory_does_not_grow_with_the_number_of_files(tmp_path, n):
    text = json.dumps(document(USER, {**ASKS, "message": "I search. " * 200}, DONE))
    for name, count in (("few", n // 8), ("many", n)):
        for number in range(count):
            folder = tmp_path / name / str(number // 1000)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.json").write_text(text.replace('"s1"', f'"s{number}"'))
    few, few_mb = peak_mb(tmp_path / "few", tmp_path / "few-store")
    many, many_mb = peak_mb(tmp_path / "many", tmp_path / "many-store")
    assert (few, many) == (n // 8, n)
    assert many_mb < few_mb + 60, (few_mb, many_mb)
