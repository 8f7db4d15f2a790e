"""A function of typed parameters as a command, what `--set` changes, and the defaults that help names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import click
import pytest

import trajkit
from tests.cli.jobs import an_episode
from trajkit._core.output.result import Result, Running
from trajkit.cli.main import cli
from trajkit.commands.command import command
from trajkit.commands.options.request import nested
from trajkit.commands.options.types import Many, Option
from trajkit.errors import RequestError, TrajkitError
from trajkit.store.writer import write_episodes
from trajkit.training.local.preferences.recipe import RECIPES
from trajkit.training.local.recipe import LocalRecipe, LoraRecipe

Bounds = Mapping[str, tuple[float | None, float | None]]


@dataclass
class Given(Result):
    """What a function was given."""

    values: Any

    def to_json(self) -> Any:
        return self.values

    def __str__(self) -> str:
        return repr(self.values)


def bounded(
    *names: str,
    metric: Annotated[Many | Bounds, Option(metavar="NAME")] = (),
    least: Annotated[float | None, Option(of="metric", read=float)] = None,
    most: Annotated[float | None, Option(of="metric", read=float)] = None,
    tag: Mapping[str, str] | None = None,
    open: Annotated[bool, Option(negative="--shut")] = True,
) -> Given:
    """Take what is typed.

    A table keeps its lines:

        one   1
        two   2

    Args:
        names: Words.
        metric: A metric.
        least: Its smallest value.
        most: Its largest value.
        tag: A tag.
        open: Whether it is open.
    """
    return Given((names, metric, least, most, tag, open))


def typed(*words: str) -> int:
    """Run the command as it is typed."""
    return int(command(bounded).main(list(words), standalone_mode=False))


def test_a_value_belongs_to_the_option_before_it(capsys):
    assert typed("--metric", "a", "--least", "0.7", "--metric", "b", "--most", "3", "--metric", "c") == 0
    metrics = {"a": (0.7, None), "b": (None, 3.0), "c": (None, None)}
    assert capsys.readouterr().out == f"{((), metrics, None, None, None, True)!r}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--least 1", "--least 1 has no --metric before it"),
        ("--metric a --least 1 --least 2", "--metric a has two --least"),
        ("--metric a --metric a", "--metric a is given twice"),
        ("--tag a", "--tag 'a' is not NAME=VALUE"),
        ("--tag =a", "--tag '=a' is not NAME=VALUE"),
        ("--tag a=1 --tag a=2", "--tag a is given twice"),
    ],
)
def test_what_does_not_go_together_is_refused(words, message):
    with pytest.raises(RequestError) as error:
        typed(*words.split())
    assert error.value.message == message


def test_what_is_not_typed_has_the_default_of_the_function(capsys):
    assert typed() == 0
    assert capsys.readouterr().out == f"{bounded()}\n"


def test_names_values_and_the_word_for_false(capsys):
    assert typed("x", "y", "--tag", "a=1=2", "--tag", "b=", "--shut") == 0
    assert capsys.readouterr().out == f"{(('x', 'y'), (), None, None, {'a': '1=2', 'b': ''}, False)!r}\n"


def test_the_help_keeps_the_lines_of_what_is_set_in():
    help_of = command(bounded)
    text = help_of.get_help(click.Context(help_of, info_name="bounded"))
    assert "\n  one   1\n  two   2\n" in text
    assert "--open / --shut" in text


def test_a_result_that_goes_on_is_one_line_of_json_and_waited_for(capsys):
    class Server(Running):
        def to_json(self) -> Any:
            return {"url": "x", "pid": 1}

        def wait(self) -> None:
            click.echo("waited")

        def close(self) -> None:
            pass

    def serve() -> Server:
        """Serve."""
        return Server()

    assert command(serve).main(["--json"], standalone_mode=False) == 0
    out, err = capsys.readouterr()
    assert out == '{"url": "x", "pid": 1}\n'
    assert err == "waited\n"  # with --json, stdout holds the result alone


def test_an_error_may_have_a_result_which_is_printed_before_it(capsys):
    def judge() -> Given:
        """Judge."""
        raise TrajkitError("it does not hold", result=Given(3))

    with pytest.raises(TrajkitError, match="it does not hold"):
        command(judge).main([], standalone_mode=False)
    assert capsys.readouterr().out == "3\n"


def test_a_path_leads_to_a_field_of_a_field() -> None:
    given = {"lora": {"r": 16}, "seed": 1}
    found = nested({"lora.alpha": 8, "new.deep.er": 9, "seed": 2}, given)
    assert found == {"lora": {"r": 16, "alpha": 8}, "new": {"deep": {"er": 9}}, "seed": 2}
    assert given == {"lora": {"r": 16}, "seed": 1}


def test_a_path_through_a_value_is_refused_by_its_place() -> None:
    with pytest.raises(RequestError, match=r"--set a\.b\.c: a\.b is not a group"):
        nested({"a.b": 1, "a.b.c": 2}, {})


@pytest.mark.parametrize("method", ["sft", "dpo", "kto"])
def test_the_defaults_that_help_names_are_those_of_the_recipe(method: str) -> None:
    group = cli.get_command(click.Context(cli), method)
    assert isinstance(group, click.Group)
    local = group.commands["local"]
    recipe = LocalRecipe() if method == "sft" else RECIPES[method]()
    known = {**LoraRecipe().model_dump(), **recipe.model_dump()}
    told = {
        option.name: option.default
        for option in local.params
        if isinstance(option, click.Option) and option.name in known and option.show_default
    }
    assert {"num_train_epochs", "learning_rate", "r", "lora_alpha", "max_length", "seed"} <= set(told)
    for name, value in told.items():
        assert value == known[name], name


# -- options that several commands share, as parameters of each


def test_a_name_that_is_no_option_is_refused():
    with pytest.raises(TypeError, match="learning_rat"):
        trajkit.sft_local(model="none", learning_rat=1)


def test_a_shared_option_has_the_default_of_its_recipe_and_its_help():
    rates = {
        name: inspect.signature(getattr(trajkit, name)).parameters["learning_rate"].default
        for name in ("sft_local", "dpo_local", "sft_together")
    }
    assert rates == {"sft_local": LocalRecipe().learning_rate, "dpo_local": 1e-5, "sft_together": None}
    assert "\n    learning_rate: Peak learning rate.\n" in inspect.getdoc(trajkit.dpo_local)


def test_a_default_that_is_typed_gives_the_same_job_as_one_that_is_left_out():
    write_episodes(Path("few"), [an_episode(f"e{number}") for number in range(3)], kind="test")
    asked = {"model": "sample:tiny-base", "train": "few", "val_fraction": 0, "dry_run": True}
    plain = trajkit.sft_local(**asked)
    assert trajkit.sft_local(**asked, lora_alpha=32, num_train_epochs=3.0).key == plain.key
    assert trajkit.sft_local(**asked, lora_alpha=31).key != plain.key
