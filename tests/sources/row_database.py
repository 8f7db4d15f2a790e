"""A TensorZero database that is a list of rows in memory, for texts that no real database would take.

Text columns may hold bytes that are not UTF-8: they go into Arrow as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from trajkit.schema.base import JsonObject
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.connect.slot import N_SLOTS, slot_of
from trajkit.sources.tensorzero.export.config import ConfiguredMetric

Row = dict[str, Any]

BASE_MS = 1_780_000_000_000


def row_id(number: int, *, at_ms: int | None = None) -> str:
    """A UUIDv7; ids of larger numbers are later, a millisecond each."""
    hexed = f"{BASE_MS + number if at_ms is None else at_ms:012x}"
    return f"{hexed[:8]}-{hexed[8:]}-7{number % 4096:03x}-8000-{number:012x}"


def spelled(value: Any) -> str:
    """JSON as TensorZero writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class RowDatabase:
    """Rows by the columns of `tables`; what a row does not say is null.

    Args:
        inferences: Also with `function_name` and `variant_name`.
        calls: The model calls.
        feedback: Feedback.
        snapshots: Configurations.
        raw_requests: What went over the wire, by the id of the model call.
    """

    source_name = "rows"
    has_id_bytes = False
    read_at: datetime | None = None
    heads = None

    def __init__(
        self,
        inferences: Sequence[Row],
        calls: Sequence[Row] = (),
        *,
        feedback: Sequence[Row] = (),
        snapshots: Sequence[Row] = (),
        raw_requests: dict[str, str] | None = None,
    ) -> None:
        self._inferences = inferences
        self._calls = calls
        self._feedback = feedback
        self._snapshots = snapshots
        self._raw_requests = raw_requests or {}
        self.n_snapshots_read = 0

    def describe(self) -> JsonObject:
        return {"kind": "rows", "url": "rows"}

    def check(self, request: ExportRequest) -> None:
        pass

    def metrics(self) -> dict[str, ConfiguredMetric]:
        return {}

    def scope(self, request: ExportRequest) -> tables.Scope:
        episodes = {row["episode_id"] for row in self._inferences}
        return tables.Scope(len(episodes), len(self._inferences), 0, 0, 0, 0, 0, 0)

    def text_bytes(self) -> int:
        return 0

    def index(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        known = {"is_eval": False, "is_train": False, "tag_match": 0}
        rows = [known | row | {"slot": slot_of(row["episode_id"])} for row in self._inferences]
        return batches(tables.INDEX, rows)

    def _nothing(self, *_: object) -> Iterator[pa.RecordBatch]:
        return iter(())

    tag_values = measured = abandoned = eval_targets = new_feedback = tasks = _nothing

    def demonstrated(self, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        ids = {row["target_id"] for row in self._feedback if row["kind"] == "demonstration"}
        return batches(tables.DEMONSTRATED, [{"target_id": target_id} for target_id in sorted(ids)])

    def inferences(
        self, episode_ids: pa.Table | None, n_buckets: int, request: ExportRequest
    ) -> Iterator[pa.RecordBatch]:
        rows = [
            {"tags": "{}"} | row | {"bucket": _bucket(row["episode_id"], n_buckets)}
            for row in self._inferences
            if _is_in(row["episode_id"], episode_ids)
        ]
        return batches(tables.INFERENCES, rows)

    def model_inferences(
        self, episode_ids: pa.Table | None, n_buckets: int, request: ExportRequest
    ) -> Iterator[pa.RecordBatch]:
        episode_of = {row["inference_id"]: row["episode_id"] for row in self._inferences}
        rows = [
            row | {"bucket": _bucket(episode_of[row["inference_id"]], n_buckets)}
            for row in self._calls
            if _is_in(episode_of[row["inference_id"]], episode_ids)
        ]
        return batches(tables.MODEL_INFERENCES, rows)

    def raw_requests(self, model_inference_ids: Sequence[str]) -> Iterator[pa.RecordBatch]:
        rows = [
            {"model_inference_id": call_id, "raw_request": self._raw_requests[call_id]}
            for call_id in model_inference_ids
            if call_id in self._raw_requests
        ]
        return batches(tables.RAW_REQUESTS, rows)

    def feedback(self, episode_ids: pa.Table | None, request: ExportRequest) -> Iterator[pa.RecordBatch]:
        return batches(tables.FEEDBACK, self._feedback)

    def snapshots(self) -> Iterator[pa.RecordBatch]:
        self.n_snapshots_read += 1
        return batches(tables.SNAPSHOTS, self._snapshots)


def batches(schema: pa.Schema, rows: Sequence[Row]) -> Iterator[pa.RecordBatch]:
    """Rows as one batch, if there are any; texts may be bytes, and are not looked at."""
    if rows:
        columns = [_column(field, [row.get(field.name) for row in rows]) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(field: pa.Field[Any], values: list[Any]) -> pa.Array[Any]:
    if pa.types.is_map(field.type):
        return _map([value or {} for value in values])
    return _texts(values) if pa.types.is_string(field.type) else pa.array(values, field.type)


def _texts(values: Sequence[str | bytes | None]) -> pa.Array[Any]:
    raw = [value.encode() if isinstance(value, str) else value for value in values]
    return pa.array(raw, pa.binary()).view(pa.string())


def _map(values: Sequence[dict[Any, Any]]) -> pa.Array[Any]:
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    keys = _texts([key for value in values for key in value])
    items = _texts([item for value in values for item in value.values()])
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items)


def _bucket(episode_id: str, n_buckets: int) -> int:
    return slot_of(episode_id) * n_buckets // N_SLOTS


def _is_in(episode_id: str, episode_ids: pa.Table | None) -> bool:
    return episode_ids is None or episode_id in episode_ids.column(0).to_pylist()
