"""A store that is looked at."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from trajkit.store.reader import Store


@dataclass(frozen=True)
class Shelved:
    """One of the stores of a shelf."""

    number: int
    """Its place on the shelf, from 0."""
    name: str
    """What the page calls it: no two of a shelf have the same name."""
    store: Store
    """The store, its checksums verified."""
    connection: duckdb.DuckDBPyConnection
    """Reaches this store and nothing else; each thread takes a cursor of its own."""
