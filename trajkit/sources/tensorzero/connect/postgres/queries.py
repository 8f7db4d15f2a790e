"""Postgres queries for wide rows: inferences, model calls, feedback; columns in the order of `tables`."""

from __future__ import annotations

import pyarrow as pa

from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect.postgres.clauses import (
    FEEDBACK_TARGETS,
    INFERENCE_TABLES,
    NUMBER,
    NUMBER_TEXT,
    bucket,
    chosen,
    hex_of,
    in_chosen,
    is_seen,
)
from trajkit.sources.tensorzero.export.json_mode import ON_IN_CONFIG, ON_IN_PARAMETERS

_ON = ON_IN_PARAMETERS.replace(":", ": ")
MAY_BE_ON = (
    "SELECT 1 FROM tensorzero.json_inferences WHERE snapshot_hash IS NULL LIMIT 1",
    f"SELECT 1 FROM tensorzero.json_inference_data WHERE strpos(inference_params::text, '{_ON}') > 0 LIMIT 1",
    f"SELECT 1 FROM tensorzero.chat_inference_data WHERE strpos(inference_params::text, '{_ON}') > 0 LIMIT 1",
)
"""Queries of which one has a row where JSON mode may have been on, besides what configurations say."""
ON_IN_A_CONFIGURATION = (
    f"SELECT 1 FROM tensorzero.config_snapshots WHERE strpos(config, '{ON_IN_CONFIG}') > 0 LIMIT 1"
)


def _tool_list(column: str) -> str:
    """A list of tools, objects or texts of such, as the text of a list of objects; null when it is empty."""
    tool = "CASE jsonb_typeof(t) WHEN 'string' THEN (t #>> '{}')::jsonb ELSE t END"
    listed = (
        f"SELECT jsonb_agg({tool} ORDER BY n) FROM jsonb_array_elements({column}) WITH ORDINALITY x(t, n)"
    )
    return f"CASE WHEN {column} <> '[]' THEN ({listed})::text END"


_CHOICE = "CASE jsonb_typeof({0}) WHEN 'string' THEN {0} #>> '{{}}' ELSE {0}::text END".format(
    "d.tool_choice"
)

# auxiliary_content, tool_params, dynamic_tools, dynamic_provider_tools, allowed_tools, tool_choice and
# parallel_tool_calls: what only one of the two kinds of functions has
_CHAT_OWN = (
    f"NULL::text, NULL::text, {_tool_list('d.dynamic_tools')}, {_tool_list('d.dynamic_provider_tools')},"
    f" d.allowed_tools::text, {_CHOICE}, d.parallel_tool_calls"
)
_JSON_OWN = f"d.auxiliary_content::text, {'NULL::text, ' * 5}NULL::boolean"

_STEP = "i.tags->>'trajkit.step'"


def inferences_query(episode_ids: pa.Table | None, n_buckets: int, request: ExportRequest) -> str:
    """The inferences of the chosen episodes; null for what was in a payload that has expired."""

    def of(kind: str, own: str) -> str:
        return f"""
            SELECT i.id::text, i.episode_id::text, '{kind}', d.input::text, d.output::text,
                   {own}, (i.tags - 'trajkit.step')::text,
                   CASE WHEN {_STEP} ~ '^[+-]?[0-9]{{1,18}}$' THEN ({_STEP})::bigint END,
                   i.processing_time_ms, {hex_of("i.snapshot_hash")}, {bucket("i.episode_id", n_buckets)}
            FROM tensorzero.{kind}_inferences AS i
            LEFT JOIN tensorzero.{kind}_inference_data AS d ON d.id = i.id
            WHERE {in_chosen("i.episode_id", episode_ids)} AND {is_seen(request, "i.id")}
        """

    return (
        f"WITH chosen AS MATERIALIZED ({chosen(episode_ids)})"
        f" {of('json', _JSON_OWN)} UNION ALL {of('chat', _CHAT_OWN)}"
    )


def calls_query(
    episode_ids: pa.Table | None, n_buckets: int, request: ExportRequest, *, system: str, has_cost: bool
) -> str:
    """The calls of models that the inferences of the chosen episodes made.

    Args:
        episode_ids: The episodes; None for all.
        n_buckets: Into how many buckets they are cut.
        request: Which rows may be seen.
        system: An expression for the system message, over the columns of the payload.
        has_cost: Whether the database is young enough to know what a call cost.
    """
    of_chosen = " UNION ALL ".join(
        f"SELECT id, {bucket('episode_id', n_buckets)} AS bucket FROM tensorzero.{table}"
        f" WHERE {in_chosen('episode_id', episode_ids)} AND {is_seen(request)}"
        for table in INFERENCE_TABLES
    )
    return f"""
        WITH chosen AS MATERIALIZED ({chosen(episode_ids)})
        SELECT m.inference_id::text, m.id::text, m.model_name, m.model_provider_name, {system},
               d.input_messages, d.output, m.input_tokens, m.output_tokens,
               {"m.cost::float8" if has_cost else "NULL::float8"}, m.finish_reason, m.cached,
               m.response_time_ms, m.ttft_ms, i.bucket
        FROM tensorzero.model_inferences AS m JOIN ({of_chosen}) AS i ON i.id = m.inference_id
        LEFT JOIN (
            SELECT id, system, input_messages::text AS input_messages, output::text AS output, raw_request
            FROM tensorzero.model_inference_data
        ) AS d ON d.id = m.id
    """


def feedback_query(episode_ids: pa.Table | None, request: ExportRequest) -> str:
    """The feedback on the chosen episodes and their inferences; tags as JSON."""
    of_chosen = " UNION ALL ".join(
        f"SELECT id FROM tensorzero.{table} WHERE {in_chosen('episode_id', episode_ids)}"
        for table in INFERENCE_TABLES
    )
    columns = (
        ("'float', metric_name", NUMBER_TEXT, f"CASE WHEN value <> {NUMBER} THEN value END"),
        ("'boolean', metric_name", "value::text", "NULL::float8"),
        ("'comment', 'comment'", "to_json(value)::text", "NULL::float8"),
        ("'demonstration', 'demonstration'", "value::text", "NULL::float8"),
    )
    queries = []
    for (table, target), (named, value, exact) in zip(FEEDBACK_TARGETS, columns, strict=True):
        on_chosen = "true" if episode_ids is None else f"{target} IN (SELECT id FROM target)"
        queries.append(
            f"SELECT id::text, {target}::text, {named}, {value}, tags::text, {exact}"
            f" FROM tensorzero.{table} WHERE {on_chosen} AND {is_seen(request)}"
        )
    return (
        f"WITH chosen AS MATERIALIZED ({chosen(episode_ids)}),"
        f" target AS MATERIALIZED (SELECT id FROM chosen UNION ALL {of_chosen}) {' UNION ALL '.join(queries)}"
    )
