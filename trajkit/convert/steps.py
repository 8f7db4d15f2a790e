"""The steps that a dataset teaches, as columns, a few thousand at a time; why the others are not learned."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self

import duckdb
import pyarrow as pa

from trajkit.errors import StoreError
from trajkit.schema import Purpose
from trajkit.store.dataset import Dataset
from trajkit.store.engine import connect, first_line, interruptible
from trajkit.store.view import create_views, full_steps

_STEPS_PER_BATCH = 4096
_ROWS_PER_BATCH = 256
_CHOSEN = ["episode_id", "n_steps", "purpose"]

# `line` is null where `reason` is not, and where Python has to write the line.
_STEPS = """
    SELECT episode_id, step_index, reason, line,
        CASE WHEN reason IS NULL AND line IS NULL THEN prompt END AS prompt,
        CASE WHEN reason IS NULL AND line IS NULL THEN completion END AS completion,
        CASE WHEN reason IS NULL AND line IS NULL THEN tools END AS tools,
        loss_weight
    FROM (
        SELECT *, CASE WHEN reason IS NULL THEN {line} END AS line FROM (
            SELECT episode_id, step_index, prompt, completion, tools, loss_weight, CASE
                WHEN loss_weight <= 0 THEN coalesce(mask_reason,
                    CASE WHEN loss_weight < 0 THEN 'negative weight' ELSE 'weight 0' END)
                WHEN completion IS NULL OR CAST(completion AS VARCHAR) = 'null' THEN 'no answer'
                WHEN prompt IS NULL OR CAST(prompt AS VARCHAR) = 'null' THEN 'prompt unknown'
                END AS reason
            FROM ({steps})
        )
    )
    ORDER BY episode_id, step_index
"""


class Steps:
    """The steps of the episodes that a dataset's verbs choose. Use as a context manager.

    Args:
        dataset: Chooses the episodes; their order is that of their ids whatever the dataset's is.

    Raises:
        StoreError: A part is missing or changed.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._store = dataset.store
        # No text of the user's runs in this connection: the dataset applies the filters in its own.
        chosen = pa.Table.from_batches(
            [batch.select(_CHOSEN) for batch in dataset.arrow("episodes")],
            schema=pa.schema([(name, pa.int64() if name == "n_steps" else pa.string()) for name in _CHOSEN]),
        )
        self._connection = connect()
        create_views(self._connection, self._store)
        self._connection.register("ids", chosen)
        self._connection.execute(
            "CREATE TABLE chosen AS SELECT *, CAST((sum(n_steps + 1) OVER (ORDER BY episode_id) - 1) "
            f"// {_STEPS_PER_BATCH} AS BIGINT) AS batch FROM ids"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    @property
    def n_episodes(self) -> int:
        """How many episodes are chosen."""
        return self._number("SELECT count(*) FROM chosen")

    @property
    def n_steps(self) -> int:
        """How many steps they have."""
        return self._number("SELECT CAST(coalesce(sum(n_steps), 0) AS BIGINT) FROM chosen")

    @property
    def n_evaluation(self) -> int:
        """How many of them were played for evaluation."""
        return self._number(f"SELECT count(*) FROM chosen WHERE purpose = '{Purpose.EVAL}'")

    def batches(self, line_sql: str) -> Iterator[pa.RecordBatch]:
        """The steps by episode and position, streamed: `episode_id, step_index, reason, line, …`.

        Args:
            line_sql: The line of a row where SQL can write it, see `Format.plain_sql`.

        Yields:
            `reason` says why a step is not learned. Where it and `line` are null, `prompt`, `completion` and
            `tools` hold the JSON of a step that is; everywhere else they are null.

        Raises:
            StoreError: The parts cannot be read.
        """
        spans = self._connection.execute(
            "SELECT batch, min(episode_id), max(episode_id) FROM chosen GROUP BY batch ORDER BY batch"
        ).fetchall()
        for batch, lowest, highest in spans:
            # the bounds let DuckDB skip the row groups that cannot hold these episodes
            mine = (
                "SELECT * FROM steps WHERE episode_id BETWEEN $lowest AND $highest "
                f"AND episode_id IN (SELECT episode_id FROM chosen WHERE batch = {batch})"
            )
            sql = _STEPS.format(line=line_sql, steps=full_steps(f"({mine})"))
            yield from self._stream(sql, {"lowest": lowest, "highest": highest})

    def _stream(self, sql: str, values: dict[str, str]) -> Iterator[pa.RecordBatch]:
        try:
            with interruptible(self._connection):
                reader = self._connection.sql(sql, params=values).to_arrow_reader(_ROWS_PER_BATCH)
                try:
                    yield from reader
                finally:
                    reader.close()
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            # once rows flow, Arrow carries DuckDB's errors as OSError
            if "interrupted" in str(error).lower():
                raise KeyboardInterrupt from error
            raise StoreError(f"{self._store.path} could not be read: {first_line(error)}") from error

    def _number(self, sql: str) -> int:
        (number,) = self._connection.execute(sql).fetchall()[0]
        return int(number)
