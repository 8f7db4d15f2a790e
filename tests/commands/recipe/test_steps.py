"""Steps as commands, and what is wrong with them before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.commands.recipe.conftest import CHOOSE
from trajkit.commands.recipe.load import load, packaged
from trajkit.commands.recipe.steps import PlannedStep, plan, recipe_schema
from trajkit.commands.recipe.verb import names
from trajkit.errors import ConfigError

Planned = Callable[..., dict[str, PlannedStep]]


@pytest.fixture
def planned(write: Callable[[str], str]) -> Planned:
    def make(text: str, **settings: str) -> dict[str, PlannedStep]:
        given = {name.replace("__", "."): value for name, value in settings.items()}
        return {step.name: step for step in plan(load(write(text), given), Path("out"))}

    return make


def one(verb: str, *options: str) -> str:
    lines = [f"    {option}\n" for option in options]
    return f"version: 1\nname: one\nsteps:\n  first:\n    verb: {verb}\n{''.join(lines)}"


def test_names_stand_for_what_earlier_steps_left(planned: Planned) -> None:
    steps = planned(CHOOSE)
    assert steps["good"].output == Path("out/good")
    assert steps["sides"].arguments == ("out/good", "--ratio", "train=0.8,val=0.2", "-o", "out/sides")
    assert steps["checked"].arguments == ("out/sides/train", "out/sides/val")
    assert steps["checked"].references == ("sides",)
    assert steps["checked"].output is None


def test_every_shape_of_value_is_typed_as_on_the_command_line(planned: Planned) -> None:
    text = one(
        "sft together",
        "train: x",
        "lora: false",
        "allow_leak: true",
        "set: {a.b: 1, c: null}",
        "n_epochs: 2",
        "suffix: -dash",
        "unit:",
    )
    assert planned(text)["first"].arguments == (
        *(
            "--train",
            "x",
            "--set",
            "a.b=1",
            "--set",
            "c=null",
            "--n-epochs",
            "2",
            "--suffix=-dash",
            "--no-lora",
        ),
        *("--name", "first", "--runs", "out/runs", "--allow-leak"),
    )
    merged = planned(one("merge", "stores: [-a, b]", "prefer: last"))["first"]
    assert merged.arguments == ("--prefer", "last", "-o", "out/first", "--", "-a", "b")
    assert planned(one("stats", "stores: sample:babyai", "html: ${run}/page.html"))["first"].arguments == (
        *("sample:babyai", "--html", "out/page.html"),
    )


def test_a_job_is_named_as_its_step(planned: Planned) -> None:
    text = one("sft local", "train: x", "model: m") + "  last:\n    verb: register\n    job: ${first}\n"
    steps = planned(text)
    assert (steps["first"].job, steps["first"].output) == ("first", None)
    assert steps["last"].arguments == ("first", "--runs", "out/runs")
    assert planned(text, first__name="mine")["last"].arguments[0] == "mine"


def test_what_happens_outside_of_the_folder_is_known(planned: Planned) -> None:
    local = planned(one("sft local", "train: x", "model: m"))["first"]
    hosted = planned(one("sft openai", "train: x"))["first"]
    own = planned(one("register", "job: x", "config: tensorzero.toml"))["first"]
    copy = planned(one("register", "job: x", "config: ${run}/tensorzero.toml"))["first"]
    emitted = planned(one("register", "job: x", "emit: openai-compatible"))["first"]
    assert (local.outside, local.asks) == (None, False)
    assert (hosted.outside, hosted.asks) == ("sends the rows to a service, which bills them", True)
    assert (own.outside, own.asks) == ("changes tensorzero.toml", True)
    assert (copy.outside, copy.asks) == (None, False)
    assert (emitted.outside, emitted.output) == (None, Path("out/first"))
    assert own.output is None  # it takes -o together with emit only


@pytest.mark.parametrize(
    ("verb", "options", "line", "words", "hint"),
    [
        ("selct", (), 5, "trajkit has no command 'selct'", "nearest: select"),
        ("sft", (), 5, "trajkit has no command 'sft'", "there are: sft local, sft openai"),
        ("run", (), 5, "trajkit has no command 'run'", ""),
        ("select", ("where: x", "wher: y"), 7, "select has no option 'wher'", "nearest: where"),
        ("select", ("max-per-task: 1",), 6, "select has no option 'max-per-task'", "nearest: max_per_task"),
        ("sft local", ("yes: true",), 6, "yes is not for recipes", "asks once"),
        ("select", ("dry_run: true",), 6, "dry_run is not for recipes", "trajkit run --dry-run"),
        ("select", ("sample: none",), 6, "Invalid value for '--sample'", "sample: Keep N"),
        ("split", ("missing: all",), 6, "Invalid value for '--missing'", ""),
        ("select", ("shortest: 1",), 6, "shortest is true or false, not '1'", ""),
        ("select", ("top: [1, 2]",), 6, "top takes one value, not a list", ""),
        ("select", ("top: {a: 1}",), 6, "top takes one value, not names with values", ""),
        ("export", ("metric: {a: 12}",), 6, "metric 'a' takes a list of min, max, not '12'", ""),
        ("weight", (), 4, "step first: Missing option '--scheme'", ""),
        ("leak", (), 4, "Missing argument 'TRAIN'", ""),
        ("sft local", ("model: m", "set: alone"), 4, "'alone' is not NAME=VALUE", ""),
        ("split", ("store: ${first}",), 6, "store names the step itself", ""),
        ("split", ("store: ${frist}",), 6, "there is no step or file 'frist'", "run"),
        ("split", ("output: ../x",), 6, "output '../x' is not in the run folder", "leave it out"),
        ("split", ("output: /tmp/x",), 6, "output '/tmp/x' is not in the run folder", "leave it out"),
        ("split", ("output: steps",), 6, "something else is called 'steps'", ""),
    ],
)
def test_what_a_step_cannot_be_is_named_with_its_line(
    planned: Planned, verb: str, options: tuple[str, ...], line: int, words: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(one(verb, *options))
    assert caught.value.message.startswith(f"recipe.yaml line {line}: step first: "), caught.value.message
    assert words in caught.value.message
    assert hint in (caught.value.hint or "")


def test_a_step_that_comes_later_or_leaves_nothing_cannot_be_named(planned: Planned) -> None:
    with pytest.raises(ConfigError, match="line 6: step good: store names sides, which comes later"):
        planned(CHOOSE.replace("sample:babyai", "${sides}"))
    after = CHOOSE + "  last:\n    verb: stats\n    stores: ${checked}\n"
    with pytest.raises(
        ConfigError, match="line 18: step last: step checked has no output that could be named"
    ):
        planned(after)


def test_two_steps_cannot_leave_the_same(planned: Planned) -> None:
    with pytest.raises(ConfigError, match="something else is called 'good' in the run folder"):
        planned(CHOOSE.replace("    ratio", "    output: good/x\n    ratio"))


def test_an_error_of_what_set_said_names_the_set(planned: Planned) -> None:
    with pytest.raises(ConfigError, match=r"^--set good\.tpo: select has no option 'tpo'") as caught:
        planned(CHOOSE, good__tpo="1")
    assert caught.value.hint == "nearest: top"


def test_the_recipes_that_come_with_trajkit_are_whole() -> None:
    asking = {}
    for name in packaged():
        steps = plan(load(name), Path("out"))
        assert not any(step.asks and step.outside is None for step in steps)
        asking[name] = [step.name for step in steps if step.asks]
    assert asking["babyai_local_sft"] == []
    assert asking["babyai_openai"] == ["played", "tuned", "evaluated"]
    assert asking["babyai_variants"] == ["evaluated"]


def test_what_is_played_in_this_process_needs_no_question(planned: Planned) -> None:
    given = ("env_id: babyai", "seeds: 0:2")
    for verb, option, is_here in (
        ("rollout", "variant: a", False),
        ("rollout", "policy: expert", True),
        ("rollout", "policy: openai", False),
        ("evaluate", "variants: a,b", False),
        ("evaluate", "variants: a=x,b=y", True),
        ("evaluate", "variants: {a: x, b: y}", True),
        ("evaluate", "variants: [a, b=y]", True),
    ):
        step = planned(one(verb, *given, option))["first"]
        assert (step.outside is None, step.asks) == (is_here, not is_here), (verb, option)
    step = planned(one("evaluate", *given, "variants: a", "through: process"))["first"]
    assert (step.outside, step.asks) == (None, False)
    agent = ("variants: a=x", "policy: my_pkg.agent:Agent")
    for options, is_here in ((agent, True), ((*agent, "model_url: http://x/v1"), False)):
        step = planned(one("evaluate", *given, *options))["first"]
        assert (step.outside is None, step.asks) == (is_here, not is_here)


# -- the JSON Schema takes every recipe that runs, and refuses what would not


@pytest.fixture(scope="module")
def schema() -> Any:
    made = recipe_schema()
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def test_recipes_are_valid(schema: Any) -> None:
    schema.validate(yaml.safe_load(CHOOSE))
    for path in packaged().values():
        schema.validate(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("verb: split", "verb: splt"),
        ("ratio:", "ration:"),
        ("version: 1", "version: 2"),
        ("  good:", "  two words:"),
        ("where: purpose = 'train' and episode_return >= 0.7", "json: true"),
        ("ratio: train=0.8,val=0.2", "ratio: [1]"),
    ],
)
def test_what_would_not_run_is_not_valid(schema: Any, before: str, after: str) -> None:
    assert before in CHOOSE
    assert not schema.is_valid(yaml.safe_load(CHOOSE.replace(before, after)))


def test_every_command_is_there_with_its_options(schema: Any) -> None:
    steps = {step["properties"]["verb"]["const"]: step for step in schema.schema["$defs"]["step"]["anyOf"]}
    assert set(steps) == set(names())
    assert {"select", "archive", "archive verify", "sft local", "jobs wait"} < set(steps)
    assert "run" not in steps
    assert {"num_train_epochs", "set", "name"} < set(steps["sft local"]["properties"])
    assert not {"yes", "json", "dry_run", "detach"} & set(steps["sft local"]["properties"])
