"""Prompts of two stores that share nearly all their words, each run of which is compared and none estimated.

Two prompts are alike when their system messages read the same and, of the runs of five words that either has
in its other messages, at least a given share is in both (Jaccard). A pair that is so alike shares one of
the few rarest runs of either, so that only pairs that do are compared (Chaudhuri, Ganti and Kaushik 2006, "A
primitive operator for similarity joins in data cleaning").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from trajkit.curate.shingles import shingle_hashes
from trajkit.curate.texts import message_text
from trajkit.store.engine import literal
from trajkit.store.view import full_steps

THRESHOLD = 0.9
"""Share of runs of words from which on two prompts are alike."""

ALIKE = "alike"
"""Table `(near, episode_id, step_index)`: a prompt of the evaluation store, by the fingerprint of how it
reads, and a step of the training store whose prompt is like it."""

_COLUMNS = "(near UHUGEINT, episode_id VARCHAR, step_index BIGINT)"

_WORDS = 5
_FIRST_CHUNK, _LARGEST_CHUNK = 250, 4_000
_ROWS_AT_ONCE = 512


def create_none(connection: duckdb.DuckDBPyConnection) -> None:
    """Leave the table `ALIKE` with nothing in it."""
    connection.execute(f"CREATE TEMP TABLE {ALIKE} {_COLUMNS}")


def find_alike(connection: duckdb.DuckDBPyConnection, threshold: float, *, even_with_seeds: bool) -> None:
    """Leave the table `ALIKE`, with at most one step for each prompt of the evaluation store.

    Args:
        connection: Has both stores in the schemas `train` and `eval`, each with its table `texts`.
        threshold: Above 0 and up to 1.
        even_with_seeds: Compare prompts too where both sides have seeds.
    """
    run = connection.execute
    create_none(connection)
    for side in ("train", "eval"):
        run(
            f"CREATE TEMP TABLE of_{side} AS SELECT *, "
            "row_number() OVER (ORDER BY episode_id, step_index) - 1 AS number FROM (SELECT near, "
            "min(episode_id) AS episode_id, arg_min(step_index, (episode_id, step_index)) AS step_index, "
            "any_value(frame) AS frame, bool_or(NOT has_seed) AS is_seedless "
            f"FROM {side}.texts GROUP BY near)"
        )
    # those with seeds are compared only with those without
    is_any = {side: even_with_seeds or _any_seedless(connection, f"of_{side}") for side in ("train", "eval")}
    mine, theirs = (
        f"SELECT * FROM of_{side}{'' if is_any[other] else ' WHERE is_seedless'}"
        for side, other in (("train", "eval"), ("eval", "train"))
    )
    _runs(connection, "eval", theirs, "eval_runs")
    run(
        "CREATE TEMP TABLE rarest AS SELECT near, frame, run FROM (SELECT *, row_number() OVER (PARTITION BY "
        "near ORDER BY n_prompts, run) AS rank FROM (SELECT *, count(*) OVER (PARTITION BY run) AS n_prompts "
        f"FROM eval_runs)) WHERE rank <= n - ceil({threshold} * n - 1e-9) + 1"
    )
    for chunk in _chunks(connection, mine):
        _runs(connection, "train", chunk, "train_runs")
        _compare(connection, threshold, "true" if even_with_seeds else "t.is_seedless OR e.is_seedless")
        for table in ("eval_runs", "rarest"):  # one that is found need not be found again
            run(f"DELETE FROM {table} WHERE near IN (SELECT near FROM {ALIKE})")


def _any_seedless(connection: duckdb.DuckDBPyConnection, table: str) -> bool:
    ((found,),) = connection.execute(f"SELECT count(*) > 0 FROM {table} WHERE is_seedless").fetchall()
    return bool(found)


def _chunks(connection: duckdb.DuckDBPyConnection, prompts: str) -> Iterator[str]:
    """SELECTs of prompts, a bounded number at a time, few at first."""
    ((n_prompts,),) = connection.execute("SELECT count(*) FROM of_train").fetchall()
    first, size = 0, _FIRST_CHUNK
    while first < n_prompts:
        yield f"SELECT * FROM ({prompts}) WHERE number BETWEEN {first} AND {first + size - 1}"
        first, size = first + size, min(2 * size, _LARGEST_CHUNK)


def _runs(connection: duckdb.DuckDBPyConnection, side: str, prompts: str, table: str) -> None:
    """Leave a table of the different runs of words of some prompts, a row for each of the `n` of a prompt."""
    ((lowest, highest),) = connection.execute(
        f"SELECT min(episode_id), max(episode_id) FROM ({prompts})"
    ).fetchall()
    whole = full_steps(
        f"(SELECT * FROM {side}.steps SEMI JOIN ({prompts}) USING (episode_id) "
        f"WHERE episode_id BETWEEN {literal(lowest or '')} AND {literal(highest or '')})"
    )
    text = (
        "array_to_string(list_transform(list_filter(CAST(prompt AS JSON[]), lambda m: "
        f"(m->>'role') <> 'system'), lambda m: {message_text('m')}), ' ')"
    )
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {table}_all (number BIGINT, run UBIGINT)")
    texts = connection.sql(
        f"SELECT p.number, {text} AS text FROM ({whole}) AS s JOIN ({prompts}) AS p "
        "USING (episode_id, step_index)"
    ).to_arrow_table()  # whole: a connection with an open result cannot be written to
    for batch in texts.to_batches(_ROWS_AT_ONCE):
        hashes, offsets = shingle_hashes(batch.column("text"), _WORDS)
        lengths: Any = np.diff(offsets.astype(np.int64))  # the stubs take any difference for a span of time
        numbers = np.repeat(batch.column("number").to_numpy(), lengths)
        connection.register("some_runs", pa.table({"number": numbers, "run": hashes}))
        connection.execute(f"INSERT INTO {table}_all SELECT DISTINCT * FROM some_runs")
        connection.unregister("some_runs")
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT near, episode_id, step_index, is_seedless, frame, "
        f"run, count(*) OVER (PARTITION BY number) AS n FROM {table}_all JOIN ({prompts}) USING (number)"
    )


def _compare(connection: duckdb.DuckDBPyConnection, threshold: float, where: str) -> None:
    """Add to `ALIKE` what `train_runs` is like: few pairs are left when it comes to comparing all runs."""
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE likely AS SELECT near FROM train_runs "
        "SEMI JOIN (SELECT DISTINCT run FROM eval_runs) USING (run) "
        f"GROUP BY near HAVING count(*) >= {threshold} * any_value(n) - 1e-9"
    )
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE pairs AS SELECT DISTINCT r.near, t.near AS other "
        "FROM (SELECT * FROM train_runs SEMI JOIN likely USING (near)) AS t "
        "JOIN rarest AS r ON t.run = r.run AND t.frame = r.frame"
    )
    mine, theirs = (
        "(SELECT near, list(run) AS runs, any_value(is_seedless) AS is_seedless, "
        "any_value({'episode_id': episode_id, 'step_index': step_index}) AS place "
        f"FROM {table} WHERE near IN (SELECT {column} FROM pairs) GROUP BY near)"
        for table, column in (("train_runs", "other"), ("eval_runs", "near"))
    )
    connection.execute(
        f"INSERT INTO {ALIKE} SELECT near, place.episode_id, place.step_index FROM ("
        "SELECT near, min(place) AS place FROM ("
        "SELECT e.near, t.place, len(t.runs) + len(e.runs) AS n, "
        "len(list_intersect(t.runs, e.runs)) AS n_both "
        f"FROM pairs AS p JOIN {mine} AS t ON t.near = p.other JOIN {theirs} AS e ON e.near = p.near "
        f"WHERE {where}) WHERE n_both >= {threshold} * (n - n_both) - 1e-9 GROUP BY near)"
    )
