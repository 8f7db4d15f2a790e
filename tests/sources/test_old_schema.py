"""Databases from before a column existed: what is not there is unknown, and everything else is read."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import clickhouse_connect
import pytest

from tests.matrix import daily
from tests.sources.conftest import TABLES, Rows, exported
from tests.sources.row_database import spelled
from trajkit.sources.request import MetricCondition
from trajkit.store.dataset import open_dataset

# the migration that brought a column
SINCE = {
    3: {"tags": ("ChatInference", "JsonInference")},
    4: {"system": ("ModelInference",), "input_messages": ("ModelInference",), "output": ("ModelInference",)},
    5: {"tags": TABLES[3:]},
    11: {"cached": ("ModelInference",)},
    16: {"finish_reason": ("ModelInference",)},
    19: {"extra_body": ("ChatInference", "JsonInference")},
    24: {"auxiliary_content": ("JsonInference",)},
    31: {"ttft_ms": ("ChatInference", "JsonInference")},
    41: dict.fromkeys(
        ("dynamic_tools", "dynamic_provider_tools", "allowed_tools", "tool_choice", "parallel_tool_calls"),
        ("ChatInference",),
    ),
    43: {"snapshot_hash": TABLES},
    47: {"cost": ("ModelInference",)},
    51: dict.fromkeys(
        ("provider_cache_read_input_tokens", "provider_cache_write_input_tokens"), ("ModelInference",)
    ),
    53: {"function_name": ("ModelInference",), "variant_name": ("ModelInference",)},
}
TOOL = {"name": "move", "description": "walk", "parameters": {"type": "object"}, "strict": False}
MESSAGES = [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
REQUEST = {"messages": [{"role": "system", "content": "You play."}, {"role": "user", "content": "go"}]}


def write_episode(rows: Rows) -> None:
    """One episode of two steps with a score, a demonstration and a comment."""
    episode_id, tags, spoken = rows.id(), {"who": "me"}, [{"type": "text", "text": "hi"}]
    thought = spelled([{"type": "thought", "text": "hm"}])
    said = {"messages": MESSAGES}
    own = {"parsed": {}, "input": said, "auxiliary_content": thought}
    step = rows.json_step(episode_id, raw="{}", tags=tags, calls=0, **own)
    spoken_step = rows.chat_step(
        episode_id,
        output=spoken,
        prompt=MESSAGES,
        tool_params={"tools_available": [TOOL]},
        calls=0,
        tags=tags,
        processing_time_ms=20,
        allowed_tools='{"tools":["move"],"choice":"function_default"}',
        tool_choice="required",
        snapshot_hash=7,
    )
    known = {"input_tokens": 5, "output_tokens": 3, "ttft_ms": 4, "cached": True, "cost": 0.5}
    for inference_id, output in ((step, "[]"), (spoken_step, spelled(spoken))):
        rows.call(inference_id, user="go", text="", output=output, raw_request=spelled(REQUEST), **known)
    rows.float(episode_id, 0.7, metric="m")
    rows.comment(episode_id, "so")
    rows.demonstration(spoken_step, spoken)


def made_at(level: int, server: Any) -> str:
    """A database whose tables have the columns of a migration; gives its URL."""
    name = f"level_{level}"
    later = [(column, of) for since, found in SINCE.items() if since > level for column, of in found.items()]
    gone = {table: [column for column, of in later if table in of] for table in TABLES}
    with contextlib.closing(
        clickhouse_connect.get_client(dsn=server.secret_url.get_secret_value())
    ) as client:
        client.command(f"DROP DATABASE IF EXISTS {name}")
        client.command(f"CREATE DATABASE {name}")
        for table in TABLES:
            client.command(f"CREATE TABLE {name}.{table} AS {table}")
            for column in gone[table]:
                client.command(f"ALTER TABLE {name}.{table} DROP COLUMN {column}")
        rows = Rows(client)
        write_episode(rows)
        Rows.waiting[rows] = [
            (f"{name}.{table}", {key: value for key, value in row.items() if key not in gone[table]})
            for table, row in Rows.waiting[rows]
        ]
        Rows.write()
    return str(server.url_for(server.user, database=name))


@pytest.mark.parametrize("level", daily([0, *SINCE], 1))
def test_a_database_of_any_migration_is_read_and_what_it_lacks_is_unknown(
    server: Any, tmp_path: Path, level: int
) -> None:
    url = made_at(level, server)
    tags = {"tags": {"who": "me"}} if level >= 3 else {}
    exported(url, tmp_path / "store", metrics=(MetricCondition(name="m", min=0.7),), **tags)
    (episode,) = open_dataset(tmp_path / "store")
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
