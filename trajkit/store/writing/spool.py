"""Keep rows on disk until the metrics of all of them are known."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pyarrow.parquet as pq
from pydantic import ValidationError

from trajkit._core.files import temporary_beside
from trajkit.errors import DataError
from trajkit.schema import Episode, FeedbackKind, Metric, MetricLevel
from trajkit.store.arrow import Row, rows_of, table_of
from trajkit.store.engine import connect, literal, scan, writing
from trajkit.store.layout import LEVELS, METRICS, TABLES, columns, quoted

_FLUSH_STEPS = 2_000
_FLUSH_CHARACTERS = 16_000_000
_SLICE_STEPS = 50_000
_SLICE_CHARACTERS = 200_000_000


class Spool:
    """Collects episodes one by one and returns them as relations with typed metrics, a part at a time.

    Args:
        goal: The store that is being written; the rows are kept in a hidden folder beside it.
    """

    def __init__(self, goal: Path) -> None:
        self._folder = temporary_beside(goal)
        self._goal = goal
        self._metrics: dict[tuple[MetricLevel, str], FeedbackKind] = {}
        self._rows: dict[str, list[Row]] = {table: [] for table in TABLES}
        self._n_characters = 0
        # per table and future part: the files that have its rows
        self._files: dict[str, list[list[Path]]] = {table: [[]] for table in TABLES}
        self._n_files = 0
        self._load = 0.0

    def __enter__(self) -> Self:
        with writing(self._goal):
            self._folder.mkdir(parents=True)
        try:
            self.connection = connect(spill=self._folder / "spill")
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, episode: Episode) -> None:
        """Add one episode.

        Raises:
            DataError: A metric is a float here and a boolean in an earlier episode, or the other way round.
            StoreError: The disk is full.
        """
        self._learn(MetricLevel.EPISODE, episode.metrics, episode.episode_id)
        for step in episode.steps:
            self._learn(MetricLevel.INFERENCE, step.metrics, episode.episode_id)
        self.add_rows(rows_of(episode))

    def add_rows(self, rows_by_table: Mapping[str, list[Row]]) -> None:
        """Add the rows of one episode, as `rows_of` makes them; missing columns are null.

        Raises:
            StoreError: The disk is full.
        """
        n_characters = 0
        for table, rows in rows_by_table.items():
            for row in rows:
                n_characters += sum(len(value) for value in row.values() if isinstance(value, str))
            self._rows[table].extend(rows)
        self._n_characters += n_characters
        self._load += len(rows_by_table.get("steps", ())) / _SLICE_STEPS + n_characters / _SLICE_CHARACTERS
        if len(self._rows["steps"]) >= _FLUSH_STEPS or self._n_characters >= _FLUSH_CHARACTERS:
            self._flush()
            if self._load >= 1:
                self._load = 0.0
                for table in TABLES:
                    self._files[table].append([])

    def metrics(self) -> tuple[Metric, ...]:
        """Return every metric that had a value, by level and name.

        Raises:
            DataError: A name is not valid for a metric.
        """
        found = sorted(self._metrics.items())
        try:
            return tuple(Metric(name=name, level=level, kind=kind) for (level, name), kind in found)
        except ValidationError as error:
            raise DataError(f"a metric's name cannot be used: {error.errors()[0]['msg']}") from error

    def parts(self, metrics: tuple[Metric, ...]) -> Iterator[dict[str, str]]:
        """Yield the SELECTs of each part by table, oldest first; memory is bounded.

        Raises:
            DataError: An episode has a value of a metric that is not among these, or of another kind.
        """
        known = {(metric.level, metric.name): metric.kind for metric in metrics}
        for (level, name), kind in self._metrics.items():
            if known.get((level, name)) != kind:
                raise DataError(f"the {level} metric {name!r} has {kind} values and no such column")
        if any(files != [[]] for files in self._files.values()):
            self._flush()
        for number in range(len(self._files["episodes"])):
            yield {table: f"({self._typed(table, metrics, number)})" for table in TABLES}

    def _learn(self, level: MetricLevel, values: Mapping[str, Any], episode_id: str) -> None:
        for name, value in values.items():
            if value is None:
                continue
            kind = FeedbackKind.BOOLEAN if isinstance(value, bool) else FeedbackKind.FLOAT
            before = self._metrics.setdefault((level, name), kind)
            if before != kind:
                raise DataError(f"metric {name!r} is {kind} in episode {episode_id} and {before} in another")

    def _flush(self) -> None:
        for table, rows in self._rows.items():
            if rows:
                self._files[table][-1].append(self._write(table, rows))
                rows.clear()
        self._n_characters = 0

    def _write(self, table: str, rows: list[Row]) -> Path:
        path = self._folder / f"{self._n_files}.parquet"
        self._n_files += 1
        with writing(self._goal):
            pq.write_table(table_of(table, rows), path, compression="lz4")
        return path

    def _typed(self, table: str, metrics: tuple[Metric, ...], number: int) -> str:
        present = {column.name for column in columns(table, metrics)}
        selected = [quoted(c.name) for c in TABLES[table] if c.sql_type != METRICS]
        if "metrics" in present:
            selected.append(f"{_struct([m for m in metrics if m.level == LEVELS[table]])} AS metrics")
        if files := self._files[table][number]:
            return f"SELECT {', '.join(selected)} FROM {scan(files)}"
        # no file has rows: they are few, or there are none
        self.connection.register(f"few_{table}", table_of(table, self._rows[table]))
        return f"SELECT {', '.join(selected)} FROM few_{table}"


def _struct(metrics: list[Metric]) -> str:
    fields = ", ".join(
        f"{quoted(metric.name)} := CAST(map_extract_value(CAST(CAST(metrics AS JSON) AS MAP(VARCHAR, JSON)), "
        f"{literal(metric.name)}) AS {'BOOLEAN' if metric.kind == FeedbackKind.BOOLEAN else 'DOUBLE'})"
        for metric in metrics
    )
    return f"struct_pack({fields})"
