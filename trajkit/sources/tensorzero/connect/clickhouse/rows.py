"""Queries for the rows with long texts, inferences and model calls, whole or without their heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect.clickhouse.clauses import HASH, bucket, in_chosen, is_seen, text_of
from trajkit.sources.tensorzero.connect.clickhouse.columns import CHAT_OWN, JSON_OWN, TAGS_TEXT


class Texts(NamedTuple):
    """SQL for the long text of a row."""

    text: str
    """SQL for it."""
    more: tuple[str, ...] = ()
    """SQL for further facts about the text, in columns at the end."""


WHOLE_INPUT, WHOLE_PROMPT = Texts("input"), Texts("input_messages")


class Wanted(NamedTuple):
    """Selects the rows of these episodes (None for all), each with its bucket."""

    episode_ids: pa.Table | None
    n_buckets: int
    request: ExportRequest

    @property
    def condition(self) -> str:
        """On an inference."""
        return f"{in_chosen('episode_id', self.episode_ids)} AND {is_seen(self.request)}"

    def inferences(self, columns: str) -> str:
        """A query for columns of the inferences of both kinds, by their own tables."""
        return " UNION ALL ".join(
            f"SELECT {columns} FROM {table} WHERE {self.condition}"
            for table in ("JsonInference", "ChatInference")
        )


def inferences_query(
    wanted: Wanted,
    table: Callable[[str], str],
    inputs: Texts = WHOLE_INPUT,
    *,
    id_of: Callable[[str], str] = text_of,
) -> str:
    """The columns of `INFERENCES`.

    Args:
        wanted: Which.
        table: Names a table that may be too old to have every column.
        inputs: What it has of the inputs.
        id_of: SQL for an id.
    """

    def of(name: str, function_type: str, own: str) -> str:
        return f"""
            SELECT id, episode_id AS episode, '{function_type}' AS function_type, input, output, {own},
                   tags, processing_time_ms, {HASH} AS hash
            FROM {table(name)} WHERE {wanted.condition}
        """

    return f"""
        SELECT {id_of("id")} AS inference_id, {id_of("episode")} AS episode_id, function_type,
               {inputs.text} AS input_text, output, auxiliary_content, tool_params, dynamic_tools_text,
               provider_tools_text, allowed_tools, tool_choice, parallel_tool_calls,
               {TAGS_TEXT} AS tags_text,
               toInt64OrNull(tags['trajkit.step']) AS env_step, processing_time_ms,
               hash AS snapshot_hash, {", ".join([bucket("episode", wanted.n_buckets), *inputs.more])}
        FROM ({of("JsonInference", "json", JSON_OWN)} UNION ALL {of("ChatInference", "chat", CHAT_OWN)})
    """


def calls_query(
    wanted: Wanted,
    table: Callable[[str], str],
    *,
    system: str,
    messages: Texts = WHOLE_PROMPT,
    of_inferences: str = "",
    condition: str = "",
    id_of: Callable[[str], str] = text_of,
) -> str:
    """The columns of `MODEL_INFERENCES`.

    Args:
        wanted: Which.
        table: Names a table that may be too old to have every column.
        system: SQL for the system message.
        messages: The prompt; it may read the columns of `of_inferences`.
        of_inferences: A query for rows with the `id` of an inference and its `bucket`, and maybe more;
            nothing for those that are wanted.
        condition: On a call, asked before anything else; nothing for none.
        id_of: SQL for an id.
    """
    of_chosen = of_inferences or wanted.inferences(f"id, {bucket('episode_id', wanted.n_buckets)} AS bucket")
    calls = (
        f"(SELECT * FROM {table('ModelInference')} WHERE {condition})"
        if condition
        else table("ModelInference")
    )
    # a call has one inference; an inner join would copy every text
    return f"""
        SELECT {id_of("m.inference_id")} AS id_of_inference, {id_of("m.id")} AS model_inference_id,
               model_name, model_provider_name, {system} AS system_sent, {messages.text} AS messages_text,
               output, input_tokens, output_tokens, toFloat64(cost) AS cost_usd,
               toString(finish_reason) AS finish_reason, cached, response_time_ms, ttft_ms,
               {", ".join(["i.bucket", *messages.more])}
        FROM {calls} AS m LEFT SEMI JOIN ({of_chosen}) AS i ON m.inference_id = i.id
    """
