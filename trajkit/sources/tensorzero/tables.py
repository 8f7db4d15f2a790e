"""The tables that a TensorZero database must stream, whatever database it is: their Arrow schemas.

Each client narrows as far as its database can and answers in these shapes; everything after that is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import pyarrow as pa

from trajkit.schema.base import JsonObject
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.config import ConfiguredMetric


def _schema(columns: dict[str, pa.DataType]) -> pa.Schema:
    """For type checkers, which find no common type for columns of different types unless they are told."""
    return pa.schema(columns)


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
`slot` is any number that depends on the episode alone, spread evenly."""

N_SLOTS = 65_536
"""Slots are below this. An episode's bucket, when there are `n` of them, is `slot * n // N_SLOTS`."""

MEASURED = _schema({"metric_name": pa.string(), "target_id": pa.string(), "value": pa.float64()})
"""The latest value (by feedback id) of each wanted metric per target; booleans are 0 and 1."""

EVAL_TARGETS = _schema({"target_id": pa.string()})
"""Targets of feedback that is tagged as evaluation."""

ABANDONED = _schema({"target_id": pa.string(), "reason": pa.string()})
"""Episodes with that comment, each with the reason of the latest."""

ROW_IDS = _schema({"episode_id": pa.string(), "row_id": pa.string()})
"""One row per inference of an episode and per piece of feedback on it."""

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
        "tags": pa.string(),
        "env_step": pa.int64(),
        "processing_time_ms": pa.int64(),
        "snapshot_hash": pa.string(),
        "bucket": pa.uint16(),
    }
)
"""One row per inference of the chosen episodes.

`tags` is a JSON object with sorted keys and without `trajkit.step`, so that the steps of an episode compare
equal; `env_step` is that tag, null without it. `bucket` follows from the episode's slot in `INDEX`.
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
        "bucket": pa.uint16(),
    }
)
"""Calls of models that the inferences of the chosen episodes made, each in the bucket of its episode."""

FEEDBACK = _schema(
    {
        "feedback_id": pa.string(),
        "target_id": pa.string(),
        "kind": pa.string(),
        "metric_name": pa.string(),
        "value": pa.string(),
        "tags": _TAGS,
    }
)
"""Feedback on the chosen episodes and their inferences; `value` is JSON."""


class Scope(NamedTuple):
    """How much a database holds, and what the times, functions and variants asked for leave out."""

    n_episodes: int
    n_steps: int
    n_episodes_other_time: int
    n_steps_other_time: int
    n_episodes_other_name: int
    """In time, but without any step of the functions and variants asked for."""
    n_steps_other_name: int


class Database(Protocol):
    """A TensorZero database, read only."""

    source_name: str

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
        """Count what there is and what the times, functions and variants asked for leave out."""
        ...

    def text_bytes(self) -> int:
        """Roughly how many bytes of text the steps of the whole database hold; 0 when it does not tell."""
        ...

    def index(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream `INDEX`."""
        ...

    def measured(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        """Stream `MEASURED`."""
        ...

    def abandoned(self) -> Iterator[pa.RecordBatch]:
        """Stream `ABANDONED`."""
        ...

    def eval_targets(self) -> Iterator[pa.RecordBatch]:
        """Stream `EVAL_TARGETS`."""
        ...

    def inferences(self, episode_ids: pa.Table | None, n_buckets: int) -> Iterator[pa.RecordBatch]:
        """Stream `INFERENCES` of these episodes; None for all."""
        ...

    def model_inferences(self, episode_ids: pa.Table | None, n_buckets: int) -> Iterator[pa.RecordBatch]:
        """Stream `MODEL_INFERENCES` of these episodes; None for all."""
        ...

    def feedback(self, episode_ids: pa.Table | None) -> Iterator[pa.RecordBatch]:
        """Stream `FEEDBACK` on these episodes and their inferences; None for all."""
        ...
