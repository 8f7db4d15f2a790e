"""Write the parts of a derived store by an engine: each shard reads the source and narrow decisions.

What was decided is temporary tables of the driver: ids, weights, masks. They are written as Parquet, sorted
by id, and each worker gets views of them, on which the driver's own views work as they do in the driver.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from trajkit._core.files import named_by_content
from trajkit.engines.engine import Engine
from trajkit.schema import Metric
from trajkit.store.engine import connect, file_literal, literal
from trajkit.store.reader import Store, open_store
from trajkit.store.view import create_views, narrow_views
from trajkit.store.writer import StoreWriter

PLAN = "trajkit_parts"
"""Table of the episodes to write, with the part that each belongs to."""
MOST_SHARDS = 1_000
"""Slurm takes no larger array unless it is told to."""


class Piece(NamedTuple):
    """A part of the episodes in `PLAN`."""

    part: int
    lowest: str
    """Its first id."""
    highest: str
    """Its last id."""

    @property
    def sql(self) -> str:
        """What comes after `SELECT … FROM steps`, so that other row groups are skipped."""
        return (
            f"SEMI JOIN (SELECT episode_id FROM {PLAN} WHERE part = {self.part}) USING (episode_id) "
            f"WHERE episode_id BETWEEN {literal(self.lowest)} AND {literal(self.highest)}"
        )


class Written(NamedTuple):
    """What is written of the source."""

    kind: str
    """Name of the command."""
    episodes: str
    """Relation with the episodes."""
    steps: str
    """Relation with the steps."""
    metrics: Sequence[Metric]

    def add(self, writer: StoreWriter, connection: duckdb.DuckDBPyConnection, piece: Piece) -> None:
        """Write one part."""
        writer.add(
            connection,
            episodes=f"(SELECT * FROM {self.episodes} {piece.sql})",
            steps=f"(SELECT * FROM {self.steps} {piece.sql})",
            feedback=f"(SELECT * FROM feedback {piece.sql})",
        )


def shards(
    engine: Engine,
    store: Store,
    connection: duckdb.DuckDBPyConnection,
    pieces: Sequence[Piece],
    written: Written,
    *,
    folder: Path,
) -> list[Store]:
    """Return a store for each shard, in order.

    Args:
        engine: What writes them.
        store: The source.
        connection: Has `PLAN` and the relations of `written`.
        pieces: The parts to write.
        written: What to write.
        folder: Where they are made, which the caller removes; every worker must see it.

    Raises:
        TrajkitError: A shard failed; what is done stays for the same command to continue with.
    """
    tables, views = _decided(connection, (written.episodes, written.steps, PLAN))
    size = math.ceil(len(pieces) / MOST_SHARDS)
    common = {
        "store": str(store.path),
        "digest": store.manifest.digest,
        "folder": str(folder),
        "tables": {name: _saved(connection, name, folder) for name in tables},
        "views": views,
        "written": {**written._asdict(), "metrics": [m.model_dump(mode="json") for m in written.metrics]},
    }
    items = [{**common, "pieces": pieces[at : at + size]} for at in range(0, len(pieces), size)]
    made = dict(engine.map(write_shard, items, what=written.kind, folder=folder))
    return [open_store(folder / made[index]) for index in sorted(made)]


def write_shard(item: dict[str, Any]) -> str:
    """Write a store of some parts, under a new name, and return the name."""
    name = f"shard-{secrets.token_hex(6)}"
    facts = item["written"]
    written = Written(**{**facts, "metrics": [Metric.model_validate(m) for m in facts["metrics"]]})
    store = open_store(item["store"])
    with (
        connect(threads=1) as connection,
        StoreWriter(Path(item["folder"]) / name, kind=written.kind, metrics=written.metrics) as writer,
    ):
        create_views(connection, store)
        for table, file in item["tables"].items():
            scan = f"read_parquet({file_literal(Path(file))})"
            connection.execute(f"CREATE TEMP VIEW {table} AS SELECT * FROM {scan}")
        for view in item["views"]:
            connection.execute(view)
        for piece in (Piece(*each) for each in item["pieces"]):
            narrow_views(connection, store, piece.lowest, piece.highest)
            written.add(writer, connection, piece)
        writer.finish(connection=connection)
    return name


def _decided(connection: duckdb.DuckDBPyConnection, relations: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the temporary tables that some relations need, and the definitions of the views, in order."""
    definitions: dict[str, str | None] = dict(
        connection.execute(
            "SELECT table_name, NULL FROM duckdb_tables() WHERE temporary UNION ALL "
            # a table of Python is a view, too
            "SELECT view_name, CASE WHEN NOT contains(sql, 'python_arrow_scan') THEN sql END "
            "FROM duckdb_views() WHERE temporary AND NOT internal"
        ).fetchall()
    )
    tables: list[str] = []
    views: list[str] = []

    def visit(sql: str) -> None:
        for name in re.findall(r"\w+", sql):
            if name not in definitions:
                continue
            definition = definitions.pop(name)
            if definition is None:
                tables.append(name)
            else:
                visit(definition)
                views.append(definition)

    for relation in relations:
        visit(relation)
    return tables, views


def _saved(connection: duckdb.DuckDBPyConnection, table: str, folder: Path) -> str:
    """Write a table as Parquet, and return the path."""

    def write(path: Path) -> None:
        connection.execute(
            f"COPY (SELECT * FROM {table} ORDER BY ALL) TO {literal(str(path))} (FORMAT parquet)"
        )

    return str(named_by_content(folder, f"{table}.parquet", write))
