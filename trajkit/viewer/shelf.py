"""Open stores for the page, each with its own restricted connection, and cache query results and texts."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa

from trajkit._core.process.closing import Closing
from trajkit.curation.derive import Derivation
from trajkit.curation.selection.groups import is_about_groups, names_of
from trajkit.curation.selection.pool import Pool
from trajkit.errors import QueryError, RequestError
from trajkit.store.conditions.expression import Expression, parse, require_boolean
from trajkit.store.conditions.nameable import Names, column_name
from trajkit.store.engine import TimeLimit, scan
from trajkit.store.layout import quoted
from trajkit.store.query import explaining, fenced
from trajkit.store.reader import open_store
from trajkit.viewer.filter import Filter
from trajkit.viewer.index import LIMIT_S, Index, Shelved

_MOST_KEPT = 16
_MOST_CHARACTERS = 200_000_000
_LONGEST = 400
"""Characters that are kept of a mission and of a first text."""
_MISSION = " ".join(f"input->>'$.system.{name}'," for name in ("mission", "goal", "task", "instruction"))
_SAID = "list_filter(CAST(messages AS JSON[]), lambda m: m->>'role' = 'user')"
_BEGINNINGS = f"""
    SELECT episode_id, left(coalesce({_MISSION} NULL), {_LONGEST}) AS mission,
        left(coalesce(nullif(({_SAID}[1])->>'$.content[0].text', ''), observation), {_LONGEST}) AS first
    FROM (SELECT episode_id, CAST(input AS JSON) AS input, CAST(messages AS JSON) AS messages, observation
        FROM {{part}} WHERE step_index = 0)
"""
_log = logging.getLogger(__name__)


class Shelf(Closing):
    """Open stores for the page. Also a context manager.

    A thread reads the beginnings of episodes, which takes long, so that the list does not wait for them.

    Args:
        paths: The stores, in the order in which the page shows them.

    Raises:
        RequestError: There is no store, or one is named twice.
        StoreError: A path is not a store that this trajkit can read, or it is damaged.
    """

    def __init__(self, paths: Sequence[str | Path]) -> None:
        if not paths:
            raise RequestError("no store is named", hint="such as sample:babyai")
        stores = [open_store(path) for path in paths]
        names = _names([store.path for store in stores])
        with contextlib.ExitStack() as opened:
            self.stores: tuple[Shelved, ...] = tuple(
                Shelved(number, name, store, opened.enter_context(fenced(store)))
                for number, (name, store) in enumerate(zip(names, stores, strict=True))
            )
            self.index = Index(self.stores)
            opened.callback(self.index.close)
            self._opened = opened.pop_all()
        self.texts = LongTexts()
        self._matches = Matches(self.index, self.stores)
        self._is_closing = threading.Event()
        self._reading = threading.Thread(
            target=read_beginnings, args=(self.index, self.stores, self._is_closing), daemon=True
        )
        self._reading.start()

    @property
    def is_read(self) -> bool:
        """Whether the beginnings of all episodes are read."""
        return not self._reading.is_alive()

    def wait(self) -> None:
        """Wait until the beginnings of all episodes are read."""
        self._reading.join()

    def condition(self, chosen: Filter, *, besides: str | None = None) -> str:
        """Return SQL over the index for the chosen episodes, valid while the index is held.

        Args:
            chosen: The choice of the request.
            besides: A parameter to ignore.

        Raises:
            QueryError: `where` is not a condition on the episodes of any of the stores.
        """
        parts = [sql for word, sql in chosen.conditions.items() if word != besides]
        tables = [self._matches.searched(chosen.searched)] if chosen.searched else []
        tables += [self._matches.where(chosen.where)] if chosen.where else []
        parts += [f"n IN (SELECT n FROM {table})" for table in tables]
        return " AND ".join(parts) or "true"

    def notes(self, chosen: Filter) -> list[str]:
        """Return notes about the chosen episodes."""
        return self._matches.notes(chosen.where) if chosen.where else []

    def close(self) -> None:
        """Close the files and stop running queries. A second call does nothing."""
        if self._is_closing.is_set():
            return
        self._is_closing.set()
        for one in self.stores:
            one.connection.interrupt()
        self._reading.join()
        self._opened.close()


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest unique end of each path."""
    for path in paths:
        if paths.count(path) > 1:
            raise RequestError(f"{path} is named twice", hint="name each store once")
    return [_name(path, paths) for path in paths]


def _name(path: Path, paths: Sequence[Path]) -> str:
    for n_parts in range(1, len(path.parts)):
        end = path.parts[-n_parts:]
        if sum(other.parts[-n_parts:] == end for other in paths) == 1:
            return "/".join(end)
    return str(path)


class Matches:
    """Tables of the episodes that conditions match. Use it only while the index is held (`Index.held`).

    Args:
        index: Holds the tables.
        stores: The stores to query.
    """

    def __init__(self, index: Index, stores: tuple[Shelved, ...]) -> None:
        self._index = index
        self._stores = stores
        self._names: dict[int, tuple[Names, dict[str, str]]] = {}
        self._notes: dict[str, list[str]] = {}
        self._n_made = 0
        self._kept: OrderedDict[tuple[str, int], str] = OrderedDict()

    def where(self, text: str) -> str:
        """Return the name of a table with the number `n` of every episode that meets a condition.

        A store that lacks a named column has no matching episode: null passes no comparison.

        Args:
            text: Condition in the language of `trajkit select`; groups are those of the whole store.

        Raises:
            QueryError: It is not a condition on the episodes of any of the stores.
        """
        return self._table((text, -1), lambda name: self._fill(name, text))

    def notes(self, text: str) -> list[str]:
        """Return which stores lack a name of a condition."""
        return self._notes.get(text, [])

    def searched(self, condition: str) -> str:
        """Return the same for an SQL condition over the index that searches long texts."""
        key = (condition, self._index.version)
        return self._table(key, lambda name: self._index.create_match(name, condition))

    def _fill(self, name: str, text: str) -> None:
        self._index.create_match(name)
        refused: list[QueryError] = []
        for one in self._stores:
            try:
                self._index.add_match(name, one.number, self._chosen(one, text))
            except QueryError as error:
                refused.append(error)
        if len(refused) == len(self._stores):
            raise refused[0]
        self._notes[text] = [f"matches nothing in one store: {error.message}" for error in refused]

    def _table(self, key: tuple[str, int], fill: Callable[[str], None]) -> str:
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        self._n_made += 1
        name = f"match_{self._n_made}"
        try:
            fill(name)
        except BaseException:
            self._index.drop(name)
            raise
        self._kept[key] = name
        if len(self._kept) > _MOST_KEPT:
            (text, _), old = self._kept.popitem(last=False)
            self._notes.pop(text, None)
            self._index.drop(old)
        return name

    def _chosen(self, one: Shelved, text: str) -> pa.Table:
        """Return the ids of a store's episodes that meet a condition."""
        with one.connection.cursor() as cursor:
            if one.number not in self._names:
                self._names[one.number] = names_of(one.store, cursor)
            names, sql = self._names[one.number]
            condition = parse(text, names)
            with TimeLimit(LIMIT_S, cursor, what=f"the condition on {one.name}").counting():
                if any(is_about_groups(name) for name in condition.names):
                    return _chosen_by_group(one, cursor, text)
                return _chosen(one, cursor, condition, sql)


def _chosen(
    one: Shelved, cursor: duckdb.DuckDBPyConnection, condition: Expression, sql: dict[str, str]
) -> pa.Table:
    columns = [f"{sql[name]} AS {quoted(column_name(name))}" for name in condition.names]
    wide = f"(SELECT {', '.join(['episode_id AS trajkit_id', *columns])} FROM episodes)"
    require_boolean(condition, cursor, wide)
    with explaining(one.store):
        found: pa.Table = cursor.sql(
            f"SELECT trajkit_id AS episode_id FROM {wide} WHERE {condition.sql}"
        ).to_arrow_table()
    return found


def _chosen_by_group(one: Shelved, cursor: duckdb.DuckDBPyConnection, text: str) -> pa.Table:
    # the tables that the pool creates belong to the cursor and are dropped with it
    pool = Pool(Derivation(one.store, cursor, lambda: None), conditions=(text,))
    for condition in pool.conditions:
        pool.where(condition)
    found: pa.Table = cursor.sql(f"SELECT episode_id FROM {pool.relation}").to_arrow_table()
    return found


class TextKey(NamedTuple):
    """The place of a text."""

    store: int
    episode_id: str
    step: int | None
    """The step whose row holds it; None for a text of the episode."""
    path: str
    """Its place in that row."""


class LongTexts:
    """A cache of the texts that were read last, of limited size."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[TextKey, str] = OrderedDict()

    def text(self, key: TextKey, read: Callable[[], str]) -> str:
        """Return a text, and read it when it is not cached. One text is read at a time."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = read()
            self._kept.move_to_end(key)
            while len(self._kept) > 1 and sum(map(len, self._kept.values())) > _MOST_CHARACTERS:
                self._kept.popitem(last=False)
            return self._kept[key]


def read_beginnings(index: Index, stores: Sequence[Shelved], is_closing: threading.Event) -> None:
    """Read the beginnings of episodes part by part into the index, and log failures.

    Args:
        index: Gets the beginnings.
        stores: The stores to read.
        is_closing: Set when the shelf is closed.
    """
    for one in stores:
        for part in one.store.parts("steps"):
            if is_closing.is_set():
                return
            try:
                with one.connection.cursor() as cursor:
                    found = cursor.sql(_BEGINNINGS.format(part=scan([part]))).to_arrow_table()
                index.add_beginnings(one.number, found)
            except duckdb.Error as error:
                if not is_closing.is_set():
                    _log.warning("%s: the beginnings of its episodes cannot be read: %s", part, error)
