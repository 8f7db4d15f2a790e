"""Turn an `Episode` into the rows of a store's tables, and rows back into an `Episode`."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pydantic import BaseModel, ValidationError

from trajkit._core.outside import json_from_outside
from trajkit.errors import DataError
from trajkit.schema import Episode, Feedback, Message, Transition
from trajkit.schema.content import Block, UnknownBlock
from trajkit.store.layout import METRICS, TABLES, Column
from trajkit.store.writing.part import arrow_type

Row = dict[str, Any]
"""One row by column name; JSON columns as text."""

_JSON = {
    table: frozenset(c.name for c in columns if c.sql_type == "JSON") for table, columns in TABLES.items()
}
# Columns of `episodes` that follow from its steps.
_DERIVED = ("function_names", "variant_names", "n_steps", "n_input_tokens", "n_output_tokens", "cost_usd")

_NOUNS: dict[str, type[BaseModel]] = {"episodes": Episode, "steps": Transition, "feedback": Feedback}
_NOT_OF_NOUN = {"episodes": _DERIVED, "steps": ("episode_id",), "feedback": ()}

_SHOWN_DEPTH = 8
"""An error names the place of a value down to this depth."""

_M = TypeVar("_M", bound=BaseModel)


def table_of(name: str, rows: Sequence[Row]) -> pa.Table:
    """Convert rows to Arrow; metrics and free-form values stay JSON text."""
    types = {
        column.name: pa.string() if column.sql_type in ("JSON", METRICS) else arrow_type(column)
        for column in TABLES[name]
    }
    return pa.Table.from_pylist(list(rows), schema=pa.schema(types))


def rows_of(episode: Episode) -> dict[str, list[Row]]:
    """Return the rows of one episode by table; `metrics` is JSON text of the measured ones."""
    return {
        "episodes": [_episode_row(episode)],
        "steps": [{**_row("steps", step), "episode_id": episode.episode_id} for step in episode.steps],
        "feedback": [_row("feedback", item) for item in episode.feedback],
    }


def episode_of(
    row: Mapping[str, Any], steps: Iterable[Mapping[str, Any]], feedback: Iterable[Mapping[str, Any]]
) -> Episode:
    """Return the episode of its rows, as DuckDB returns them through Arrow.

    Raises:
        DataError: The rows are not an episode.
    """
    transitions = [noun_of("steps", step) for step in steps]
    items = [noun_of("feedback", item) for item in feedback]
    episode = noun_of("episodes", row, steps=transitions, feedback=items)
    assert isinstance(episode, Episode)
    return episode


def noun_of(table: str, row: Mapping[str, Any], **more: Any) -> BaseModel:
    """Return the transition, the feedback or the episode of one row; `more` has the steps of an episode.

    Raises:
        DataError: The row is invalid; the message names the episode and the column.
    """
    where = f"episode {row['episode_id']}"
    values = {name: v for name, v in _values(table, row).items() if name not in _NOT_OF_NOUN[table]}
    try:
        return _NOUNS[table].model_validate({**values, **more})
    except ValidationError as error:
        first = error.errors()[0]
        column = ".".join(map(str, first["loc"][:_SHOWN_DEPTH]))
        raise DataError(f"{where}: {column or table}: {first['msg']}") from error
    except RecursionError as error:
        raise DataError(f"{where}: {table} has a value that is nested too deep") from error


def json_text(value: Any) -> str:
    """Write a value as JSON text: no spaces, unescaped characters, keys in the order given."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def message_value(message: Message) -> dict[str, Any]:
    """Return a message as JSON without null fields, so that every writer spells a message alike."""
    return {"role": message.role.value, "content": [_block_value(block) for block in message.content]}


def _block_value(block: Block) -> dict[str, Any]:
    value = block.model_dump(mode="json", exclude_none=True)
    if isinstance(block, UnknownBlock):
        value.setdefault("data", None)  # required, and null is a valid value
    return value


def _episode_row(episode: Episode) -> Row:
    steps = episode.steps
    return {
        **_row("episodes", episode),
        "function_names": _names(step.function_name for step in steps),
        "variant_names": _names(step.variant_name for step in steps),
        "n_steps": len(steps),
        "n_input_tokens": _sum([step.n_input_tokens for step in steps]),
        "n_output_tokens": _sum([step.n_output_tokens for step in steps]),
        "cost_usd": _sum([step.cost_usd for step in steps]),
    }


def _row(table: str, item: BaseModel) -> Row:
    values = item.__dict__  # most fields of most steps are None: getattr would be half of an import's time
    return {
        column.name: None if (value := values[column.name]) is None else _cell(column, value)
        for column in _columns_of(table, type(item))
    }


@functools.cache
def _columns_of(table: str, kind: type[BaseModel]) -> tuple[Column, ...]:
    return tuple(column for column in TABLES[table] if column.name in kind.model_fields)


def _cell(column: Column, value: Any) -> Any:
    match column.sql_type:
        case "JSON":
            return json_text(_plain(value))
        case "METRICS":
            return json_text({name: number for name, number in value.items() if number is not None})
        case "VARCHAR":
            return str(value)
        case "VARCHAR[]" | "BIGINT[]" | "DOUBLE[]":
            return list(value)
        case _:
            return value


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return message_value(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _names(names: Iterable[str | None]) -> list[str]:
    return sorted({name for name in names if name is not None})


def _sum(numbers: Sequence[Any]) -> Any:
    """Return the sum; None if there is no number or one of them is unknown."""
    return sum(numbers) if numbers and None not in numbers else None


def _values(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with its JSON parsed, and only the metrics that were measured."""
    values: dict[str, Any] = {}
    for column in TABLES[table]:
        value = row.get(column.name)
        if column.sql_type == METRICS:
            values[column.name] = {k: v for k, v in (value or {}).items() if v is not None}
        elif value is not None and column.name in _JSON[table]:
            where = f"episode {row['episode_id']}: {table}.{column.name}"
            values[column.name] = json_from_outside(value, where=where)
        else:
            values[column.name] = value
    return values
