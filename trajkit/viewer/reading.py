"""Read one episode from its store on demand: its steps, their prompts, and their texts."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from trajkit._core.address import place_of, readable
from trajkit.errors import StoreError
from trajkit.store.engine import literal, scan
from trajkit.store.layout import TABLES, quoted
from trajkit.store.query import explaining
from trajkit.store.view import columns_of
from trajkit.viewer.index import Shelved

_ROWS_AT_ONCE = 64
_BYTES_AT_ONCE = 64_000_000
_JSON = {
    table: frozenset(column.name for column in columns if column.sql_type == "JSON")
    for table, columns in TABLES.items()
}


class Kept(NamedTuple):
    """The place of an episode in its store."""

    shelved: Shelved
    """The store."""
    episode_id: str
    """Id of the episode."""
    n_steps: int
    """Number of steps."""
    part: str | None
    """The file with its steps; None when it has no steps."""


class PromptMessage(NamedTuple):
    """A message of a prompt, with its place in the store."""

    message: dict[str, Any]
    step: int
    """The step whose row holds it."""
    path: str
    """Its place in that row."""


def steps_of(kept: Kept, names: Sequence[str], first: int, last: int) -> Iterator[dict[str, Any]]:
    """Yield some columns of some steps in order, in batches of bounded size; JSON columns as values.

    Args:
        kept: The episode.
        names: Columns of the layout.
        first: `step_index` of the first step.
        last: `step_index` of the last step.
    """
    if kept.part is None:
        return
    at_once = _steps_at_once(kept.part)
    source = scan([path for path in kept.shelved.store.parts("steps") if str(path) == kept.part])
    for begin in range(first, min(last, kept.n_steps - 1) + 1, at_once):
        condition = f"step_index BETWEEN {begin} AND {min(last, begin + at_once - 1)}"
        yield from _rows(kept, "steps", names, condition, source=source)


def own_row(kept: Kept, names: Sequence[str]) -> dict[str, Any]:
    """Return some columns of an episode."""
    (row,) = _rows(kept, "episodes", names, "true")
    return row


def feedback_of(kept: Kept, limit: int) -> list[dict[str, Any]]:
    """Return the feedback on an episode, the oldest first."""
    names = ("feedback_id", "inference_id", "kind", "metric_name", "value", "tags", "created_at")
    return list(_rows(kept, "feedback", names, "true", rest=f"ORDER BY feedback_id LIMIT {limit}"))


def prompt_of(kept: Kept, step: int) -> list[PromptMessage] | None:
    """Return every message that the model saw at a step; None when the prompt is unknown."""
    prompt: list[PromptMessage] = []
    is_known = False
    names = ("step_index", "n_prompt_kept", "messages", "completion")
    for row in steps_of(kept, names, _beginning(kept, step), step):
        index, new = row["step_index"], row["messages"]
        is_known = new is not None
        said = [PromptMessage(message, index, f"messages/{place}") for place, message in enumerate(new or ())]
        prompt = prompt[: row["n_prompt_kept"]] + said
        if index < step and row["completion"] is not None:
            prompt.append(PromptMessage(row["completion"], index, "completion"))
    return prompt if is_known else None


def _beginning(kept: Kept, step: int) -> int:
    """Return the last step up to this one whose prompt is stored whole."""
    found = steps_of(kept, ("step_index", "n_prompt_kept"), 0, step)
    return max((row["step_index"] for row in found if row["n_prompt_kept"] == 0), default=0)


@functools.lru_cache(maxsize=256)
def _steps_at_once(part: str) -> int:
    """Return the number of steps of a part to read at a time, from their mean size."""
    try:
        metadata = pq.read_metadata(readable(place_of(part)))
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{part} could not be read: {error}") from error
    n_bytes = sum(metadata.row_group(place).total_byte_size for place in range(metadata.num_row_groups))
    return max(1, _BYTES_AT_ONCE * metadata.num_rows // max(1, n_bytes))


def _rows(
    kept: Kept, table: str, names: Sequence[str], condition: str, *, source: str = "", rest: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield rows in the order of the file, which is the order of the steps."""
    store = kept.shelved.store
    known = {column.name for column in columns_of(store, table)}
    listed = ", ".join(quoted(name) for name in names if name in known)
    with explaining(store), kept.shelved.connection.cursor() as cursor:
        reader = cursor.sql(
            f"SELECT {listed} FROM {source or table} WHERE episode_id = {literal(kept.episode_id)} "
            f"AND {condition} {rest}"
        ).to_arrow_reader(_ROWS_AT_ONCE)
        try:
            for batch in reader:
                for row in batch.to_pylist():
                    yield {name: _value(table, name, value) for name, value in row.items()}
        finally:
            reader.close()


def _value(table: str, name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z"
    return json.loads(value) if name in _JSON[table] and isinstance(value, str) else value
