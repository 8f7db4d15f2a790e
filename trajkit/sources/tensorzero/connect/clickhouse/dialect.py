"""TensorZero's tables in ClickHouse, and the SQL for them.

Ids are compared and ordered as 128-bit integers: ClickHouse does not sort its UUID type by time.
"""

from __future__ import annotations

from collections.abc import Sequence

from trajkit.errors import ServiceError
from trajkit.sources.tensorzero.connect.clickhouse.connection import Connection
from trajkit.sources.tensorzero.connect.dialect import EVAL_TAGS, Dialect, Sql, Stored
from trajkit.sources.tensorzero.connect.slot import N_SLOTS, in_clickhouse

_NO_TAGS = {"tags": "CAST(map(), 'Map(String, String)')"}
_NO_HASH = {"snapshot_hash": "CAST(NULL, 'Nullable(UInt256)')"}
_LATER_COLUMNS = {
    "json_inference": {**_NO_TAGS, **_NO_HASH, "auxiliary_content": "''"},
    "chat_inference": {
        **_NO_TAGS,
        **_NO_HASH,
        "dynamic_tools": "CAST([], 'Array(String)')",
        "dynamic_provider_tools": "CAST([], 'Array(String)')",
        "allowed_tools": "CAST(NULL, 'Nullable(String)')",
        "tool_choice": "CAST(NULL, 'Nullable(String)')",
        "parallel_tool_calls": "CAST(NULL, 'Nullable(Bool)')",
    },
    "model_inference": {
        "system": "CAST(NULL, 'Nullable(String)')",
        "input_messages": "''",
        "output": "''",
        "cached": "CAST(NULL, 'Nullable(Bool)')",
        "finish_reason": "CAST(NULL, 'Nullable(String)')",
        "ttft_ms": "CAST(NULL, 'Nullable(UInt32)')",
        "cost": "CAST(NULL, 'Nullable(Decimal(18, 9))')",
    },
    "float_feedback": _NO_TAGS,
    "boolean_feedback": _NO_TAGS,
    "comment_feedback": _NO_TAGS,
    "demonstration_feedback": _NO_TAGS,
}
"""The columns of each table that a later migration added, and the value of each before it."""

_REPLACED = ("config_snapshot", "evaluation_run", "evaluation_episode", "chat_datapoint", "json_datapoint")
"""Tables whose rows are replaced by newer ones, and which may still contain the old ones."""


class ClickHouse(Dialect):
    """TensorZero's ClickHouse."""

    source_name = "tensorzero-clickhouse"
    stored = {
        "chat_inference": Stored("ChatInference"),
        "json_inference": Stored("JsonInference"),
        "model_inference": Stored("ModelInference"),
        "float_feedback": Stored("FloatMetricFeedback"),
        "boolean_feedback": Stored("BooleanMetricFeedback"),
        "comment_feedback": Stored("CommentFeedback"),
        "demonstration_feedback": Stored("DemonstrationFeedback"),
        "config_snapshot": Stored("ConfigSnapshot", renamed={"templates": "extra_templates"}),
        "evaluation_run": Stored("DynamicEvaluationRun", renamed={"run_id": "run_id_uint"}),
        "evaluation_episode": Stored(
            "DynamicEvaluationRunEpisode",
            renamed={"episode_id": "episode_id_uint", "task_name": "datapoint_name"},
        ),
        "chat_datapoint": Stored("ChatInferenceDatapoint"),
        "json_datapoint": Stored("JsonInferenceDatapoint"),
    }
    chosen = "SELECT toUUID(episode_id) FROM chosen"
    has_id_bytes = True
    # a call has one inference; an inner join would copy every text
    calls_join = "AS m LEFT SEMI JOIN ({}) AS i ON m.inference_id = i.of_inference"
    # in half the time of `toJSONString` of a map
    tags_object = (
        "concat('{', arrayStringConcat(mapValues(mapApply("
        "(k, v) -> (k, concat(toJSONString(k), ':', toJSONString(v))),"
        " mapSort(mapFilter((k, v) -> k != 'trajkit.step', tags)))), ','), '}')"
    )
    env_step = "toInt64OrNull(tags['trajkit.step'])"
    cost = "toFloat64(cost)"
    finish_reason = "toString(finish_reason)"
    templates = "extra_templates"
    arg_max, order = "argMax", "toUInt128(id)"
    text_bytes = """
        SELECT sum(data_uncompressed_bytes) FROM system.columns WHERE database = currentDatabase()
        AND table IN ('JsonInference', 'ChatInference', 'ModelInference')
        AND name IN ('input', 'output', 'system', 'input_messages', 'tool_params')
    """

    connection: Connection

    @property
    def tasks(self) -> str:
        """A query for `tables.TASKS`."""
        episode = uuid_of("episode_id_uint")
        return (
            f"SELECT {episode} AS episode, toString(run_id) AS run, datapoint_name, tags"
            f" FROM {self.table('evaluation_episode')}"
        )

    @property
    def index_settings(self) -> str:
        """Smaller batches than usual, so that the first is processed while the server finds the rest."""
        return self.connection.preferring("max_block_size", "16384")

    def table(self, name: str) -> str:
        """Return a table for FROM; columns that an old table lacks are added, empty."""
        table = self.stored[name].name
        missing = [
            f"{empty} AS {column}"
            for column, empty in _LATER_COLUMNS.get(name, {}).items()
            if not self.connection.has(table, column)
        ]
        if missing:
            return f"(SELECT *, {', '.join(missing)} FROM {table})"
        return f"{table} FINAL" if name in _REPLACED else table

    def schema_level(self) -> int | None:
        """Return the newest migration of the database, if known."""
        if not self.connection.has("TensorZeroMigration"):
            return None
        rows = self.connection.query("SELECT max(migration_id) FROM TensorZeroMigration")
        return int(rows[0][0]) if rows else None

    def refusal(self, missing: Sequence[str]) -> ServiceError:
        """Return the error for a database without these tables."""
        level = self.schema_level()
        found = "no TensorZero schema" if level is None else f"schema level {level}"
        return ServiceError(
            f"{self.connection.shown} is not a TensorZero database ({found}): missing {', '.join(missing)}",
            hint="the database is the last part of the URL, such as …:8123/tensorzero",
        )

    # -- ids -------------------------------------------------------------------------------------------------

    text = Sql("toString({})")
    row_id = Sql("reverse(reinterpretAsFixedString(toUInt128({})))")  # its 16 bytes, the first one first
    at_ms = Sql("toUInt64(bitShiftRight(toUInt128({}), 80))")
    slot = Sql(in_clickhouse("{0}"))
    bucket = Sql(f"toUInt16(intDiv(toUInt32({slot}) * {{1}}, {N_SLOTS}))")

    # -- names and tags --------------------------------------------------------------------------------------

    bind = Sql("{{{}:String}}")
    is_in = Sql("{} IN {{{}:Array(String)}}")
    each = Sql("ARRAY JOIN {{{}:Array(String)}} AS key")
    tag = Sql("tags[{}]")
    has_tag = Sql("mapContains(tags, {})")
    has_eval_tag = "(" + " OR ".join(f"mapContains(tags, '{key}')" for key in EVAL_TAGS) + ")"
    tag_is = Sql("(mapContains(tags, {0}) AND tags[{0}] = {1})")
    tag_pairs = Sql("SELECT key, value FROM {} ARRAY JOIN mapKeys(tags) AS key, mapValues(tags) AS value")

    # -- values ----------------------------------------------------------------------------------------------

    bit = Sql("bitShiftLeft(toUInt64({}), {})")
    hash = Sql("lower(leftPad(hex({}), 64, '0'))")  # `hex` leaves out leading zeros
    matches = Sql("match(raw_request, '{}')")
    measured = {"float": "toFloat64(toString(value))", "boolean": "toFloat64(value)"}
    feedback_value = {
        "float": "toString(value)",
        "boolean": "if(value, 'true', 'false')",
        "comment": "toJSONString(value)",
        "demonstration": "value",
    }

    def tool_list(self, column: str) -> str:
        """A list of tools as the text of one JSON list; null when it is empty."""
        return f"if(empty({column}), NULL, concat('[', arrayStringConcat({column}, ','), ']'))"

    # -- looking ---------------------------------------------------------------------------------------------

    # ClickHouse's own quantiles differ
    quantiles = Sql(
        "arrayMap(share -> arrayElement(arraySort(groupArray(value)),"
        " toUInt64(greatest(1, ceil(share * count())))), {})"
    )
    single = Sql("toFloat32({})")


def uuid_of(column: str) -> str:
    """A whole number of 128 bits as the text of a UUID."""
    digits = f"lower(leftPad(hex({column}), 32, '0'))"
    pieces = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    spelled = ", '-', ".join(f"substring({digits}, {start}, {length})" for start, length in pieces)
    return f"concat({spelled})"
