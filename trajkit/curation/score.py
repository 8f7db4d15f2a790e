"""Score: what a function of somebody's own says of each episode or step, as a metric of the store."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from trajkit._core.files import refuse_existing
from trajkit._core.settings import STATE_FOLDER
from trajkit.curation.derive import Derivation, deriving
from trajkit.curation.scorer import Identity, Score, Scorer, Unusable
from trajkit.curation.scores import Bad, Journal, Marks, Scores
from trajkit.curation.workers import worked
from trajkit.errors import RequestError
from trajkit.schema import Episode, FeedbackKind, LineageEntry, Manifest, Metric, MetricLevel
from trajkit.schema.base import JsonObject
from trajkit.store.layout import quoted

OnProgress = Callable[[str, int, int | None], None]
"""What is being done, how much of it is done, and of how much."""

Per = Literal["episode", "step"]
"""What is scored."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_LISTED = 20
"""Kinds of failure that the lineage keeps."""


class Scored(NamedTuple):
    """What a scorer said of a store."""

    entry: LineageEntry
    """What the lineage says of it."""
    manifest: Manifest | None
    """Of the new store; None after a dry run."""
    n_scored: int
    """Episodes or steps that have a score."""
    n_none: int
    """Those of which the scorer had nothing to say."""
    n_bad: int
    """Those it failed on."""
    bad: tuple[Bad, ...]
    """The first of these, by episode and step."""
    n_resumed: int
    """Episodes whose scores an earlier run had left."""
    mean: float | None
    """Mean score; of a yes or no the share of yes."""


def score(
    path: str | Path,
    goal: Path | None,
    *,
    scorer: str,
    name: str,
    per: Per = "episode",
    optimize: Literal["max", "min"] | None = None,
    processes: int = 1,
    max_bad: int = 0,
    new_run: bool = False,
    journals: Path = STATE_FOLDER / "score",
    on_progress: OnProgress = lambda what, done, total: None,
) -> Scored:
    """Write a new store with one more metric: what a scorer says of each episode, or of each step.

    A scorer gets an `Episode` (or a `Transition`, and its `Episode` where it takes two arguments) and gives a
    number, True or False, or None where there is nothing to say. What it raises, and NaN, is counted with the
    episode's id. What was scored is kept in a journal: a run that was stopped goes on from there.

    Args:
        path: The store.
        goal: The store to write; None to score and write nothing (the journal stays).
        scorer: `my.py:fn`, or `my_pkg.module:fn`.
        name: The metric's name.
        per: Score episodes, or steps.
        optimize: Whether more is better, or less; None when that is not known.
        processes: How many score side by side; each makes a scorer of its own.
        max_bad: How many may fail; their metric stays unknown.
        new_run: Score everything again, whatever an earlier run has left.
        journals: Folder of the journals.
        on_progress: Called as it goes on, in episodes.

    Raises:
        RequestError: There is no such scorer, or the metric exists or cannot have this name.
        DataError: More failed than may, or the scores are partly numbers and partly yes or no.
        NothingMatched: Nothing was scored.
        StoreError: The store is damaged, or `goal` exists or cannot be written.
    """
    if goal is not None:
        refuse_existing(goal)
    per_step = per == "step"
    level = MetricLevel.INFERENCE if per_step else MetricLevel.EPISODE
    identity = Scorer(scorer, per_step=per_step).identity
    with deriving(path) as derivation:
        _refuse_name(derivation.store.manifest, name, level)
        digest = derivation.store.manifest.digest
        with Journal(journals, digest, identity, per_step=per_step) as journal:
            if new_run:
                journal.remove()
            said = Scores(derivation, scorer, max_bad)
            n_resumed = said.resume(journal)
            on_progress("scoring", n_resumed, said.n_episodes)
            make = functools.partial(Work, scorer, per_step)
            with contextlib.closing(worked(make, said.rest(), processes=processes)) as work:
                for marks in work:
                    journal.add(marks)
                    said.add(marks)
                    on_progress("scoring", said.n_seen, said.n_episodes)
            said.settle()
            metric = Metric(name=name, level=level, kind=said.kind(), optimize=optimize)
            arguments = _arguments(identity, metric, per, said)
            if goal is None:
                entry, manifest = derivation.entry(verb="score", arguments=arguments), None
            else:
                manifest = _write(derivation, goal, metric, arguments)
                entry = manifest.lineage[-1]
                journal.remove()
            mean = said.mean()
    return Scored(entry, manifest, said.n_scored, said.n_none, said.n_bad, tuple(said.bad), n_resumed, mean)


class Work:
    """Scores in one process.

    Args:
        spec: The scorer.
        per_step: Score each step instead of the episode.
    """

    def __init__(self, spec: str, per_step: bool) -> None:
        self._scorer = Scorer(spec, per_step=per_step)
        self._per_step = per_step

    def __call__(self, episode: Episode) -> Marks:
        """What the scorer says of an episode, or of its steps."""
        marks = Marks(episode.episode_id, [], [])
        if not self._per_step:
            _mark(marks, None, lambda: self._scorer.episode(episode))
            return marks
        for step in episode.steps:
            _mark(marks, step.step_index, functools.partial(self._scorer.step, step, episode))
        return marks


def _mark(marks: Marks, step_index: int | None, ask: Callable[[], Score]) -> None:
    try:
        marks.scores.append((step_index, ask()))
    except Unusable as error:
        marks.bad.append((step_index, str(error)))


def _refuse_name(manifest: Manifest, name: str, level: MetricLevel) -> None:
    if not _NAME.fullmatch(name):
        raise RequestError(
            f"{name!r} cannot be the name of a metric",
            hint="letters, digits and underscores, at most 64, no digit first",
        )
    for metric in manifest.metrics:
        if metric.level == level and metric.name.lower() == name.lower():
            raise RequestError(
                f"there is a metric {metric.name!r} already",
                hint="choose another --name; a store never loses one",
            )


def _arguments(identity: Identity, metric: Metric, per: Per, said: Scores) -> JsonObject:
    return {
        "with": identity.spec,
        "source_sha256": identity.sha256,
        "version": identity.version,
        "name": metric.name,
        "per": per,
        "optimize": metric.optimize,
        "n_scored": said.n_scored,
        "n_none": said.n_none,
        "n_bad": said.n_bad,
        "bad": dict(said.reasons.most_common(_LISTED)),
    }


def _write(derivation: Derivation, goal: Path, metric: Metric, arguments: JsonObject) -> Manifest:
    """The store with the metric's column."""
    before = derivation.store.manifest.metrics
    table, keys = (
        ("steps", ("episode_id", "step_index"))
        if metric.level == MetricLevel.INFERENCE
        else ("episodes", ("episode_id",))
    )
    value = "CAST(v.value AS BOOLEAN)" if metric.kind == FeedbackKind.BOOLEAN else "v.value"
    values = {m.name: f"t.metrics.{quoted(m.name)}" for m in before if m.level == metric.level}
    struct = ", ".join(
        f"{quoted(name)} := {sql}" for name, sql in sorted({**values, metric.name: value}.items())
    )
    made = f"struct_pack({struct}) AS metrics"
    columns = f"t.* REPLACE ({made})" if values else f"t.*, {made}"
    on = " AND ".join(f"v.{key} = t.{key}" for key in keys)
    derivation.connection.execute(
        f"CREATE TEMP VIEW with_score AS SELECT {columns} FROM {table} t LEFT JOIN scored v ON {on}"
    )
    return derivation.write(
        goal,
        verb="score",
        arguments=arguments,
        metrics=(*before, metric),
        **{table: "with_score"},  # type: ignore[arg-type]  # mypy takes it for any of the options
    )
