"""Replay: execute a store's actions again, and compare the results byte by byte with the stored values."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from trajkit._core.files import refuse_existing
from trajkit.curation.derive import Derivation, deriving
from trajkit.curation.replays.episode import (
    Difference,
    Filled,
    Player,
    Status,
    Verdict,
    Worlds,
    stored,
    worlds_of,
)
from trajkit.engines.engine import Engine
from trajkit.environments import typed_environment
from trajkit.errors import NothingMatched, RequestError
from trajkit.schema import Left, LineageEntry, Manifest, Model
from trajkit.schema.base import JsonObject

_LISTED = 20
_SUMMED = ("n_steps_verified", "n_values", "n_differences")
_FILLED_FIELDS: dict[str, pa.DataType] = {
    "episode_id": pa.string(),
    "step_index": pa.int64(),
    "reward": pa.float64(),
    "terminated": pa.bool_(),
    "truncated": pa.bool_(),
    "action_executed": pa.string(),
    "action_valid": pa.bool_(),
}
_FILLED = pa.schema(_FILLED_FIELDS)
_NOT_VERIFIED = {Status.DIFFERENT: "replay differs", Status.UNCHECKED: "not replayed"}


class Replay(Model):
    """Counts of a replay."""

    store: Path
    """The store."""
    n_episodes: int
    """Its number of episodes."""
    n_verified: int
    """Episodes whose stored values all equal the replay's."""
    n_different: int
    """Episodes with another value."""
    unchecked: dict[str, int]
    """Episodes that could not be replayed, by reason."""
    n_steps: int
    """Steps in the store."""
    n_steps_replayed: int
    """Steps that acted on an environment, in the replayed episodes."""
    n_steps_verified: int
    """Steps whose stored values all equal the replay's."""
    n_values: int
    """Compared values."""
    n_differences: int
    """Values that differ."""
    differences: tuple[Difference, ...]
    """The first differences, by episode and step; at most five of an episode."""
    n_steps_filled: int
    """Steps whose unknown values were filled in."""

    @property
    def share_verified(self) -> float:
        """Verified episodes as a share of all."""
        return self.n_verified / self.n_episodes if self.n_episodes else 0.0

    def result(self) -> JsonObject:
        """Return the counts for a store's lineage."""
        left_out = {"store", "n_steps", "n_differences", "differences"}
        return {"share_verified": self.share_verified, **self.model_dump(exclude=left_out)}


class Judged:
    """The verdicts of a replay, in tables of the derivation's connection.

    Args:
        derivation: The store.
        fill: Whether to keep the environments' values of each step.
    """

    def __init__(self, derivation: Derivation, *, fill: bool) -> None:
        self._derivation = derivation
        self._connection = derivation.connection
        self._fill = fill
        self._unchecked: Counter[str] = Counter()
        self._status: Counter[Status] = Counter()
        self._sums: Counter[str] = Counter()
        self._differences: list[Difference] = []
        self._connection.execute(
            "CREATE TEMP TABLE judged (episode_id VARCHAR, status VARCHAR, reason VARCHAR, "
            "total_reward DOUBLE, initial_state_hash VARCHAR, outcome VARCHAR)"
        )
        nothing = pa.Table.from_pylist([], schema=_FILLED)
        self._connection.register("no_filled", nothing)
        self._connection.execute("CREATE TEMP TABLE filled AS FROM no_filled")

    def add(self, verdicts: Sequence[Verdict]) -> None:
        """Count and insert some verdicts."""
        for verdict in verdicts:
            self._status[verdict.status] += 1
            if verdict.reason is not None:
                self._unchecked[verdict.reason] += 1
            else:
                self._sums["n_steps_replayed"] += verdict.n_steps
            for name in _SUMMED:
                self._sums[name] += getattr(verdict, name)
            self._differences += verdict.differences
        self._differences.sort(
            key=lambda each: (each.episode_id, -1 if each.step_index is None else each.step_index)
        )
        del self._differences[_LISTED:]
        self._insert(verdicts)

    def _insert(self, verdicts: Sequence[Verdict]) -> None:
        names = ("episode_id", "status", "reason", "total_reward", "initial_state_hash", "outcome")
        rows = {name: [getattr(verdict, name) for verdict in verdicts] for name in names}
        schema = pa.schema({name: pa.float64() if name == "total_reward" else pa.string() for name in names})
        self._connection.from_arrow(pa.table(rows, schema=schema)).insert_into("judged")
        if self._fill:
            filled = [row for verdict in verdicts for row in verdict.filled]
            columns = list(zip(*filled, strict=True)) if filled else [()] * len(Filled._fields)
            table = pa.table(list(map(list, columns)), schema=_FILLED)
            self._connection.from_arrow(table).insert_into("filled")

    def report(self) -> Replay:
        """Return the counts so far."""
        counts = self._derivation.store.manifest.counts
        return Replay(
            store=self._derivation.store.path,
            n_episodes=counts.n_episodes,
            n_verified=self._status[Status.VERIFIED],
            n_different=self._status[Status.DIFFERENT],
            unchecked=dict(sorted(self._unchecked.items())),
            n_steps=counts.n_steps,
            **{name: self._sums[name] for name in ("n_steps_replayed", *_SUMMED)},
            differences=tuple(self._differences),
            n_steps_filled=self._n_filled() if self._fill else 0,
        )

    def derived(
        self, goal: Path | None, arguments: JsonObject, *, only_verified: bool
    ) -> tuple[LineageEntry, Manifest | None]:
        """Write the new store; without a goal return only its lineage entry.

        Args:
            goal: The folder to write.
            arguments: Options and result, for the lineage.
            only_verified: Whether to leave out the episodes that are not verified.
        """
        kept, left = "episodes", []
        if only_verified:
            kept = f"(SELECT episode_id FROM judged WHERE status = '{Status.VERIFIED}')"
            left = self._left()
        if goal is None:
            entry = self._derivation.entry(verb="replay", arguments=arguments, kept=kept, left=left)
            return entry, None
        steps, episodes = ("steps", "episodes") if not self._fill else self._filled_views()
        manifest = self._derivation.write(
            goal, verb="replay", arguments=arguments, kept=kept, steps=steps, episodes=episodes, left=left
        )
        return manifest.lineage[-1], manifest

    def _left(self) -> list[Left]:
        rows = self._connection.execute(
            "SELECT status, reason, count(*), CAST(sum(n_steps) AS BIGINT) FROM judged "
            f"JOIN episodes USING (episode_id) WHERE status <> '{Status.VERIFIED}' GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        return [
            Left(
                reason=_NOT_VERIFIED[Status(status)] + (f": {reason}" if reason else ""),
                n_episodes=n_episodes,
                n_steps=n_steps,
            )
            for status, reason, n_episodes, n_steps in rows
        ]

    def _n_filled(self) -> int:
        """Count steps with an unknown value that is now known."""
        lacking = " OR ".join(f"s.{name} IS NULL" for name in _FILLED.names[2:])
        (row,) = self._connection.execute(
            f"SELECT count(*) FROM steps s JOIN filled USING (episode_id, step_index) WHERE {lacking}"
        ).fetchall()
        return int(row[0])

    def _filled_views(self) -> tuple[str, str]:
        """Create views of the steps and episodes with their unknown values filled in."""
        names = ", ".join(f"coalesce(s.{name}, f.{name}) AS {name}" for name in _FILLED.names[2:])
        self._connection.execute(
            f"CREATE TEMP VIEW filled_steps AS SELECT s.* REPLACE ({names}) FROM steps s "
            "LEFT JOIN filled f ON f.episode_id = s.episode_id AND f.step_index = s.step_index"
        )
        self._connection.execute(
            "CREATE TEMP VIEW filled_episodes AS SELECT e.* REPLACE ("
            "coalesce(e.total_reward, j.total_reward) AS total_reward, "
            "coalesce(e.initial_state_hash, j.initial_state_hash) AS initial_state_hash, "
            "CASE WHEN e.outcome = 'unknown' THEN coalesce(j.outcome, 'unknown') "
            # a metric alone cannot distinguish a failure from a truncated episode
            "WHEN e.outcome = 'failure' AND j.outcome = 'truncated' THEN 'truncated' ELSE e.outcome END "
            "AS outcome) FROM episodes e LEFT JOIN judged j ON j.episode_id = e.episode_id"
        )
        return "filled_steps", "filled_episodes"


OnProgress = Callable[[str, int, int | None], None]
"""Called with the name of the work, the amount done, and the total."""


class Replayed(NamedTuple):
    """A replay, and the store that it made."""

    replay: Replay
    entry: LineageEntry | None
    """Lineage entry of the new store; None if none was asked for."""
    manifest: Manifest | None
    """Manifest of the new store; None if none was written."""


def replay(
    path: str | Path,
    goal: Path | None = None,
    *,
    fill: bool = False,
    only_verified: bool = False,
    env: str | None = None,
    settings: Mapping[str, str] | None = None,
    max_steps: int | None = None,
    engine: Engine | None = None,
    dry_run: bool = False,
    on_progress: OnProgress = lambda what, done, total: None,
) -> Replayed:
    """Play every episode again from its seed, and compare each stored value with the environment's.

    These must be equal to the last bit: the hash of the initial state, and of each step that acted the
    observation, the executed action, its validity, the reward, `terminated` and `truncated`. The sum of the
    rewards must be equal up to rounding. Unknown values are not compared. An episode without any known value
    counts as unchecked.

    Args:
        path: The store.
        goal: A store to write, whose lineage has the verified share; None to write none.
        fill: Fill in unknown values of verified episodes: reward, `terminated`, `truncated`, executed action
            and validity of each step; total reward, initial state, an unknown outcome, and truncation where
            the outcome is a failure.
        only_verified: Leave the other episodes out of the new store.
        env: The environment, such as `my_pkg.env:MyEnv`; None for the one that each episode names, if it is
            trajkit's.
        settings: Its settings as texts; None for those in the rollout's lineage, which may not name a
            function or a file.
        max_steps: Step limit of the rollout; None for the one in its lineage.
        engine: Plays spans of the episodes and writes the new store; None for this process.
        dry_run: Do everything except writing.
        on_progress: Gets the progress in steps.

    Raises:
        NothingMatched: No episode can be replayed; the hint says why.
        RequestError: The environment does not exist, or `fill` without a goal.
        MissingExtra: The environment's package is not installed.
        StoreError: The store is damaged, or `goal` exists or cannot be written.
    """
    if (fill or only_verified) and goal is None and not dry_run:
        raise RequestError(
            "--fill and --only-verified make a new store, and none is named", hint="-o stores/NAME"
        )
    if goal is not None:
        refuse_existing(goal)
    with deriving(path, engine=engine, goal=goal) as derivation:
        worlds = worlds_of(derivation.store.manifest, env, settings, max_steps)
        if worlds.env is not None:
            typed_environment(worlds.env, worlds.settings)  # raises for an unknown name before any work
        judged = Judged(derivation, fill=fill)
        n_done, n_all = 0, derivation.store.manifest.counts.n_steps
        facts: JsonObject = {"env": env, "settings": dict(settings or {}) or None, "max_steps": max_steps}
        with contextlib.closing(_played(derivation, worlds, facts)) as work:
            for verdicts, n_steps in work:
                judged.add(verdicts)
                n_done += n_steps
                on_progress("replaying", n_done, n_all)
        report = judged.report()
        if not report.n_verified and not report.n_different:
            raise _nothing_checked(report)
        if goal is None and not dry_run:
            return Replayed(report, None, None)
        arguments: JsonObject = {
            "fill": fill,
            "only_verified": only_verified,
            "env": worlds.env,
            "env_set": dict(worlds.settings),
            "max_steps": worlds.max_steps,
            "result": report.result(),
        }
        entry, manifest = judged.derived(goal, arguments, only_verified=only_verified)
        return Replayed(report, entry, manifest)


def _played(
    derivation: Derivation, worlds: Worlds, facts: JsonObject
) -> Generator[tuple[list[Verdict], int]]:
    """Yield the verdicts and the number of steps of each span, by the engine or in this process."""
    if derivation.engine is None:
        yield from map(Player(worlds), stored(derivation, worlds.env is not None))
        return
    for path in derivation.over(play_span, facts, what="replay"):
        for line in path.read_text(encoding="utf-8").splitlines():
            rows, n_steps = json.loads(line)
            yield [Verdict.read(row) for row in rows], n_steps


def play_span(item: dict[str, Any]) -> str:
    """Replay a span of the episodes, write the verdicts as JSON lines, and return the file's name."""
    name = f"verdicts-{secrets.token_hex(6)}.jsonl"
    with deriving(item["store"], threads=1, is_verified=True) as derivation:
        # values that only the lineage has stay marked as such
        worlds = worlds_of(derivation.store.manifest, item["env"], item["settings"], item["max_steps"])
        spans = stored(derivation, worlds.env is not None, item["where"])
        with (Path(item["folder"]) / name).open("w", encoding="utf-8") as file:
            for played in map(Player(worlds), spans):
                file.write(json.dumps(played, default=Difference.model_dump) + "\n")
    return name


def _nothing_checked(report: Replay) -> NothingMatched:
    reasons = ", ".join(f"{n:,} × {reason}" for reason, n in report.unchecked.items())
    return NothingMatched(
        f"no episode of {report.store} can be replayed",
        hint=reasons or "the store has no episodes",
    )
