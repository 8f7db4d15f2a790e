"""Every page of docs/ names what exists; pages that need no set-up print what is shown."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from tests.honest.test_python import COMMANDS
from tests.matrix import daily
from tests.pages import blocks, console, printed
from trajkit.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGES = {path.stem: path for path in (*(ROOT / "docs").glob("*.md"), ROOT / "recipes" / "README.md")}
OTHERS = {
    "cli": {"--gpu-memory-utilization"},
    "experience": {"--generation-config"},
    "cluster": {"--job"},
    "gpu": {
        *(
            "--attention-backend",
            "--checkpoints",
            "--enable-auto-tool-choice",
            "--enforce-eager",
            "--lines",
            "--max-model-len",
            "--settings",
            "--shape",
        ),
        *("--tokens", "--tool-call-parser"),
    },
    "large": {"--sizes"},
    "production": {"--conversations", "--turns", "--write"},
    "results": {"--worlds"},
    "serve": {
        *("--continuous-batching", "--enable-lora", "--generation-config", "--gpu-memory-utilization"),
        *("--lora-modules", "--max-lora-rank", "--max-loras", "--served-model-name"),
    },
}
"""Options of other programs that a page names."""


def options(command: click.Command) -> set[str]:
    """Every spelling of the options of a command."""
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}


KNOWN = set().union(*map(options, (cli, *COMMANDS.values())))


@pytest.mark.parametrize(
    ("name", "n_commands"),
    daily([("export", 4), ("rollouts", 3), ("convert", 6), ("validate", 5), ("versions", 11)], 2),
)
def test_a_page_prints_what_is_shown(name: str, n_commands: int, tmp_path: Path) -> None:
    assert len(printed(PAGES[name].read_text(encoding="utf-8"), tmp_path, COLUMNS="100")) == n_commands


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_names_exists(name: str) -> None:
    page = PAGES[name].read_text(encoding="utf-8")
    lines = [each.command for each in console(page)]
    lines += [line for block in blocks(page, "sh") for line in block.replace("\\\n", "").splitlines()]
    for line in lines:
        program, *words = shlex.split(line, comments=True) or [""]
        if program != "trajkit":
            continue
        command: click.Command = cli
        while isinstance(command, click.Group) and words:
            found = command.get_command(click.Context(command), words[0])
            if found is None:
                break
            command, words = found, words[1:]
        assert command is not cli or words[0].startswith("-"), line
        named = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert named <= options(command) | {"-o", "-"}, line
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", page))
    assert named - KNOWN == OTHERS.get(name, set())
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page):
        assert "://" in target or (PAGES[name].parent / target).exists(), target
