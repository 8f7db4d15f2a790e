"""Read evaluation episodes of one or more stores as groups: a variant with a decoding, on its worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from trajkit.curation.statistics.read import score_name, score_sql
from trajkit.curation.statistics.stats import stores_in
from trajkit.errors import NothingMatched, QueryError, RequestError
from trajkit.evaluation.estimates.compare import Pairs
from trajkit.evaluation.estimates.estimate import SUCCESS
from trajkit.evaluation.estimates.resample import Floats, Ints
from trajkit.schema import FeedbackKind
from trajkit.store.engine import literal
from trajkit.store.layout import quoted
from trajkit.store.reader import Store, verify
from trajkit.store.view import create_views

GROUP_TAG = "trajkit.group"
"""Tag of episodes that are not independent samples, such as the answers to prompts of one customer."""
PROMPTS = "prompts-"
"""Prefix of the name that replaces the environment's for answers to logged prompts."""
SCORE = "score"
"""Key in a store's record of its evaluation for the metric by which its episodes are compared."""

MEASURES = {
    SUCCESS: "CASE outcome WHEN 'success' THEN 1.0 WHEN 'failure' THEN 0.0 WHEN 'truncated' THEN 0.0 END",
    "n_steps": "n_steps",
    "n_output_tokens": "n_output_tokens",
    "n_input_tokens": "n_input_tokens",
    "invalid": "n_invalid / nullif(n_judged, 0)",
    "cost_usd": "cost_usd",
}
"""Measures besides the return and requested metrics, as SQL; null where unknown."""

_EPISODES = """
    SELECT {number} AS store, episode_id,
        {named} AS source_name,
        coalesce(origin->>'$.policy', nullif(array_to_string(variant_names, '+'), '')) AS variant,
        tags->>'$."trajkit.decoding"' AS decoding,
        env_id, CASE WHEN env_id IS NULL THEN coalesce(task, 'unknown') ELSE concat_ws('/', env_id, task) END
            AS task_name, task, seed,
        tags->>'$."trajkit.group"' AS own_group,
        coalesce(own_group, env_id || ' ' || CAST(seed AS VARCHAR), episode_id) AS room,
        purpose, outcome, n_steps, n_input_tokens, n_output_tokens, cost_usd, n_invalid, n_judged, model_name,
        {metrics}
    FROM {schema}.episodes LEFT JOIN (
        SELECT episode_id, count(*) FILTER (NOT action_valid) AS n_invalid, count(action_valid) AS n_judged,
            min(model_name) AS model_name
        FROM {schema}.steps GROUP BY episode_id
    ) USING (episode_id)
"""


class Source(NamedTuple):
    """A store, and the name that the user gave its episodes."""

    store: Store
    name: str | None = None
    """None names groups by their variants."""


class Who(NamedTuple):
    """The identity of a group: store name, variant and decoding of its episodes."""

    source_name: str | None
    variant: str | None
    decoding: str | None


class Group(NamedTuple):
    """The worlds that a variant was evaluated on, in the order of their tasks and seeds."""

    name: str
    """Displayed name."""
    who: Who
    """Identity of the group."""
    places: Ints
    """Index of each world's task in the list of all tasks."""
    worlds: tuple[tuple[str, int] | None, ...]
    """Task and seed of each world; None for an episode without a seed, which counts as its own world."""
    values: Mapping[str, Floats]
    """Mean over the attempts at each world, by measure; NaN where nothing was measured."""
    by_model: Mapping[str, Floats] = {}
    """The same as worlds by models; empty if only one model answered."""
    rooms: Ints | None = None
    """Room of each world: worlds of several tasks under one seed may be the same room, which counts once. The
    prompts of one group, such as those of a customer, are a room too."""
    has_groups: bool = False
    """Whether the rooms are groups of prompts."""

    @property
    def n_worlds(self) -> int:
        """Number of worlds."""
        return len(self.worlds)


def sources_of(named: Sequence[str | Path]) -> list[Source]:
    """Open stores by path. `NAME=STORE` names a store's episodes; a folder of stores means all of them.

    Raises:
        RequestError: The list is empty.
        StoreError: A path is not a store, or the store is damaged.
    """
    found = []
    for each in named:
        text = str(each)
        name, is_named, path = text.partition("=")
        if not is_named or Path(text).exists():
            name, path = "", text
        found += [Source(store, name or None) for store in stores_in(path)]
    if not found:
        raise RequestError("no store is named", hint="trajkit report stores/evaluation")
    for source in found:
        verify(source.store)
    return found


def read_episodes(
    connection: duckdb.DuckDBPyConnection, sources: Sequence[Source], more: Sequence[str] = ()
) -> list[str]:
    """Create the table `e` with one row of measures per episode, and the views of each store.

    Where any episode was played for evaluation, the other episodes are moved to the table `left_out`.

    Args:
        connection: The database. The views of store N are in the schema `storeN`.
        sources: The stores to read.
        more: Further metrics of episodes.

    Returns:
        The measures: success, the return, `MEASURES`, then the further metrics.

    Raises:
        QueryError: No store has a metric.
        RequestError: An episode is in two stores.
        NothingMatched: There is no episode.
    """
    scores = _scores([source.store for source in sources], more)
    selects = []
    for number, source in enumerate(sources):
        schema = f"store{number}"
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"USE {schema}")
        create_views(connection, source.store)
        connection.execute("USE main")
        metrics = ", ".join(f"{score_sql(source.store, name)} AS {_column(name)}" for name in scores)
        named = "CAST(NULL AS VARCHAR)" if source.name is None else literal(source.name)
        selects.append(_EPISODES.format(number=number, schema=schema, named=named, metrics=metrics))
    connection.execute(f"CREATE TABLE e AS {' UNION ALL '.join(selects)}")
    other = "e WHERE purpose IS DISTINCT FROM 'eval' AND EXISTS (FROM e WHERE purpose = 'eval')"
    connection.execute(f"CREATE TABLE left_out AS SELECT episode_id FROM {other}")
    connection.execute(f"DELETE FROM {other}")
    _check_once(connection, sources)
    ((most_steps,),) = connection.execute("SELECT coalesce(max(n_steps), 0) FROM e").fetchall()
    left = {SUCCESS} if most_steps > 1 else {SUCCESS, "n_steps"}  # single answers have no length to compare
    return [SUCCESS, scores[0], *(name for name in MEASURES if name not in left), *scores[1:]]


def name_groups(connection: duckdb.DuckDBPyConnection, sources: Sequence[Source]) -> dict[Who, str]:
    """Name the groups in the order in which they were played, and create `g`: `e` with `group_name`.

    Args:
        connection: The database after `read_episodes`.
        sources: The stores.

    Raises:
        NothingMatched: There is no episode.
    """
    names = _names(connection, sources)
    connection.execute(
        "CREATE TEMP TABLE named (source_name VARCHAR, variant VARCHAR, decoding VARCHAR, group_name VARCHAR)"
    )
    connection.executemany(
        "INSERT INTO named VALUES (?, ?, ?, ?)", [[*who, name] for who, name in names.items()]
    )
    same = " AND ".join(f"e.{field} IS NOT DISTINCT FROM named.{field}" for field in Who._fields)
    connection.execute(f"CREATE TABLE g AS SELECT e.*, group_name FROM e JOIN named ON {same}")
    return names


def read_groups(
    connection: duckdb.DuckDBPyConnection, names: Mapping[Who, str], measures: Sequence[str]
) -> tuple[list[Group], list[str]]:
    """Return the groups that have episodes in `g`, and the names of all their tasks.

    Args:
        connection: The database after `name_groups`.
        names: Result of `name_groups`.
        measures: Result of `read_episodes`.
    """
    tasks = [task for (task,) in connection.execute("SELECT DISTINCT task_name FROM g ORDER BY 1").fetchall()]
    found = [_group(connection, who, name, tasks, measures) for who, name in names.items()]
    return [group for group in found if group.n_worlds], tasks


def sql_of(measure: str) -> str:
    """Return the SQL of a measure over `e`."""
    return MEASURES.get(measure) or _column(measure)


def _column(metric: str) -> str:
    """Return the column of `e` for a metric; the prefix keeps it apart from all other columns."""
    return quoted(f"metric {metric}")


def _group(
    connection: duckdb.DuckDBPyConnection, who: Who, name: str, tasks: Sequence[str], measures: Sequence[str]
) -> Group:
    means = ", ".join(f"CAST(avg({sql_of(each)}) AS DOUBLE) AS m{at}" for at, each in enumerate(measures))
    by_world = "task_name, seed, CASE WHEN seed IS NULL THEN episode_id END"
    found = connection.execute(
        f"SELECT task_name, seed, {means}, bool_or(own_group IS NOT NULL), min(room) FROM g "
        f"WHERE group_name = ? GROUP BY {by_world} "
        "ORDER BY task_name, seed, min(episode_id)",
        [name],
    ).fetchall()
    place = {task: number for number, task in enumerate(tasks)}
    worlds = tuple(None if row[1] is None else (row[0], row[1]) for row in found)
    columns = _columns([row[2:-2] for row in found], len(measures))
    models = [
        model
        for (model,) in connection.execute(
            "SELECT DISTINCT model_name FROM g WHERE group_name = ? AND model_name IS NOT NULL ORDER BY 1",
            [name],
        ).fetchall()
    ]
    by_model = np.full((len(worlds), len(models), len(measures)), np.nan)
    if len(models) > 1:
        at = {world: number for number, world in enumerate(worlds) if world is not None}
        column = {model: number for number, model in enumerate(models)}
        for task, seed, model, *row in connection.execute(
            f"SELECT task_name, seed, model_name, {means} FROM g WHERE group_name = ? AND seed IS NOT NULL "
            "AND model_name IS NOT NULL GROUP BY task_name, seed, model_name",
            [name],
        ).fetchall():
            by_model[at[task, seed], column[model]] = _columns([row], len(measures))[0]
    return Group(
        name=name,
        who=who,
        places=np.array([place[row[0]] for row in found], dtype=np.int64),
        worlds=worlds,
        values={each: columns[:, at] for at, each in enumerate(measures)},
        by_model={each: by_model[:, :, at] for at, each in enumerate(measures)} if len(models) > 1 else {},
        rooms=np.unique([row[-1] for row in found], return_inverse=True)[1].astype(np.int64),
        has_groups=any(row[-2] for row in found),
    )


def _columns(rows: Sequence[Sequence[float | None]], n: int) -> Floats:
    """Convert rows of measures to numbers; None becomes NaN."""
    return np.array(rows, dtype=np.float64).reshape(-1, n)


def _names(connection: duckdb.DuckDBPyConnection, sources: Sequence[Source]) -> dict[Who, str]:
    """Name each group after its variant, plus the parts that distinguish it from the other groups."""
    played: dict[str, None] = {}
    for source in sources:
        for entry in source.store.manifest.lineage:
            for field in ("variants", "decodings"):
                played.update(dict.fromkeys(map(str, _listed(entry.arguments.get(field)))))
    order = list(played)
    rows = connection.execute(
        "SELECT source_name, variant, decoding, min(store) FROM e GROUP BY ALL"
    ).fetchall()
    if not rows:
        raise NothingMatched(f"{sources[0].store.path} has no episodes, so there is nothing to report")
    found = {Who(*row[:3]): row[3] for row in rows}

    def position(who: Who) -> tuple[int, ...]:
        known = [
            order.index(str(each)) if each in order else len(order) for each in (who.decoding, who.variant)
        ]
        return (found[who], *known)

    groups = sorted(sorted(found, key=str), key=position)
    shown = {who: _plain(who, groups) for who in groups}
    for name in shown.values():
        if list(shown.values()).count(name) > 1:  # the user's names can coincide
            shown = {who: f"{text} ({number})" for number, (who, text) in enumerate(shown.items(), start=1)}
            break
    return shown


def _plain(who: Who, groups: Sequence[Who]) -> str:
    variant = who.variant or "unknown"
    if who.source_name is None:
        name = variant
    else:
        is_one = len({other.variant for other in groups if other.source_name == who.source_name}) == 1
        name = who.source_name if is_one else f"{who.source_name} {variant}"
    return name if len({other.decoding for other in groups}) == 1 else f"{name}, {who.decoding or 'config'}"


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def _scores(stores: Sequence[Store], more: Sequence[str]) -> list[str]:
    """Return the name of the return in these stores, then the further requested metrics."""
    score = score_name(stores, None)
    own = stores[0].manifest.source.get("evaluation")
    if isinstance(own, dict) and any(
        metric.name == own.get(SCORE) and metric.kind == FeedbackKind.FLOAT
        for store in stores
        for metric in store.manifest.metrics
    ):
        score = str(own[SCORE])
    for name in more:
        if score_name(stores, name) in MEASURES:
            raise QueryError(
                f"the metric {name!r} has the name of a measure that reports have anyway", hint="leave it out"
            )
    return list(dict.fromkeys([score, *more]))


def _check_once(connection: duckdb.DuckDBPyConnection, sources: Sequence[Source]) -> None:
    twice = connection.execute(
        "SELECT episode_id, min(store), max(store) FROM e GROUP BY ALL HAVING count(*) > 1 "
        "ORDER BY ALL LIMIT 1"
    ).fetchone()
    if twice is not None:
        first, second = (sources[number].store.path for number in twice[1:])
        raise RequestError(
            f"episode {twice[0]} is in {first} and in {second}", hint="it would count twice: leave one out"
        )


def paired(one: Group, other: Group) -> Pairs:
    """Return the worlds that both groups played, in the order of the first group."""
    places = {world: place for place, world in enumerate(other.worlds) if world is not None}
    both = [(place, places[world]) for place, world in enumerate(one.worlds) if world in places]
    mine, theirs = (np.array([pair[side] for pair in both], dtype=np.int64) for side in (0, 1))
    return Pairs(
        {name: value[mine] for name, value in one.values.items()},
        {name: value[theirs] for name, value in other.values.items()},
        one.places[mine],
        {name: value[mine] for name, value in one.by_model.items()},
        {name: value[theirs] for name, value in other.by_model.items()},
        None if one.rooms is None else one.rooms[mine],
        one.has_groups,
    )
