"""The public names are those that docs/python.md documents."""

from __future__ import annotations

import ast
import logging
import re
from pathlib import Path

import trajkit

ROOT = Path(__file__).parent.parent.parent


def documented() -> set[str]:
    """The names in the first columns of the tables in the page about Python."""
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8").partition("## Classes and helpers")[2]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    return {name for cell in rows for name in re.findall(r"`(\w+)", cell)}


def test_public_names_are_sorted_and_each_once():
    assert list(trajkit.__all__) == sorted(set(trajkit.__all__))
    assert dir(trajkit) == list(trajkit.__all__)


def test_public_names_are_the_documented_ones():
    assert documented() == set(trajkit.__all__)


def test_every_public_name_is_there_and_documented_where_it_is_defined():
    for name in trajkit.__all__:
        value = getattr(trajkit, name)
        assert name == "__version__" or (value.__doc__ and value.__module__.startswith("trajkit."))


def test_every_public_name_is_what_a_type_checker_sees():
    tree = ast.parse((ROOT / "trajkit" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    checked = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert checked == trajkit._MODULE_BY_NAME
    assert set(checked) == set(trajkit.__all__) - {"__version__"}


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(trajkit, "dataset_of_everything")


def test_the_library_is_silent_unless_the_program_configures_logging():
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("trajkit").handlers)
