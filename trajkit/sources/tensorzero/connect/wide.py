"""Queries for the rows with long texts, inferences and model calls, whole or without their heads."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.connect.dialect import INFERENCES, Dialect, columns
from trajkit.sources.tensorzero.export.texts.json_mode import (
    ON_IN_CONFIG,
    ON_IN_PARAMETERS,
    WIRE_PATTERN,
    wire_system,
)


class Wanted:
    """The rows of these episodes (None for all), each with its bucket, within a request.

    Args:
        dialect: Of the database.
        chosen: The ids of the episodes.
        n_buckets: How many buckets there are.
        request: With an as-of time.
        id_of: SQL for an id; None for the dialect's own.
    """

    def __init__(
        self,
        dialect: Dialect,
        chosen: pa.Table | None,
        n_buckets: int,
        request: ExportRequest,
        *,
        id_of: Callable[[str], str] | None = None,
    ) -> None:
        self._dialect = dialect
        self._id_of = id_of or dialect.row_id
        self._bucket = dialect.bucket("episode_id", n_buckets)
        self._condition = f"{dialect.in_chosen('episode_id', chosen)} AND {dialect.is_seen(request)}"

    def ids(self, selected: str = "id") -> str:
        """A query for narrow columns of the inferences of both kinds."""
        return " UNION ALL ".join(
            f"SELECT {selected} FROM {self._dialect.table(table)} WHERE {self._condition}"
            for table in INFERENCES.values()
        )

    def ids_with_buckets(self) -> str:
        """A query for the inferences, as `of_inference`, with their buckets."""
        return self.ids(f"id AS of_inference, {self._bucket} AS bucket")

    def inferences(
        self, schema: pa.Schema = tables.INFERENCES, text: str | None = None, more: tuple[str, ...] = ()
    ) -> str:
        """The columns of `INFERENCES`.

        Args:
            schema: With further columns at the end.
            text: SQL for the input; None for all of it.
            more: SQL for the further columns.
        """
        d = self._dialect
        tools = (
            d.tool_params,
            d.tool_list("dynamic_tools"),
            d.tool_list("dynamic_provider_tools"),
            d.json("allowed_tools"),
            d.tool_choice,
            "parallel_tool_calls",
        )
        # columns of only one of the two kinds of functions
        own = {"json": (d.json("auxiliary_content"), *["NULL"] * len(tools)), "chat": ("NULL", *tools)}
        return " UNION ALL ".join(
            "SELECT "
            + columns(
                schema,
                self._id_of("id"),
                self._id_of("episode_id"),
                f"'{kind}'",
                text or d.json("input"),
                d.json("output"),
                *own[kind],
                d.tags_object,
                d.env_step,
                "processing_time_ms",
                d.hash("snapshot_hash"),
                self._bucket,
                *more,
            )
            + f"{d.marks} FROM {d.wide(table)} WHERE {self._condition}"
            for kind, table in INFERENCES.items()
        )

    def calls(
        self,
        system: str,
        schema: pa.Schema = tables.MODEL_INFERENCES,
        text: str | None = None,
        more: tuple[str, ...] = (),
        *,
        of_inferences: str | None = None,
        source: str | None = None,
    ) -> str:
        """The columns of `MODEL_INFERENCES`.

        Args:
            system: SQL for the system message.
            schema: With further columns at the end.
            text: SQL for the prompt; None for all of it.
            more: SQL for the further columns.
            of_inferences: A query as `ids_with_buckets` makes it, perhaps with more columns.
            source: The model calls; None for all.
        """
        d = self._dialect
        selected = columns(
            schema,
            self._id_of("m.inference_id"),
            self._id_of("id"),
            "model_name",
            "model_provider_name",
            system,
            text or d.json("input_messages"),
            d.json("output"),
            "input_tokens",
            "output_tokens",
            d.cost,
            d.finish_reason,
            "cached",
            "response_time_ms",
            "ttft_ms",
            "i.bucket",
            *more,
        )
        joined = d.calls_join.format(of_inferences or self.ids_with_buckets())
        return f"SELECT {selected}{d.marks} FROM {source or d.wide('model_inference')} {joined}"


def system_sent(dialect: Dialect, *, is_known: bool = True) -> str:
    """SQL for the system message as it was sent; it reads `raw_request`, which is as long as the prompt.

    Args:
        dialect: Of the database.
        is_known: Whether to ask the database first if JSON mode may have been on for any inference.
    """
    if is_known and not _may_be_on(dialect):
        return "system"
    return wire_system(dialect.matches(WIRE_PATTERN), dialect.is_prompt_there)


def _may_be_on(dialect: Dialect) -> bool:
    """Whether JSON mode may have been on for any inference, which it may if the configuration is unknown."""
    of_json = f"SELECT 1 FROM {dialect.table('json_inference')}"
    if dialect.has("config_snapshot") and dialect.has("json_inference", "snapshot_hash"):
        asked = [
            f"{of_json} WHERE snapshot_hash IS NULL LIMIT 1",
            f"SELECT 1 FROM {dialect.table('config_snapshot')}"
            f" WHERE position('{ON_IN_CONFIG}' IN config) > 0 LIMIT 1",
        ]
    else:
        asked = [f"{of_json} LIMIT 1"]
    # Postgres has a blank after the colon
    parameters = "replace(CAST(inference_params AS TEXT), ': ', ':')"
    asked += [
        f"SELECT 1 FROM {dialect.payload(table)}"
        f" WHERE position('{ON_IN_PARAMETERS}' IN {parameters}) > 0 LIMIT 1"
        for table in INFERENCES.values()
    ]
    together = " UNION ALL ".join(f"({sql})" for sql in asked)
    return bool(dialect.connection.query(f"SELECT 1 FROM ({together}) AS q LIMIT 1"))
