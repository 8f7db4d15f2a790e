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
SMALLER = {
    "babyai_variants": {
        "200:205": "200:201",
        "max_steps=12": "max_steps=1",
        "max_steps=20": "max_steps=1",
    },
    "rounds": {"200:208": "200:201", "max_steps=10": "max_steps=1"},
    "textworld_expert": {
        'seeds="0:6"': 'seeds="0:2"',
        '"train": 5': '"train": 1',
        "max_steps=4": "max_steps=1",
        "10000:10002": "10000:10001",
        "max_steps=6": "max_steps=1",
        '"max_new_tokens": 24': '"max_new_tokens": 8',
    },
}
"""Numbers of a source with which its cells do the same in a fraction of the time."""


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
@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name, tmp_path):
    made = build.source(name)
    for number, smaller in SMALLER[name].items():
        assert any(number in cell.source for cell in made.cells), number
        for cell in made.cells:
            cell.source = cell.source.replace(number, smaller)
    done = build.executed(made, tmp_path)
    assert [output["output_type"] for output in shown(done)] == [
        output["output_type"] for output in shown(kept(name))
    ]
