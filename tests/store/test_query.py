from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from trajkit.errors import QueryError, StoreError
from trajkit.store.engine import connect, interruptible
from trajkit.store.query import ask, check_select, fenced
from trajkit.store.reader import Store


def rows_of(store: Store, sql: str, **options: Any) -> list[tuple[Any, ...]]:
    with ask(store, sql, **options) as answer:
        return list(answer.rows())


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_query_sees_the_four_views(ten: Store) -> None:
    sql = "SELECT task, count(*), sum(n_steps) FROM episodes GROUP BY task ORDER BY task"
    assert rows_of(ten, sql) == [("goto", 5, 25), ("open", 5, 30)]
    assert rows_of(ten, "SELECT count(*) FROM steps") == [(55,)]
    assert rows_of(ten, "SELECT count(*) FROM steps_full WHERE prompt IS NOT NULL") == [(55,)]
    assert rows_of(ten, "FROM feedback SELECT max(CAST(value AS DOUBLE))") == [(0.9,)]


def test_a_query_may_use_what_only_reads(ten: Store) -> None:
    with_cte = (
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT sum(i) FROM n"
    )
    assert rows_of(ten, with_cte) == [(6,)]
    assert rows_of(ten, "SELECT unnest([1, 2])") == [(1,), (2,)]
    assert rows_of(ten, "SELECT count(*) FROM range(3)") == [(3,)]
    assert rows_of(ten, "SELECT key FROM episodes, json_each(tags) WHERE seed = 1") == [("level",)]
    assert rows_of(ten, "SELECT metrics.episode_return FROM episodes WHERE seed = 7;  ") == [(0.7,)]
    assert len(rows_of(ten, "DESCRIBE episodes")) == 21


def test_an_answer_knows_its_columns(ten: Store) -> None:
    with ask(ten, "SELECT seed, task, tags, sum(seed) OVER () AS total FROM episodes LIMIT 1") as answer:
        assert answer.columns == ("seed", "task", "tags", "total")
        assert answer.is_number == (True, False, False, True)
        assert answer.is_json == (False, False, True, False)


def test_times_are_utc(ten: Store) -> None:
    sql = "SELECT min(started_at) FROM steps"
    assert rows_of(ten, sql) == [(datetime.datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=datetime.UTC),)]
    assert rows_of(ten, "SELECT CAST(min(started_at) AS VARCHAR) FROM steps") == [
        ("2026-03-01 12:00:00.123456+00",)
    ]


def test_memory_and_threads_are_as_given(ten: Store) -> None:
    sql = "SELECT current_setting('threads'), current_setting('memory_limit')"
    assert rows_of(ten, sql, threads=1, memory_limit="512MiB") == [(1, "512.0 MiB")]


OUTSIDE = [
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM '/etc/passwd'",
    "FROM 'https://example.com/x.csv'",
    "SELECT (SELECT max(content) FROM read_text('/etc/passwd'))",
    "SELECT * FROM episodes WHERE task IN (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('episodes')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM enable_logging('QueryLog')",
    "SELECT * FROM checkpoint()",
    "SELECT getenv('HOME')",
    "COPY episodes TO 'STORE/x.csv'",
    "COPY (SELECT 1) TO '/tmp/x.csv'",
    "WITH x AS (COPY (SELECT 1) TO 'STORE/x.csv') SELECT 1",
    "WITH x AS (COPY (SELECT 1) TO 'STORE/steps/part-00000.parquet') SELECT 1",
    "SELECT * FROM (WITH x AS (COPY (SELECT 1) TO 'STORE/x.csv') SELECT 1)",
    "WITH x AS (INSERT INTO episodes VALUES (1) RETURNING *) SELECT * FROM x",
    "WITH x AS (DELETE FROM episodes RETURNING *) SELECT * FROM x",
    "ATTACH 'STORE/x.db'",
    "ATTACH '/tmp/x.db' AS x",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "SET memory_limit = '1GB'",
    "RESET lock_configuration",
    "EXPORT DATABASE 'STORE/x'",
    "CREATE TABLE x AS SELECT 1",
    "CREATE OR REPLACE VIEW steps AS SELECT 1",
    "DROP VIEW episodes",
    "EXPLAIN ANALYZE SELECT 1",
    "SELECT 1; SELECT 2",
    "SELECT 1; DROP VIEW steps",
    "",
    "-- nothing",
    "not sql",
    "SELECT ?",
]


def test_a_query_cannot_leave_the_store_or_change_it(ten: Store) -> None:
    before = files_of(ten.path.parent)
    for sql in OUTSIDE:
        with pytest.raises(QueryError):
            pytest.fail(f"{sql}: {rows_of(ten, sql.replace('STORE', str(ten.path)))}")
    assert files_of(ten.path.parent) == before


def test_a_query_cannot_name_a_variable_of_the_program(ten: Store) -> None:
    secret = pa.table({"key": ["value"]})
    with pytest.raises(QueryError, match="no table 'secret'"):
        rows_of(ten, "SELECT * FROM secret")
    assert secret.num_rows == 1


def test_the_connection_itself_keeps_to_the_folder(ten: Store) -> None:
    # the second wall: what would happen if the syntax check let something through
    (ten.path / "link.txt").symlink_to("/etc/hostname")
    refused = (duckdb.PermissionException, duckdb.InvalidInputException)
    with fenced(ten) as connection:
        for sql in (
            "SELECT * FROM read_text('/etc/hostname')",
            f"SELECT * FROM read_text('{ten.path}/link.txt')",
            "COPY (SELECT 1) TO '/tmp/x.csv'",
            "SET threads = 1",
            "LOAD httpfs",
        ):
            with pytest.raises(refused):
                connection.execute(sql)


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        ("SELECT n_stepz FROM episodes", "no column 'n_stepz'", "nearest: n_steps"),
        (
            "SELECT metrics.episode_retrun FROM episodes",
            "no column 'episode_retrun'",
            "nearest: episode_return",
        ),
        ("SELECT 1 FROM episode", "no table 'episode'", "nearest: episodes"),
        ("SELECT 1 FROM zzz", "no table", "there are: episodes, steps, feedback, steps_full"),
        ("SELECT 1 +", "not valid SQL: syntax error", ""),
        ("SELECT CAST('x' AS INTEGER)", "Could not convert string 'x'", ""),
        ("SELECT CAST(task AS INTEGER) FROM episodes", "Could not convert string", ""),
        ("SELECT no_such_function('a')", "no_such_function does not exist", ""),
        ("SELECT 1; SELECT 2", "2 statements instead of one SELECT", ""),
        ("WITH x AS (COPY (SELECT 1) TO 'x') SELECT 1", "COPY does more than read", ""),
    ],
)
def test_what_is_wrong_is_said_with_the_nearest_names(ten: Store, sql: str, message: str, hint: str) -> None:
    with pytest.raises(QueryError) as caught:
        rows_of(ten, sql)
    assert message in caught.value.message
    assert (caught.value.hint or "").startswith(hint)


def test_too_little_memory_is_not_the_query_s_fault(ten: Store) -> None:
    with pytest.raises(StoreError, match="could not be read"):
        rows_of(ten, "SELECT list(range) FROM range(100000000)", memory_limit="20MB", threads=1)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT max(a.step_index + f.seed) FROM steps a, steps b, steps c, steps d, steps e, episodes f",
        "SELECT sleep_ms(100000)",
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i FROM n) SELECT count(*) FROM n",
    ],
)
def test_a_query_that_takes_too_long_is_stopped_and_that_is_said(ten: Store, sql: str) -> None:
    with pytest.raises(QueryError, match=r"the query took longer than 0\.3 s and was stopped") as caught:
        rows_of(ten, sql, limit_s=0.3)
    assert caught.value.hint == "allow more with --timeout SECONDS"
    assert rows_of(ten, "SELECT count(*) FROM episodes", limit_s=60) == [(10,)]


def test_the_time_between_two_batches_does_not_count(ten: Store) -> None:
    with ask(ten, "SELECT * FROM range(5000)", limit_s=1.0) as answer:
        rows = answer.rows()
        next(rows)
        time.sleep(1.2)
        assert sum(1 for _ in rows) == 4_999


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT " + "(" * 5_000 + "1" + ")" * 5_000, "nested more than 100 deep"),
        ("SELECT " + "not " * 5_000 + "true", "nested more than 100 deep"),
        ("SELECT * FROM (" * 5_000 + "SELECT 1" + ")" * 5_000, "nested too deep"),
        ("SELECT 1 FROM range(1)" + " CROSS JOIN range(1)" * 4_000, "nested too deep"),
        ("SELECT 1" + " UNION ALL SELECT 1" * 6_000, "at most 100,000 are read"),
    ],
)
def test_a_query_that_is_nested_too_deep_or_too_long_is_refused(ten: Store, sql: str, said: str) -> None:
    with pytest.raises(QueryError) as caught:
        rows_of(ten, sql)
    assert said in caught.value.message


def test_a_select_is_given_back_without_its_semicolon() -> None:
    assert check_select(" SELECT 1 ; ") == "SELECT 1 "


def stopped() -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"number": [1]})
    raise KeyboardInterrupt


def test_ctrl_c_while_duckdb_asks_for_rows_is_ctrl_c_and_another_error_stays_what_it_is() -> None:
    with connect() as connection:
        schema = pa.schema({"number": pa.int64()})
        connection.register("incoming", pa.RecordBatchReader.from_batches(schema, stopped()))
        with pytest.raises(KeyboardInterrupt), interruptible(connection):
            connection.execute("SELECT * FROM incoming").fetchall()
        with pytest.raises(duckdb.ConversionException), interruptible(connection):
            connection.execute("SELECT 'KeyboardInterrupt'::INTEGER")
