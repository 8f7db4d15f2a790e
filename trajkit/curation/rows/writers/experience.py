"""Write rows for training a policy, by SQL over columns alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from trajkit.curation.experience import Experiences, Fit
from trajkit.curation.rows.conversion import Conversion, converted
from trajkit.curation.rows.place import Place
from trajkit.curation.rows.request import FileKind, Options
from trajkit.curation.rows.spool import Spool, write_parquet
from trajkit.curation.rows.steps import Steps
from trajkit.curation.rows.tally import counted, nothing, plural
from trajkit.errors import DataError
from trajkit.formats.base import ExperienceFormat, Unit
from trajkit.store.dataset import Dataset
from trajkit.store.engine import connect
from trajkit.store.layout import quoted

_NOUNS = {
    "env_id": "environment",
    "task": "task",
    "seed": "seed",
    "group": "group",
    "state": "state",
    "total_reward": "episode reward",
    "model_version": "model version",
    "tokenizer": "tokenizer",
    "temperature": "temperature",
    "top_p": "top-p",
    "is_masked": "mask",
}
"""Columns that a format may not carry, with the names of their losses."""


def write_experience(
    dataset: Dataset,
    steps: Steps,
    form: ExperienceFormat,
    asked: Options,
    place: Place,
    work: Path,
    progress: Callable[[int, int], None] | None,
) -> Conversion:
    """Write the rows of the steps with sampled tokens.

    Args:
        dataset: The dataset.
        steps: The dataset's steps, open.
        form: The format.
        asked: The options, of which the unit and `strict` count.
        place: Where the file goes.
        work: Folder for temporary files.
        progress: Gets the steps done, and how many there are.

    Raises:
        DataError: The format cannot carry something, and `strict`.
        NothingMatched: No step has sampled tokens and a weight.
    """
    unit = asked.unit
    rows = Experiences(dataset, is_joined=unit == Unit.EPISODE, include_eval=asked.include_eval)
    spool, losses, types = Spool(work / "spool"), Counter[str](), dict[str, str]()
    try:
        with connect() as connection:
            for batch in rows:
                losses.update(dict(_lost(form, batch)))
                connection.register("x", batch)
                columns = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in form.columns.items())
                relation = connection.sql(f"SELECT {columns} FROM x")
                types = dict(zip(relation.columns, map(str, relation.types), strict=True))
                spool.add(_lines(connection, form))
                if progress is not None:
                    progress(rows.fit.n_steps, steps.n_steps)
        if losses and asked.strict:
            raise DataError(
                f"{form.name} cannot carry {counted(losses)}",
                hint="without --strict (strict=True) they are left out and counted",
            )
        written = spool.finish(work / "lines")
    finally:
        spool.close()
    fit = rows.fit
    if not written.n_rows:
        raise nothing(dataset.store.path, fit.left)
    made = work / "lines"
    if place.kind == FileKind.PARQUET:
        made = work / "rows"
        written = write_parquet(work / "lines", written, made, types)
    place.settle(made, None, {})
    return converted(
        form,
        dataset,
        steps,
        place,
        written,
        unit=unit,
        n_steps=fit.n_steps,
        n_learned=fit.n_steps - sum(fit.left.values()),
        left=fit.left,
        losses=dict(sorted(losses.items())),
        n_tokens=fit.n_tokens,
        is_exact=True,
        warnings=tuple(_warnings(fit, unit, steps.n_evaluation)),
    )


def _lines(connection: duckdb.DuckDBPyConnection, form: ExperienceFormat) -> pa.Table:
    columns = ", ".join(f"{quoted(name)} := {sql}" for name, sql in form.columns.items())
    line = f"CAST(to_json(struct_pack({columns})) AS VARCHAR) || chr(10)"
    table: pa.Table = connection.sql(f"SELECT episode_id, {line} AS line FROM x").to_arrow_table()
    return table


def _lost(form: ExperienceFormat, batch: pa.RecordBatch) -> Iterator[tuple[str, int]]:
    """Yield the names of columns that the format does not carry, and how many rows have a value there."""
    for name, noun in _NOUNS.items():
        if name not in form.carries and (n := batch.num_rows - batch.column(name).null_count):
            yield noun, n


def _warnings(fit: Fit, unit: Unit, n_evaluation: int) -> Iterator[str]:
    if n_evaluation:
        yield f"training takes in {plural(n_evaluation, 'evaluation episode')}: what they measure is void"
    if unit != Unit.EPISODE:
        return
    if fit.n_realigned:
        yield (
            f"{plural(fit.n_realigned, 'step')} realigned: {plural(fit.n_tokens_dropped, 'sampled token')} "
            "that a later prompt spells in another way are context"
        )
    if n_begun := fit.n_forked + fit.n_changed:
        yield f"{plural(n_begun, 'step')} forked: their prompts do not extend the step before"
