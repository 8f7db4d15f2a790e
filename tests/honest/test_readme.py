"""The README does what it says: its console blocks print what is shown, its other blocks name what exists.

In shown output `...` stands for what differs from run to run, and runs of blanks count as one.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.pages import BIN, blocks, printed
from trajkit.cli.main import COMMANDS, cli

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DEMO = (ROOT / "recipes" / "demo.sh").read_text(encoding="utf-8")


def trajkit_commands() -> list[list[str]]:
    """The arguments of every `trajkit` call in any block of commands, and in the demo."""
    lines = (
        "".join([*blocks(README, "console"), *blocks(README, "sh"), DEMO]).replace("\\\n", "").splitlines()
    )
    code = [line.partition(" #")[0] for line in lines if not line.startswith("#")]
    return [
        shlex.split(call[1])
        for line in code
        for call in re.finditer(r"(?<![./])\btrajkit ([a-z](?:'[^']*'|[^&|>'])*)", line)
    ]


@pytest.fixture
def folder(tmp_path):
    """A working folder of its own, whose services are stopped at the end."""
    yield tmp_path
    subprocess.run([BIN / "trajkit", "down", "--delete-data"], cwd=tmp_path, check=False, capture_output=True)


def test_console_blocks_run_and_print_what_is_shown(folder):
    assert len(printed(README, folder, COLUMNS="100")) >= 6


def test_python_blocks_run(folder):
    assert blocks(README, "python")
    for block in blocks(README, "python"):
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block}\n{done.stderr}"


def test_every_trajkit_call_names_a_command_and_options_that_exist():
    calls = trajkit_commands()
    assert {call[0] for call in calls} == set(COMMANDS)
    context = click.Context(cli, info_name="trajkit")
    for name, *arguments in calls:
        command = cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            command = command.get_command(context, arguments[0]) or command
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in arguments if word.startswith("-") and word != "-"} <= known, (
            name,
            arguments,
        )


def test_every_make_target_that_is_named_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    documents = [README, (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")]
    named = {
        target
        for text in documents
        for target in re.findall(r"\bmake ([a-z-]+)\b(?=`|\s*$|\s+#|\s{2})", text, re.M)
    }
    assert {"demo", "test", "install"} <= named
    for target in named:
        assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE), target


def test_links_lead_to_files_that_exist():
    for document in (
        "README.md",
        "CONTRIBUTING.md",
        "docs/architecture.md",
        "schemas/README.md",
        "recipes/README.md",
    ):
        path = ROOT / document
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            assert "://" in target or (path.parent / target).exists(), f"{document}: {target}"


def test_the_first_screen_shows_the_two_commands():
    first_screen = "\n".join(README.splitlines()[:24])
    assert "make demo" in first_screen
    assert "make test" in first_screen
