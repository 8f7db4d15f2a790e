"""The recipe for BabyAI: what its variants put on the wire, and what the database keeps of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.stack.conftest import RECIPE
from trajkit.stack.clickhouse import ClickHouse
from trajkit.stack.gateway import open_gateway
from trajkit.stack.gateway_config import prepare_config

MISSION = "put the grey box next to the blue key"
OBSERVATION = "a wall 4 steps forward\na grey box 1 step left and 2 steps forward"
HISTORY = "Observation: a wall 5 steps forward\nAction: go forward"
ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
VARIANTS = ("baseline", "reasoning", "history", "history_and_reasoning", "corrected")
WITH_HISTORY = ("history", "history_and_reasoning", "corrected")


class Asked(NamedTuple):
    """One inference: what the model was sent, what came back, what the database has of it."""

    request: dict[str, Any]
    answer: Any
    stored: dict[str, Any]

    @property
    def system(self) -> str:
        return text(self.request["messages"][0]["content"])

    @property
    def user(self) -> str:
        return text(self.request["messages"][1]["content"])


def text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


Arguments = dict[str, str]


def ask(config: Path, database: ClickHouse, model: Any, calls: list[tuple[str, Arguments]]) -> list[Asked]:
    """Ask each variant in turn through one gateway."""

    async def answers() -> list[tuple[Any, dict[str, Any]]]:
        async with open_gateway(config, clickhouse_url=database.secret_url, timeout_s=60) as gateway:
            return [
                (
                    await gateway.inference(
                        function_name="act",
                        variant_name=variant,
                        input={
                            "system": {"mission": MISSION},
                            "messages": [
                                {"role": "user", "content": [{"type": "text", "arguments": arguments}]}
                            ],
                        },
                    ),
                    model.requests[-1],
                )
                for variant, arguments in calls
            ]

    def stored(answer: Any) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            database.ask(
                "SELECT system, input_messages, raw_request FROM tensorzero.ModelInference"
                f" WHERE inference_id = '{answer.inference_id}' FORMAT JSONEachRow"
            )
        )
        return found

    return [Asked(request, answer, stored(answer)) for answer, request in asyncio.run(answers())]


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory, model: Any) -> Path:
    return prepare_config(RECIPE, tmp_path_factory.mktemp("recipe") / "config", model_url=model.url)


@pytest.fixture(scope="session")
def asked(config: Path, database: ClickHouse, model: Any) -> dict[str, Asked]:
    """Every variant, each given a history."""
    arguments = {"observation": OBSERVATION, "history": HISTORY}
    found = ask(config, database, model, [(variant, arguments) for variant in VARIANTS])
    return dict(zip(VARIANTS, found, strict=True))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_sends_its_prompt_and_schema_and_the_database_keeps_what_was_on_the_wire(
    asked: dict[str, Asked], variant: str
) -> None:
    prompt = asked[variant]
    assert f"Your mission: {MISSION}." in prompt.system
    assert all(f"\n- {action}: " in prompt.system for action in ACTIONS)
    seen = f"Observation:\n{OBSERVATION}\n\n"
    if variant in WITH_HISTORY:
        assert prompt.user.startswith(f"History:\n{HISTORY}\n\n{seen}")
    else:
        assert prompt.user.startswith(seen)
        assert "go forward" not in prompt.user
    is_reasoning = variant in ("reasoning", "history_and_reasoning", "corrected")
    assert ("First reason in" in prompt.user) == is_reasoning
    assert ('Leave "thinking" empty' in prompt.user) == (not is_reasoning)
    form = prompt.request["response_format"]
    assert (form["type"], form["json_schema"]["strict"]) == ("json_schema", True)  # as OpenAI wants it
    schema = form["json_schema"]["schema"]
    assert schema["properties"] == {"thinking": {"type": "string"}, "action": {"type": "string"}}
    assert sorted(schema["required"]) == ["action", "thinking"]
    assert schema["additionalProperties"] is False
    assert prompt.answer.output.parsed == {"thinking": "none", "action": "turn left"}
    assert prompt.stored["system"] == prompt.system
    assert text(json.loads(prompt.stored["input_messages"])[0]["content"]) == prompt.user
    assert json.loads(prompt.stored["raw_request"]) == prompt.request


def test_without_a_history_there_is_no_heading_for_one(
    config: Path, database: ClickHouse, model: Any
) -> None:
    without: list[Arguments] = [{"observation": OBSERVATION}, {"observation": OBSERVATION, "history": ""}]
    calls = [(variant, arguments) for variant in VARIANTS for arguments in without]
    for call, prompt in zip(calls, ask(config, database, model, calls), strict=True):
        assert prompt.user.startswith(f"Observation:\n{OBSERVATION}\n\n"), call


def test_only_the_corrected_variant_says_that_pick_up_takes_what_is_in_front(asked: dict[str, Asked]) -> None:
    lines = {
        variant: next(line for line in prompt.system.splitlines() if line.startswith("- pick up:"))
        for variant, prompt in asked.items()
    }
    assert "directly in front of you" in lines.pop("corrected")
    assert set(lines.values()) == {"- pick up: take the object under you"}


def test_a_call_that_names_no_variant_gets_the_baseline(config: Path, database: ClickHouse) -> None:
    async def play() -> set[str]:
        async with open_gateway(config, clickhouse_url=database.secret_url, timeout_s=60) as gateway:
            message = {
                "role": "user",
                "content": [{"type": "text", "arguments": {"observation": OBSERVATION}}],
            }
            answers: list[Any] = [
                await gateway.inference(
                    function_name="act",
                    input={"system": {"mission": MISSION}, "messages": [message]},
                    dryrun=True,
                )
                for _ in range(20)
            ]
            return {str(answer.variant_name) for answer in answers}

    assert asyncio.run(play()) == {"baseline"}


def test_episodes_take_both_metrics(config: Path, asked: dict[str, Asked], database: ClickHouse) -> None:
    episode_id = str(asked["baseline"].answer.episode_id)

    async def tell() -> None:
        async with open_gateway(config, clickhouse_url=database.secret_url, timeout_s=60) as gateway:
            await gateway.feedback(metric_name="episode_return", value=0.7, episode_id=episode_id)
            await gateway.feedback(metric_name="progression", value=1.0, episode_id=episode_id)

    asyncio.run(tell())
    rows = database.ask(
        "SELECT metric_name, value FROM tensorzero.FloatMetricFeedback"
        f" WHERE target_id = '{episode_id}' ORDER BY metric_name"
    )
    assert rows == "episode_return\t0.7\nprogression\t1\n"
