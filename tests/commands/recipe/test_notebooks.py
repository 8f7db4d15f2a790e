"""The notebooks are what their sources say, they run, and they show nothing of the machine that ran them."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).parents[3] / "recipes" / "notebooks"
MACHINE = re.compile(r"/(?:tmp|root|home|Users|work|var)/|trajkit-notebook-|sk-|127\.0\.0\.1:\d")
"""Folders, addresses and keys."""

_spec = importlib.util.spec_from_file_location("build", FOLDER / "build.py")
assert _spec is not None
assert _spec.loader is not None
build = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(build)

NAMES = build.names()


def kept(name: str) -> nbformat.NotebookNode:
    """A notebook as it is in the repository."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def shown(notebook: nbformat.NotebookNode) -> list[dict[str, object]]:
    """Everything that its cells show."""
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def test_there_is_one_for_each_job():
    assert {"babyai_variants", "rounds", "textworld_expert"} <= set(NAMES)
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NAMES)
    assert set(re.findall(r"\((\w+)\.ipynb\)", (FOLDER / "README.md").read_text())) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_the_cells_of_its_source_and_was_executed(name):
    written, found = build.source(name), kept(name)
    assert [(cell.cell_type, cell.source) for cell in found.cells] == [
        (cell.cell_type, cell.source) for cell in written.cells
    ]
    code = [cell for cell in found.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_shows_results_and_nothing_of_where_it_ran(name):
    outputs = shown(kept(name))
    assert {output["output_type"] for output in outputs} <= {"stream", "execute_result", "display_data"}
    assert any("text/html" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert not MACHINE.search(json.dumps(outputs))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name, tmp_path):
    done = build.executed(build.source(name), tmp_path)
    assert [output["output_type"] for output in shown(done)] == [
        output["output_type"] for output in shown(kept(name))
    ]
