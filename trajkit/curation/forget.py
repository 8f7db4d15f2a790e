"""Find the stores that hold some episodes, and write them again without these."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa

from trajkit.curation.derive import deriving
from trajkit.curation.pair_file import DATA_NAME as PAIRS_DATA
from trajkit.curation.pair_file import MANIFEST_NAME as PAIRS_MANIFEST
from trajkit.schema import Left, Manifest
from trajkit.store.engine import connect, scan
from trajkit.store.layout import MANIFEST_NAME
from trajkit.store.reader import open_store

REASON = "forgotten"
"""Reason for a left-out episode in the history of the new store."""

_SIDES = ("chosen_episode_id", "rejected_episode_id")


class Holder(NamedTuple):
    """A folder with episodes that are to be forgotten."""

    path: Path
    is_pairs: bool
    """Whether it holds preference pairs; else it is a store."""
    n_episodes: int
    """Number of these episodes; for pairs, number of rows made from them."""
    n_steps: int
    """Their steps; 0 for pairs."""
    n_others: int
    """Its other episodes, or pairs."""


def _is_one(relation: str, column: str = "episode_id") -> str:
    """The condition on an id of a relation to be of one of the episodes, or of a sub-agent of one."""
    parts = f"string_split({column}, '/')"
    owners = (
        f"list_transform(range(1, len({parts}) + 1), lambda n: sha256(array_to_string({parts}[:n], '/')))"
    )
    each = f"SELECT {column} AS id, unnest({owners}) AS hash FROM {relation}"
    return f"{column} IN (SELECT id FROM ({each}) SEMI JOIN forgotten USING (hash))"


def hash_of(episode_id: str) -> str:
    """Return the hash that replaces the id of an episode, where the id must not be kept."""
    return hashlib.sha256(episode_id.encode()).hexdigest()


def holders(folder: Path, hashes: Collection[str]) -> Iterator[Holder]:
    """Yield every store and set of pairs below a folder that has one of the episodes, by path.

    Args:
        folder: The folder.
        hashes: Of the ids of the episodes (`hash_of`).

    Raises:
        StoreError: A store cannot be read.
    """
    for parent, folders, files in os.walk(folder):
        folders.sort()
        folders[:] = [name for name in folders if not name.startswith(".")]
        path = Path(parent)
        if PAIRS_MANIFEST in files:
            found = _counted(path, True, [path / PAIRS_DATA], _SIDES, hashes)
        elif MANIFEST_NAME in files:
            found = in_store(path, hashes)
        else:
            continue
        folders.clear()
        if found.n_episodes:
            yield found


def forget(store: Path, hashes: Collection[str], goal: Path) -> Manifest:
    """Write a store again without some episodes and those of their sub-agents.

    The history counts them and does not name them.

    Args:
        store: The store.
        hashes: Of the ids of the episodes (`hash_of`).
        goal: The folder to write.

    Raises:
        StoreError: The store cannot be read, or `goal` exists.
        NothingMatched: No episode would stay.
    """
    with deriving(store) as derivation:
        connection = derivation.connection
        _list(connection, hashes)
        connection.execute(f"CREATE TABLE trajkit_staying AS FROM episodes WHERE NOT {_is_one('episodes')}")
        ((n_episodes, n_steps),) = connection.execute(
            "SELECT count(*), coalesce(sum(n_steps), 0)::BIGINT FROM episodes "
            "ANTI JOIN trajkit_staying USING (episode_id)"
        ).fetchall()
        left = Left(reason=REASON, n_episodes=n_episodes, n_steps=n_steps)
        return derivation.write(
            goal,
            verb="forget",
            arguments={"n_episodes": n_episodes},
            kept="trajkit_staying",
            left=(left,),
        )


def in_store(path: Path, hashes: Collection[str]) -> Holder:
    """Count the episodes in a store.

    Raises:
        StoreError: The store cannot be read.
    """
    return _counted(path, False, open_store(path).parts("episodes"), ["episode_id"], hashes)


def _counted(
    path: Path, is_pairs: bool, parts: list[Path], columns: Sequence[str], hashes: Collection[str]
) -> Holder:
    rows = scan(parts)
    is_one = f"({' OR '.join(_is_one(rows, column) for column in columns)})"
    n_steps = "0" if is_pairs else "n_steps"
    with connect() as connection:
        _list(connection, hashes)
        (counts,) = connection.execute(
            f"SELECT count(*) FILTER (WHERE {is_one}), coalesce(sum({n_steps}) FILTER (WHERE {is_one}), 0)"
            f"::BIGINT, count(*) FILTER (WHERE NOT {is_one}) FROM {rows}"
        ).fetchall()
    return Holder(path, is_pairs, *counts)


def _list(connection: duckdb.DuckDBPyConnection, hashes: Collection[str]) -> None:
    given = pa.table({"hash": pa.array(sorted(hashes), pa.string())})
    connection.execute("CREATE TEMP TABLE forgotten (hash VARCHAR)")
    connection.from_arrow(given).insert_into("forgotten")
