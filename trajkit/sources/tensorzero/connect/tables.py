"""The tables that every TensorZero database must stream: their Arrow schemas.

Each client filters as far as its database can and returns these schemas; all later code is shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import pyarrow as pa

from trajkit.schema.base import JsonObject
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.export.config import ConfiguredMetric


def _schema(columns: dict[str, pa.DataType]) -> pa.Schema:
    """For type checkers, which find no common type for columns of different types unless they are told."""
    return pa.schema(columns)


def _of_bytes(schema: pa.Schema) -> pa.Schema:
    """The same with ids that are not texts: less than half as much to send, and nothing to read."""
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
"""How long the list of messages of a model call is, as it is stored."""

HEADS = _schema({"inference_id": pa.string(), "head_bytes": pa.int64()})
"""How many bytes of an inference's prompt the database need not send."""

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
    """How much a database holds, and what the times, functions and variants asked for leave out."""

    n_episodes: int
    n_steps: int
    n_episodes_other_time: int
    n_steps_other_time: int
    n_episodes_other_name: int
    """In time, but without any step of the functions and variants asked for."""
    n_steps_other_name: int
    n_episodes_later: int
    """Begun after the as-of time; what is counted above leaves them out, and the steps that are later."""
    n_steps_later: int


class Heads(Protocol):
    """A database that sends long texts without their heads, where those are known from another row.

    Its hashes are of 64 bits, equal for equal bytes, and say nothing outside one export.
    """

    def prompt_bytes(self, episode_ids: pa.Table | None, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream `PROMPT_BYTES` of the model calls of these episodes; None for all."""
        ...

    def inferences(
        self, episode_ids: pa.Table | None, n_buckets: int, request: ExportRequest, *, are_short: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Stream `SHORT_INFERENCES` of these episodes (None for all), or all with their whole input."""
        ...

    def model_inferences(
        self,
        episode_ids: pa.Table | None,
        n_buckets: int,
        request: ExportRequest,
        heads: pa.Table,
        *,
        are_few: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Stream `HEADLESS_CALLS` of these episodes (None for all), without these heads (`HEADS`)."""
        ...

    def whole_prompts(self, inference_ids: pa.Table) -> Iterator[pa.RecordBatch]:
        """Stream `WHOLE_PROMPTS` of the model calls of these inferences."""
        ...

    def whole_inputs(self, inference_ids: pa.Table) -> Iterator[pa.RecordBatch]:
        """Stream `WHOLE_INPUTS` of these inferences."""
        ...


class Database(Protocol):
    """A TensorZero database, read only.

    A request with an as-of time hides every row, inference or feedback, whose id was made later, from
    whatever takes the request.
    """

    source_name: str
    has_id_bytes: bool
    """Whether its wide rows are `INFERENCES_OF_BYTES` and `MODEL_INFERENCES_OF_BYTES`, and not of texts."""

    @property
    def read_at(self) -> datetime | None:
        """When what it holds was read; None for a database that lives."""
        ...

    @property
    def heads(self) -> Heads | None:
        """The same rows without the heads of their long texts; None where it cannot leave those out."""
        ...

    def describe(self) -> JsonObject:
        """Where this is, without credentials."""
        ...

    def check(self, request: ExportRequest) -> None:
        """Raise unless the tables are there and the request names known functions, variants and metrics."""
        ...

    def metrics(self) -> dict[str, ConfiguredMetric]:
        """The metrics it knows."""
        ...

    def scope(self, request: ExportRequest) -> Scope:
        """Count all rows, and those that the requested times, functions and variants leave out."""
        ...

    def text_bytes(self) -> int:
        """Roughly how many bytes of text the steps of the whole database hold; 0 when it does not tell."""
        ...

    def index(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream `INDEX`, or `INDEX_OF_BYTES`."""
        ...

    def tag_values(self, request: ExportRequest, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream `TAG_VALUES` of these tags, of the inferences that `index` has."""
        ...

    def measured(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream `MEASURED`."""
        ...

    def abandoned(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream `ABANDONED`."""
        ...

    def eval_targets(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream `EVAL_TARGETS`."""
        ...

    def demonstrated(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream `DEMONSTRATED`."""
        ...

    def inferences(
        self, episode_ids: pa.Table | None, n_buckets: int, request: ExportRequest
    ) -> Iterator[pa.RecordBatch]:
        """Stream `INFERENCES` of these episodes; None for all."""
        ...

    def model_inferences(
        self, episode_ids: pa.Table | None, n_buckets: int, request: ExportRequest
    ) -> Iterator[pa.RecordBatch]:
        """Stream `MODEL_INFERENCES` of these episodes; None for all."""
        ...

    def raw_requests(self, model_inference_ids: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream `RAW_REQUESTS` of these model calls; those that are not there, or are gone, are left out."""
        ...

    def feedback(self, episode_ids: pa.Table | None, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream `FEEDBACK` on these episodes and their inferences; None for all."""
        ...

    def new_feedback(self, since: datetime, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream `NEW_FEEDBACK`."""
        ...

    def snapshots(self) -> Iterator[pa.RecordBatch]:
        """Stream `SNAPSHOTS`."""
        ...

    def tasks(self) -> Iterator[pa.RecordBatch]:
        """Stream `TASKS`."""
        ...
