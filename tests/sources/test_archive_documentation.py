"""The examples of docs/archive.md do what is shown; `...` stands for what differs."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb

from trajkit.sources.tensorzero.archive.layout import TABLES

PAGE = (Path(__file__).parents[2] / "docs" / "archive.md").read_text(encoding="utf-8")
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_the_page_prints_what_is_shown(rows: Any, url: str, tmp_path: Path) -> None:
    for value in (0.1, 0.7, 0.9):
        rows.episode(value, tags={"trajkit.task": f"task {value}"})
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shown = []
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            done = subprocess.run(
                ["bash", "-c", f"{command} 2>&1"],
                cwd=tmp_path,
                env=os.environ | {"PATH": path, "TENSORZERO_CLICKHOUSE_URL": url},
                text=True,
                check=False,
                stdout=subprocess.PIPE,
            )
            assert done.returncode == 0, done.stdout
            assert doctest.OutputChecker().check_output(output, done.stdout, SAME), done.stdout
            shown.append(command)
    assert len(shown) == 4
    (sql,) = re.findall(r"^```sql\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    with duckdb.connect() as connection:
        found = connection.execute(sql.replace("archive/", f"{tmp_path}/archive/")).fetchall()
    assert found == [("task 0.1", 2), ("task 0.7", 2), ("task 0.9", 2)]


def test_the_page_names_every_table() -> None:
    named = set(re.findall(r"`([a-z_]+)`", PAGE))
    assert {table.name for table in TABLES} <= named
