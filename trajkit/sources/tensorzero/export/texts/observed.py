"""Extract the observation from the input of each inference as the inputs arrive.

The inputs are read once more later, only to be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from trajkit.errors import QueryError
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.connect.tables import pc
from trajkit.sources.tensorzero.export.read_sql import read_sql
from trajkit.sources.tensorzero.export.spool import row_numbers
from trajkit.sources.tensorzero.export.unreadable import Unreadable
from trajkit.store.engine import literal, parsed

OBSERVATION = pa.field("observation", pa.string())
"""The observation before an inference: text, null if the input has none."""
OBSERVED = pa.schema([*tables.INFERENCES, OBSERVATION])


class Observing:
    """Adds the observation to inferences.

    Args:
        connection: Of the workspace.
        request: Says which argument of a template is the observation.
        unreadable: Records inputs that are not JSON; they become null.

    Raises:
        QueryError: The request's path is invalid.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, request: ExportRequest, unreadable: Unreadable
    ) -> None:
        path = json_path(request.observation_path)
        self._connection = connection
        self._unreadable = unreadable
        self._variables = {
            "observation_path": f"$.messages[#-1].content[0].arguments{path}",
            "message_observation_path": f"$.content[*].arguments{path}",
            "legacy_observation_path": f"$.content[*].value{path}",
        }

    def of(self, inferences: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same inferences (`OBSERVED`)."""
        with self._connection.cursor() as connection:
            connection.execute(read_sql("observation"))
            for name, value in self._variables.items():
                connection.execute(f"SET VARIABLE {name} = {literal(value)}")
            for batch in inferences:
                yield self._observed(connection, batch)

    def _observed(self, connection: duckdb.DuckDBPyConnection, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            found = _observations(connection, batch.column("input"))
        except duckdb.Error:
            batch = self._unreadable.without_broken_inputs(batch)
            found = _observations(connection, batch.column("input"))
        return batch.append_column(OBSERVATION, found)


def json_path(dotted: str) -> str:
    """`state.text` as `."state"."text"`: every name quoted, so that none is taken for an operator.

    Raises:
        QueryError: It is not names joined by dots.
    """
    names = dotted.split(".")
    if "" in names or '"' in dotted:
        raise QueryError(f"the path {dotted!r} is not names joined by dots")
    return "".join(f'."{name}"' for name in names)


def _observations(connection: duckdb.DuckDBPyConnection, inputs: pa.Array[Any]) -> pa.Array[Any]:
    found = _each(connection, "usual_observation", inputs)
    is_unusual = pc.and_(pc.is_null(found), pc.is_valid(inputs))
    if not pc.any(is_unusual).as_py():
        return found
    others = _each(connection, "any_observation", inputs.filter(is_unusual))
    made: pa.Array[Any] = pc.replace_with_mask(found, is_unusual, others)
    return made


def _each(connection: duckdb.DuckDBPyConnection, macro: str, inputs: pa.Array[Any]) -> pa.Array[Any]:
    connection.register("passing", pa.table({"input": inputs, "row": row_numbers(0, len(inputs))}))
    (statement,) = parsed(f"SELECT {macro}(input) AS found, row FROM passing")
    table = connection.sql(statement).to_arrow_table()
    made: pa.Array[Any] = table.column("found").cast(pa.string()).combine_chunks()
    # several threads would not keep the order of rows
    rows = table.column("row").to_numpy()
    return made if (rows[1:] > rows[:-1]).all() else made.take(np.argsort(rows))
