"""The episodes for which a condition is true: found once for each condition, and kept for what follows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import duckdb
import pyarrow as pa

from trajkit.curation.derive import Derivation
from trajkit.curation.groups import is_about_groups, names_of
from trajkit.curation.pool import Pool
from trajkit.errors import QueryError
from trajkit.store.engine import TimeLimit
from trajkit.store.expression import Expression, parse, require_boolean
from trajkit.store.layout import quoted
from trajkit.store.nameable import Names, column_name
from trajkit.store.query import explaining
from trajkit.viewer.index import LIMIT_S, Index
from trajkit.viewer.shelved import Shelved

_MOST_KEPT = 16


class Matches:
    """What conditions choose. All of it is asked for while the index is held (`Index.held`).

    Args:
        index: Where what was found is kept.
        stores: What is asked.
    """

    def __init__(self, index: Index, stores: tuple[Shelved, ...]) -> None:
        self._index = index
        self._stores = stores
        self._names: dict[int, tuple[Names, dict[str, str]]] = {}
        self._notes: dict[str, list[str]] = {}
        self._n_made = 0
        self._kept: OrderedDict[tuple[str, int], str] = OrderedDict()

    def where(self, text: str) -> str:
        """A table of the index with the number `n` of every episode for which a condition is true.

        It is true of no episode of a store that lacks what it names: what is missing passes no comparison.

        Args:
            text: In the words of `trajkit select`; statistics of groups are those of a whole store.

        Raises:
            QueryError: It is not a condition on the episodes of any of the stores.
        """
        return self._table((text, -1), lambda name: self._fill(name, text))

    def notes(self, text: str) -> list[str]:
        """Which stores lack what a condition names that was asked of them."""
        return self._notes.get(text, [])

    def searched(self, condition: str) -> str:
        """The same of SQL over the index that looks into long texts."""
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
        self._notes[text] = [f"chooses nothing of one store: {error.message}" for error in refused]

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
        """The ids of the episodes of a store for which a condition is true."""
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
    # the tables that this makes are the cursor's own, and go with it
    pool = Pool(Derivation(one.store, cursor, lambda: None), conditions=(text,))
    for condition in pool.conditions:
        pool.where(condition)
    found: pa.Table = cursor.sql(f"SELECT episode_id FROM {pool.relation}").to_arrow_table()
    return found
