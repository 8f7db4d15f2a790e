"""TensorZero's real gateway in front of `trajkit serve`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.models.serving.conftest import Running
from trajkit.stack.clickhouse import ClickHouse
from trajkit.stack.gateway import open_gateway

ACTION = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"action": {"type": "string", "enum": ["go forward", "turn left", "turn right"]}},
    "required": ["action"],
    "additionalProperties": False,
}
CONFIG = """\
[models.tuned]
routing = ["trajkit"]
[models.tuned.providers.trajkit]
type = "openai"
model_name = "tuned"
api_base = "URL/"
api_key_location = "none"

[tools.move]
description = "Move."
parameters = "action.json"
strict = true

[functions.pick]
type = "json"
output_schema = "action.json"
[functions.pick.variants.warm]
type = "chat_completion"
model = "tuned"
json_mode = "strict"
temperature = 3.0
[functions.pick.variants.cold]
type = "chat_completion"
model = "tuned"
json_mode = "strict"
temperature = 0.0
[functions.pick.variants.by_tool]
type = "chat_completion"
model = "tuned"
json_mode = "tool"

[functions.move]
type = "chat"
tools = ["move"]
tool_choice = "required"
parallel_tool_calls = false
[functions.move.variants.plain]
type = "chat_completion"
model = "tuned"
max_tokens = 100
"""


@pytest.fixture(scope="module")
def database(stack_folder: Path) -> ClickHouse:
    found = ClickHouse.find(stack_folder / ".trajkit" / "stack" / "clickhouse")
    assert found is not None
    return found


@pytest.fixture
def config(tmp_path: Path, server: Running) -> Path:
    (tmp_path / "action.json").write_text(json.dumps(ACTION))
    path = tmp_path / "tensorzero.toml"
    path.write_text(CONFIG.replace("URL", server.url))
    return path


def inferred(config: Path, database: ClickHouse, *asked: dict[str, Any]) -> list[Any]:
    async def infer() -> list[Any]:
        async with open_gateway(config, clickhouse_url=database.secret_url) as gateway:
            prompt = {"messages": [{"role": "user", "content": "You see a ball."}]}
            calls = (gateway.inference(**{"input": prompt, **each}) for each in asked)
            return list(await asyncio.gather(*calls))

    return asyncio.run(infer())


def test_strict_json_holds_and_temperature_is_heard(config: Path, database: ClickHouse) -> None:
    warm = inferred(config, database, *[{"function_name": "pick", "variant_name": "warm"}] * 6)
    cold = inferred(config, database, *[{"function_name": "pick", "variant_name": "cold"}] * 2)
    tool = inferred(config, database, *[{"function_name": "pick", "variant_name": "by_tool"}])
    for each in (*warm, *cold, *tool):
        assert each.output.parsed["action"] in ACTION["properties"]["action"]["enum"]  # type: ignore[index]
        assert each.usage.input_tokens > 0
        assert each.usage.output_tokens > 0
    assert len({each.output.raw for each in warm}) > 1
    assert len({each.output.raw for each in cold}) == 1


def test_a_chat_function_calls_its_tool(config: Path, database: ClickHouse) -> None:
    for each in inferred(config, database, *[{"function_name": "move"}] * 2):
        (block,) = each.content
        assert (block.type, block.name) == ("tool_call", "move")
        assert block.arguments["action"] in ACTION["properties"]["action"]["enum"]  # type: ignore[index]
