"""Rows as columns: a Parquet file of JSON lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trajkit._core.files import sha256_file
from trajkit.curation.rows.spool import Written
from trajkit.store.engine import connect, file_literal, literal, writing
from trajkit.store.layout import quoted

_ROWS_PER_GROUP = 4096
_SPARE = 1024


def write_parquet(lines: Path, written: Written, goal: Path, columns: Mapping[str, str]) -> Written:
    """Write JSON lines as a Parquet file, streamed; columns that no row has are left out.

    Args:
        lines: The file with the lines.
        written: What is known of it.
        goal: The file that exists afterwards.
        columns: Their types in DuckDB's words, by name.
    """
    wanted = dict(columns)
    types = ", ".join(f"{quoted(name)}: {literal(kind)}" for name, kind in wanted.items())
    source = (
        f"read_json({file_literal(lines)}, format = 'newline_delimited', columns = {{{types}}}, "
        f"maximum_object_size = {written.n_longest + _SPARE})"
    )
    with connect() as connection, writing(goal, connection):
        counts = connection.execute(
            f"SELECT {', '.join(f'count({quoted(name)})' for name in wanted)} FROM {source}"
        ).fetchall()[0]
        names = [name for name, n in zip(wanted, counts, strict=True) if n]
        connection.execute(
            f"COPY (SELECT {', '.join(map(quoted, names))} FROM {source}) TO {literal(str(goal))} "
            f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROWS_PER_GROUP})"
        )
    return written._replace(n_bytes=goal.stat().st_size, sha256=sha256_file(goal))
