"""Narrow the episodes of a selection stage by stage, and count those left out by reason."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from trajkit.curation.derive import Derivation
from trajkit.curation.keys import Key, group_key
from trajkit.curation.selection.groups import Score, is_about_groups, names_of, score_of, statistics_sql
from trajkit.errors import QueryError
from trajkit.schema import Left
from trajkit.store.conditions.expression import Expression, parse, require_boolean
from trajkit.store.conditions.nameable import column_name
from trajkit.store.engine import literal
from trajkit.store.layout import quoted
from trajkit.store.query import explaining

_WIDE = "trajkit_wide"
_COLUMNS = ("episode_id", "n_steps", "key", "score", "env_id", "task", "outcome", "purpose")
_COMPARING = {"avg", "best", "worst", "rank"}


class Size(NamedTuple):
    """Size of a pool."""

    n_episodes: int
    n_steps: int


class Pool:
    """The episodes of a store, with the group and the score of each; `keep` narrows it.

    Args:
        derivation: The store.
        by: Columns of the group; empty for environment, task and seed.
        score: The metric to compare by; None for the default of `score_of`.
        needs_score: Whether the selection compares episodes, so that there must be a score.
        may_score: Whether the selection uses a score if there is one.
        conditions: The user's conditions on episodes.

    Raises:
        QueryError: A column or a metric does not exist, or a condition is invalid.
    """

    relation = "trajkit_kept_0"
    """Relation with `episode_id`, `n_steps`, `key`, `score`, `env_id`, `task`, `outcome` and `purpose` of the
    remaining episodes."""

    def __init__(
        self,
        derivation: Derivation,
        *,
        by: Sequence[str] = (),
        score: str | None = None,
        needs_score: bool = False,
        may_score: bool = False,
        conditions: Sequence[str] = (),
    ) -> None:
        self._derivation = derivation
        self._connection = derivation.connection
        self.key: Key = group_key(self._connection, derivation.store, columns_of_user(by))
        self.conditions = self._parsed(conditions)
        asked = {name for condition in self.conditions for name in condition.names}
        self.asks_about_groups = any(is_about_groups(name) for name in asked)
        must_score = needs_score or score is not None or bool(asked & _COMPARING)
        self.score: Score | None = None
        if must_score:
            self.score = score_of(derivation.store, self._connection, score)
        elif may_score:
            with contextlib.suppress(QueryError):
                self.score = score_of(derivation.store, self._connection)
        self.left: list[Left] = []
        self._number = 0
        self._create(asked)
        self.size = self._size()

    @property
    def n_ungrouped(self) -> int:
        """Number of episodes without a column of the key: each is a group of its own."""
        ((n,),) = self._connection.execute(
            f"SELECT count(*) FROM {self.key.relation} WHERE NOT has_key"
        ).fetchall()
        return int(n)

    @property
    def largest_group(self) -> int:
        """Number of episodes in the largest group of the whole store; 0 if it has none."""
        ((n,),) = self._connection.execute(
            f"SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM {self.key.relation} GROUP BY key)"
        ).fetchall()
        return int(n)

    def where(self, condition: Expression) -> None:
        """Keep the episodes for which a condition is true; null counts as false.

        Raises:
            QueryError: Evaluating it fails.
        """
        with explaining(self._derivation.store, self._connection):
            self.keep(
                f"episode_id IN (SELECT episode_id FROM {_WIDE} WHERE {condition.sql})",
                reason=f"not ({condition.text})",
            )

    def keep(self, condition: str, *, reason: str, columns: str = "") -> None:
        """Keep the episodes for which an SQL condition is true, and count the others.

        Args:
            condition: SQL over the pool's columns and those of `columns`.
            reason: Reason of the others.
            columns: Additional columns, such as `row_number() OVER (…) AS place`.
        """
        more = f", {columns}" if columns else ""
        names = ", ".join(_COLUMNS)
        goal = f"trajkit_kept_{self._number + 1}"
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {goal} AS SELECT {names} "
            f"FROM (SELECT *{more} FROM {self.relation}) WHERE {condition}"
        )
        self._number += 1
        self.relation = goal
        before, self.size = self.size, self._size()
        gone = Left(
            reason=reason,
            n_episodes=before.n_episodes - self.size.n_episodes,
            n_steps=before.n_steps - self.size.n_steps,
        )
        if gone.n_episodes:
            self.left.append(gone)

    def keys_by(self, columns: Sequence[str]) -> Key:
        """Return another key of the same episodes."""
        return group_key(self._connection, self._derivation.store, columns_of_user(columns))

    def _parsed(self, conditions: Sequence[str]) -> list[Expression]:
        if not conditions:
            return []
        names, self._sql = names_of(self._derivation.store, self._connection)
        return [parse(text, names) for text in conditions]

    def _create(self, asked: set[str]) -> None:
        """Create the pool's table, and another one with the columns that the conditions name."""
        score = self.score.sql if self.score else "CAST(NULL AS DOUBLE)"
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {self.relation} AS SELECT e.episode_id, e.n_steps, k.key, "
            f"{score} AS score, e.env_id, e.task, e.outcome, e.purpose "
            f"FROM episodes AS e JOIN {self.key.relation} AS k ON e.episode_id = k.episode_id"
        )
        if not self.conditions:
            return
        plain = sorted(name for name in asked if not is_about_groups(name) and name != "episode_id")
        of_groups = sorted(name for name in asked if is_about_groups(name))
        selected = ", ".join(
            ["episode_id", *(f"{self._sql[name]} AS {quoted(column_name(name))}" for name in plain)]
        )
        wide = f"SELECT {selected} FROM episodes"
        if of_groups:
            statistics = statistics_sql(of_groups, self.score, self.relation)
            wide = f"SELECT * FROM ({wide}) JOIN ({statistics}) USING (episode_id)"
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {_WIDE} AS {wide}")
        for condition in self.conditions:
            require_boolean(condition, self._connection, _WIDE)

    def _size(self) -> Size:
        ((n_episodes, n_steps),) = self._connection.execute(
            f"SELECT count(*), CAST(coalesce(sum(n_steps), 0) AS BIGINT) FROM {self.relation}"
        ).fetchall()
        return Size(n_episodes, n_steps)


def columns_of_user(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that a user names: `variant` stands for the list of variants that played."""
    return tuple("variant_names" if name.lower() == "variant" else name for name in names)


def drawn(stage: str, seed: int) -> str:
    """Return SQL that sorts episodes in a random order that depends only on the seed and the stage.

    Adding episodes to a store keeps the order of the others, and a smaller sample is part of a larger one.
    """
    return f"sha256({literal(f'{stage}:{seed}:')} || episode_id), episode_id"
