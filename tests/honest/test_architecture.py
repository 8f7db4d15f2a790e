"""The picture of the house in docs/architecture.md is the contract that import-linter enforces."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import grimp

from tests.honest.doors import Doors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_picture_shows_the_layers_that_are_enforced() -> None:
    picture = PAGE.partition("## The house")[2].partition("Imports point down")[0]
    lines = [line for line in picture.splitlines() if re.search(r"\w", line)]
    shown = [re.split(r" · ", re.split(r"\s{3,}", line.strip())[0]) for line in lines]
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = contract["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each["type"] == "layers"]
    assert shown == [[name.removeprefix("trajkit.") for name in row.split(" | ")] for row in layers]


def test_every_room_is_described() -> None:
    described = re.findall(
        r"^\| `(\w+)` \|", PAGE.partition("| room |")[2].partition("\n\n")[0], re.MULTILINE
    )
    rooms = {path.parent.name for path in (ROOT / "trajkit").glob("*/__init__.py")}
    assert set(described) == rooms


def test_the_files_that_the_page_names_exist() -> None:
    for name in re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE):
        assert any((ROOT / folder / name).exists() for folder in ("", "trajkit")), name


def test_an_import_past_a_door_is_found() -> None:
    graph = grimp.build_graph("trajkit")
    doors = Doors(name="doors", session_options={}, contract_options={})
    assert doors.check(graph, verbose=False).kept
    past = ("trajkit.viewer.server", "trajkit.store.writing.check")
    graph.add_import(importer=past[0], imported=past[1])
    found = doors.check(graph, verbose=False)
    assert not found.kept
    assert found.metadata["passed_by"] == [(*past, "trajkit.store.writing")]
