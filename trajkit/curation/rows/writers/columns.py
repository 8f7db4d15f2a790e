"""Write rows that are made of columns alone: steps as a table, sampled tokens, starts of episodes."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

from trajkit._core.files import sha256_file
from trajkit._core.output.console import plural
from trajkit.curation.experience import Experiences, Fit
from trajkit.curation.rows.conversion import Conversion, Progress, converted
from trajkit.curation.rows.place import Place
from trajkit.curation.rows.request import Options
from trajkit.curation.rows.spool import Spool, Written, as_kind
from trajkit.curation.rows.steps import Steps
from trajkit.curation.rows.tally import Step, Tally, counted, counts_of, nothing, refuse_what_is_wrong
from trajkit.errors import DataError
from trajkit.formats.base import (
    ExperienceFormat,
    Loss,
    LossKind,
    Problem,
    Start,
    StartFormat,
    TableFormat,
    Unit,
    json_line,
)
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
"""Columns of experience that a format may not carry, with the names of their losses."""

_ANEW = "the trainer plays anew"
_PROBLEMS = {
    "env_id": "no environment that can be played again",
    "task": "no task",
    "seed": "no seed, so its world cannot be begun again",
}
_LOSSES = {"initial_state_hash": LossKind.INITIAL_STATE, "total_reward": LossKind.EPISODE_REWARD}
_COLUMNS = ("env_id", "task", "seed", "episode_id", "n_steps", *_LOSSES)
_PER_BATCH = 10_000


def write_table(
    dataset: Dataset, steps: Steps, form: TableFormat, place: Place, work: Path, progress: Progress | None
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
    n_steps, n_done = steps.n_steps, 0
    with contextlib.closing(Spool(work / "spool")) as spool:
        for chunk in steps.chunks():
            table = steps.table(chunk, columns)
            spool.add(table)
            n_done += table.num_rows
            if progress is not None:
                progress(n_done, n_steps)
        written = spool.finish(work / "lines")
    if not written.n_rows:
        raise nothing(dataset.store.path, {})
    types = _types(steps.connection, form, "steps_full s JOIN episodes e USING (episode_id)")
    rows, written = as_kind(place.kind, work / "lines", written, work, types)
    place.settle(rows, None, {})
    return converted(form, dataset, steps, place, written, n_learned=written.n_rows)


def write_experience(
    dataset: Dataset,
    steps: Steps,
    form: ExperienceFormat,
    asked: Options,
    place: Place,
    work: Path,
    progress: Progress | None,
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
    rows = Experiences(dataset, is_joined=asked.unit == Unit.EPISODE, include_eval=asked.include_eval)
    losses, types = Counter[str](), dict[str, str]()
    columns = ", ".join(f"{quoted(name)} := {sql}" for name, sql in form.columns.items())
    line = f"CAST(to_json(struct_pack({columns})) AS VARCHAR) || chr(10)"
    with contextlib.closing(Spool(work / "spool")) as spool:
        with connect() as connection:
            for batch in rows:
                for name, noun in _NOUNS.items():
                    if name not in form.carries and (n := len(batch) - batch.column(name).null_count):
                        losses[noun] += n
                connection.register("x", batch)
                types = _types(connection, form, "x")
                spool.add(connection.sql(f"SELECT episode_id, {line} AS line FROM x").to_arrow_table())
                if progress is not None:
                    progress(rows.fit.n_steps, steps.n_steps)
        if losses and asked.strict:
            raise DataError(
                f"{form.name} cannot carry {counted(losses)}",
                hint="without --strict (strict=True) they are left out and counted",
            )
        written = spool.finish(work / "lines")
    fit = rows.fit
    if not written.n_rows:
        raise nothing(dataset.store.path, fit.left)
    made, written = as_kind(place.kind, work / "lines", written, work, types)
    place.settle(made, None, {})
    return converted(
        form,
        dataset,
        steps,
        place,
        written,
        unit=asked.unit,
        n_steps=fit.n_steps,
        n_learned=fit.n_steps - sum(fit.left.values()),
        left=fit.left,
        losses=dict(sorted(losses.items())),
        n_tokens=fit.n_tokens,
        is_exact=True,
        warnings=tuple(_warnings(fit, asked.unit, steps.n_evaluation)),
    )


def write_starts(
    dataset: Dataset, steps: Steps, form: StartFormat, asked: Options, place: Place, work: Path
) -> Conversion:
    """Write a row for each environment, task and seed, in the order of these, for a trainer that plays.

    Args:
        dataset: The dataset.
        steps: The dataset's steps, open.
        form: The format.
        asked: Whether something may be lost or left out.
        place: Where the file goes.
        work: Folder for temporary files.

    Raises:
        DataError: An episode has no environment, task or seed, or something is lost and `strict`.
        NothingMatched: There is no episode with all of them.
    """
    tally, rows = Tally(), work / "lines"
    n_rows = n_longest = 0
    with rows.open("wb") as file:
        for start in _starts(steps, tally):
            line = f"{json_line(form.row(start))}\n".encode()
            file.write(line)
            n_rows, n_longest = n_rows + 1, max(n_longest, len(line))
    refuse_what_is_wrong(tally, form, asked)
    if not n_rows:
        raise nothing(dataset.store.path, tally.left)
    written = Written(n_rows, rows.stat().st_size, sha256_file(rows), n_longest)
    rows, written = as_kind(place.kind, rows, written, work, form.columns)
    place.settle(rows, None, {})
    return converted(form, dataset, steps, place, written, n_learned=0, **counts_of(tally))


def _types(
    connection: duckdb.DuckDBPyConnection, form: TableFormat | ExperienceFormat, source: str
) -> dict[str, str]:
    """Return the DuckDB types of the columns."""
    names = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in form.columns.items())
    relation = connection.sql(f"SELECT {names} FROM {source}")
    return dict(zip(relation.columns, map(str, relation.types), strict=True))


def _warnings(fit: Fit, unit: Unit, n_evaluation: int) -> Iterator[str]:
    if n_evaluation:
        yield f"{plural(n_evaluation, 'evaluation episode')} included: evaluating on them is then void"
    if unit != Unit.EPISODE:
        return
    if fit.n_realigned:
        yield (
            f"{plural(fit.n_realigned, 'step')} realigned: {plural(fit.n_tokens_dropped, 'sampled token')} "
            "that a later prompt spells in another way are context"
        )
    if n_begun := fit.n_forked + fit.n_changed:
        yield f"{plural(n_begun, 'step')} forked: their prompts do not extend the step before"


def _starts(steps: Steps, tally: Tally) -> Iterator[Start]:
    """Each start once; the tally gets what is refused, and what a row does not say."""
    last: Start | None = None
    table = steps.read(
        f"SELECT {', '.join(_COLUMNS)} FROM episodes SEMI JOIN chosen USING (episode_id) "
        "ORDER BY env_id, task, seed, episode_id"
    )
    for batch in table.to_batches(_PER_BATCH):
        rows: list[dict[str, Any]] = batch.to_pylist()
        for row in rows:
            where = Step(row["episode_id"])
            if problems := tuple(Problem(why, name) for name, why in _PROBLEMS.items() if row[name] is None):
                tally.left[tally.refuse(where, problems)] += row["n_steps"]
                continue
            start = Start(row["env_id"], row["task"], row["seed"])
            tally.left[_ANEW] += row["n_steps"]
            tally.lose(where, (Loss(kind, name) for name, kind in _LOSSES.items() if row[name] is not None))
            if start == last:
                tally.lose(where, [Loss(LossKind.REPEATED_START, "seed")])
            else:
                yield start
            last = start
