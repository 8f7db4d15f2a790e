"""The columns of a store, version 1: their order, their types, and whether the digest covers them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trajkit.schema import FeedbackKind, Metric, MetricLevel

MANIFEST_NAME = "manifest.json"
"""The file that makes a folder a store."""


class Column(NamedTuple):
    """One column of a table of the store."""

    name: str
    sql_type: str
    """DuckDB type; `METRICS` stands for a struct with one field per metric."""
    is_digested: bool = True
    """Whether the content digest covers it."""
    is_closed: bool = False
    """Whether trajkit's models define the fields of this JSON: every writer keeps the models' order."""


METRICS = "METRICS"

EPISODES = (
    Column("episode_id", "VARCHAR"),
    Column("source", "VARCHAR", is_digested=False),
    Column("env_id", "VARCHAR"),
    Column("task", "VARCHAR"),
    Column("seed", "BIGINT"),
    Column("initial_state_hash", "VARCHAR"),
    Column("purpose", "VARCHAR"),
    Column("function_names", "VARCHAR[]"),
    Column("variant_names", "VARCHAR[]"),
    Column("started_at", "TIMESTAMPTZ"),
    Column("ended_at", "TIMESTAMPTZ"),
    Column("n_steps", "BIGINT"),
    Column("outcome", "VARCHAR"),
    Column("total_reward", "DOUBLE"),
    Column("metrics", METRICS),
    Column("n_input_tokens", "BIGINT"),
    Column("n_output_tokens", "BIGINT"),
    Column("cost_usd", "DOUBLE", is_digested=False),
    Column("tags", "JSON"),
    Column("origin", "JSON", is_digested=False),
)
"""One row per episode. `content_hash` follows in the file; it is computed by the writer."""

STEPS = (
    Column("episode_id", "VARCHAR"),
    Column("step_index", "BIGINT"),
    Column("inference_id", "VARCHAR"),
    Column("function_name", "VARCHAR"),
    Column("variant_name", "VARCHAR"),
    Column("model_name", "VARCHAR"),
    Column("n_prompt_kept", "BIGINT"),
    Column("messages", "JSON", is_closed=True),
    Column("tools", "JSON"),
    Column("completion", "JSON", is_closed=True),
    # the gateway's source of the messages, which each of its databases spells differently
    Column("input", "JSON", is_digested=False),
    Column("observation", "VARCHAR"),
    Column("action", "JSON"),
    Column("action_executed", "VARCHAR"),
    Column("action_valid", "BOOLEAN"),
    Column("reward", "DOUBLE"),
    Column("terminated", "BOOLEAN"),
    Column("truncated", "BOOLEAN"),
    Column("metrics", METRICS),
    Column("demonstration", "JSON"),
    Column("n_input_tokens", "BIGINT"),
    Column("n_output_tokens", "BIGINT"),
    Column("cost_usd", "DOUBLE", is_digested=False),
    Column("latency_s", "DOUBLE"),
    Column("finish_reason", "VARCHAR"),
    Column("cached", "BOOLEAN"),
    Column("started_at", "TIMESTAMPTZ"),
    Column("loss_weight", "DOUBLE"),
    Column("mask_reason", "VARCHAR"),
    Column("snapshot_hash", "VARCHAR", is_digested=False),
    Column("extra", "JSON", is_digested=False),
    Column("prompt_token_ids", "BIGINT[]"),
    Column("completion_token_ids", "BIGINT[]"),
    Column("logprobs", "DOUBLE[]"),
    Column("model_version", "VARCHAR"),
    Column("agent_name", "VARCHAR"),
    Column("parent_step", "BIGINT"),
    Column("legal_actions", "VARCHAR[]"),
    Column("info", "JSON"),
)
"""One row per transition; the rows of an episode are contiguous, in step order and in one part."""

FEEDBACK = (
    Column("feedback_id", "VARCHAR"),
    Column("episode_id", "VARCHAR"),
    Column("inference_id", "VARCHAR"),
    Column("kind", "VARCHAR"),
    Column("metric_name", "VARCHAR"),
    Column("value", "JSON"),
    Column("tags", "JSON"),
    Column("created_at", "TIMESTAMPTZ"),
)
"""One row per piece of feedback that was read, latest or not."""

TABLES = {"episodes": EPISODES, "steps": STEPS, "feedback": FEEDBACK}
"""Every table of a store, by the name of its folder."""

CONTENT_HASH = Column("content_hash", "VARCHAR", is_digested=False)
"""The last column of `episodes`: digest of the episode with its steps and its feedback."""

LEVELS = {"episodes": MetricLevel.EPISODE, "steps": MetricLevel.INFERENCE}
"""The metrics that a table has a column for."""


def quoted(name: str) -> str:
    """Write a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def metrics_type(metrics: Sequence[Metric], level: MetricLevel) -> str | None:
    """Return the struct of the metrics of one level, sorted by name; None when there is none."""
    fields = [
        f"{quoted(metric.name)} {'BOOLEAN' if metric.kind == FeedbackKind.BOOLEAN else 'DOUBLE'}"
        for metric in sorted(metrics, key=lambda metric: metric.name)
        if metric.level == level
    ]
    return f"STRUCT({', '.join(fields)})" if fields else None


def columns(table: str, metrics: Sequence[Metric]) -> tuple[Column, ...]:
    """Return the columns of a table in a store with these metrics, types resolved, without `content_hash`."""
    resolved = []
    for column in TABLES[table]:
        if column.sql_type != METRICS:
            resolved.append(column)
        elif sql_type := metrics_type(metrics, LEVELS[table]):
            resolved.append(column._replace(sql_type=sql_type))
    return tuple(resolved)
