"""Reading recipes: what they say, what --set changes, and every error at its line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.commands.recipe.conftest import CHOOSE
from trajkit.commands.recipe.load import load, packaged
from trajkit.errors import ConfigError, RequestError, TrajkitError


def test_a_recipe_is_its_steps_in_order(write: Callable[[str], str]) -> None:
    recipe = load(write(CHOOSE)).recipe
    assert (recipe.name, list(recipe.steps)) == ("choose", ["good", "sides", "checked"])
    assert recipe.steps["sides"].verb == "split"
    assert recipe.steps["sides"].options == {"store": "${good}", "ratio": "train=0.8,val=0.2"}


def test_set_changes_adds_and_removes_options(write: Callable[[str], str]) -> None:
    settings = {
        "sides.ratio": "train=0.5,val=0.5",
        "sides.seed": "7",
        "good.where": "null",
        "good.shortest": "true",
        "checked.set.lora.r": "8",
    }
    steps = load(write(CHOOSE), settings).recipe.steps
    assert steps["sides"].options == {"store": "${good}", "ratio": "train=0.5,val=0.5", "seed": "7"}
    assert steps["good"].options == {"store": "sample:babyai", "where": None, "shortest": True}
    assert steps["checked"].options["set"] == {"lora.r": "8"}


@pytest.mark.parametrize(
    ("settings", "words", "hint"),
    [
        ({"side.seed": "1"}, "has no step 'side'", "nearest: sides"),
        ({"name": "other"}, "has no step 'name'", "good, sides, checked"),
        ({"sides": "1"}, "no option of sides", "--set sides.OPTION=VALUE"),
        ({"sides.ratio.train": "1"}, "ratio is not a group of names", "--set sides.ratio=VALUE"),
    ],
)
def test_a_path_that_leads_nowhere_is_an_error(
    write: Callable[[str], str], settings: dict[str, str], words: str, hint: str
) -> None:
    with pytest.raises(RequestError) as caught:
        load(write(CHOOSE), settings)
    assert words in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        ("version: 1", "version: 2", 1, "version: this trajkit reads version 1, not 2"),
        ("version: 1\n", "", 1, "version is missing"),
        ("name: choose", "name: two words", 2, "name: 'two words' is not a name"),
        ("name: choose", "nam: choose", 2, "a recipe has no 'nam'"),
        ("name: choose", "name: choose\nstep: 1", 3, "a recipe has no 'step'"),
        ("  good:", "  steps:", 3, "'steps' is a name of the run folder itself"),
        ("steps:", "files:\n  good: x\nsteps:", 5, "'good' is a file already"),
        ("    verb: split\n", "", 8, "steps.sides.verb is missing"),
        ("    verb: split\n", "    verb: [split]\n", 9, "steps.sides.verb: it should be a valid string"),
        ("  checked:\n", "  checked: now\n  other:\n", 12, "steps.checked: it should be"),
        ("ratio: train=0.8,val=0.2", "ratio: {a: {b: c}}", 11, "steps.sides.ratio"),
    ],
)
def test_what_is_no_recipe_is_named_with_its_line(
    write: Callable[[str], str], before: str, after: str, line: int, words: str
) -> None:
    assert before in CHOOSE
    with pytest.raises(ConfigError) as caught:
        load(write(CHOOSE.replace(before, after, 1)))
    assert caught.value.message.startswith(f"recipe.yaml line {line}: "), caught.value.message
    assert words in caught.value.message


@pytest.mark.parametrize("text", ["", "- a\n", "name\n"])
def test_what_has_another_shape_is_no_recipe(write: Callable[[str], str], text: str) -> None:
    with pytest.raises(ConfigError, match="this is not a recipe"):
        load(write(text))


@pytest.mark.parametrize(
    "url", ["http://me:secret@host:8123/tensorzero", "postgresql://host/db?password=secret"]
)
def test_a_password_is_refused_and_not_repeated(write: Callable[[str], str], url: str) -> None:
    text = CHOOSE.replace("verb: select\n", f"verb: export\n    source: {url}\n").replace(
        "    store: sample", "    x: sample"
    )
    with pytest.raises(ConfigError, match="line 6: step good: source holds a password") as caught:
        load(write(text))
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"--set good\.source: source holds a password") as caught:
        load(write(CHOOSE), {"good.source": url})
    assert "secret" not in str(caught.value)


def test_recipes_that_come_with_trajkit_have_names() -> None:
    assert {"babyai_local_sft", "babyai_openai"} <= set(packaged())
    for name, path in packaged().items():
        assert load(name).recipe == load(str(path)).recipe
        assert load(name).recipe.name == name


def test_a_name_that_there_is_not_lists_those_that_are() -> None:
    with pytest.raises(TrajkitError) as caught:
        load("babyai_local_stf")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("nearest: babyai_local_sft")
