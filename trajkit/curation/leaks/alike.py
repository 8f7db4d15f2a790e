"""Find prompts of two stores that share nearly all word n-grams, compared exactly and not estimated.

Two prompts are alike when their system messages read the same and the Jaccard similarity of the 5-grams of
their other messages reaches a threshold. Such a pair shares at least one of the few rarest n-grams of either
prompt, so only pairs with a common rare n-gram are compared (Chaudhuri, Ganti and Kaushik 2006, "A primitive
operator for similarity joins in data cleaning").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa

from trajkit.curation.derive import Derivation, deriving, saved
from trajkit.curation.leaks.texts import hashes_as, message_text, shingle_hashes
from trajkit.schema.base import JsonObject
from trajkit.store.engine import file_literal, literal
from trajkit.store.view import full_steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

THRESHOLD = 0.9
"""Default similarity from which two prompts are alike."""

ALIKE = "alike"
"""Table `(near, episode_id, step_index)`: the fingerprint of a prompt of the evaluation store, and a step of
the training store with a similar prompt: the first one, and by an engine also the first of each span."""

_WORDS = 5
_FIRST_CHUNK, _LARGEST_CHUNK = 250, 4_000
_ROWS_AT_ONCE = 512
_PLACES = (1 << 24) - 1
"""Bits of an n-gram's hash that are its index in `noted`."""


def create_none(connection: duckdb.DuckDBPyConnection) -> None:
    """Create an empty table `ALIKE`."""
    connection.execute(f"CREATE TEMP TABLE {ALIKE} (near UUID, episode_id VARCHAR, step_index BIGINT)")


def find_alike(
    connection: duckdb.DuckDBPyConnection,
    threshold: float,
    *,
    even_with_seeds: bool,
    by_engine: Mapping[str, Derivation],
) -> None:
    """Create the table `ALIKE`.

    Args:
        connection: Has both stores in the schemas `train` and `eval`, each with its table `texts`.
        threshold: Above 0 and up to 1.
        even_with_seeds: Also compare two prompts whose worlds both have seeds.
        by_engine: The stores by side, for an engine that reads their texts; empty for this process.
    """
    run = connection.execute
    create_none(connection)
    for side, other in (("train", "eval"), ("eval", "train")):
        # a prompt with seeds is compared only with prompts without: it stays if the other side has any
        seedless = run(f"FROM {other}.texts WHERE NOT has_seed LIMIT 1").fetchall()
        run(
            f"CREATE TEMP TABLE of_{side} AS SELECT *, "
            "row_number() OVER (ORDER BY episode_id, step_index) - 1 AS number FROM (SELECT "
            f"{hashes_as('UUID', ['near'])}, min(episode_id) AS episode_id, "
            "arg_min(step_index, (episode_id, step_index)) AS step_index, "
            "CAST(any_value(frame) AS UUID) AS frame, bool_or(NOT has_seed) AS is_seedless "
            f"FROM {side}.texts GROUP BY near HAVING is_seedless OR {even_with_seeds or bool(seedless)})"
        )
    if not all(run(f"FROM of_{side} LIMIT 1").fetchall() for side in ("train", "eval")):
        return
    if not by_engine:
        _runs(connection, "eval", "SELECT * FROM of_eval", "eval_runs")
        _find_rarest(connection, threshold)
        _search(connection, threshold, even_with_seeds=even_with_seeds)
        return

    def over(side: str, function: Callable[[Any], str], *tables: str) -> str:
        facts: JsonObject = {
            "tables": {table: saved(connection, table, by_engine[side].folder) for table in tables},
            "threshold": threshold,
            "even_with_seeds": even_with_seeds,
        }
        paths = by_engine[side].over(function, facts, what=f"alike-{side}")
        return f"read_parquet([{', '.join(map(file_literal, paths))}])"

    run(f"CREATE TEMP TABLE eval_runs AS FROM {over('eval', write_runs, 'of_eval')}")
    _find_rarest(connection, threshold)
    run(
        f"INSERT INTO {ALIKE} FROM {over('train', write_alike, 'of_train', 'of_eval', 'eval_runs', 'rarest')}"
    )


def write_runs(item: dict[str, Any]) -> str:
    """Write the n-grams of a span of the evaluation store; return the name of the file."""
    with _opened(item, "eval") as connection:
        _runs(connection, "eval", f"SELECT * FROM of_eval WHERE {item['where']}", "eval_runs")
        return Path(saved(connection, "eval_runs", Path(item["folder"]))).name


def write_alike(item: dict[str, Any]) -> str:
    """Write the rows of `ALIKE` for a span of the training store; return the name of the file."""
    with _opened(item, "train") as connection:
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE of_train AS SELECT * REPLACE (row_number() OVER (ORDER BY number) "
            f"- 1 AS number) FROM of_train WHERE {item['where']}"
        )
        create_none(connection)
        _search(connection, item["threshold"], even_with_seeds=item["even_with_seeds"])
        return Path(saved(connection, ALIKE, Path(item["folder"]))).name


@contextmanager
def _opened(item: dict[str, Any], side: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the store of a task as one side, with the tables that were saved for it."""
    with deriving(item["store"], threads=1, is_verified=True) as derivation:
        run = derivation.connection.execute
        run(f"CREATE SCHEMA {side}; CREATE VIEW {side}.steps AS FROM main.steps")
        for table, path in item["tables"].items():
            run(f"CREATE TEMP TABLE {table} AS FROM read_parquet({file_literal(Path(path))})")
        yield derivation.connection


def _find_rarest(connection: duckdb.DuckDBPyConnection, threshold: float) -> None:
    """Create `rarest`: per evaluation prompt enough n-grams that a similar prompt has one of them."""
    connection.execute(
        "CREATE TEMP TABLE rarest AS SELECT number, run FROM (SELECT *, row_number() OVER (PARTITION BY "
        "number ORDER BY n_prompts, run) AS rank FROM eval_runs JOIN (SELECT run, count(*) AS n_prompts "
        f"FROM eval_runs GROUP BY run) USING (run)) WHERE rank <= n - ceil({threshold} * n - 1e-9) + 1"
    )


def _search(connection: duckdb.DuckDBPyConnection, threshold: float, *, even_with_seeds: bool) -> None:
    """Fill `ALIKE` from the prompts in `of_train`."""
    run = connection.execute
    noted = np.zeros(_PLACES + 1, bool)  # the hashes of all n-grams; several may share an index
    noted[run("SELECT DISTINCT run FROM eval_runs").fetchnumpy()["run"] & np.uint64(_PLACES)] = True
    for chunk in _chunks(connection):
        _runs(connection, "train", chunk, "train_runs", likely=(noted, threshold))
        _compare(connection, threshold, "true" if even_with_seeds else "t.is_seedless OR e.is_seedless")
        for table in ("eval_runs", "rarest"):  # a prompt with a match needs no second one
            run(
                f"DELETE FROM {table} WHERE number IN "
                f"(SELECT number FROM of_eval WHERE near IN (SELECT near FROM {ALIKE}))"
            )


def _chunks(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Yield SELECTs of `of_train` in chunks that grow up to a bound."""
    ((n_prompts,),) = connection.execute("SELECT count(*) FROM of_train").fetchall()
    first, size = 0, _FIRST_CHUNK
    while first < n_prompts:
        yield f"SELECT * FROM of_train WHERE number BETWEEN {first} AND {first + size - 1}"
        first, size = first + size, min(2 * size, _LARGEST_CHUNK)


def _runs(
    connection: duckdb.DuckDBPyConnection,
    side: str,
    prompts: str,
    table: str,
    *,
    likely: tuple[NDArray[np.bool_], float] | None = None,
) -> None:
    """Create a table of the distinct n-grams of some prompts, one row for each of the `n` of a prompt.

    With `likely`, a prompt is left out when the share of its n-grams that are noted is too small.
    """
    ((lowest, highest),) = connection.execute(
        f"SELECT min(episode_id), max(episode_id) FROM ({prompts})"
    ).fetchall()
    # the text of a message is read once, not again for each prompt that contains it
    said = "coalesce(CASE WHEN ({0}->>'role') <> 'system' THEN {1} END, '')"
    whole = full_steps(
        "(SELECT episode_id, step_index, n_prompt_kept, CASE WHEN messages IS NOT NULL THEN "
        "to_json(list_transform(CAST(messages AS JSON[]), "
        f"lambda m: {said.format('m', message_text('m'))})) END AS messages, "
        "CASE WHEN completion IS NOT NULL "
        f"THEN to_json({said.format('completion', message_text('completion'))}) END AS completion "
        f"FROM {side}.steps SEMI JOIN ({prompts}) USING (episode_id) "
        f"WHERE episode_id BETWEEN {literal(lowest or '')} AND {literal(highest or '')})"
    )
    text = "array_to_string(list_filter(CAST(prompt AS VARCHAR[]), lambda t: t <> ''), ' ')"
    texts = connection.sql(
        f"SELECT p.number, {text} AS text FROM ({whole}) AS s JOIN ({prompts}) AS p "
        "USING (episode_id, step_index)"
    ).to_arrow_table()  # whole: a connection with an open result cannot be written to
    # n is multiplied by the threshold: with many decimals a smaller type would overflow
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} (number UINTEGER, run UBIGINT, n BIGINT)")
    for batch in texts.to_batches(_ROWS_AT_ONCE):
        hashes, offsets = shingle_hashes(batch.column("text"), _WORDS)
        lengths: Any = np.diff(offsets.astype(np.int64))  # the stubs take any difference for a span of time
        place = np.repeat(np.arange(batch.num_rows), lengths)
        order = np.lexsort((hashes, place))
        hashes, place = hashes[order], place[order]
        is_new = np.ones(len(hashes), bool)
        is_new[1:] = (hashes[1:] != hashes[:-1]) | (place[1:] != place[:-1])
        hashes, place = hashes[is_new], place[is_new]
        n = np.bincount(place, minlength=batch.num_rows)
        if likely is not None:
            noted, share = likely
            n_noted = np.bincount(place, noted[hashes & np.uint64(_PLACES)], minlength=batch.num_rows)
            is_likely = (n_noted >= share * n - 1e-9)[place]
            hashes, place = hashes[is_likely], place[is_likely]
        if not len(place):
            continue
        numbers = batch.column("number").to_numpy()[place]
        found = pa.table({"number": numbers, "run": hashes, "n": n[place]})
        connection.from_arrow(found).insert_into(table)


def _compare(connection: duckdb.DuckDBPyConnection, threshold: float, where: str) -> None:
    """Add to `ALIKE` the prompts like those of `train_runs`; all n-grams are compared only for few pairs."""
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE likely AS SELECT number FROM train_runs "
        "SEMI JOIN (SELECT DISTINCT run FROM eval_runs) USING (run) "
        f"GROUP BY number HAVING count(*) >= {threshold} * any_value(n) - 1e-9"
    )
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE pairs AS SELECT DISTINCT r.number, t.number AS other "
        "FROM (SELECT * FROM train_runs SEMI JOIN likely USING (number)) AS t JOIN rarest AS r USING (run) "
        "JOIN of_train AS a ON a.number = t.number JOIN of_eval AS b ON b.number = r.number "
        "WHERE a.frame = b.frame"
    )
    mine, theirs = (
        "(SELECT number, runs, near, is_seedless, "
        "{'episode_id': episode_id, 'step_index': step_index} AS place "
        f"FROM (SELECT number, list(run) AS runs FROM {side}_runs "
        f"WHERE number IN (SELECT {column} FROM pairs) GROUP BY number) JOIN of_{side} USING (number))"
        for side, column in (("train", "other"), ("eval", "number"))
    )
    connection.execute(
        f"INSERT INTO {ALIKE} SELECT near, place.episode_id, place.step_index FROM ("
        "SELECT near, min(place) AS place FROM ("
        "SELECT e.near, t.place, len(t.runs) + len(e.runs) AS n, "
        "len(list_intersect(t.runs, e.runs)) AS n_both "
        f"FROM pairs AS p JOIN {mine} AS t ON t.number = p.other JOIN {theirs} AS e ON e.number = p.number "
        f"WHERE {where}) WHERE n_both >= {threshold} * (n - n_both) - 1e-9 GROUP BY near)"
    )
