"""SQL for the system message of a model call in ClickHouse, with the line of JSON mode where it was sent."""

from __future__ import annotations

from trajkit.sources.tensorzero.connect.clickhouse.connection import Connection
from trajkit.sources.tensorzero.export.json_mode import (
    ON_IN_CONFIG,
    ON_IN_PARAMETERS,
    WIRE_PATTERN,
    wire_system,
)

SYSTEM_SENT = wire_system(f"match(raw_request, '{WIRE_PATTERN}')")
"""Reads `raw_request`, which is as long as the prompt."""


def system_column(connection: Connection) -> str:
    """The column `system` of `ModelInference`, from `raw_request` only where JSON mode may have been on."""
    return SYSTEM_SENT if _may_be_on(connection) else "system"


def _may_be_on(connection: Connection) -> bool:
    """Whether JSON mode may have been on for any inference: it may where the configuration is unknown."""
    asked = [
        f"SELECT 1 FROM {table} WHERE position(inference_params, '{ON_IN_PARAMETERS}') > 0 LIMIT 1"
        for table in ("JsonInference", "ChatInference")
    ]
    if connection.has("ConfigSnapshot") and connection.has("JsonInference", "snapshot_hash"):
        asked.append(f"SELECT 1 FROM ConfigSnapshot WHERE position(config, '{ON_IN_CONFIG}') > 0 LIMIT 1")
        asked.append("SELECT 1 FROM JsonInference WHERE snapshot_hash IS NULL LIMIT 1")
    else:
        asked.append("SELECT 1 FROM JsonInference LIMIT 1")
    return bool(connection.query(f"SELECT 1 FROM ({' UNION ALL '.join(reversed(asked))}) LIMIT 1"))
