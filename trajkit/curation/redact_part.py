"""A part of a store as Arrow, and the new part: what nothing was found in is taken over as it is."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trajkit.curation.redact_column import Changed, Search, text_columns
from trajkit.errors import StoreError
from trajkit.store.engine import first_line
from trajkit.store.layout import TABLES
from trajkit.store.reader import Store
from trajkit.store.writer import StoreWriter

_SHOWN_TO_THE_MODEL = ("messages", "tools", "completion")


def part_names(store: Store) -> list[str]:
    """The names of its parts, in order; files of one name in several tables hold the same episodes."""
    return sorted({PurePath(part.path).name for part in store.manifest.parts})


def search_part(store: Store, part: str, search: Search) -> None:
    """Look through all texts of a part and count.

    Raises:
        StoreError: A file cannot be read.
    """
    for table in TABLES:
        columns = text_columns(table)
        rows = _rows(store, table, part, [column.name for column in columns])
        for column in columns:
            search.column(rows.column(column.name), table, column)


def redact_part(
    store: Store, part: str, search: Search, writer: StoreWriter, connection: duckdb.DuckDBPyConnection
) -> None:
    """Write a part without what is found in it. Only episodes that change are hashed again.

    Raises:
        StoreError: A file cannot be read or written.
    """
    rows = {table: _rows(store, table, part) for table in TABLES}
    changes = {table: _changes(rows[table], table, search) for table in TABLES}
    if not any(changes.values()):
        writer.copy(store, part)
        return
    episodes = _episodes(rows, changes)
    kept = {}
    names = {table: f"trajkit_redacted_{table}" for table in TABLES}
    for table, before in rows.items():
        chosen = _is_in(before.column("episode_id"), episodes)  # by the id that it had
        kept[table] = before.filter(pa.array(~chosen))
        mine = {name: changed.within(chosen) for name, changed in changes[table].items()}
        connection.register(names[table], _changed(before.filter(pa.array(chosen)), mine))
    writer.keep(kept)
    writer.add(connection, episodes=names["episodes"], steps=names["steps"], feedback=names["feedback"])
    for name in names.values():
        connection.unregister(name)


def _rows(store: Store, table: str, part: str, names: list[str] | None = None) -> pa.Table:
    """The rows of a part, in their order, with JSON as its text; none where the table has no such part."""
    path = store.path / table / part
    try:
        if not path.is_file():
            path = store.parts(table)[0]  # for the columns
            rows = pq.read_schema(path).empty_table()
            rows = rows if names is None else rows.select(names)
        else:
            rows = pq.read_table(path, columns=names, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{path} could not be read: {first_line(error)}") from error
    for place, field in enumerate(rows.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            chunks: Any = rows.column(place).chunks
            texts: Any = [chunk.storage for chunk in chunks]
            kind: Any = field.type.storage_type  # a table without rows has no chunks to tell
            rows = rows.set_column(place, field.name, pa.chunked_array(texts, kind))
    return rows


def _changes(rows: pa.Table, table: str, search: Search) -> dict[str, Changed]:
    found = {
        column.name: search.column(rows.column(column.name), table, column) for column in text_columns(table)
    }
    return {name: changed for name, changed in found.items() if changed is not None}


def _episodes(rows: Mapping[str, pa.Table], changes: Mapping[str, Mapping[str, Changed]]) -> pa.Array[Any]:
    """The episodes in which anything changes, by their old ids."""
    found = [
        rows[table].column("episode_id").filter(pa.array(_any(changed.values()))).combine_chunks()
        for table, changed in changes.items()
        if changed
    ]
    return pa.concat_arrays(found).unique()


def _changed(rows: pa.Table, changes: Mapping[str, Changed]) -> pa.Table:
    made = {name: changed.applied(rows.column(name)) for name, changed in changes.items()}
    for name, values in {**made, **_without_tokens(rows, changes)}.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, values)
    return rows


def _without_tokens(rows: pa.Table, changes: Mapping[str, Changed]) -> dict[str, Any]:
    """Token ids and log probabilities, which would give the texts away: where those changed they are gone."""
    shown = [changes[name] for name in _SHOWN_TO_THE_MODEL if name in changes]
    if not shown or "prompt_token_ids" not in rows.schema.names:
        return {}
    episodes = rows.column("episode_id")
    # prompts go on from step to step
    gone = {"prompt_token_ids": _is_in(episodes, episodes.filter(pa.array(_any(shown))).unique())}
    if "completion" in changes:
        answered = changes["completion"].rows
        gone |= {"completion_token_ids": answered, "logprobs": answered}
    made: dict[str, Any] = {}
    for name, mask in gone.items():
        column = rows.column(name).combine_chunks()
        made[name] = pc.if_else(pa.array(mask), pa.scalar(None, column.type), column)
    return made


def _any(changes: Iterable[Changed]) -> npt.NDArray[np.bool_]:
    return functools.reduce(np.logical_or, (each.rows for each in changes))


def _is_in(values: pa.ChunkedArray[Any], chosen: Any) -> npt.NDArray[np.bool_]:
    found: Any = pc.is_in(values, value_set=chosen)
    return np.asarray(found.to_numpy())
