"""Columns that only some of TensorZero's ClickHouse tables, or only some versions of a table, have."""

from __future__ import annotations

_NO_TAGS = {"tags": "CAST(map(), 'Map(String, String)')"}
_NO_HASH = {"snapshot_hash": "CAST(NULL, 'Nullable(UInt256)')"}
LATER_COLUMNS = {
    "JsonInference": {**_NO_TAGS, **_NO_HASH, "auxiliary_content": "''"},
    "ChatInference": {
        **_NO_TAGS,
        **_NO_HASH,
        "dynamic_tools": "CAST([], 'Array(String)')",
        "dynamic_provider_tools": "CAST([], 'Array(String)')",
        "allowed_tools": "CAST(NULL, 'Nullable(String)')",
        "tool_choice": "CAST(NULL, 'Nullable(String)')",
        "parallel_tool_calls": "CAST(NULL, 'Nullable(Bool)')",
    },
    "ModelInference": {
        "system": "CAST(NULL, 'Nullable(String)')",
        "input_messages": "''",
        "output": "''",
        "cached": "CAST(NULL, 'Nullable(Bool)')",
        "finish_reason": "CAST(NULL, 'Nullable(String)')",
        "ttft_ms": "CAST(NULL, 'Nullable(UInt32)')",
        "cost": "CAST(NULL, 'Nullable(Decimal(18, 9))')",
    },
    "FloatMetricFeedback": _NO_TAGS,
    "BooleanMetricFeedback": _NO_TAGS,
    "CommentFeedback": _NO_TAGS,
    "DemonstrationFeedback": _NO_TAGS,
}
"""By table the columns that came with a later migration, and what stands for each before it."""


def _tool_list(column: str) -> str:
    """A list of JSON texts as the text of one JSON list; null when it is empty."""
    return f"if(empty({column}), NULL, concat('[', arrayStringConcat({column}, ','), ']'))"


CHAT_OWN = (
    f"NULL AS auxiliary_content, tool_params, {_tool_list('dynamic_tools')} AS dynamic_tools_text,"
    f" {_tool_list('dynamic_provider_tools')} AS provider_tools_text, allowed_tools, tool_choice,"
    " parallel_tool_calls"
)
"""Columns of chat functions, with nulls for those that only JSON functions have."""

JSON_OWN = (
    "auxiliary_content, NULL AS tool_params, NULL AS dynamic_tools_text, NULL AS provider_tools_text,"
    " NULL AS allowed_tools, NULL AS tool_choice, NULL AS parallel_tool_calls"
)
"""The same the other way round, in the same places."""

TAGS_TEXT = (
    "concat('{', arrayStringConcat(mapValues(mapApply("
    "(k, v) -> (k, concat(toJSONString(k), ':', toJSONString(v))),"
    " mapSort(mapFilter((k, v) -> k != 'trajkit.step', tags)))), ','), '}')"
)
"""The tags of an inference as `INFERENCES` has them: in half the time that `toJSONString` of a map takes."""
