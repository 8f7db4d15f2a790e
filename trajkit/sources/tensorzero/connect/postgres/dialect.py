"""TensorZero's tables in Postgres, and the SQL for them.

An inference is stored in two tables: a narrow one, and one with its payload, which may have expired earlier.
There is no `tool_params`: a function's own tools are in its configuration only. UUIDv7 compare as their bytes
do, which is the order of their times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from trajkit.errors import ServiceError
from trajkit.sources.tensorzero.connect import jsonb
from trajkit.sources.tensorzero.connect.dialect import EVAL_TAGS, Dialect, Sql, Stored, Values
from trajkit.sources.tensorzero.connect.postgres.connection import Connection, bound, bound_list
from trajkit.sources.tensorzero.connect.slot import N_SLOTS, in_postgres
from trajkit.store.layout import quoted

# halfway between the largest 32-bit float and what would come after it; and half of the smallest: what is
# beyond does not fit, and a cast would fail
_TOO_LARGE, _TOO_SMALL = "3.4028235677973366e38", "7.006492321624085e-46"
_SINGLE = f"""(CASE
    WHEN value = 'NaN' OR abs(value) = 'Infinity' THEN value::float4
    WHEN abs(value) >= {_TOO_LARGE} THEN (CASE WHEN value > 0 THEN 'Infinity' ELSE '-Infinity' END)::float4
    WHEN abs(value) <= {_TOO_SMALL} THEN (CASE WHEN value::text LIKE '-%' THEN '-0' ELSE '0' END)::float4
    ELSE value::float4 END)"""
"""A float metric in single precision, as ClickHouse keeps it."""

NUMBER = f"({_SINGLE})::text::float8"
"""The same as a double: the one whose shortest decimal is that of the 32-bit float."""

_EXPONENT_FROM, _EXPONENT_BELOW = "1e21", "1e-6"  # for ClickHouse; Postgres writes exponents long before
NUMBER_TEXT = f"""(CASE
    WHEN value = 'NaN' THEN 'nan'
    WHEN abs({_SINGLE}) = 'Infinity' THEN CASE WHEN value > 0 THEN 'inf' ELSE '-inf' END
    WHEN abs({_SINGLE}) >= {_EXPONENT_FROM} THEN replace({_SINGLE}::text, 'e+', 'e')
    WHEN {_SINGLE} = 0 THEN {_SINGLE}::text
    WHEN abs({_SINGLE}) < {_EXPONENT_BELOW}::float4 THEN replace({_SINGLE}::text, 'e-0', 'e-')
    ELSE {_SINGLE}::text::numeric::text END)"""
"""The same as ClickHouse writes it: the shortest decimal."""

_STEP = "tags->>'trajkit.step'"
TEXT_OR_JSON = "CASE jsonb_typeof({0}) WHEN 'string' THEN {0} #>> '{{}}' ELSE {0}::text END"
"""A text that is stored as JSON, or JSON as text."""


class Postgres(Dialect):
    """TensorZero's Postgres."""

    source_name = "tensorzero-postgres"
    stored = {
        "chat_inference": Stored("chat_inferences", "chat_inference_data"),
        "json_inference": Stored("json_inferences", "json_inference_data"),
        "model_inference": Stored("model_inferences", "model_inference_data"),
        "float_feedback": Stored("float_metric_feedback"),
        "boolean_feedback": Stored("boolean_metric_feedback"),
        "comment_feedback": Stored("comment_feedback"),
        "demonstration_feedback": Stored("demonstration_feedback"),
        "config_snapshot": Stored("config_snapshots", renamed={"templates": "extra_templates"}),
        "evaluation_run": Stored("workflow_evaluation_runs"),
        "evaluation_episode": Stored("workflow_evaluation_run_episodes"),
        "chat_datapoint": Stored("chat_datapoints"),
        "json_datapoint": Stored("json_datapoints"),
    }
    chosen = "SELECT id FROM chosen"
    is_prompt_there = "input_messages IS NOT NULL"
    calls_join = "JOIN ({}) AS i ON m.inference_id = i.of_inference"
    tool_params = "NULL"
    tool_choice = TEXT_OR_JSON.format("tool_choice")
    tags_object = "(tags - 'trajkit.step')::text"
    env_step = f"CASE WHEN {_STEP} ~ '^[+-]?[0-9]{{1,18}}$' THEN ({_STEP})::bigint END"
    tags_map = "tags::text"
    templates = "extra_templates::text"
    tasks = """
        SELECT episode_id::text, run_id::text, task_name, tags::text
        FROM tensorzero.workflow_evaluation_run_episodes WHERE staled_at IS NULL
    """
    connection: Connection

    def stream(
        self, sql: str, schema: pa.Schema, values: Values | None = None, *, chosen: pa.Table | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The answer to a query; JSON is spelled as TensorZero does."""
        respelled = {
            field.name: jsonb.tags(field.name)
            if pa.types.is_map(field.type)
            else jsonb.SPELLED[field.name](field.name)
            for field in schema
            if pa.types.is_map(field.type) or field.name in jsonb.SPELLED
        }
        texts = [
            pa.field(field.name, pa.string() if pa.types.is_map(field.type) else field.type)
            for field in schema
        ]
        found = self.connection.stream(sql, pa.schema(texts), values, chosen=chosen)
        return jsonb.respelled(found, schema, respelled) if respelled else found

    @property
    def cost(self) -> str:
        """The cost of a call, if the database is new enough to have it."""
        return "cost::float8" if self.has("model_inference", "cost") else "NULL"

    @property
    def text_bytes(self) -> str:
        """A query for the size of the payloads.

        Postgres mostly compresses columns that are not read: the requests and responses of models.
        """
        leaves = " UNION ALL ".join(
            f"SELECT relid FROM pg_partition_tree('tensorzero.{stored.payload}'::regclass) WHERE isleaf"
            for stored in self.stored.values()
            if stored.payload is not None
        )
        return f"SELECT sum(pg_table_size(relid))::bigint FROM ({leaves}) AS t"

    def table(self, name: str) -> str:
        """A table for FROM, without its payload."""
        return f"tensorzero.{self.stored[name].name}"

    def payload(self, name: str) -> str:
        """The table with the texts of the rows of a table, and their ids."""
        stored = self.stored[name]
        return f"tensorzero.{stored.payload or stored.name}"

    def wide(self, name: str) -> str:
        """A table with its payload."""
        if self.stored[name].payload is None:
            return self.table(name)
        return f"{self.table(name)} AS m LEFT JOIN {self.payload(name)} AS d USING (id)"

    def schema_level(self) -> int | None:
        """Return the newest migration, if this user may read the table that records it."""
        found = self.connection.query(
            """
            SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE c.relname = '_sqlx_migrations' AND has_table_privilege(c.oid, 'SELECT')
                AND has_schema_privilege(n.oid, 'USAGE') AND n.nspname IN ('public', 'tensorzero')
            """
        )
        levels = [
            self.connection.query(f"SELECT max(version) FROM {quoted(schema)}._sqlx_migrations")
            for (schema,) in found
        ]
        return max((int(rows[0][0]) for rows in levels if rows[0][0] is not None), default=None)

    def refusal(self, missing: Sequence[str]) -> ServiceError:
        """Return the error for a database without these tables."""
        return ServiceError(
            f"{self.connection.shown} is not a TensorZero database that this user may read:"
            f" missing {', '.join(f'tensorzero.{table}' for table in missing)}",
            hint="the database is the last part of the URL, such as …:5432/tensorzero;"
            " reading needs USAGE on the schema tensorzero, and SELECT on its tables",
        )

    # -- ids -------------------------------------------------------------------------------------------------

    text = row_id = Sql("{}::text")
    at_ms = Sql("('x' || translate(left({}::text, 13), '-', ''))::bit(48)::bigint")  # bits of its text
    slot = Sql(in_postgres("{0}"))
    bucket = Sql(f"({slot} * {{1}} / {N_SLOTS})")

    def before(self, ms: int, column: str = "id") -> str:
        """Return the condition that an id is from before a time, in milliseconds."""
        digits = f"{max(0, min(ms, 2**48 - 1)):012x}"  # of the least UUIDv7 of that time
        return f"{column} < '{digits[:8]}-{digits[8:]}-0000-0000-000000000000'::uuid"

    # -- names and tags --------------------------------------------------------------------------------------

    bind = Sql(bound("{}"))
    is_in = Sql(f"{{0}} = ANY({bound_list('{1}')})")
    each = Sql(f"CROSS JOIN unnest({bound_list('{}')}) AS key")
    tag = Sql("tags->>{}")
    has_tag = Sql("tags ? {}")
    has_eval_tag = f"tags ?| ARRAY[{', '.join(map(repr, EVAL_TAGS))}]"
    tag_is = Sql("tags->>{} IS NOT DISTINCT FROM {}")
    tag_pairs = Sql(
        'SELECT t.key COLLATE "C" AS key, t.value COLLATE "C" AS value'
        " FROM {} CROSS JOIN jsonb_each_text(tags) AS t(key, value)"
    )

    # -- values ----------------------------------------------------------------------------------------------

    bit = Sql("(({})::int::bigint << {})")
    hash = Sql("lpad(encode({}, 'hex'), 64, '0')")
    matches = Sql("raw_request ~ '{}'")
    measured = {"float": NUMBER, "boolean": "value::int::float8"}
    feedback_value = {
        "float": NUMBER_TEXT,
        "boolean": "value::text",
        "comment": "to_json(value)::text",
        "demonstration": "value::text",
    }
    exact = f"CASE WHEN value <> {NUMBER} THEN value END"

    def json(self, column: str) -> str:
        """A column of JSON as text; `stream` spells it as TensorZero does."""
        return f"{column}::text"

    def tool_list(self, column: str) -> str:
        """A list of tools, objects or texts of such, as the text of a list of objects; null when empty."""
        tool = "CASE jsonb_typeof(t) WHEN 'string' THEN (t #>> '{}')::jsonb ELSE t END"
        items = f"jsonb_array_elements({column}) WITH ORDINALITY x(t, n)"
        return f"CASE WHEN {column} <> '[]' THEN (SELECT jsonb_agg({tool} ORDER BY n) FROM {items})::text END"

    def latest(self, table: str, keys: str, value: str, condition: str = "true") -> str:
        """A query for the value, as `latest`, of the last row by its id for each of some keys."""
        return (
            f"SELECT {keys}, {value} AS latest FROM (SELECT DISTINCT ON ({keys}) * FROM {self.table(table)}"
            f" WHERE {condition} ORDER BY {keys}, id DESC) AS {table}"
        )

    # -- looking ---------------------------------------------------------------------------------------------

    bytewise = Sql('{} COLLATE "C"')  # as ClickHouse sorts, in any locale of the database
    quantiles = Sql("percentile_disc(ARRAY{}) WITHIN GROUP (ORDER BY value)")
    single = Sql("CAST({} AS real)")
