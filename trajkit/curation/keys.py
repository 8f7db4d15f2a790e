"""Compute the key that keeps episodes together, and the place that its hash assigns.

The default key is the world: environment, task and seed; without a seed, the hash of the initial state;
without either, the episode itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import duckdb

from trajkit.errors import QueryError
from trajkit.store.conditions.nameable import nearest
from trajkit.store.engine import literal
from trajkit.store.layout import CONTENT_HASH, quoted
from trajkit.store.query import metric_names
from trajkit.store.reader import Store
from trajkit.store.view import columns_of

WORLD = "environment, task and seed; else the initial state; else the episode"
"""The default key in words."""

TAG = "tags."
"""Prefix of a tag's name among columns."""

PLACES = 2**52
"""Number of places: as many as the first 13 hex digits of a sha256 have values."""

FROM_TEXT = "text:"
"""Prefix of an initial state's hash that was made from the first text: worlds with the same text share it."""


class Key(NamedTuple):
    """The grouping of episodes."""

    words: str
    """The key in words."""
    columns: tuple[str, ...]
    """The requested columns; empty for the default."""
    relation: str
    """SQL of rows `(episode_id, n_steps, key, has_key)`. `key` is JSON text, never null: an episode without
    one of the columns is a group of its own, and `has_key` is false."""


def group_key(connection: duckdb.DuckDBPyConnection, store: Store, by: Sequence[str] = ()) -> Key:
    """Return the key of a store's episodes.

    Args:
        connection: Has the store's views.
        store: The store.
        by: Columns of episodes, metrics, or `tags.NAME`, which together are the key; empty for the default.

    Raises:
        QueryError: A column does not exist, or no episode has the tag.
    """
    if not by:
        return Key(
            WORLD, (), f"(SELECT episode_id, n_steps, {_OF_WORLD} AS key, true AS has_key FROM episodes)"
        )
    names = tuple(dict.fromkeys(_known_name(connection, store, name) for name in by))
    metrics = "".join(f", metrics.{quoted(name)} AS {quoted(name)}" for name in metric_names(store))
    values = [_value(name) for name in names]
    has_all = " AND ".join(f"{value} IS NOT NULL" for value in values)
    parts = ", ".join(
        f"{literal(name)}, CAST(to_json({value}) AS VARCHAR)"
        for name, value in zip(names, values, strict=True)
    )
    return Key(
        " and ".join(names),
        names,
        f"(SELECT episode_id, n_steps, CASE WHEN {has_all} THEN {_json_text(parts)} "
        f"ELSE {_ALONE} END AS key, {has_all} AS has_key FROM (SELECT *{metrics} FROM episodes))",
    )


def group_text(connection: duckdb.DuckDBPyConnection, store: Store, by: Sequence[str]) -> str:
    """Return SQL, over `episodes`, of the values of some columns as a reader sees them; null if all are.

    Args:
        connection: Has the store's views.
        store: The store.
        by: Columns of episodes, metrics, or `tags.NAME`.

    Raises:
        QueryError: A column does not exist, or no episode has the tag.
    """
    metrics = metric_names(store)
    names = [_known_name(connection, store, name) for name in by]
    values = [f"metrics.{quoted(name)}" if name in metrics else _value(name) for name in names]
    return f"nullif(concat_ws(', ', {', '.join(values)}), '')"


def place(key: str, seed: int) -> str:
    """Return SQL of a key's place, from 0 to `PLACES` - 1, the same on every machine.

    Args:
        key: SQL of the key's text.
        seed: Another seed gives other places.
    """
    return f"CAST('0x' || left(sha256({literal(f'{int(seed)}:')} || {key}), 13) AS BIGINT)"


def _json_text(parts: str) -> str:
    return f"CAST(to_json([{parts}]) AS VARCHAR)"


_ALONE = _json_text("'episode', episode_id")
_SEEDED = _json_text("'world', env_id, task, CAST(seed AS VARCHAR)")
_STATED = _json_text("'initial_state', initial_state_hash")
_OF_WORLD = (
    f"CASE WHEN seed IS NOT NULL THEN {_SEEDED} WHEN nullif(initial_state_hash, '') IS NOT NULL "
    f"THEN {_STATED} ELSE {_ALONE} END"
)


def _known_name(connection: duckdb.DuckDBPyConnection, store: Store, name: str) -> str:
    """Return a name in the store's own spelling."""
    if name.startswith(TAG):
        rows = connection.execute(
            "SELECT DISTINCT unnest(map_keys(CAST(tags AS MAP(VARCHAR, VARCHAR)))) AS tag FROM episodes "
            "ORDER BY tag"
        ).fetchall()
        tags = [tag for (tag,) in rows]
        if (tag := name.removeprefix(TAG)) not in tags:
            raise QueryError(f"no episode of {store.path} has the tag {tag!r}", hint=nearest(tag, tags))
        return name
    known = [
        column.name
        for column in columns_of(store, "episodes")
        if column.name not in ("metrics", CONTENT_HASH.name)
    ]
    known += metric_names(store)
    for one in known:
        if one.lower() == name.lower():
            return one
    raise QueryError(
        f"no column {name!r} in {store.path}", hint=f"{nearest(name, known)}; a tag is {TAG}NAME"
    )


def _value(name: str) -> str:
    """Return SQL of a column or a tag; null if an episode has none."""
    if name.startswith(TAG):
        return f"CAST(tags AS MAP(VARCHAR, VARCHAR))[{literal(name.removeprefix(TAG))}]"
    return quoted(name)
