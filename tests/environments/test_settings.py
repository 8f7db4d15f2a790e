from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from trajkit.environments.settings import converted, nearest, parameters
from trajkit.errors import RequestError


class Colour(enum.Enum):
    RED = "r"
    GREEN = "g"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


def takes(annotation: Any, text: str) -> Any:
    """What the text becomes for a parameter of this type."""

    def call(value: Any) -> None: ...

    call.__annotations__["value"] = annotation
    return converted({"value": text}, parameters(call), of="it")["value"]


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (int, "12", 12),
        (float, "1e-3", 0.001),
        (str, "12", "12"),
        (bool, "true", True),
        (bool, "No", False),
        (Path, "a/b", Path("a/b")),
        (Literal["easy", "hard"], "hard", "hard"),
        (Literal[1, 2], "2", 2),
        (Colour, "RED", Colour.RED),
        (Colour, "g", Colour.GREEN),
        (Size, "2", Size.LARGE),
        (int | None, "none", None),
        (int | None, "7", 7),
        (str | None, "null", None),
        (int | str, "7", 7),
        (str | int, "seven", "seven"),
        (Annotated[int, "metres"], "5", 5),
        (list[int], "[1, 2]", [1, 2]),
        (tuple[str, ...], "left, right", ("left", "right")),
        (list[str], "left", ["left"]),
        (tuple[str, ...], '["a,b"]', ("a,b",)),
        (dict[str, float], '{"a": 1}', {"a": 1.0}),
        (Callable[[str], str], "builtins:len", len),
        (Any, "[1]", [1]),
        (Any, "just text", "just text"),
    ],
)
def test_a_text_becomes_a_value_of_the_annotated_type(annotation: Any, text: str, value: Any) -> None:
    found = takes(annotation, text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("annotation", "text", "message"),
    [
        (int, "1.5", "value='1.5' is not a whole number"),
        (float, "much", "value='much' is not a number"),
        (bool, "maybe", "value='maybe' is not true or false"),
        (Literal["easy", "hard"], "Hard", "value='Hard' is not one of easy, hard"),
        (Colour, "blue", "value='blue' is not one of r, g, RED, GREEN"),
        (int | bool, "x", "value='x' is not a whole number or true or false"),
        (list[int], '["a"]', r"value='\[\"a\"\]' is not JSON of the type list\[int\]"),
        (dict[str, int], "{", "value='{' is not JSON of the type"),
    ],
)
def test_a_text_that_does_not_fit_is_refused(annotation: Any, text: str, message: str) -> None:
    with pytest.raises(RequestError, match=f"it: the setting {message}"):
        takes(annotation, text)


class Maze:
    def __init__(
        self, task: str, size: int = 5, *, seed_offset=10, walls: bool = True, name=None
    ) -> None: ...


def test_without_an_annotation_the_default_decides() -> None:
    known = parameters(Maze)

    values = converted({"task": "a", "seed_offset": "3", "name": "[1]", "walls": "no"}, known, of="Maze")
    assert values == {"task": "a", "seed_offset": 3, "name": [1], "walls": False}


def test_an_unknown_name_is_refused_with_the_nearest_and_with_what_there_is() -> None:
    known = {name: one for name, one in parameters(Maze).items() if name != "task"}

    with pytest.raises(RequestError, match="Maze takes no setting 'sise'") as caught:
        converted({"sise": "3"}, known, of="Maze")
    assert caught.value.hint == (
        "did you mean size? it takes size (int), seed_offset (int), walls (bool), name (value)"
    )


def test_where_nothing_can_be_set_that_is_said() -> None:
    with pytest.raises(RequestError, match="Maze takes no settings, so not 'size' either"):
        converted({"size": "3"}, {}, of="Maze")


def test_a_missing_one_is_named_with_the_option() -> None:
    with pytest.raises(RequestError, match=r"Maze needs the setting 'task' \(--policy-set task=STR\)"):
        converted({}, parameters(Maze), of="Maze", option="--policy-set")


def test_any_name_is_taken_where_the_rest_is_passed_on() -> None:
    def call(**rest: Any) -> None: ...

    assert converted({"a": "1", "b": "x"}, parameters(call), of="call") == {"a": 1, "b": "x"}


def test_an_annotation_that_cannot_be_resolved_leaves_the_text_to_the_default() -> None:
    def call(a: Nowhere = 3, b: Nowhere = None) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert converted({"a": "4", "b": "x"}, parameters(call), of="call") == {"a": 4, "b": "x"}


def test_the_nearest_names_come_first() -> None:
    assert nearest("babai", ["babyai", "chess"]) == "did you mean babyai?"
    assert nearest("x", ["babyai", "chess"]) == "known: babyai, chess"
    assert nearest("x", []) == ""
