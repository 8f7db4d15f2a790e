"""Run one SQL SELECT over a store."""

from __future__ import annotations

import contextlib
import csv as csv_file
import datetime
import decimal
import io
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from trajkit._core.output import console
from trajkit._core.output.result import Result
from trajkit.commands.options.types import Option, StoreLike
from trajkit.commands.place import store_path
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.store.query import Answer

_BESIDE = 1 << 30
"""Bytes for what DuckDB does not count: its threads, and the rows that are printed."""
_MOST_IN_TABLE = 100


class Rows(list[dict[str, Any]], Result):
    """The rows of a query by the names of its columns; JSON columns are values.

    On the command line they are printed as they are read, and this list is empty.

    Args:
        answer: The columns, and the rows to be read.
        limit: Maximum rows; None for all, or 100 in a table.
        csv: Whether the text is CSV instead of a table.
    """

    def __init__(self, answer: Answer, *, limit: int | None, csv: bool) -> None:
        super().__init__()
        self._answer, self._limit, self._csv = answer, limit, csv
        self._rows: Iterable[Sequence[Any]] = answer.rows()
        self._opened = contextlib.ExitStack()

    def read(self) -> None:
        """Read the rows into this list."""
        self._rows = list(itertools.islice(self._rows, self._limit))
        self += [self._by_name(row, lambda value: value) for row in self._rows]

    def keep_open(self, opened: contextlib.ExitStack) -> None:
        """Leave the rows to be read when they are printed, and then close the query."""
        self._opened = opened

    def to_json(self) -> list[dict[str, Any]]:
        """The rows as values that JSON has."""
        return [self._by_name(row, _json_value) for row in self._rows]

    def print_json(self) -> None:
        """Print each row as a line of JSON on stdout."""
        with self._opened:
            if self._csv:
                raise RequestError("--json and --csv: choose one")
            rows = iter(self._rows)
            for row in itertools.islice(rows, self._limit):
                console.result_json_line(self._by_name(row, _json_value))
            self._tell_more(rows)

    def print_text(self) -> None:
        """Print the rows as a table or CSV on stdout."""
        with self._opened:
            rows = iter(self._rows)
            for text in self._texts(rows):
                console.result_text(text)
            self._tell_more(rows)

    def __str__(self) -> str:
        return "\n".join(self._texts(iter(self._rows)))

    def _texts(self, rows: Iterator[Sequence[Any]]) -> Iterator[str]:
        """The table, or each record of CSV."""
        answer = self._answer
        if self._csv:
            for row in itertools.chain([answer.columns], itertools.islice(rows, self._limit)):
                record = io.StringIO()
                csv_file.writer(record, lineterminator="").writerow(map(_text, row))
                yield record.getvalue()
            return
        shown = itertools.islice(rows, _MOST_IN_TABLE if self._limit is None else self._limit)
        cells = map(console.Cell, answer.columns, answer.is_number)
        yield console.table_text(list(cells), [[_text(value) for value in row] for row in shown])

    def _tell_more(self, rest: Iterator[Sequence[Any]]) -> None:
        if n_more := sum(1 for _ in rest):
            n_shown = _MOST_IN_TABLE if self._limit is None else self._limit
            more = console.plural(n_more, "row")
            console.talk(f"… {more} more; --limit {n_shown + n_more} prints them all")

    def _by_name(self, row: Sequence[Any], shown: Callable[[Any], Any]) -> dict[str, Any]:
        return {
            name: json.loads(value) if is_json and value is not None else shown(value)
            for name, value, is_json in zip(self._answer.columns, row, self._answer.is_json, strict=True)
        }


def query(
    store: StoreLike,
    sql: str,
    *,
    limit: Annotated[int | None, Option(least=0, metavar="N")] = None,
    csv: bool = False,
    timeout: Annotated[float, Option(least=0, is_open=True, metavar="SECONDS")] = 300.0,
    memory: Annotated[float, Option(least=0.1, metavar="GB")] = 4.0,
) -> Rows:
    """Run one SQL SELECT over a store: the tables episodes, steps, feedback and steps_full.

    The dialect is DuckDB's. A metric of an episode is metrics.NAME; steps_full adds the full prompt to each
    step. The query sees the store and nothing else, and changes nothing. Rows that do not fit into memory
    spill to disk. --json prints each row as a line of JSON.

    Args:
        store: The store.
        sql: The SELECT.
        limit: Maximum rows. Default: 100 in a printed table, else all.
        csv: Print comma-separated values with a line of headings.
        timeout: Time limit of the query, in seconds.
        memory: Maximum memory of DuckDB; texts that functions make do not count.

    Raises:
        QueryError: It is not one read-only SELECT, a name does not exist, or it takes too long.
        StoreError: The store cannot be read, or memory ran out.

    Example:
        trajkit query sample:babyai "select task, avg(total_reward) from episodes group by task"
    """
    from trajkit._core.process.memory import at_most
    from trajkit.store.query import ask
    from trajkit.store.reader import open_store

    n_bytes = int(memory * 1e9)
    with contextlib.ExitStack() as opened:
        opened.enter_context(at_most(n_bytes + _BESIDE))
        asked = ask(open_store(store_path(store)), sql, limit_s=timeout, memory_limit=f"{n_bytes}B")
        rows = Rows(opened.enter_context(asked), limit=limit, csv=csv)
        if console.is_open():
            rows.keep_open(opened.pop_all())
        else:
            rows.read()
    return rows


def _text(value: Any) -> str:
    value = "" if value is None else _json_value(value, is_json=False)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _json_value(value: Any, *, is_json: bool = True) -> Any:
    """Dates as ISO 8601, bytes as hex, whole decimals as integers; in JSON null for infinity and NaN."""
    if is_json and isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [_json_value(item, is_json=is_json) for item in value]
    if isinstance(value, dict):
        return {name: _json_value(item, is_json=is_json) for name, item in value.items()}
    return value
