"""Generated files are what the code generates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trajkit.commands.catalog import COMMANDS
from trajkit.schema.json_schema import NOUNS

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a fresh process writes, by path."""
    folder = tmp_path_factory.mktemp("generated")
    subprocess.run([sys.executable, ROOT / "docs" / "generate.py", folder], check=True, env={"COLUMNS": "57"})
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_generated_files_regenerate_to_the_same_bytes(generated):
    different = [name for name, content in generated.items() if (ROOT / name).read_bytes() != content]
    assert not different, f"run `make docs`: {different}"


def test_no_schema_is_left_from_before(generated):
    kept = {path.relative_to(ROOT).as_posix() for path in (ROOT / "schemas" / "v1").iterdir()}
    assert kept == {name for name in generated if name.startswith("schemas/v1/")}
    assert {f"schemas/v1/{noun}.schema.json" for noun in NOUNS} < kept


def test_every_command_has_its_help_on_the_page(generated):
    page = generated["docs/cli.md"].decode()
    for name in COMMANDS:
        assert f"## trajkit {name}\n\n```text\nUsage: trajkit {name} " in page
