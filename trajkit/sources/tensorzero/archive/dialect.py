"""The tables of an archive, and DuckDB's SQL for them, with the macros of `sql/archive.sql`."""

from __future__ import annotations

from collections.abc import Sequence

from trajkit.errors import ServiceError
from trajkit.sources.tensorzero.archive.files import ArchiveFiles
from trajkit.sources.tensorzero.archive.layout import TABLES
from trajkit.sources.tensorzero.archive.local import scan
from trajkit.sources.tensorzero.connect import jsonb
from trajkit.sources.tensorzero.connect.dialect import Dialect, Stored
from trajkit.sources.tensorzero.connect.slot import N_SLOTS, in_duckdb
from trajkit.store.engine import literal

_TEXTS = ("input", "output", "system", "input_messages", "tool_params")


class Archive(Dialect):
    """An archive in the place of the database that it was made from.

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

    @property
    def text_bytes(self) -> str:
        """A query for the bytes of text that the steps hold."""
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
        """The error for a database without these tables: an archive has all."""
        raise AssertionError(missing)

    def schema_level(self) -> int | None:
        """The newest migration of the database, where it told."""
        level = self._files.manifest.source.get("schema_level")
        return level if isinstance(level, int) else None

    # -- ids -------------------------------------------------------------------------------------------------

    def text(self, column: str) -> str:
        """An id as it is spelled."""
        return column

    def before(self, ms: int, column: str = "id") -> str:
        """That an id is from before a time, in milliseconds."""
        return f"ms_of({column}) < {ms}"

    def at_ms(self, column: str) -> str:
        """The time in an id, in milliseconds."""
        return f"ms_of({column})"

    def slot(self, column: str) -> str:
        """The slot of an episode's id."""
        return in_duckdb(column)

    def bucket(self, column: str, n_buckets: int) -> str:
        """The bucket of an episode's id."""
        return f"({self.slot(column)}::UINTEGER * {n_buckets} // {N_SLOTS})::USMALLINT"

    # -- names and tags --------------------------------------------------------------------------------------

    def bind(self, name: str) -> str:
        """A text that is bound."""
        return f"${name}"

    def is_in(self, column: str, name: str) -> str:
        """That a column has one of the texts that are bound as a list."""
        return f"list_contains(${name}, {column})"

    def each(self, name: str) -> str:
        """A join with the texts that are bound as a list, each as `key`."""
        return f"CROSS JOIN (SELECT unnest(${name}) AS key) AS k"

    def tag(self, key: str) -> str:
        """The value of a tag."""
        return f"tag_of(tags, {key})"

    def has_tag(self, key: str) -> str:
        """That a row has a tag."""
        return f"tag_of(tags, {key}) IS NOT NULL"

    def has_any_tag(self, keys: Sequence[str]) -> str:
        """That a row has one of some tags."""
        listed = ", ".join(map(literal, keys))
        return f"coalesce(list_has_any(list_transform(tags, lambda e: e.key), [{listed}]), false)"

    def tag_pairs(self, table: str) -> str:
        """A query for `key` and `value` of every tag of a table."""
        return f"SELECT e.key AS key, e.value AS value FROM (SELECT unnest(tags) AS e FROM {table})"

    # -- values ----------------------------------------------------------------------------------------------

    def bit(self, condition: str, number: int) -> str:
        """A condition as a bit of a whole number of 64."""
        return f"(({condition})::UBIGINT << {number})"

    def json(self, column: str) -> str:
        """A column of JSON as text, as TensorZero spells it: Postgres spells it in its own way."""
        return self._spelled(column, column)

    def _spelled(self, column: str, sql: str) -> str:
        is_respelled = self._is_postgres and column in jsonb.SPELLED
        return jsonb.SPELLED[column](sql) if is_respelled else sql

    def tool_list(self, column: str) -> str:
        """A list of tools as the text of one JSON list; null when it is empty."""
        return self._spelled(column, f"as_list({column})")

    def hash(self, column: str) -> str:
        """A configuration's hash as TensorZero prints it."""
        return column

    def matches(self, pattern: str) -> str:
        """That a raw request matches a regular expression."""
        return f"regexp_matches(raw_request, {literal(pattern)})"

    def measured(self, kind: str) -> str:
        """The value of a metric as a double; a float is the one of its shortest decimal."""
        return "shortest(value)::DOUBLE" if kind == "float" else "value::INT::DOUBLE"

    def feedback_value(self, kind: str) -> str:
        """The value of a piece of feedback as JSON."""
        return {
            "float": "shortest(value)",
            "boolean": "CASE WHEN value THEN 'true' ELSE 'false' END",
            "comment": "CAST(to_json(value) AS VARCHAR)",
            "demonstration": "value",
        }[kind]

    def exact(self, kind: str) -> str:
        """What the database held of a float, where that was a double: ClickHouse's have 32 bits."""
        if kind != "float" or not self._is_postgres:
            return "NULL"
        return "CASE WHEN shortest(value)::DOUBLE <> value THEN value END"

    # -- looking ---------------------------------------------------------------------------------------------

    def quantiles(self, shares: Sequence[float]) -> str:
        """An aggregate over `value`: a list of the smallest values that these shares do not exceed."""
        return f"quantile_disc(value, {list(shares)})"

    def single(self, expression: str) -> str:
        """An expression in single precision."""
        return f"CAST({expression} AS FLOAT)"
