"""The console blocks of docs/rollouts.md print what is shown; `...` stands for what differs."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import click

from trajkit.cli.rollout import rollout

PAGE = (Path(__file__).parents[2] / "docs" / "rollouts.md").read_text(encoding="utf-8")
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_the_page_prints_what_is_shown(tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shown = []
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.replace("\\\n", "").partition("\n")
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
    assert len(shown) == 3


def test_the_options_that_the_page_names_exist():
    assert isinstance(rollout, click.Command)
    known = {name for parameter in rollout.params for name in parameter.opts}
    named = set(re.findall(r"`(--[a-z-]+)", PAGE))
    of_export = {"--include-abandoned", "--metric"}
    assert len(named) > 15
    assert named - known == of_export
