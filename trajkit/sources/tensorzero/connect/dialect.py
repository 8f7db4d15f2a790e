"""The SQL that differs between the databases with TensorZero's rows.

The queries are written once (`database.py`, `look/queries.py`, `archive/origin.py`), over tables that have
the names of an archive. A dialect has their names here, and the few expressions that are not common SQL.
Columns of a query are taken by place: `columns` gives each a name that no table has,
because in ClickHouse an alias with a column's name replaces it in all other expressions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from trajkit.errors import ServiceError
from trajkit.schema.base import JsonObject
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect.slot import slots_of

Values = Mapping[str, str | list[str]]
"""Values by name, to be bound: texts, and lists of texts."""

INFERENCES = {"json": "json_inference", "chat": "chat_inference"}
"""The table of inferences, by the type of function."""

FEEDBACK = {
    "float": ("float_feedback", "target_id"),
    "boolean": ("boolean_feedback", "target_id"),
    "comment": ("comment_feedback", "target_id"),
    "demonstration": ("demonstration_feedback", "inference_id"),
}
"""The table of feedback and the column of its target, by kind."""

_REQUIRED = (*INFERENCES.values(), "model_inference", *(table for table, _ in FEEDBACK.values()))

# tags that TensorZero itself writes on evaluation traffic
EVAL_TAGS = (
    "tensorzero::evaluation_run_id",
    "tensorzero::evaluation_name",
    "tensorzero::datapoint_id",
    "tensorzero::internal",
    "tensorzero::workflow_evaluation_run_id",
    "tensorzero::dynamic_evaluation_run_id",
)
_JUDGES, _OWN = "tensorzero::llm_judge::", "tensorzero::"
IS_NAMED = f"substring(function_name, 1, {len(_OWN)}) <> '{_OWN}'"
"""Condition: an inference is not of TensorZero's own functions."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Stored(NamedTuple):
    """The place of one of the tables in a database."""

    name: str
    payload: str | None = None
    """The table with the wide columns, if they are in a separate one."""
    renamed: Mapping[str, str] = {}
    """Columns with other names there."""


class Connection(Protocol):
    """A read-only connection; every failure of the server or of the network is a `ServiceError`."""

    @property
    def shown(self) -> str:
        """Return its address without credentials."""
        ...

    def close(self) -> None:
        """Close it."""
        ...

    def has(self, table: str, column: str | None = None) -> bool:
        """Whether the database has this table, readable for this user, and this column in it."""
        ...

    def query(self, sql: str, values: Values | None = None) -> list[tuple[Any, ...]]:
        """Return a small answer as rows."""
        ...

    def stream(
        self, sql: str, schema: pa.Schema, values: Values | None = None, *, chosen: pa.Table | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield an answer of any size as Arrow batches.

        Args:
            sql: The query; it may read `chosen`.
            schema: Names and types of the batches, in the order of the query's columns.
            values: Bound by the server, never pasted into the query.
            chosen: A table of one column of ids that travels with the query; it needs no right to write.
        """
        ...


class Sql(str):
    """SQL with placeholders in braces."""

    def __call__(self, *given: object) -> str:
        """Return the SQL with other SQL in its placeholders."""
        return self.format(*given)


class Dialect(ABC):
    """One database's SQL, on a connection to it."""

    source_name: str
    """The value of `Episode.source`."""
    stored: Mapping[str, Stored]
    """The tables of the database, by their names in an archive."""
    chosen: str
    """A query for the ids of the table that travels with a query."""
    has_id_bytes = False
    """Whether `row_id` gives 16 bytes."""
    marks = ""
    """A further column of wide rows: the texts that were not UTF-8."""
    is_prompt_there = "input_messages <> ''"
    """That a model call has its prompt."""
    calls_join: str
    """Joins model calls, `m`, with a query for `of_inference` and `bucket`."""
    tool_params = "tool_params"
    tool_choice = "tool_choice"
    tags_object: str
    """Tags as the text of a JSON object with sorted keys, without `trajkit.step`."""
    env_step: str
    """The tag `trajkit.step` where it is a whole number."""
    finish_reason = "finish_reason"
    tags_map = "tags"
    templates: str

    def __init__(self, connection: Any) -> None:
        self.connection: Connection = connection

    def stream(
        self, sql: str, schema: pa.Schema, values: Values | None = None, *, chosen: pa.Table | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Stream the answer to a query of this dialect; see `Connection.stream`."""
        return self.connection.stream(sql, schema, values, chosen=chosen)

    @property
    def index_settings(self) -> str:
        """What is added to the query for the index."""
        return ""

    @property
    @abstractmethod
    def cost(self) -> str:
        """What a model call cost, as a double."""

    @property
    @abstractmethod
    def tasks(self) -> str:
        """A query for `tables.TASKS`."""

    @property
    @abstractmethod
    def text_bytes(self) -> str:
        """A query for roughly how many bytes of text the steps hold."""

    # -- tables ----------------------------------------------------------------------------------------------

    def has(self, table: str, column: str | None = None) -> bool:
        """Whether the database has a table, and a column in it."""
        return self.connection.has(self.stored[table].name, column)

    def table(self, name: str) -> str:
        """Return a table for FROM, without its payload if that is in a separate table."""
        return self.stored[name].name

    def payload(self, name: str) -> str:
        """The table with the texts of the rows of a table, and their ids."""
        return self.table(name)

    def wide(self, name: str) -> str:
        """A table with its payload."""
        return self.table(name)

    @property
    def required(self) -> list[str]:
        """The tables that every TensorZero database has."""
        stored = [self.stored[table] for table in _REQUIRED]
        return [name for each in stored for name in (each.name, each.payload) if name is not None]

    def missing(self) -> list[str]:
        """Return those of them that do not exist, or may not be read."""
        return [table for table in self.required if not self.connection.has(table)]

    @abstractmethod
    def refusal(self, missing: Sequence[str]) -> ServiceError:
        """Return the error for a database without these tables."""

    @abstractmethod
    def schema_level(self) -> int | None:
        """Return the newest migration of the database, if known."""

    def describe(self) -> JsonObject:
        """Return its address without credentials."""
        return {
            "kind": self.source_name,
            "url": self.connection.shown,
            "schema_level": self.schema_level(),
        }

    # -- ids -------------------------------------------------------------------------------------------------

    text: Sql
    """An id as it is spelled."""
    row_id: Sql
    """An id as the index and wide rows have it."""
    at_ms: Sql
    """The time in an id, in milliseconds."""
    slot: Sql
    """The slot of an episode's id."""
    bucket: Sql
    """The bucket of an episode's id; the second place is for how many there are."""

    def before(self, ms: int, column: str = "id") -> str:
        """Return the condition that an id is from before a time, in milliseconds."""
        return f"{self.at_ms(column)} < {ms}"

    def in_chosen(self, column: str, chosen: pa.Table | None) -> str:
        """Return the condition for rows of the chosen ids; true when all are chosen."""
        return "true" if chosen is None else f"{column} IN ({self.chosen})"

    # -- names and tags --------------------------------------------------------------------------------------

    bind: Sql
    """A text that is bound."""
    is_in: Sql
    """That a column has one of the texts that are bound as a list of a name."""
    each: Sql
    """A join with the texts that are bound as a list, each as `key`."""
    tag: Sql
    """The value of a tag that is there."""
    has_tag: Sql
    """That a row has a tag."""
    has_eval_tag: str
    """That a row has one of `EVAL_TAGS`."""
    tag_is: Sql
    """That a row has a tag with this value."""
    tag_pairs: Sql
    """A query for `key` and `value` of every tag of a table."""

    # -- values ----------------------------------------------------------------------------------------------

    bit: Sql
    """A condition as a bit of a whole number of 64, which the second place is for."""

    def json(self, column: str) -> str:
        """A column of JSON as text, as TensorZero spells it."""
        return column

    @abstractmethod
    def tool_list(self, column: str) -> str:
        """A list of tools as the text of one JSON list; null when it is empty."""

    hash: Sql
    """A configuration's hash as TensorZero prints it."""
    matches: Sql
    """That a raw request matches a regular expression."""
    measured: Mapping[str, str]
    """By kind the value of a metric as a double; a float is the one of its shortest decimal."""
    feedback_value: Mapping[str, str]
    """By kind the value of a piece of feedback as JSON."""
    exact = "NULL"
    """What the database holds of a float, where that is a double and another number."""

    def latest(self, table: str, keys: str, value: str, condition: str = "true") -> str:
        """A query for the value, as `latest`, of the last row by its id for each of some keys."""
        return (
            f"SELECT {keys}, {self.arg_max}({value}, {self.order}) AS latest FROM {self.table(table)}"
            f" WHERE {condition} GROUP BY {keys}"
        )

    arg_max, order = "arg_max", "id"

    # -- looking ---------------------------------------------------------------------------------------------

    bytewise = Sql("{}")
    """A text that is sorted by its bytes."""
    quantiles: Sql
    """An aggregate over `value`: a list of the smallest values that these shares do not exceed."""
    single: Sql
    """An expression in single precision."""

    # -- the same everywhere ---------------------------------------------------------------------------------

    @property
    def is_eval(self) -> str:
        """The condition for an inference of an evaluation."""
        return (
            f"({self.tag_is(PURPOSE, EVAL)} OR {self.has_eval_tag}"
            f" OR substring(function_name, 1, {len(_JUDGES)}) = '{_JUDGES}')"
        )

    def is_seen(self, request: ExportRequest, column: str = "id") -> str:
        """The condition on a row, by the time in its id, that a request's as-of time makes."""
        if request.as_of is None:
            return "true"
        return self.before((request.as_of - _EPOCH) // timedelta(milliseconds=1) + 1, column)

    def in_scope(self, request: ExportRequest) -> tuple[str, Values]:
        """The condition on an inference to be of an episode in scope, and in the shard; and its values."""
        scope = self.scope(request)
        seen = [self.is_seen(request)]
        if request.shard is not None:
            first, last = slots_of(request.shard.number, request.shard.n)
            seen.append(f"{self.slot('episode_id')} BETWEEN {first} AND {last}")
        rows = " UNION ALL ".join(
            f"SELECT id, episode_id, function_name, variant_name FROM {self.table(table)}"
            f" WHERE {' AND '.join(seen)}"
            for table in INFERENCES.values()
        )
        if scope.time == "true":  # one row is enough; no need to group by episode
            which = f"WHERE {scope.named}"
        else:
            which = f"GROUP BY episode_id HAVING {scope.time} AND count(*) FILTER (WHERE {scope.named}) > 0"
        episodes = f"SELECT episode_id FROM ({rows}) AS b {which}"
        return f"{seen[0]} AND episode_id IN ({episodes})", scope.values

    def scope(self, request: ExportRequest) -> _Scope:
        """What the database decides on its own."""
        time = []
        for moment, how in ((request.since, "= 0"), (request.until, "> 0")):
            if moment is not None:
                time.append(f"count(*) FILTER (WHERE {self.before(milliseconds(moment))}) {how}")
        named, values = [IS_NAMED], {}
        for name, asked in (("functions", request.functions), ("variants", request.variants)):
            if asked:
                values[name] = list(asked)
                named.append(self.is_in(f"{name[:-1]}_name", name))
        return _Scope(" AND ".join(time) or "true", " AND ".join(named), values)


class _Scope(NamedTuple):
    time: str
    """Condition on the rows of an episode, grouped by its id."""
    named: str
    """Condition on a row: it is of the requested functions and variants."""
    values: Values


PURPOSE, EVAL = "'trajkit.purpose'", "'eval'"


def milliseconds(moment: datetime) -> int:
    """Return a time in the milliseconds of ids, rounded up exactly."""
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


def columns(schema: pa.Schema, *expressions: str) -> str:
    """Return the columns of a query, by their places in a schema."""
    return ", ".join(f"{sql} AS {name}_" for sql, name in zip(expressions, schema.names, strict=True))
