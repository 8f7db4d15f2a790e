"""What a real gateway stores of tools, candidates and workflow evaluations; what an export makes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import clickhouse_connect
import pytest

from tests.rollouts import loopback
from tests.sources.conftest import exported
from trajkit.schema import Episode, Purpose, Transition
from trajkit.store.dataset import open_dataset

tensorzero = pytest.importorskip("tensorzero", reason="pip install 'trajkit[tensorzero]'")

CONFIG = """\
[gateway]
disable_pseudonymous_usage_analytics = true
observability.enabled = true
observability.async_writes = false
[models.m]
routing = ["p"]
[models.m.providers.p]
type = "openai"
model_name = "m"
api_base = "{url}/"
api_key_location = "none"
[functions.talk]
type = "chat"
tools = ["move", "look"]
[functions.talk.variants.one]
type = "chat_completion"
model = "m"
[functions.talk.variants.best]
type = "experimental_best_of_n_sampling"
candidates = ["one", "one"]
[functions.talk.variants.best.evaluator]
model = "m"
[functions.talk.experimentation]
type = "static"
candidate_variants = {{"one" = 1.0}}
[tools.move]
description = "Move somewhere"
parameters = "move.json"
strict = true
[tools.look]
description = "Look"
name = "look_around"
parameters = "look.json"
[tools.extra]
description = "Not this function's"
parameters = "look.json"
"""
NAME_OF = {"look": "look_around"}
SCHEMAS = {
    "move.json": '{"type":"object","properties":{"to":{"type":"string"}},"required":["to"]}',
    "look.json": '{"type":"object","properties":{}}',
}
SHOUT = {
    "name": "shout",
    "description": "Shout",
    "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
    "strict": False,
}
ASKED: dict[str, dict[str, Any]] = {
    "the function's": {},
    "one more": {"additional_tools": [SHOUT]},
    "only one": {"allowed_tools": ["look"]},
    "only the one that came": {"additional_tools": [SHOUT], "allowed_tools": ["shout"]},
    "one of the configuration": {"allowed_tools": ["move", "extra"]},
    "in another way": {"tool_choice": "required", "parallel_tool_calls": True},
}
INPUT = {"messages": [{"role": "user", "content": "where to?"}]}


class Made(NamedTuple):
    """What was asked of the gateway, and what it wrote."""

    url: str
    inference_ids: dict[str, str]
    tools_sent: dict[str, list[str]]
    """By name, those that the model could call."""
    best: str
    workflow: str


async def _play(config: Path, url: str, server: Any) -> Made:
    gateway = await tensorzero.AsyncTensorZeroGateway.build_embedded(
        config_file=str(config), clickhouse_url=url
    )
    try:
        ids, sent = {}, {}
        for name, options in ASKED.items():
            answer = await gateway.inference(function_name="talk", input=INPUT, **options)
            ids[name] = str(answer.inference_id)
            sent[name] = _could_call(server.asked[-1].body)
        best = await gateway.inference(function_name="talk", variant_name="best", input=INPUT)
        run = await gateway.workflow_evaluation_run(variants={"talk": "one"})
        episode = await gateway.workflow_evaluation_run_episode(run_id=run.run_id, task_name="task_1")
        await gateway.inference(function_name="talk", input=INPUT, episode_id=episode.episode_id)
    finally:
        await gateway.close()
    return Made(url, ids, sent, str(best.episode_id), str(episode.episode_id))


def _could_call(body: dict[str, Any]) -> list[str]:
    names = [tool["function"]["name"] for tool in body.get("tools", [])]
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        # the gateway names them by their keys here, although the model knows them by other names
        keys = [tool["function"]["name"] for tool in choice["allowed_tools"]["tools"]]
        allowed = [NAME_OF.get(key, key) for key in keys]
        return [name for name in names if name in allowed]
    return names


@pytest.fixture(scope="module")
def made(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("gateway")
    for name, text in SCHEMAS.items():
        (folder / name).write_text(text)

    def answer(body: dict[str, Any], number: int) -> Any:
        if "index of the best" in json.dumps(body):
            return loopback.Reply(loopback.said('{"thinking":"","answer_choice":1}'))
        called = [
            {"id": "c1", "type": "function", "function": {"name": "move", "arguments": '{"to":"north"}'}},
            {"id": "c2", "type": "function", "function": {"name": "move", "arguments": '{"to":5}'}},
        ]
        return loopback.Reply(loopback.said(f"answer {number}", tool_calls=called))

    with loopback.serve(answer) as model:
        config = folder / "tensorzero.toml"
        config.write_text(CONFIG.format(url=model.url))
        url = server.url_for(server.user, database="gateway_shapes")
        yield asyncio.run(_play(config, url, model))


def _exported(url: str, folder: Path) -> dict[str, Episode]:
    exported(url, folder, include_eval=True)
    return {episode.episode_id: episode for episode in open_dataset(folder)}


def _steps(episodes: dict[str, Episode]) -> dict[str | None, Transition]:
    return {step.inference_id: step for episode in episodes.values() for step in episode.steps}


def _names(step: Transition) -> list[Any]:
    return [tool["name"] for tool in step.tools or ()]


def test_an_export_of_a_real_gateways_rows_says_what_the_gateway_sent(made: Made, tmp_path: Path) -> None:
    episodes = _exported(made.url, tmp_path / "store")
    steps = _steps(episodes)
    found = {name: _names(steps[inference_id]) for name, inference_id in made.inference_ids.items()}
    assert {name: sorted(names) for name, names in found.items()} == {
        name: sorted(names) for name, names in made.tools_sent.items()
    }
    assert found["the function's"] == ["move", "look_around"]
    assert found["only one"] == ["look_around"]
    first = steps[made.inference_ids["one more"]]
    assert first.tools is not None
    assert first.tools[-1] == SHOUT
    extra = steps[made.inference_ids["in another way"]].extra or {}
    assert (extra["tool_choice"], extra["parallel_tool_calls"]) == ("required", True)
    # two calls, of which the second does not fit the tool
    assert {step.mask_reason for step in steps.values()} == {"invalid output"}
    assert [call["arguments"] for call in first.action] == [{"to": "north"}, '{"to":5}']  # type: ignore[union-attr, index]
    best = episodes[made.best].steps[0]
    assert best.completion is not None
    assert best.messages is not None
    assert [message.text for message in best.messages] == ["where to?"]
    workflow = episodes[made.workflow]
    assert (workflow.task, workflow.purpose) == ("task_1", Purpose.EVAL)
    assert workflow.started_at is not None
    assert workflow.started_at.year < 2100

    # without the list of tools, as in Postgres, they come from the configuration and are the same
    client = clickhouse_connect.get_client(dsn=made.url)
    try:
        client.command(
            "ALTER TABLE ChatInference UPDATE tool_params = '' WHERE 1 SETTINGS mutations_sync = 1"
        )
    finally:
        client.close()
    again = _steps(_exported(made.url, tmp_path / "again"))
    assert {step.inference_id: step.tools for step in again.values()} == {
        step.inference_id: step.tools for step in steps.values()
    }
