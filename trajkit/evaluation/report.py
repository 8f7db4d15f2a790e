"""Read evaluation stores and report how each variant did, how variants differ, and how certain that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

import trajkit
from trajkit.curation.leaks.leak import leak
from trajkit.curation.statistics.intervals import CONFIDENCE
from trajkit.errors import RequestError, StoreError
from trajkit.evaluation.estimates.compare import Comparison, compare
from trajkit.evaluation.estimates.estimate import estimates
from trajkit.evaluation.estimates.per_success import per_success
from trajkit.evaluation.estimates.resample import Resampling
from trajkit.evaluation.estimates.two_way import n_rooms
from trajkit.evaluation.groups import (
    Group,
    Source,
    name_groups,
    paired,
    read_episodes,
    read_groups,
    sources_of,
)
from trajkit.evaluation.regressions import changed
from trajkit.evaluation.reports.model import GroupResult, StoreSide, Training, Unaliased
from trajkit.evaluation.reports.object import Report
from trajkit.store.conditions.nameable import nearest
from trajkit.store.engine import connect, first_line, interruptible

RESAMPLES = 10_000
_OUTSIDE = """
    SELECT (SELECT count(*) FROM left_out), (SELECT count(*) FROM g WHERE purpose IS DISTINCT FROM 'eval')
"""
_UNJUDGED = """
    SELECT group_name, count(*), count(*) FILTER (outcome IN ('unknown', 'error')) AS n_unjudged FROM g
    GROUP BY group_name
    HAVING n_unjudged > 0 AND EXISTS (FROM g WHERE outcome IN ('success', 'failure', 'truncated', 'error'))
    ORDER BY group_name
"""
_REPEATED = """
    SELECT group_name, count(*), count(DISTINCT (task_name, seed)) AS n_worlds, count(DISTINCT store),
        count(DISTINCT model_name)
    FROM g
    WHERE seed IS NOT NULL GROUP BY group_name HAVING count(*) > n_worlds ORDER BY group_name
"""


def report(
    *stores: str | Path,
    baseline: str | Sequence[str] = (),
    across_decodings: bool = False,
    trained_on: str | Path | Sequence[str | Path] = (),
    trainings: Mapping[str, Training] | Callable[[str], Training | None] | None = None,
    metrics: Sequence[str] = (),
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
    threads: int | None = None,
) -> Report:
    """Compare the variants in evaluation stores.

    Means weigh all tasks the same and count a world (environment, task and seed) once, however often it was
    played. Success has Wilson's interval, other means the bootstrap's within tasks; where tasks share seeds,
    a seed counts as one room (`two_way`). Differences are computed pair by pair over the worlds that both
    groups played. Where any episode was played for evaluation, the other episodes are left out.

    Args:
        stores: Evaluation stores, or folders of them; `NAME=STORE` names the episodes of one store.
        baseline: Groups or variants that the others are compared with; none for the first of each decoding.
        across_decodings: Also compare groups with different decodings. Otherwise they are compared only where
            no other group has the baseline's decoding.
        trained_on: Training stores of the compared models: the report adds results on only those worlds
            whose text is in none of these stores.
        trainings: Training data of a model, for the learning curve, by the name of the group, the variant
            or the model.
        metrics: Further metrics of episodes.
        confidence: Confidence of every interval, between 0 and 1.
        resamples: Resamples of each bootstrap.
        seed: Seed of the bootstrap.
        threads: Threads to use; None for one per core. The numbers do not depend on it.

    Raises:
        StoreError: A path is not a store, or the store is damaged.
        NothingMatched: There is no episode.
        QueryError: There is no such metric.
        RequestError: There is no such group, an episode is in two stores, or a number is out of its range.
    """
    if not 0 < confidence < 1:
        raise RequestError(f"confidence {confidence:g} is not between 0 and 1", hint="such as 0.95")
    if resamples < 100:
        raise RequestError(f"{resamples} resamples are too few for an interval", hint="such as 10000")
    how = Resampling(resamples, seed, confidence)
    sources = sources_of(stores)
    learned = (
        sources_of([trained_on] if isinstance(trained_on, str | Path) else trained_on) if trained_on else []
    )
    find = trainings.get if isinstance(trainings, Mapping) else trainings or (lambda name: None)
    with connect(threads=threads) as connection:
        try:
            with interruptible(connection):
                wanted = [baseline] if isinstance(baseline, str) else list(baseline)
                reading = _Reading(connection, sources, how, metrics, find)
                return reading.report(wanted, learned, across_decodings=across_decodings)
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
            raise StoreError(f"{sources[0].store.path} could not be read: {first_line(error)}") from error


class _Reading:
    """The groups of some stores, and the results about them."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        sources: Sequence[Source],
        how: Resampling,
        metrics: Sequence[str],
        training: Callable[[str], Training | None],
    ) -> None:
        self._connection = connection
        self._sources = sources
        self._how = how
        self._measures = read_episodes(connection, sources, metrics)
        self._named = name_groups(connection, sources)
        self._groups, self._tasks = read_groups(connection, self._named, self._measures)
        self._training = training

    def report(
        self, baselines: Sequence[str], learned: Sequence[Source], *, across_decodings: bool
    ) -> Report:
        """Compute the whole report."""
        compared = _opponents(self._groups, baselines, across_decodings=across_decodings)
        results = tuple(self._results(self._groups))
        regressions, improved = [], {}
        for one, other in compared:
            worse, improved[f"{other} against {one}"] = changed(self._connection, self._sources, one, other)
            regressions += worse
        comparisons = tuple(self._comparisons(self._groups, compared))
        measured = {each.metric for result in results for each in result.estimates}
        return Report(
            trajkit_version=trajkit.__version__,
            stores=tuple(_side(source) for source in self._sources),
            confidence=self._how.confidence,
            resamples=self._how.resamples,
            seed=self._how.seed,
            n_episodes=sum(result.n_episodes for result in results),
            tasks=tuple(self._tasks),
            measures=tuple(each for each in self._measures if each in measured),
            groups=results,
            comparisons=comparisons,
            regressions=tuple(regressions),
            n_improved=improved,
            notes=tuple(_notes_on(self._connection, self._groups, compared)),
            unaliased=self._unaliased(learned, compared) if learned else None,  # last: it deletes episodes
        )

    def _unaliased(self, learned: Sequence[Source], compared: Sequence[tuple[str, str]]) -> Unaliased:
        found = _leave_out(self._connection, learned, self._sources)
        groups, self._tasks = read_groups(self._connection, self._named, self._measures)
        return Unaliased(
            trained_on=tuple(_side(source) for source in learned),
            **found,
            groups=tuple(self._results(groups)),
            comparisons=tuple(self._comparisons(groups, compared)),
        )

    def _results(self, groups: Sequence[Group]) -> Iterator[GroupResult]:
        for group in groups:
            models = [model for model, _ in self._steps(group, "model_name")]
            known = (self._training(each) for each in (group.name, group.who.variant, *models) if each)
            yield GroupResult(
                name=group.name,
                variant=group.who.variant,
                decoding=group.who.decoding,
                n_worlds=group.n_worlds,
                estimates=tuple(
                    estimates(
                        group.values,
                        self._tasks,
                        group.places,
                        self._how,
                        group.by_model,
                        group.rooms,
                        has_groups=group.has_groups,
                    )
                ),
                per_success=tuple(per_success(self._connection, group, self._how)),
                models=tuple(models),
                training=next(filter(None, known), None),
                **self._counts(group),
            )

    def _counts(self, group: Group) -> dict[str, Any]:
        """Count episodes, outcomes, the model's finish reasons, and answers that named no action."""
        ask = self._connection.execute
        n_episodes, n_judged, n_invalid = ask(
            "SELECT count(*), CAST(coalesce(sum(n_judged), 0) AS BIGINT), "
            "CAST(coalesce(sum(n_invalid), 0) AS BIGINT) FROM g WHERE group_name = ?",
            [group.name],
        ).fetchall()[0]
        outcomes = ask(
            "SELECT outcome, count(*) FROM g WHERE group_name = ? GROUP BY outcome ORDER BY 2 DESC, 1",
            [group.name],
        ).fetchall()
        return {
            "n_episodes": n_episodes,
            "n_judged": n_judged,
            "n_invalid": n_invalid,
            "outcomes": dict(outcomes),
            "finish_reasons": dict(self._steps(group, "finish_reason")),
        }

    def _steps(self, group: Group, column: str) -> list[tuple[str, int]]:
        """Return the values of a column of the group's steps, the most frequent first."""
        steps = " UNION ALL ".join(
            f"SELECT {column} AS value FROM store{number}.steps SEMI JOIN "
            f"(SELECT episode_id FROM g WHERE group_name = $1 AND store = {number}) USING (episode_id)"
            for number in range(len(self._sources))
        )
        return self._connection.execute(
            f"SELECT value, count(*) FROM ({steps}) WHERE value IS NOT NULL "
            "GROUP BY value ORDER BY 2 DESC, 1",
            [group.name],
        ).fetchall()

    def _comparisons(
        self, groups: Sequence[Group], compared: Sequence[tuple[str, str]]
    ) -> Iterator[Comparison]:
        by_name = {group.name: group for group in groups}
        for one, other in compared:
            if one in by_name and other in by_name:
                pairs = paired(by_name[one], by_name[other])
                yield from compare((one, other), pairs, self._tasks, self._how, self._measures)


def _side(source: Source) -> StoreSide:
    return StoreSide(path=source.store.path, digest=source.store.manifest.digest, name=source.name)


def _leave_out(
    connection: duckdb.DuckDBPyConnection, learned: Sequence[Source], sources: Sequence[Source]
) -> dict[str, Any]:
    """Find the worlds of `sources` that are aliased, and delete their episodes from the table `g`.

    Returns:
        The fields `n_worlds`, `n_aliased` and `leaks` of `Unaliased`.
    """
    connection.execute("CREATE TEMP TABLE aliased (env_id VARCHAR, task VARCHAR, seed BIGINT)")
    leaks: list[str] = []
    for training in learned:
        for source in sources:
            found = leak(training.store.path, source.store.path, near=None, reservations=())
            leaks += [
                f"{source.store.path} and {training.store.path}: {each.words}"
                for each in found.findings
                if each.n_blocking
            ]
            if found.aliased.worlds:
                connection.executemany(
                    "INSERT INTO aliased VALUES (?, ?, ?)",
                    [[world.env_id, world.task, world.seed] for world in found.aliased.worlds],
                )
    world = "FROM g WHERE seed IS NOT NULL"
    is_aliased = "(env_id, task, seed) IN (SELECT (env_id, task, seed) FROM aliased)"
    count = f"SELECT count(DISTINCT (env_id, task, seed)) {world}"
    n_worlds, n_aliased = (
        int(connection.execute(text).fetchall()[0][0]) for text in (count, f"{count} AND {is_aliased}")
    )
    connection.execute(f"DELETE FROM g WHERE seed IS NOT NULL AND {is_aliased}")
    return {"n_worlds": n_worlds, "n_aliased": n_aliased, "leaks": tuple(leaks)}


def _notes_on(
    connection: duckdb.DuckDBPyConnection, groups: Sequence[Group], compared: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Write the notes of a report, a sentence each."""
    ((n_left, n_not_marked),) = connection.execute(_OUTSIDE).fetchall()
    if n_left:
        yield f"{n_left:,} episodes that are not marked as evaluation are left out"
    if n_not_marked:
        yield f"no episode is marked as evaluation; all {n_not_marked:,} are reported"
    for name, n, n_unjudged in connection.execute(_UNJUDGED).fetchall():
        yield (
            f"{name}: the end of {n_unjudged:,} of {n:,} episodes is an error or unknown; success leaves "
            "them out"
        )
    for name, n, n_worlds, n_stores, n_models in connection.execute(_REPEATED).fetchall():
        played = f"{n_worlds:,} worlds by {n_models:,} models" if n_models > 1 else f"{n_worlds:,} worlds"
        yield f"{name}: {n:,} episodes on {played}; several attempts at a world count as their mean"
        if n_stores > 1:
            yield f"{name} is in {n_stores} stores: NAME=STORE separates them if they are different models"
    shared = {(group.n_worlds, n) for group in groups if (n := n_rooms(group.rooms)) is not None}
    has_groups = any(group.has_groups for group in groups)
    for n_worlds, n in sorted(shared):
        if has_groups:
            yield f"{n_worlds:,} prompts are of {n:,} groups: intervals are over groups, without a test"
        else:
            yield f"{n_worlds:,} worlds are {n:,} rooms, one for each seed; intervals are over rooms"
    without = sum(world is None for group in groups for world in group.worlds)
    if without:
        yield f"{without:,} episodes have no seed: they cannot be paired"
    alone = [group for group in groups if all(group.name not in pair for pair in compared)]
    for group in alone if compared else ():
        yield (
            f"{group.name} is compared with nothing: no other group has its decoding "
            "(--across-decodings compares it)"
        )
    worlds = {group.name: set(group.worlds) - {None} for group in groups}
    for one, other in compared:
        n_both, n_all = len(worlds[one] & worlds[other]), len(worlds[one] | worlds[other])
        if n_both < n_all:
            yield f"{other} against {one}: both played {n_both:,} of {n_all:,} worlds; only those count"


def _opponents(
    groups: Sequence[Group], baselines: Sequence[str], *, across_decodings: bool
) -> list[tuple[str, str]]:
    """Choose the pairs of baseline and candidate, by name.

    A baseline, without any the first group of each decoding, is compared with every other group of its
    decoding. A named baseline that is the only group with its decoding is compared with all groups, and so is
    the first group if there is no pair.
    """
    decodings = {group.name: group.who.decoding for group in groups}
    firsts = list({decoding: name for name, decoding in reversed(decodings.items())}.values())[::-1]
    named = list(dict.fromkeys(each for name in baselines for each in _called(name, groups)))
    if across_decodings:
        return _pairs(named or firsts[:1], {name: list(decodings) for name in decodings})
    alike = {name: [one for one in decodings if decodings[one] == decodings[name]] for name in decodings}
    if named:
        is_alone = {name for name in named if len(alike[name]) == 1}
        return _pairs(named, {**alike, **{name: list(decodings) for name in is_alone}})
    return _pairs(firsts, alike) or _pairs(firsts[:1], {name: list(decodings) for name in decodings})


def _pairs(baselines: Sequence[str], against: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Pair each baseline with the groups it is compared with; two baselines form one pair, not two."""
    found: dict[tuple[str, str], None] = {}
    for one in baselines:
        for other in against[one]:
            if other != one and (other, one) not in found:
                found[one, other] = None
    return list(found)


def _called(name: str, groups: Sequence[Group]) -> list[str]:
    """Return the group with this name, or the groups of the variant or of the store with this name."""
    names = [group.name for group in groups]
    if name in names:
        return [name]
    found = [group.name for group in groups if name == (group.who.source_name or group.who.variant)]
    if not found:
        raise RequestError(f"no variant {name!r} in these stores", hint=nearest(name, names))
    return found
