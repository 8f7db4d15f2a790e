"""The tables that a TensorZero database streams (`database.py`): their Arrow schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute
"""Arrow's functions; the stubs lack some of the types that they accept."""

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def _schema(columns: dict[str, pa.DataType]) -> pa.Schema:
    """For type checkers, which do not infer a common type for columns of different types."""
    return pa.schema(columns)


def _of_bytes(schema: pa.Schema) -> pa.Schema:
    """The same with binary ids: less than half the bytes, and no parsing."""
    return _schema({field.name: pa.uuid() if field.name.endswith("_id") else field.type for field in schema})


_TAGS = pa.map_(pa.string(), pa.string())

INDEX = _schema(
    {
        "inference_id": pa.string(),
        "episode_id": pa.string(),
        "function_name": pa.string(),
        "variant_name": pa.string(),
        "is_eval": pa.bool_(),
        "is_train": pa.bool_(),
        "tag_match": pa.uint64(),
        "slot": pa.uint16(),
    }
)
"""One row per inference in scope. `tag_match` has bit i set when the row carries the i-th wanted tag;
`slot` follows from the episode's id, the same on every source (`slot.py`)."""

INDEX_OF_BYTES = _of_bytes(INDEX)

TAG_VALUES = _schema({"inference_id": pa.string(), "key": pa.string(), "value": pa.string()})
"""One row per inference in scope and wanted tag that it carries."""

MEASURED = _schema({"metric_name": pa.string(), "target_id": pa.string(), "value": pa.float64()})
"""The latest value (by feedback id) of each wanted metric per target; booleans are 0 and 1."""

EVAL_TARGETS = _schema({"target_id": pa.string()})
"""Targets of feedback that is tagged as evaluation."""

DEMONSTRATED = _schema({"target_id": pa.string()})
"""Inferences that have a demonstration, each once."""

ABANDONED = _schema({"target_id": pa.string(), "reason": pa.string()})
"""Episodes with that comment, each with the reason of the latest."""

ROW_IDS = _schema({"episode_id": pa.string(), "row_id": pa.string()})
"""One row per inference of an episode and per piece of feedback on it."""

TOOLS_BY_ID = _schema({"inference_id": pa.string(), "tool_params": pa.string()})
"""One row per inference that had tools."""

CHOSEN = _schema({"episode_id": pa.string()})
"""The episodes whose rows are wanted."""

INFERENCES = _schema(
    {
        "inference_id": pa.string(),
        "episode_id": pa.string(),
        "function_type": pa.string(),
        "input": pa.string(),
        "output": pa.string(),
        "auxiliary_content": pa.string(),
        "tool_params": pa.string(),
        "dynamic_tools": pa.string(),
        "dynamic_provider_tools": pa.string(),
        "allowed_tools": pa.string(),
        "tool_choice": pa.string(),
        "parallel_tool_calls": pa.bool_(),
        "tags": pa.string(),
        "env_step": pa.int64(),
        "processing_time_ms": pa.int64(),
        "snapshot_hash": pa.string(),
        "bucket": pa.uint16(),
    }
)
"""One row per inference of the chosen episodes.

`tool_params` (null or empty when the function has no tools), `allowed_tools` and `tool_choice` are as they
are stored. `dynamic_tools` and `dynamic_provider_tools` are the text of a JSON list of objects, null when
there are none. These five, and `parallel_tool_calls`, are null when the database has no such column.
`tags` is a JSON object with sorted keys and without `trajkit.step`, so that the steps of an episode compare
equal; `env_step` is that tag, null without it. `snapshot_hash` is spelled as in `SNAPSHOTS`. `bucket` follows
from the episode's slot in `INDEX`.
"""

MODEL_INFERENCES = _schema(
    {
        "inference_id": pa.string(),
        "model_inference_id": pa.string(),
        "model_name": pa.string(),
        "model_provider_name": pa.string(),
        "system": pa.string(),
        "input_messages": pa.string(),
        "output": pa.string(),
        "input_tokens": pa.int64(),
        "output_tokens": pa.int64(),
        "cost_usd": pa.float64(),
        "finish_reason": pa.string(),
        "cached": pa.bool_(),
        "response_time_ms": pa.int64(),
        "ttft_ms": pa.int64(),
        "bucket": pa.uint16(),
    }
)
"""Calls of models that the inferences of the chosen episodes made, each in the bucket of its episode.

`system` is as it went over the wire: with the line of JSON mode where `raw_request` has it (`json_mode.py`).
Columns that an old database lacks are null."""

INFERENCES_OF_BYTES, MODEL_INFERENCES_OF_BYTES = _of_bytes(INFERENCES), _of_bytes(MODEL_INFERENCES)

SHORT_INFERENCES = pa.schema(
    [
        *INFERENCES,
        *_schema({"said_bytes": pa.int64(), "said_hash": pa.uint64(), "is_short": pa.bool_()}),
    ]
)
"""Inferences, of whose messages `input` has the last one of the user only where `is_short`.

`said_bytes` is how long the list of messages is as it is stored, brackets included, and `said_hash` the hash
of it without the bracket that ends it; both are null where the input does not end with such a list."""

HEADLESS_CALLS = pa.schema(
    [
        *MODEL_INFERENCES,
        *_schema(
            {
                "n_bytes": pa.int64(),
                "whole_hash": pa.uint64(),
                "head_bytes": pa.int64(),
                "head_hash": pa.uint64(),
            }
        ),
    ]
)
"""Model calls, in whose `input_messages` the first messages may be missing.

They are where `head_bytes` is not null: it says how many bytes were left out, up to a comma between two
messages, and `head_hash` is their hash. Of the list as it is stored, `n_bytes` is the length, and
`whole_hash` the hash without the bracket that ends it (null when it does not end so)."""

PROMPT_BYTES = _schema({"inference_id": pa.string(), "n_bytes": pa.int64()})
"""The stored length of the messages of a model call."""

HEADS = _schema({"inference_id": pa.string(), "head_bytes": pa.int64()})
"""Bytes of an inference's prompt that the database need not send."""

WHOLE_PROMPTS = _schema(
    {"inference_id": pa.string(), "model_inference_id": pa.string(), "input_messages": pa.string()}
)
WHOLE_INPUTS = _schema({"inference_id": pa.string(), "input": pa.string()})
"""Both as `MODEL_INFERENCES` and `INFERENCES` have them."""

RAW_REQUESTS = _schema({"model_inference_id": pa.string(), "raw_request": pa.string()})
"""The raw requests of some model calls, as they are stored."""

FEEDBACK = _schema(
    {
        "feedback_id": pa.string(),
        "target_id": pa.string(),
        "kind": pa.string(),
        "metric_name": pa.string(),
        "value": pa.string(),
        "tags": _TAGS,
        "exact": pa.float64(),
    }
)
"""Feedback on the chosen episodes and their inferences; `value` is JSON.

A float is in single precision, as the shortest decimal; `exact` is what the database holds, where that is a
double and another number, else null.
"""

SNAPSHOTS = _schema({"snapshot_hash": pa.string(), "config": pa.string(), "templates": _TAGS})
"""The configurations that inferences were made with, one row per hash, the one used last at the end.

`snapshot_hash` is 64 lower-case hexadecimal digits, leading zeros included; `config` is TOML; `templates` are
the texts of the files that it names, by their path.
"""

NEW_FEEDBACK = _schema({"feedback_id": pa.string(), "target_id": pa.string()})
"""Feedback of any kind that was logged at a given time or later."""

TASKS = _schema({"episode_id": pa.string(), "run_id": pa.string(), "task_name": pa.string(), "tags": _TAGS})
"""The episodes of workflow evaluations, one row each, all of the database.

`episode_id` is the id that their inferences carry (its time is 10,000,000,000 s late); `task_name` is null
when the evaluation gave none.
"""


class Scope(NamedTuple):
    """Counts of a database, and what the requested times, functions and variants leave out."""

    n_episodes: int
    n_steps: int
    n_episodes_other_time: int
    n_steps_other_time: int
    n_episodes_other_name: int
    """In time, but without any step of the requested functions and variants."""
    n_steps_other_name: int
    n_episodes_later: int
    """Begun after the as-of time; the counts above leave them out, and later steps."""
    n_steps_later: int


def chosen(ids: Sequence[str]) -> pa.Table:
    """Ids as a table that is sent with a query."""
    return pa.table({"episode_id": pa.array(ids, pa.string())})


def with_column(rows: Rows, name: str, column: Any) -> Rows:
    """Rows with other values in one of their columns."""
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(place), column)


def texts_of(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> list[str]:
    """The ids of a column without nulls, as they are spelled."""
    return [str(row_id) for row_id in column.to_pylist()]


def ids_as(texts: Sequence[str], kind: pa.DataType) -> pa.Array[Any]:
    """The same as a column of a type: texts, or `pa.uuid()`."""
    if isinstance(kind, pa.UuidType):
        storage = pa.array([UUID(text).bytes for text in texts], kind.storage_type)
        return cast("pa.Array[Any]", pa.ExtensionArray.from_storage(kind, storage))
    return cast("pa.Array[Any]", pa.array(texts, kind))
