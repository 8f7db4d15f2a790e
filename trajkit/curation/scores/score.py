"""Score: add the results of a user's function on each episode or step to a store, as a metric."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from trajkit._core.files import refuse_existing, write_json
from trajkit._core.settings import STATE_FOLDER
from trajkit.curation.derive import Derivation, deriving
from trajkit.curation.scores.journal import Bad, Journal, Marks, Scores
from trajkit.curation.scores.scorer import Identity, Scorer, Unusable
from trajkit.engines.engine import Engine
from trajkit.errors import RequestError
from trajkit.schema import Episode, FeedbackKind, LineageEntry, Manifest, Metric, MetricLevel
from trajkit.schema.base import JsonObject
from trajkit.store.dataset import Dataset
from trajkit.store.layout import quoted
from trajkit.store.reader import open_store

OnProgress = Callable[[str, int, int | None], None]
"""Called with the name of the work, the amount done, and the total."""

Per = Literal["episode", "step"]
"""Whether episodes or steps are scored."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_LISTED = 20
"""Kinds of failure that the lineage keeps."""


class Scored(NamedTuple):
    """Result of a scorer on a store."""

    entry: LineageEntry
    manifest: Manifest | None
    """Manifest of the new store; None after a dry run."""
    n_scored: int
    """Episodes or steps that have a score."""
    n_none: int
    """Those for which the scorer returned None."""
    n_bad: int
    """Those on which the scorer failed."""
    bad: tuple[Bad, ...]
    """The first failures, by episode and step."""
    n_resumed: int
    """Episodes whose scores are from an earlier run."""
    mean: float | None
    """Mean score; for booleans the share of true."""


def score(
    path: str | Path,
    goal: Path | None,
    *,
    scorer: str,
    name: str,
    per: Per = "episode",
    optimize: Literal["max", "min"] | None = None,
    engine: Engine | None = None,
    max_bad: int = 0,
    new_run: bool = False,
    journals: Path = STATE_FOLDER / "score",
    on_progress: OnProgress = lambda what, done, total: None,
) -> Scored:
    """Write a new store with one more metric: the score of each episode or step.

    A scorer gets an `Episode` (or a `Transition`, and its `Episode` if it takes two arguments) and returns a
    number, True, False, or None for no score. Exceptions and NaN are counted with the episode's id. Scores
    are kept in a journal: a run that was stopped continues from there.

    Args:
        path: The store.
        goal: The store to write; None to score without writing a store (the journal stays).
        scorer: `my.py:fn`, or `my_pkg.module:fn`.
        name: The metric's name.
        per: Score episodes, or steps.
        optimize: Whether larger or smaller scores are better; None if unknown.
        engine: Scores spans of the episodes and writes the new store; None for this process.
        max_bad: Maximum failures; a failed one has no value of the metric.
        new_run: Score everything again, ignoring earlier runs.
        journals: Folder of the journals.
        on_progress: Gets the progress in episodes.

    Raises:
        RequestError: The scorer does not exist, or the metric exists or cannot have this name.
        DataError: Too many failed, or some scores are numbers and some booleans.
        NothingMatched: Nothing was scored.
        StoreError: The store is damaged, or `goal` exists or cannot be written.
    """
    if goal is not None:
        refuse_existing(goal)
    per_step = per == "step"
    level = MetricLevel.INFERENCE if per_step else MetricLevel.EPISODE
    judge = Scorer(scorer, per_step=per_step)
    identity = judge.identity
    with deriving(path, engine=engine, goal=goal) as derivation:
        _refuse_name(derivation.store.manifest, name, level)
        digest = derivation.store.manifest.digest
        with contextlib.closing(Journal(journals, digest, identity, per_step=per_step)) as journal:
            if new_run:
                journal.remove()
            scores = Scores(derivation, scorer, max_bad)
            for marks in journal.marks():
                scores.add(marks)
            n_resumed = len(scores.seen)
            on_progress("scoring", n_resumed, scores.n_episodes)
            with contextlib.closing(_scored(derivation, scores, judge, per_step)) as work:
                for marks in work:
                    journal.add(marks)
                    scores.add(marks)
                    on_progress("scoring", len(scores.seen), scores.n_episodes)
            scores.settle()
            metric = Metric(name=name, level=level, kind=scores.kind(), optimize=optimize)
            arguments = _arguments(identity, metric, per, max_bad, scores)
            if goal is None:
                entry, manifest = derivation.entry(verb="score", arguments=arguments), None
            else:
                manifest = _write(derivation, goal, metric, arguments)
                entry = manifest.lineage[-1]
                journal.remove()
            mean = scores.mean()
    return Scored(
        entry, manifest, scores.n_scored, scores.n_none, scores.n_bad, tuple(scores.bad), n_resumed, mean
    )


def _scored(derivation: Derivation, scores: Scores, scorer: Scorer, per_step: bool) -> Generator[Marks]:
    """Yield the marks of the remaining episodes, by the engine or in this process."""
    if derivation.engine is None:
        for episode in scores.rest():
            yield _marks(scorer, episode, per_step)
        return
    identity = scorer.identity
    resumed = derivation.folder / f"resumed-{secrets.token_hex(6)}.json"
    write_json(resumed, sorted(scores.seen))
    facts: JsonObject = {
        "scorer": identity.spec,
        "sha256": identity.sha256,
        "version": identity.version,
        "per_step": per_step,
        "resumed": str(resumed),
    }
    try:
        for path in derivation.over(score_span, facts, what="score"):
            for line in path.read_text(encoding="utf-8").splitlines():
                yield Marks(*json.loads(line))
    finally:  # the journal has the results, without failures, which must be tried again
        shutil.rmtree(derivation.folder, ignore_errors=True)


def score_span(item: dict[str, Any]) -> str:
    """Score a span of the episodes, write the marks as JSON lines, and return the file's name."""
    name = f"marks-{secrets.token_hex(6)}.jsonl"
    scorer = Scorer(item["scorer"], per_step=item["per_step"])
    resumed = frozenset(json.loads(Path(item["resumed"]).read_text(encoding="utf-8")))
    with (Path(item["folder"]) / name).open("w", encoding="utf-8") as file:
        for episode in Dataset(open_store(item["store"])).where(item["where"]):
            if episode.episode_id not in resumed:
                file.write(json.dumps(_marks(scorer, episode, item["per_step"])) + "\n")
    return name


def _marks(scorer: Scorer, episode: Episode, per_step: bool) -> Marks:
    """Return the scores of an episode, or of its steps."""
    marks = Marks(episode.episode_id, [], [])
    for step in episode.steps if per_step else (None,):
        step_index = None if step is None else step.step_index
        try:
            mark = scorer.episode(episode) if step is None else scorer.step(step, episode)
            marks.scores.append((step_index, mark))
        except Unusable as error:
            marks.bad.append((step_index, str(error)))
    return marks


def _refuse_name(manifest: Manifest, name: str, level: MetricLevel) -> None:
    if not _NAME.fullmatch(name):
        raise RequestError(
            f"{name!r} cannot be the name of a metric",
            hint="letters, digits and underscores, at most 64, no digit first",
        )
    for metric in manifest.metrics:
        if metric.level == level and metric.name.lower() == name.lower():
            raise RequestError(
                f"the metric {metric.name!r} exists already",
                hint="choose another --name; a store never loses a metric",
            )


def _arguments(identity: Identity, metric: Metric, per: Per, max_bad: int, scores: Scores) -> JsonObject:
    return {
        "with": identity.spec,
        "name": metric.name,
        "per": per,
        "optimize": metric.optimize,
        "max_bad": max_bad,
        "result": {
            "source_sha256": identity.sha256,
            "version": identity.version,
            "n_scored": scores.n_scored,
            "n_none": scores.n_none,
            "n_bad": scores.n_bad,
            "bad": dict(scores.reasons.most_common(_LISTED)),
        },
    }


def _write(derivation: Derivation, goal: Path, metric: Metric, arguments: JsonObject) -> Manifest:
    """Write the store with the metric's column."""
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
