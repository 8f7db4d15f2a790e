"""Collect lines part by part, and put them in the order of the episodes at the end.

The parts of a store are not ordered, and a training file must not depend on their number. So lines are
appended to a temporary file, with the place of each episode. If they came in order the file is complete; else
it is copied episode by episode.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trajkit._core.files import GrowingFile, sha256_file
from trajkit.curation.rows.bridge import numbers_in, numbers_of
from trajkit.curation.rows.request import FileKind
from trajkit.store.engine import connect, file_literal, literal, writing
from trajkit.store.layout import quoted

_COPY = 1 << 24
_ROWS_PER_GROUP = 4096
_SPARE = 1024


class Written(NamedTuple):
    """Size and hash of a file of lines."""

    n_rows: int
    n_bytes: int
    sha256: str
    n_longest: int
    """Bytes of the longest line."""


class Spool:
    """Collects the lines of episodes in any order.

    Args:
        path: A temporary file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = GrowingFile(path)
        self._places: list[pa.Table] = []
        self._digest = hashlib.sha256()
        self._hasher = ThreadPoolExecutor(1)
        self._n_bytes = self._n_rows = self._n_longest = 0
        self.is_in_order = True
        """Whether the lines came in the order of the episodes' ids; known after `finish`."""

    def add(self, table: pa.Table) -> None:
        """Append lines, each with its line break; a null adds no line.

        Args:
            table: Columns `episode_id` and `line`; the rows of an episode are neighbours.
        """
        for batch in table.select(["episode_id", "line"]).to_batches():
            self._add(batch.column(0), batch.column(1).cast(pa.large_string()))

    def _add(self, episode_ids: pa.Array[Any], lines: Any) -> None:
        bounds = numbers_in(lines.buffers()[1])[lines.offset : lines.offset + len(lines) + 1]
        first, last = bounds[[0, -1]].tolist()
        if last > first:
            # a null line has no bytes of its own: Arrow gives it the length 0
            piece = memoryview(lines.buffers()[2])[first:last]
            hashed = self._hasher.submit(self._digest.update, piece)
            self._file.write(piece)
            hashed.result()
            self._n_longest = max(self._n_longest, int(np.diff(bounds).max()))
        # run-end encoding keeps the order of the lines, which grouping would not
        runs: Any = pc.run_end_encode(  # type: ignore[attr-defined]  # the stubs do not know it
            episode_ids, run_end_type=pa.int64()
        )
        ends = numbers_in(runs.run_ends.buffers()[1])[: len(runs.run_ends)]
        sizes = np.diff(bounds[ends], prepend=bounds[0])
        self._places.append(pa.table({"episode_id": runs.values, "n_bytes": numbers_of(sizes)}))
        self._n_bytes += last - first
        self._n_rows += len(lines) - lines.null_count

    def finish(self, goal: Path) -> Written:
        """Write the lines into `goal` in the order of the episodes' ids, and remove the temporary file."""
        self._file.close()
        if not self._places:
            self._path.replace(goal)
            return self._written()
        places = pa.concat_tables(self._places)
        self._places.clear()
        # an episode may come in several consecutive batches: equal ids keep their order
        ids = places.column("episode_id")
        order = numbers_in(pc.sort_indices(ids).buffers()[1]).astype(np.int64)[: len(ids)]
        self.is_in_order = bool((np.diff(order) > 0).all())
        if self.is_in_order:
            self._path.replace(goal)
            return self._written()
        sizes = np.array(places.column("n_bytes").to_pylist(), np.int64)
        starts = np.cumsum(sizes) - sizes
        self._digest = hashlib.sha256()
        with self._path.open("rb") as source, GrowingFile(goal) as target:
            for start, size in _runs(starts[order], sizes[order]):
                source.seek(start)
                for done in range(0, size, _COPY):
                    piece = source.read(min(size - done, _COPY))
                    target.write(piece)
                    self._digest.update(piece)
        self._path.unlink()
        return self._written()

    def close(self) -> None:
        """Remove the temporary file."""
        self._hasher.shutdown()
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _written(self) -> Written:
        return Written(self._n_rows, self._n_bytes, self._digest.hexdigest(), self._n_longest)


def _runs(starts: np.ndarray[Any, Any], sizes: np.ndarray[Any, Any]) -> Iterator[tuple[int, int]]:
    """Yield stretches of the file, with neighbours joined."""
    begin = end = 0
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        if start != end:
            if end > begin:
                yield begin, end - begin
            begin = start
        end = start + size
    if end > begin:
        yield begin, end - begin


def as_kind(
    kind: FileKind, lines: Path, written: Written, work: Path, columns: Mapping[str, str]
) -> tuple[Path, Written]:
    """Return JSON lines as a file of a kind; of Parquet, columns without values are left out.

    Args:
        kind: The kind.
        lines: The file with the lines.
        written: Size of that file.
        work: Folder for a Parquet file, which is streamed.
        columns: DuckDB types by column name.
    """
    if kind != FileKind.PARQUET:
        return lines, written
    goal = work / "rows"
    types = ", ".join(f"{quoted(name)}: {literal(type_)}" for name, type_ in columns.items())
    source = (
        f"read_json({file_literal(lines)}, format = 'newline_delimited', columns = {{{types}}}, "
        f"maximum_object_size = {written.n_longest + _SPARE})"
    )
    with connect() as connection, writing(goal, connection):
        counts = connection.execute(
            f"SELECT {', '.join(f'count({quoted(name)})' for name in columns)} FROM {source}"
        ).fetchall()[0]
        names = [name for name, n in zip(columns, counts, strict=True) if n]
        connection.execute(
            f"COPY (SELECT {', '.join(map(quoted, names))} FROM {source}) TO {literal(str(goal))} "
            f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROWS_PER_GROUP})"
        )
    return goal, written._replace(n_bytes=goal.stat().st_size, sha256=sha256_file(goal))
