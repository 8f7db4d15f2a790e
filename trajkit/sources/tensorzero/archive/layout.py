"""The tables of an archive and their columns, as in a TensorZero database."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa


class Kind(StrEnum):
    """The type of a column, independent of the database."""

    ID = "id"
    """A UUID: 36 characters, lower case."""
    NAME = "name"
    """Text that repeats."""
    TEXT = "text"
    """Text of any length, as it is stored; JSON of Postgres in its own spelling."""
    HASH = "hash"
    """64 lower-case hexadecimal digits."""
    INTEGER = "integer"
    """A whole number."""
    DECIMAL = "decimal"
    """A number with nine decimal places."""
    NUMBER = "number"
    """A float; one of 32 bits is kept in 64, which changes nothing."""
    FLAG = "flag"
    """A boolean."""
    TIME = "time"
    """A time in microseconds, UTC."""
    TEXTS = "texts"
    """A list of texts."""
    TAGS = "tags"
    """Keys with values, in the order in which they are stored."""


_PAIR = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())])

_ARROW: dict[Kind, pa.DataType] = {
    Kind.ID: pa.string(),
    Kind.NAME: pa.string(),
    Kind.TEXT: pa.string(),
    Kind.HASH: pa.string(),
    Kind.INTEGER: pa.int64(),
    Kind.DECIMAL: pa.decimal128(18, 9),
    Kind.NUMBER: pa.float64(),
    Kind.FLAG: pa.bool_(),
    Kind.TIME: pa.timestamp("us", tz="UTC"),
    Kind.TEXTS: pa.list_(pa.string()),
    # a list and not a map: readers refuse duplicate keys in a map, but a database may have them
    Kind.TAGS: pa.list_(_PAIR),
}

# Texts travel as bytes: a database does not guarantee UTF-8.
_TRAVELLING: dict[Kind, pa.DataType] = {
    Kind.TEXT: pa.binary(),
    Kind.NAME: pa.binary(),
    Kind.TEXTS: pa.list_(pa.binary()),
    Kind.TAGS: pa.map_(pa.binary(), pa.binary()),
}

NOT_UTF8 = "not_utf8"
"""The last column of every table: the bytes of texts that are not UTF-8, by column; null when all are."""

_NOT_UTF8_TYPE = pa.list_(pa.struct([pa.field("name", pa.string()), pa.field("bytes", pa.binary())]))


class Column(NamedTuple):
    """One column of a table."""

    name: str
    kind: Kind


class Table(NamedTuple):
    """One table of an archive."""

    name: str
    """Name of its folder."""
    columns: tuple[Column, ...]
    key: str = "id"
    """The column that identifies a row."""
    is_dated: bool = True
    """Whether rows are only added, each with an id that contains its time: such a table is cut into days.
    The others are small and change: all their columns are compared, and they are copied whole."""

    @property
    def schema(self) -> pa.Schema:
        """The columns in Parquet."""
        fields: list[tuple[str, Any]] = [(column.name, _ARROW[column.kind]) for column in self.columns]
        return pa.schema([*fields, (NOT_UTF8, _NOT_UTF8_TYPE)])

    @property
    def travelling(self) -> pa.Schema:
        """The columns as a database streams them, and each row's day."""
        fields: list[tuple[str, Any]] = [
            (column.name, _TRAVELLING.get(column.kind, _ARROW[column.kind])) for column in self.columns
        ]
        return pa.schema([*fields, (DAY, pa.int32())])

    @property
    def repeating(self) -> list[str]:
        """Columns with few different values."""
        return [column.name for column in self.columns if column.kind in (Kind.NAME, Kind.HASH)]


def _columns(**kinds: Kind) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name, kind in kinds.items())


_TOOLS = _columns(
    dynamic_tools=Kind.TEXTS,
    dynamic_provider_tools=Kind.TEXTS,
    allowed_tools=Kind.TEXT,
    tool_choice=Kind.TEXT,
    parallel_tool_calls=Kind.FLAG,
)
_INFERENCE = _columns(
    id=Kind.ID,
    function_name=Kind.NAME,
    variant_name=Kind.NAME,
    episode_id=Kind.ID,
    input=Kind.TEXT,
    output=Kind.TEXT,
    inference_params=Kind.TEXT,
    processing_time_ms=Kind.INTEGER,
    ttft_ms=Kind.INTEGER,
    tags=Kind.TAGS,
    extra_body=Kind.TEXT,
    snapshot_hash=Kind.HASH,
)
_TAGGED = _columns(tags=Kind.TAGS, snapshot_hash=Kind.HASH)
_DATAPOINT = _columns(
    dataset_name=Kind.NAME,
    function_name=Kind.NAME,
    id=Kind.ID,
    episode_id=Kind.ID,
    input=Kind.TEXT,
    output=Kind.TEXT,
    tags=Kind.TAGS,
    auxiliary=Kind.TEXT,
    is_custom=Kind.FLAG,
    source_inference_id=Kind.ID,
    name=Kind.TEXT,
    staled_at=Kind.TIME,
    updated_at=Kind.TIME,
    snapshot_hash=Kind.HASH,
)
_RUN = _columns(
    variant_pins=Kind.TAGS,
    tags=Kind.TAGS,
    updated_at=Kind.TIME,
    snapshot_hash=Kind.HASH,
)

TABLES = (
    Table("chat_inference", (*_INFERENCE, Column("tool_params", Kind.TEXT), *_TOOLS)),
    Table("json_inference", (*_INFERENCE, *_columns(output_schema=Kind.TEXT, auxiliary_content=Kind.TEXT))),
    Table(
        "model_inference",
        _columns(
            id=Kind.ID,
            inference_id=Kind.ID,
            function_name=Kind.NAME,
            variant_name=Kind.NAME,
            model_name=Kind.NAME,
            model_provider_name=Kind.NAME,
            system=Kind.TEXT,
            input_messages=Kind.TEXT,
            output=Kind.TEXT,
            raw_request=Kind.TEXT,
            raw_response=Kind.TEXT,
            input_tokens=Kind.INTEGER,
            output_tokens=Kind.INTEGER,
            provider_cache_read_input_tokens=Kind.INTEGER,
            provider_cache_write_input_tokens=Kind.INTEGER,
            cost=Kind.DECIMAL,
            response_time_ms=Kind.INTEGER,
            ttft_ms=Kind.INTEGER,
            cached=Kind.FLAG,
            finish_reason=Kind.NAME,
            snapshot_hash=Kind.HASH,
        ),
    ),
    Table(
        "float_feedback",
        (*_columns(id=Kind.ID, target_id=Kind.ID, metric_name=Kind.NAME, value=Kind.NUMBER), *_TAGGED),
    ),
    Table(
        "boolean_feedback",
        (*_columns(id=Kind.ID, target_id=Kind.ID, metric_name=Kind.NAME, value=Kind.FLAG), *_TAGGED),
    ),
    Table(
        "comment_feedback",
        (*_columns(id=Kind.ID, target_id=Kind.ID, target_type=Kind.NAME, value=Kind.TEXT), *_TAGGED),
    ),
    Table("demonstration_feedback", (*_columns(id=Kind.ID, inference_id=Kind.ID, value=Kind.TEXT), *_TAGGED)),
    Table(
        "config_snapshot",
        _columns(
            hash=Kind.HASH,
            config=Kind.TEXT,
            templates=Kind.TAGS,
            tensorzero_version=Kind.NAME,
            tags=Kind.TAGS,
            created_at=Kind.TIME,
            last_used=Kind.TIME,
        ),
        key="hash",
        is_dated=False,
    ),
    Table(
        "evaluation_run",
        (*_columns(run_id=Kind.ID, project_name=Kind.TEXT, run_display_name=Kind.TEXT), *_RUN),
        key="run_id",
        is_dated=False,
    ),
    Table(
        "evaluation_episode",
        (*_columns(episode_id=Kind.ID, run_id=Kind.ID, task_name=Kind.TEXT), *_RUN),
        key="episode_id",
        is_dated=False,
    ),
    Table(
        "chat_datapoint",
        (*_DATAPOINT, Column("tool_params", Kind.TEXT), *_TOOLS),
        is_dated=False,
    ),
    Table("json_datapoint", (*_DATAPOINT, Column("output_schema", Kind.TEXT)), is_dated=False),
)
"""The content of an archive: inferences, model calls, feedback of four kinds, configurations with their
templates, workflow evaluations, and datasets."""

MS_PER_DAY = 86_400_000
"""Milliseconds per day. A row's day counts from 1970, in UTC, by the time in its id."""

WHOLE = -1
"""The day of all rows of a table without days."""

DAY = "day"
"""The last column of streamed rows."""


def day_name(day: int) -> str:
    """Return a day as text, such as `2026-11-21`; `all` for a table without days."""
    return "all" if day == WHOLE else str(np.datetime64(day, "D"))
