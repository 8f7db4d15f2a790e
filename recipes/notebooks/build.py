"""Run the notebooks of this folder and write them with their output.

needs    trajkit[all,dev]
minutes  5 on two cores
cost     none
leaves   each source/NAME.py as NAME.ipynb, executed in a folder of its own

Cells of a source begin with `# %%`, text with `# %% [markdown]`. Run as
`python recipes/notebooks/build.py [NAME]...`.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from trajkit.stack.local import stop_stack

HERE = Path(__file__).parent
SOURCES = HERE / "source"
CELL_LIMIT_S = 600
_MARK = re.compile(r"^# %%(.*)$", re.MULTILINE)


def names() -> list[str]:
    """The notebooks."""
    return sorted(path.stem for path in SOURCES.glob("*.py"))


def source(name: str) -> nbformat.NotebookNode:
    """A notebook as it is written, without results."""
    pieces = _MARK.split((SOURCES / f"{name}.py").read_text(encoding="utf-8"))
    cells = list(_cells(pieces[1::2], pieces[2::2]))
    for number, cell in enumerate(cells):
        cell.id = f"{name}-{number}"
    spec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": spec, "language_info": {"name": "python"}})


def _cells(marks: list[str], texts: list[str]) -> Iterator[nbformat.NotebookNode]:
    for mark, text in zip(marks, texts, strict=True):
        if "[markdown]" in mark:
            yield new_markdown_cell(
                "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.strip().splitlines())
            )
        else:
            yield new_code_cell(text.strip())


def executed(notebook: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    """The notebook with the output of its cells, but not when and where it ran.

    Args:
        notebook: As it is written.
        folder: Where its code runs.
    """
    client = NotebookClient(
        notebook,
        timeout=CELL_LIMIT_S,
        coalesce_streams=True,  # a line that came late is not a separate output
        resources={"metadata": {"path": str(folder)}},
    )
    try:
        done = client.execute()
    finally:
        stop_stack(folder=folder, with_data=True)  # a cell that failed may have left it running
    for cell in done.cells:
        cell.metadata = {}
        if cell.cell_type == "code":  # stderr of libraries names local folders
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    done.metadata = {name: done.metadata[name] for name in ("kernelspec", "language_info")}
    done.metadata["language_info"] = {"name": "python"}
    return nbformat.reads(nbformat.writes(done).replace(f"{folder}/", ""), as_version=4)


def build(name: str) -> None:
    """Run one and write it."""
    with tempfile.TemporaryDirectory(prefix="trajkit-notebook-") as folder:
        nbformat.write(executed(source(name), Path(folder)), HERE / f"{name}.ipynb")


if __name__ == "__main__":
    for each in sys.argv[1:] or names():
        build(each)
