"""Write steps as a table, by SQL over columns alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb

from trajkit.curation.rows.conversion import Conversion, converted
from trajkit.curation.rows.place import Place
from trajkit.curation.rows.request import FileKind
from trajkit.curation.rows.spool import Spool, write_parquet
from trajkit.curation.rows.steps import Steps
from trajkit.curation.rows.tally import nothing
from trajkit.formats.base import TableFormat
from trajkit.store.dataset import Dataset
from trajkit.store.layout import quoted


def write_table(
    dataset: Dataset,
    steps: Steps,
    form: TableFormat,
    place: Place,
    work: Path,
    progress: Callable[[int, int], None] | None,
) -> Conversion:
    """Write a row for each step, learned or not.

    Args:
        dataset: The dataset.
        steps: The dataset's steps, open.
        form: The format.
        place: Where the file goes.
        work: Folder for temporary files.
        progress: Gets the steps done, and how many there are.
    """
    columns = [f"{quoted(name)} := {sql}" for name, sql in form.columns.items()]
    spool = Spool(work / "spool")
    n_steps, n_done = steps.n_steps, 0
    try:
        for chunk in steps.chunks():
            table = steps.table(chunk, columns)
            spool.add(table)
            n_done += table.num_rows
            if progress is not None:
                progress(n_done, n_steps)
        written = spool.finish(work / "lines")
    finally:
        spool.close()
    if not written.n_rows:
        raise nothing(dataset.store.path, {})
    rows = work / "lines"
    if place.kind == FileKind.PARQUET:
        rows = work / "rows"
        written = write_parquet(work / "lines", written, rows, _types(steps.connection, form))
    place.settle(rows, None, {})
    return converted(form, dataset, steps, place, written, n_learned=written.n_rows)


def _types(connection: duckdb.DuckDBPyConnection, form: TableFormat) -> dict[str, str]:
    """Return the DuckDB types of the columns."""
    names = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in form.columns.items())
    relation = connection.sql(f"SELECT {names} FROM steps_full s JOIN episodes e USING (episode_id)")
    return dict(zip(relation.columns, map(str, relation.types), strict=True))
