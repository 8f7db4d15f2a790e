"""The tables of an archive, and DuckDB's SQL for them, with the macros of `sql/archive.sql`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trajkit.errors import ServiceError
from trajkit.sources.tensorzero.archive.files import ArchiveFiles
from trajkit.sources.tensorzero.archive.layout import TABLES
from trajkit.sources.tensorzero.archive.local import scan
from trajkit.sources.tensorzero.connect import jsonb
from trajkit.sources.tensorzero.connect.database import TensorZero
from trajkit.sources.tensorzero.connect.dialect import EVAL_TAGS, Dialect, Sql, Stored
from trajkit.sources.tensorzero.connect.slot import N_SLOTS, in_duckdb
from trajkit.store.engine import literal

_TEXTS = ("input", "output", "system", "input_messages", "tool_params")


class Archive(Dialect):
    """An archive that is read instead of its database.

    Args:
        files: The archive.
    """

    source_name = "tensorzero-archive"
    stored = {table.name: Stored(table.name) for table in TABLES}
    chosen = "SELECT episode_id FROM chosen"
    marks = ", marks_of(not_utf8)"
    calls_join = "AS m JOIN ({}) AS i ON m.inference_id::UUID = i.of_inference::UUID"
    tags_object = "as_object(coalesce(tags, []))"
    env_step = "whole_number(tag_of(tags, 'trajkit.step'))"
    cost = "cost::DOUBLE"
    tags_map = "coalesce(tags, [])"
    templates = "coalesce(templates, [])"
    tasks = "SELECT episode_id, run_id, task_name, coalesce(tags, []) FROM evaluation_episode"

    def __init__(self, files: ArchiveFiles) -> None:
        super().__init__(files)
        self._files = files
        self._is_postgres = files.manifest.source.get("kind") == "tensorzero-postgres"
        if self._is_postgres:  # ClickHouse's floats have 32 bits
            self.exact = "CASE WHEN shortest(value)::DOUBLE <> value THEN value END"

    @property
    def text_bytes(self) -> str:
        """Return a query for the bytes of text in the steps."""
        paths = [
            path
            for name in ("json_inference", "chat_inference", "model_inference")
            for path in self._files.paths(name)
        ]
        if not paths:
            return "SELECT 0"
        return (
            "SELECT sum(total_uncompressed_size) FROM"
            f" parquet_metadata{scan(paths).removeprefix('read_parquet')}"
            f" WHERE path_in_schema IN ({', '.join(map(literal, _TEXTS))})"
        )

    def refusal(self, missing: Sequence[str]) -> ServiceError:
        """Return the error for a database without these tables: an archive has all."""
        raise AssertionError(missing)

    def schema_level(self) -> int | None:
        """Return the newest migration of the database, if known."""
        level = self._files.manifest.source.get("schema_level")
        return level if isinstance(level, int) else None

    # -- ids -------------------------------------------------------------------------------------------------

    text = row_id = Sql("{}")
    at_ms = Sql("ms_of({})")
    slot = Sql(in_duckdb("{0}"))
    bucket = Sql(f"({slot}::UINTEGER * {{1}} // {N_SLOTS})::USMALLINT")

    # -- names and tags --------------------------------------------------------------------------------------

    bind = Sql("${}")
    is_in = Sql("list_contains(${1}, {0})")
    each = Sql("CROSS JOIN (SELECT unnest(${}) AS key) AS k")
    tag = Sql("tag_of(tags, {})")
    has_tag = Sql("tag_of(tags, {}) IS NOT NULL")
    has_eval_tag = (
        "coalesce(list_has_any(list_transform(tags, lambda e: e.key),"
        f" [{', '.join(map(literal, EVAL_TAGS))}]), false)"
    )
    tag_is = Sql("tag_of(tags, {}) IS NOT DISTINCT FROM {}")
    tag_pairs = Sql("SELECT e.key AS key, e.value AS value FROM (SELECT unnest(tags) AS e FROM {})")

    # -- values ----------------------------------------------------------------------------------------------

    bit = Sql("(({})::UBIGINT << {})")
    hash = Sql("{}")
    matches = Sql("regexp_matches(raw_request, '{}')")
    measured = {"float": "shortest(value)::DOUBLE", "boolean": "value::INT::DOUBLE"}
    feedback_value = {
        "float": "shortest(value)",
        "boolean": "CASE WHEN value THEN 'true' ELSE 'false' END",
        "comment": "CAST(to_json(value) AS VARCHAR)",
        "demonstration": "value",
    }

    def json(self, column: str) -> str:
        """Return a JSON column as text, as TensorZero spells it: Postgres spells it differently."""
        return self._spelled(column, column)

    def tool_list(self, column: str) -> str:
        """Return a list of tools as the text of one JSON list; null when it is empty."""
        return self._spelled(column, f"as_list({column})")

    def _spelled(self, column: str, sql: str) -> str:
        is_respelled = self._is_postgres and column in jsonb.SPELLED
        return jsonb.SPELLED[column](sql) if is_respelled else sql

    # -- looking ---------------------------------------------------------------------------------------------

    quantiles = Sql("quantile_disc(value, {})")
    single = Sql("CAST({} AS FLOAT)")


def open_archive(folder: Path) -> TensorZero:
    """Open an archive to read it instead of its database.

    Raises:
        StoreError: It is not an archive, is of a newer version, or a file is missing or of another size.
    """
    files = ArchiveFiles(folder)
    # later rows are not in the archive
    return TensorZero(Archive(files), read_at=files.manifest.as_of)
