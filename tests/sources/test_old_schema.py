"""Databases from before a column existed: what is not there is unknown, and everything else is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import clickhouse_connect
import pytest

from tests.matrix import daily
from trajkit.schema import Episode
from trajkit.sources.request import ExportRequest, MetricCondition
from trajkit.sources.tensorzero.connect.database import open_database
from trajkit.sources.tensorzero.export.export import export
from trajkit.store.dataset import open_dataset

# the migration that brought a column
SINCE = {
    3: {"tags": ("ChatInference", "JsonInference")},
    4: {"system": ("ModelInference",), "input_messages": ("ModelInference",), "output": ("ModelInference",)},
    5: {
        "tags": (
            "FloatMetricFeedback",
            "BooleanMetricFeedback",
            "CommentFeedback",
            "DemonstrationFeedback",
        )
    },
    11: {"cached": ("ModelInference",)},
    16: {"finish_reason": ("ModelInference",)},
    19: {"extra_body": ("ChatInference", "JsonInference")},
    24: {"auxiliary_content": ("JsonInference",)},
    31: {"ttft_ms": ("ChatInference", "JsonInference")},
    41: dict.fromkeys(
        ("dynamic_tools", "dynamic_provider_tools", "allowed_tools", "tool_choice", "parallel_tool_calls"),
        ("ChatInference",),
    ),
    43: {
        "snapshot_hash": (
            "ChatInference",
            "JsonInference",
            "ModelInference",
            "FloatMetricFeedback",
            "BooleanMetricFeedback",
            "CommentFeedback",
            "DemonstrationFeedback",
        )
    },
    47: {"cost": ("ModelInference",)},
    51: dict.fromkeys(
        ("provider_cache_read_input_tokens", "provider_cache_write_input_tokens"), ("ModelInference",)
    ),
    53: {"function_name": ("ModelInference",), "variant_name": ("ModelInference",)},
}
TABLES = (
    "ChatInference",
    "JsonInference",
    "ModelInference",
    "FloatMetricFeedback",
    "BooleanMetricFeedback",
    "CommentFeedback",
    "DemonstrationFeedback",
)
TOOL = {"name": "move", "description": "walk", "parameters": {"type": "object"}, "strict": False}
MESSAGES = [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
REQUEST = {"messages": [{"role": "system", "content": "You play."}, {"role": "user", "content": "go"}]}
EPISODE = "019e8000-0000-7000-8000-000000000001"
JSON_STEP, CHAT_STEP = "019e8000-0000-7000-8000-000000000002", "019e8000-0000-7000-8000-000000000003"


def spelled(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def rows() -> dict[str, list[dict[str, Any]]]:
    """One episode of two steps with a score, a demonstration and a comment."""
    of_both = {"function_name": "act", "variant_name": "v", "episode_id": EPISODE, "tags": {"who": "me"}}
    spoken = [{"type": "text", "text": "hi"}]
    call = {
        "raw_request": spelled(REQUEST),
        "raw_response": "{}",
        "model_name": "m",
        "model_provider_name": "p",
        "input_tokens": 5,
        "output_tokens": 3,
        "response_time_ms": 9,
        "ttft_ms": 4,
        "system": "You play.",
        "input_messages": spelled(MESSAGES),
        "cached": True,
        "finish_reason": "stop",
        "cost": 0.5,
    }
    number = "019e8000-0000-7000-8000-0000000000"
    return {
        "JsonInference": [
            {
                **of_both,
                "id": JSON_STEP,
                "input": spelled({"messages": MESSAGES}),
                "output": spelled({"raw": "{}", "parsed": {}}),
                "output_schema": "{}",
                "inference_params": "{}",
                "processing_time_ms": 20,
                "auxiliary_content": spelled([{"type": "thought", "text": "hm"}]),
            }
        ],
        "ChatInference": [
            {
                **of_both,
                "id": CHAT_STEP,
                "input": spelled({"messages": MESSAGES}),
                "output": spelled(spoken),
                "tool_params": spelled({"tools_available": [TOOL]}),
                "inference_params": "{}",
                "processing_time_ms": 20,
                "allowed_tools": '{"tools":["move"],"choice":"function_default"}',
                "tool_choice": "required",
                "snapshot_hash": 7,
            }
        ],
        "ModelInference": [
            {**call, "id": f"{number}11", "inference_id": JSON_STEP, "output": "[]"},
            {**call, "id": f"{number}12", "inference_id": CHAT_STEP, "output": spelled(spoken)},
        ],
        "FloatMetricFeedback": [
            {"id": f"{number}21", "target_id": EPISODE, "metric_name": "m", "value": 0.7, "tags": {}}
        ],
        "BooleanMetricFeedback": [],
        "CommentFeedback": [
            {"id": f"{number}22", "target_id": EPISODE, "target_type": "episode", "value": "so", "tags": {}}
        ],
        "DemonstrationFeedback": [
            {"id": f"{number}23", "inference_id": CHAT_STEP, "value": spelled(spoken), "tags": {}}
        ],
    }


def made_at(level: int, server: Any) -> str:
    """A database whose tables have the columns of a migration; gives its URL."""
    name = f"level_{level}"
    client = clickhouse_connect.get_client(dsn=server.secret_url.get_secret_value())
    try:
        client.command(f"DROP DATABASE IF EXISTS {name}")
        client.command(f"CREATE DATABASE {name}")
        later = [
            (column, of) for since, found in SINCE.items() if since > level for column, of in found.items()
        ]
        for table in TABLES:
            client.command(f"CREATE TABLE {name}.{table} AS {table}")
            gone = {column for column, of in later if table in of}
            for column in sorted(gone):
                client.command(f"ALTER TABLE {name}.{table} DROP COLUMN {column}")
            values = [{key: value for key, value in row.items() if key not in gone} for row in rows()[table]]
            for row in values:
                client.insert(f"{name}.{table}", [list(row.values())], column_names=list(row))
    finally:
        client.close()
    return str(server.url_for(server.user, database=name))


def read(url: str, tmp_path: Path, **options: Any) -> Episode:
    database = open_database(url)
    try:
        export(database, ExportRequest(**options), tmp_path / "store")
    finally:
        database.close()
    (episode,) = open_dataset(tmp_path / "store")
    return episode


@pytest.mark.parametrize("level", daily([0, *SINCE], 1))
def test_a_database_of_any_migration_is_read_and_what_it_lacks_is_unknown(
    server: Any, tmp_path: Path, level: int
) -> None:
    url = made_at(level, server)
    tags = {"tags": {"who": "me"}} if level >= 3 else {}
    episode = read(url, tmp_path, metrics=(MetricCondition(name="m", min=0.7),), **tags)
    first, second = episode.steps

    def since(migration: int, value: Any, otherwise: Any = None) -> Any:
        return value if level >= migration else otherwise

    assert episode.tags == since(3, {"who": "me"}, {})
    assert episode.metrics == {"m": 0.7}
    assert len(episode.feedback) == 3
    # before the fourth the prompt is read from what was sent
    for number in range(2):
        assert [message.text for message in episode.prompt(number) or ()] == ["You play.", "go"]
    assert [step.mask_reason for step in episode.steps] == [None, None]
    assert (first.n_input_tokens, first.n_output_tokens, first.latency_s) == (5, 3, 0.02)
    assert (first.cached, first.finish_reason) == (since(11, True), since(16, "stop"))
    assert first.cost_usd == since(47, 0.5)
    assert (first.extra or {}).get("ttft_s") == 0.004
    assert first.completion is not None
    assert [block.type for block in first.completion.content] == [*since(24, ["thought"], []), "text"]
    assert second.tools == (TOOL,)
    assert (second.extra or {}).get("tool_choice") == since(41, "required")
    assert second.snapshot_hash == since(43, f"{7:064x}")
    assert second.demonstration == [{"type": "text", "text": "hi"}]
