"""The console blocks of docs/validate.md print what is shown; `...` stands for what is left out."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

from trajkit.cli.tokens import tokens
from trajkit.cli.validate import TARGETS, validate
from trajkit.validation import target

PAGE = (Path(__file__).parents[2] / "docs" / "validate.md").read_text(encoding="utf-8")
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_the_page_prints_what_is_shown(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shown = []
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            done = subprocess.run(
                ["bash", "-c", f"({command}) 2>&1"],
                cwd=tmp_path,
                env=os.environ | {"PATH": path},
                text=True,
                check=False,
                stdout=subprocess.PIPE,
            )
            assert done.returncode == 0, done.stdout
            assert doctest.OutputChecker().check_output(output, done.stdout, SAME), done.stdout
            shown.append(command)
    assert len(shown) == 5


def test_the_options_that_the_page_names_exist() -> None:
    known = {
        name for command in (validate, tokens) for parameter in command.params for name in parameter.opts
    }
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= known


def test_every_target_is_on_the_page_and_in_the_help() -> None:
    assert (
        set(re.findall(r"^\| `([a-z]+)` \|", PAGE, flags=re.MULTILINE)) == set(TARGETS) == set(target.TARGETS)
    )
