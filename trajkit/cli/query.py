"""`trajkit query`: ask a store with SQL."""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import itertools
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from trajkit._core import console

if TYPE_CHECKING:
    from trajkit.store.query import Answer

_BESIDE = 1 << 30
"""Bytes for what DuckDB does not count: its threads, and the rows that are printed."""


@click.command()
@click.argument("store")
@click.argument("sql")
@click.option(
    "--limit", type=click.IntRange(min=0), help="Print at most this many rows [100 in a table, else all]."
)
@click.option("--json", "as_json", is_flag=True, help="Print each row as a line of JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values with a line of headings.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    default=300.0,
    help="Longest that the query may run.  [default: 300]",
)
@click.option(
    "--memory",
    type=click.FloatRange(0.1),
    metavar="GB",
    default=4.0,
    help="Most memory that the query may take.  [default: 4]",
)
def query(
    store: str, sql: str, limit: int | None, as_json: bool, as_csv: bool, timeout: float, memory: float
) -> None:
    """Ask STORE with one SQL SELECT over episodes, steps, feedback and steps_full.

    The dialect is DuckDB's. A metric of an episode is metrics.NAME; steps_full adds the full prompt to each
    step. The query sees the store and nothing else, and changes nothing. What does not fit into memory waits
    on disk.
    """
    from trajkit._core.memory import at_most
    from trajkit.store.query import ask
    from trajkit.store.reader import open_store

    if as_json and as_csv:
        raise click.UsageError("--json and --csv: choose one")
    if limit is None and not (as_json or as_csv):
        limit = 100
    n_bytes = int(memory * 1e9)
    with (
        at_most(n_bytes + _BESIDE),
        ask(open_store(store), sql, limit_s=timeout, memory_limit=f"{n_bytes}B") as answer,
    ):
        rows = answer.rows()
        shown = itertools.islice(rows, limit)
        if as_json:
            _print_json(answer, shown)
        elif as_csv:
            _print_csv(answer, shown)
        else:
            _print_table(answer, shown)
        n_more = sum(1 for _ in rows)
    if n_more:
        console.talk(
            f"… {console.plural(n_more, 'row')} more; --limit {(limit or 0) + n_more} prints them all"
        )


def _print_json(answer: Answer, rows: Iterable[Sequence[Any]]) -> None:
    for row in rows:
        console.result_json_line(
            {
                name: json.loads(value) if is_json and value is not None else _json_value(value)
                for name, value, is_json in zip(answer.columns, row, answer.is_json, strict=True)
            }
        )


def _print_csv(answer: Answer, rows: Iterable[Sequence[Any]]) -> None:
    for row in itertools.chain([answer.columns], rows):
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(["" if value is None else _text(value) for value in row])
        console.result_text(line.getvalue())


def _print_table(answer: Answer, rows: Iterable[Sequence[Any]]) -> None:
    cells = [
        console.Cell(name, is_number)
        for name, is_number in zip(answer.columns, answer.is_number, strict=True)
    ]
    console.table(cells, [["" if value is None else _text(value) for value in row] for row in rows])


def _text(value: Any) -> str:
    value = _json_value(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _json_value(value: Any) -> Any:
    """Dates as ISO 8601, bytes as hex, whole decimals as integers."""
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    if isinstance(value, dict):
        return {name: _json_value(item) for name, item in value.items()}
    return value
