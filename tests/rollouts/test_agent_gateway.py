"""Agents that ask several functions of the real gateway in a step, with tools; the same episodes exported."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.rollouts.loopback import Reply, refused, said, serve
from trajkit.errors import ConfigError, RequestError
from trajkit.rollouts.faults import FaultKind
from trajkit.rollouts.options import Options
from trajkit.rollouts.records.record import Played, to_episode, with_prompts
from trajkit.rollouts.session import prepare, run
from trajkit.schema import Episode, Outcome, single_precision
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect.database import open_database
from trajkit.sources.tensorzero.export.export import export
from trajkit.sources.tensorzero.export.prompts import rendered_prompts
from trajkit.stack.local import recipe_config
from trajkit.stack.state import local_stack
from trajkit.store.dataset import open_dataset

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
PAIR = re.findall(r"```python\n# pair\.py\n(.*?)```", PAGE, re.DOTALL)[0]

SCOUT = '''
"""Looks with a tool, asks for advice with what it saw, and lets another function decide."""

async def act(turn):
    look = await turn.inference("look", {"messages": [{"role": "user", "content": turn.observation}]})
    (call,) = [block for block in look.content if block.type == "tool_call"]
    seen = {"type": "tool_result", "id": call.id, "name": call.name, "result": "a door"}
    asked = {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.raw_arguments}
    talk = [
        {"role": "user", "content": turn.observation},
        {"role": "assistant", "content": [asked]},
        {"role": "user", "content": [seen]},
    ]
    await turn.inference("look", {"messages": talk})
    arguments = {"observation": turn.observation, "history": ""}
    given = [{"type": "template", "name": "user", "arguments": arguments}]
    decided = await turn.inference(
        "act",
        {"system": {"mission": turn.mission}, "messages": [{"role": "user", "content": given}]},
        variant_name="baseline",
        tags={"mine": "yes", "trajkit.seed": "not the agent's to say"},
    )
    return decided.output.parsed["action"]


async def wrong(turn):
    if turn.seed == 1:
        await turn.inference("no_such_function", {"messages": []})
    try:
        await turn.inference("act", {"messages": [{"role": "user", "content": 5}]})
    except Exception:
        return "drop"
'''

FUNCTIONS = """
[models.scripted]
routing = ["loopback"]

[models.scripted.providers.loopback]
type = "openai"
model_name = "m"
api_base = "{url}/"
api_key_location = "none"

[tools.look_around]
description = "Look around."
parameters = "look_around.json"

[functions.look]
type = "chat"
tools = ["look_around"]

[functions.look.variants.only]
type = "chat_completion"
model = "scripted"

[functions.advise]
type = "chat"

[functions.advise.variants.only]
type = "chat_completion"
model = "scripted"
"""


def scripted(body: dict[str, Any], n: int) -> Any:
    """Calls its tool when it is asked with one, and talks otherwise."""
    if body.get("tools") and body["messages"][-1]["role"] == "user":
        call = {"id": f"call_{n}", "type": "function", "function": {"name": "look_around", "arguments": "{}"}}
        return Reply(said(None, tool_calls=[call]))
    return Reply(said("go on"))


SAME = (
    *("step_index", "inference_id", "function_name", "variant_name", "input", "messages", "n_prompt_kept"),
    *("completion", "n_input_tokens", "n_output_tokens", "finish_reason", "tools"),
)
"""What both know of every call."""


class Both(NamedTuple):
    """The same episodes, as they were played and as an export has them."""

    played: list[Played]
    recorded: dict[str, Episode]
    exported: dict[str, Episode]


@pytest.fixture
def folder(in_stack_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stack's folder, where modules of `tmp_path` can be imported."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "scout.py").write_text(SCOUT)
    (tmp_path / "pair.py").write_text(PAIR)
    yield in_stack_folder
    for name in ("scout", "pair", "alone"):
        sys.modules.pop(name, None)


def config(folder: Path, url: str) -> Path:
    """The recipe's configuration with two functions more, whose model is at `url`."""
    recipe = recipe_config("babyai")
    shutil.copytree(recipe.parent, folder / "config")
    (folder / "config" / "look_around.json").write_text('{"type": "object", "properties": {}}')
    path = folder / "config" / recipe.name
    path.write_text(recipe.read_text() + FUNCTIONS.format(url=url))
    return path


def episodes(policy: str, config_file: Path | None = None, **changes: Any) -> list[Played]:
    values = {"env_id": "babyai", "tasks": ("goto",), "seeds": "1:3", "max_steps": 3, "new_run": True}
    played: list[Played] = []
    options = Options.model_validate(values | {"policy": policy, "config_file": config_file} | changes)
    run(prepare(options), on_played=played.append)
    return played


def both(policy: str, tmp_path: Path, functions: tuple[str, ...]) -> Both:
    with serve(scripted) as server:
        played = episodes(policy, config(tmp_path, server.url))
    stack = local_stack()
    assert stack is not None
    url = stack.clickhouse_url.get_secret_value()
    prompts = rendered_prompts(url, [answer.inference_id for one in played for answer in one.answers()])
    recorded = {one.episode_id: with_prompts(to_episode(one), prompts) for one in played}
    database = open_database(url)
    export(
        database, ExportRequest(functions=functions, tags={"trajkit.run": played[0].run}), tmp_path / "store"
    )
    database.close()
    return Both(played, recorded, {one.episode_id: one for one in open_dataset(tmp_path / "store")})


@pytest.mark.full
def test_several_functions_in_a_step_are_the_same_steps_in_the_store_and_in_an_export(folder, tmp_path):
    played, recorded, exported = both("scout:act", tmp_path, ("act", "look"))
    assert {one.fault for one in played} == {None}
    assert set(exported) == set(recorded)
    for one in played:
        ours, theirs = recorded[one.episode_id], exported[one.episode_id]
        assert [step.function_name for step in ours.steps] == ["look", "look", "act"] * len(one.steps)
        for name in SAME:
            found = [getattr(step, name) for step in theirs.steps]
            assert [getattr(step, name) for step in ours.steps] == found, name
        for name in ("action", "action_executed", "action_valid"):
            found = [getattr(step, name) for step in theirs.steps]
            assert [getattr(step, name) for step in ours.steps] == found, name
        seen = [step.observation for step in theirs.steps[2::3]]
        assert [step.observation for step in ours.steps[2::3]] == seen
        assert theirs.metrics == ours.metrics
        assert sorted(item.feedback_id for item in theirs.feedback) == sorted(
            item.feedback_id for item in ours.feedback
        )
        assert {name: text for name, text in theirs.tags.items() if name in ours.tags} == ours.tags
    # tool calls and their results are in the recorded steps
    looked, told, acted = recorded[played[0].episode_id].steps[:3]
    (call,) = looked.completion.content
    assert (call.type, call.name, call.arguments, looked.finish_reason) == (
        "tool_call",
        "look_around",
        "{}",
        "tool_call",
    )
    assert [block.type for message in told.messages for block in message.content][-1:] == ["tool_result"]
    assert [tool["name"] for tool in looked.tools] == ["look_around"]
    assert acted.tools is None
    assert told.n_prompt_kept == 2  # the prompt of the call, and the call
    assert (looked.action, told.action, looked.reward, told.reward) == (None, None, None, None)
    assert (acted.action, acted.reward) == (
        played[0].steps[0].choice.action,
        played[0].steps[0].result.reward,
    )


def test_metrics_are_logged_and_tags_and_seeds_filled_in(folder, tmp_path, ask):
    with serve(scripted) as server:
        played = episodes("scout:act", config(tmp_path, server.url))
        seeds = [asked.body["seed"] for asked in server.asked]
    one = min(played, key=lambda each: each.job.seed)
    assert [(item.metric_name, item.value) for item in one.feedback] == [
        (name, single_precision(value)) for name, value in one.metrics.items()
    ]
    rows = ask(
        "SELECT tags['trajkit.seed'], tags['trajkit.step'], tags['mine'], tags['trajkit.run']"
        f" FROM tensorzero.JsonInference WHERE episode_id = '{one.episode_id}' ORDER BY toUInt128(id)"
    )
    assert rows == [[str(one.job.seed), str(n), "yes", one.run] for n in range(len(one.steps))]
    assert len(set(seeds)) == len(seeds)


def test_the_pair_of_the_page_plays(folder, tmp_path):
    with serve(scripted) as server:
        played = episodes("pair:act", config(tmp_path, server.url))
    assert {one.fault for one in played} == {None}
    for one in played:
        assert [answer.function_name for answer in one.answers()] == ["advise", "act"] * len(one.steps)
    assert {step.result.action_valid for one in played for step in one.steps} == {True}


def test_what_the_gateway_refuses_is_an_error_of_the_agent_that_it_cannot_swallow(folder, tmp_path):
    lost, careless = sorted(episodes("scout:wrong"), key=lambda one: one.job.seed)
    for one in (lost, careless):
        assert (one.outcome, one.fault.kind) == (Outcome.ERROR, FaultKind.AGENT)
    assert "the gateway refused the request (404): Unknown function: no_such_function" in lost.fault.message
    assert "invalid request: " in careless.fault.message


def test_a_model_that_fails_behind_the_gateway_is_a_fault_of_its_own_kind(folder, tmp_path):
    with serve(lambda body, n: Reply(refused("broken"), 500)) as server:
        (one,) = episodes("pair:act", config(tmp_path, server.url), seeds="1:2", retries=0)
    assert (one.fault.kind, one.feedback) == (FaultKind.SERVER, ())


def test_an_agent_that_asks_for_a_gateway_where_there_is_none_stops_the_run(tmp_path, monkeypatch):
    for name in ("TENSORZERO_GATEWAY_URL", "TENSORZERO_CLICKHOUSE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "alone.py").write_text(PAIR)
    with pytest.raises(RequestError, match="the agent calls a gateway, and there is none"):
        episodes("alone:act")


def test_a_metric_that_is_not_declared_stops_an_agent_before_it_has_asked_anything(folder, tmp_path, ask):
    def count() -> Any:
        return ask("SELECT count() FROM tensorzero.ChatInference")

    with serve(scripted) as server:
        path = config(tmp_path, server.url)
        path.write_text(path.read_text().replace("[metrics.progression]", "[metrics.other]"))
        before = count()
        with pytest.raises(ConfigError, match="no metric progression of type float") as caught:
            episodes("pair:act", path)
        assert server.asked == []
    assert count() == before
    assert caught.value.hint.startswith("it needs these lines\n[metrics.progression]")


def test_an_agent_that_asks_no_gateway_may_stand_beside_one_without_its_metrics(folder, tmp_path):
    (tmp_path / "alone.py").write_text("def act(observation):\n    return 'go forward'\n")
    with serve(scripted) as server:
        path = config(tmp_path, server.url)
        path.write_text(path.read_text().replace("[metrics.progression]", "[metrics.other]"))
        played = episodes("alone:act", path)
    assert {one.fault for one in played} == {None}
