"""docs/formats.md: its console blocks print what is shown, its table is what is measured, its names exist."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

from trajkit.cli.main import cli
from trajkit.formats import known
from trajkit.sources.files.known import NAMES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_the_page_prints_what_is_shown(tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shown = []
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            done = subprocess.run(
                ["bash", "-c", f"{command} 2>&1"],
                cwd=tmp_path,
                env=os.environ | {"PATH": path},
                text=True,
                check=False,
                stdout=subprocess.PIPE,
            )
            assert done.returncode == 0, done.stdout
            assert doctest.OutputChecker().check_output(output, done.stdout, SAME), done.stdout
            shown.append(done.stdout)
    digests = [re.search(r'"digest": "([0-9a-f]{12})', text) for text in shown]
    (imported,) = re.findall(r"digest ([0-9a-f]{12})", shown[1])
    assert [found[1] for found in digests if found] == [imported]


def test_the_formats_that_the_page_lists_are_those_that_there_are():
    table = PAGE.partition("## What is kept")[0]
    rows = {
        row[0]: row[1:] for row in re.findall(r"^\| `([a-z-]+)` \|[^|]*\|([^|]*)\|([^|]*)\|$", table, re.M)
    }
    assert set(rows) == set(NAMES)
    assert {name for name, (_, written) in rows.items() if written.strip()} == set(NAMES) & set(known())
    assert all(read.strip() for read, _ in rows.values())


def test_the_options_that_the_page_names_exist():
    commands = [cli.get_command(None, name) for name in ("import", "convert")]  # type: ignore[arg-type]
    options = {name for command in commands for parameter in command.params for name in parameter.opts}
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= options
