from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trajkit.environments.module import attribute
from trajkit.errors import RequestError


def test_something_is_found_in_a_module_of_the_working_folder(module: Callable[[str], str]) -> None:
    name = module("class Outer:\n    class Inner:\n        size = 3\n")

    assert attribute(f"{name}:Steps", noun="environment").__name__ == "Steps"
    assert attribute(f"{name}:Outer.Inner", noun="environment").size == 3
    with pytest.raises(RequestError, match=f"{name} has no 'tall'"):
        attribute(f"{name}:Outer.Inner.size.tall", noun="environment")


def test_a_package_in_the_working_folder_is_found(folder: Path) -> None:
    package = folder / "my_own_package" / "inner"
    package.mkdir(parents=True)
    (package / "env.py").write_text("VALUE = 5\n", encoding="utf-8")

    assert attribute("my_own_package.inner.env:VALUE", noun="environment") == 5


@pytest.mark.parametrize(
    "spec", ["my_pkg", "my_pkg:", ":MyEnv", "my pkg:MyEnv", "my_pkg:My Env", "a:b:c", "a/b:C"]
)
def test_what_is_no_such_name_is_refused(spec: str) -> None:
    with pytest.raises(RequestError, match=r"names no environment.*write it as my_pkg\.module:Name"):
        attribute(spec, noun="environment")


def test_a_file_is_answered_with_the_name_to_write() -> None:
    with pytest.raises(RequestError, match=r"names no environment \(write worlds.maze:Maze\)"):
        attribute("./worlds/maze.py:Maze", noun="environment")


def test_a_module_that_is_not_there_is_refused_with_where_was_looked(folder: Path) -> None:
    with pytest.raises(RequestError, match=f"there is no module 'not_there.env' .looked in {folder} and"):
        attribute("not_there.env:MyEnv", noun="environment")


def test_a_name_that_is_not_there_is_refused_with_the_nearest(module: Callable[[str], str]) -> None:
    name = module("")

    with pytest.raises(RequestError, match=rf"{name} has no 'Step' \(did you mean Steps\?\)"):
        attribute(f"{name}:Step", noun="environment")


def test_a_package_that_the_module_needs_is_named(module: Callable[[str], str]) -> None:
    name = module("import not_installed_at_all.part\n")

    with pytest.raises(RequestError, match=f"{name} imports .*, which is not installed") as caught:
        attribute(f"{name}:Steps", noun="environment")
    assert caught.value.hint == "pip install not_installed_at_all"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def", "SyntaxError"),
    ],
)
def test_a_module_that_fails_is_refused_with_the_reason(
    module: Callable[[str], str], line: str, said: str
) -> None:
    name = module(f"{line}\n")

    with pytest.raises(RequestError, match=f"{name} cannot be imported: {said}"):
        attribute(f"{name}:Steps", noun="environment")


def test_what_a_module_prints_while_it_loads_goes_to_stderr(
    module: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    name = module("print('welcome')\n")
    attribute(f"{name}:Steps", noun="environment")

    assert capsys.readouterr() == ("", "welcome\n")
    assert name in sys.modules
