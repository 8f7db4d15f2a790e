"""Replay: execute a store's actions again from their seeds, and compare what comes of it byte by byte."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from trajkit._core.files import refuse_existing
from trajkit.curation.derive import deriving
from trajkit.curation.judged import Judged, Replay
from trajkit.curation.recorded import stored
from trajkit.curation.workers import worked
from trajkit.curation.worlds import Player, worlds_of
from trajkit.environments import typed_environment
from trajkit.errors import NothingMatched, RequestError
from trajkit.schema import LineageEntry, Manifest
from trajkit.schema.base import JsonObject

OnProgress = Callable[[str, int, int | None], None]
"""What is being done, how much of it is done, and of how much."""


class Replayed(NamedTuple):
    """A replay, and the store that came of it."""

    replay: Replay
    entry: LineageEntry | None
    """What the new store's lineage says of it; None where no store was asked for."""
    manifest: Manifest | None
    """Of the new store; None where none was written."""


def replay(
    path: str | Path,
    goal: Path | None = None,
    *,
    fill: bool = False,
    only_verified: bool = False,
    env: str | None = None,
    settings: Mapping[str, str] | None = None,
    max_steps: int | None = None,
    processes: int = 1,
    dry_run: bool = False,
    on_progress: OnProgress = lambda what, done, total: None,
) -> Replayed:
    """Play every episode again from its seed, and compare each stored value with the environment's.

    Compared are, to the last bit, the hash of the initial state, and of each step that acted the observation,
    the action executed, its validity, the reward and the ends; the sum of the rewards up to rounding. What is
    not stored is not compared. An episode with nothing to compare counts as unchecked.

    Args:
        path: The store.
        goal: A store to write, whose lineage has the share verified; None to write none.
        fill: Give the episodes that are verified what the store does not know of them: reward, ends,
            executed action and validity per step; total reward, initial state, an unknown outcome, and of a
            failure that it was a truncation.
        only_verified: Leave the other episodes out of the new store.
        env: The environment, such as `my_pkg.env:MyEnv`; None for the one of trajkit's that each episode
            names.
        settings: Its settings as texts; None for those of the rollout's lineage, which may not name a
            function or a file.
        max_steps: The rollout's own limit of steps; None for that of its lineage.
        processes: How many play side by side.
        dry_run: Do everything but write.
        on_progress: Called as it goes on, in steps.

    Raises:
        NothingMatched: No episode can be replayed; the hint says why.
        RequestError: There is no such environment, or `fill` without a goal.
        MissingExtra: The environment's package is not installed.
        StoreError: The store is damaged, or `goal` exists or cannot be written.
    """
    if (fill or only_verified) and goal is None and not dry_run:
        raise RequestError(
            "--fill and --only-verified make a new store, and none is named", hint="-o stores/NAME"
        )
    if goal is not None:
        refuse_existing(goal)
    with deriving(path) as derivation:
        worlds = worlds_of(derivation.store.manifest, env, settings, max_steps)
        if worlds.env is not None:
            typed_environment(worlds.env, worlds.settings)  # a misspelt one is told at once
        judged = Judged(derivation, fill=fill)
        work = worked(
            functools.partial(Player, worlds),
            stored(derivation, worlds.env is not None),
            processes=processes,
        )
        n_done, n_all = 0, derivation.store.manifest.counts.n_steps
        with contextlib.closing(work):
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
            "env_settings": dict(worlds.settings),
            "max_steps": worlds.max_steps,
            "result": report.result(),
        }
        entry, manifest = judged.derived(goal, arguments, only_verified=only_verified)
        return Replayed(report, entry, manifest)


def _nothing_checked(report: Replay) -> NothingMatched:
    reasons = ", ".join(f"{n:,} × {reason}" for reason, n in report.unchecked.items())
    return NothingMatched(
        f"no episode of {report.store} can be replayed",
        hint=reasons or "the store has no episodes",
    )
