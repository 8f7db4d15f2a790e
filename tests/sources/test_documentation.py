"""The console blocks of docs/export.md print what is shown; `...` stands for what is left out."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import click

from trajkit.cli.export import export

PAGE = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_the_page_prints_what_is_shown(tmp_path: Path) -> None:
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
            shown.append(command)
    assert len(shown) == 4


def test_the_options_that_the_page_names_exist() -> None:
    assert isinstance(export, click.Command)
    known = {name for parameter in export.params for name in parameter.opts}
    named = set(re.findall(r"`(--[a-z-]+)", PAGE))
    assert {"--where", "--as-of", "--targets", "--limit", "--order-by", "--train-function"} <= named
    assert named <= known
