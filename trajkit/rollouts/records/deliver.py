"""Write the store of a run from its journal, with exact prompts, whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import JsonValue

from trajkit._core.address import Address
from trajkit._core.files import refuse_existing, temporary_beside
from trajkit.errors import StoreError
from trajkit.rollouts.records.journal import Journal
from trajkit.rollouts.records.record import with_prompts
from trajkit.schema import Episode, LineageEntry, Manifest, Metric
from trajkit.sources.tensorzero.export.prompts import Sent

Prompts = Callable[[Sequence[str]], Mapping[str, Sent]]
"""Return the exact prompts of inferences in the gateway's database, and their tools."""

KIND = "rollout"
_BATCH_STEPS = 2000


class Written(NamedTuple):
    """The store of a rollout."""

    path: Path
    manifest: Manifest
    n_without_prompt: int
    """Inferences whose prompt was not found."""


def refuse_other(goal: Path, run: str | None = None) -> Manifest | None:
    """Check that a store may be written: the path is free, or has a store of the same run.

    Args:
        goal: The folder.
        run: Identity of the run; None accepts a store of any run.

    Returns:
        The manifest of the existing store; None when there is none.

    Raises:
        StoreError: Something else has this name.
    """
    from trajkit.store.reader import open_store

    if not goal.exists():
        refuse_existing(goal)  # a dangling link
        return None
    try:
        manifest = open_store(goal).manifest
    except StoreError:
        manifest = None
    if manifest is None or manifest.kind != KIND or run not in (None, manifest.source.get("run")):
        refuse_existing(goal)
    return manifest


def write_store(
    journal: Journal,
    goal: Path,
    *,
    source: Mapping[str, JsonValue],
    entry: LineageEntry,
    metrics: Sequence[Metric],
    prompts: Prompts | None,
) -> Written:
    """Write the episodes of the journal. A folder with fewer episodes of the same run is replaced.

    Args:
        journal: The journal of the run.
        goal: The store.
        source: Source of the episodes.
        entry: Lineage entry.
        metrics: The metrics that get a column.
        prompts: Looks up exact prompts; None leaves them unknown.

    Raises:
        StoreError: The path has something else, or an address has fewer episodes; or the disk is full.
    """
    from trajkit.store.writer import write_episodes

    before = refuse_other(goal, journal.run)
    if before is not None and before.counts.n_episodes == journal.n_done:
        return Written(goal, before, 0)
    if before is not None and isinstance(goal, Address):
        raise StoreError(
            f"{goal} has {before.counts.n_episodes:,} of the {journal.n_done:,} episodes of this run, and a "
            "store at an address is not replaced",
            hint="remove it, or name another -o: the same command then plays none of them again",
        )
    lookup = _Lookup(prompts)
    fresh = goal if before is None else temporary_beside(goal)
    manifest = write_episodes(
        fresh,
        lookup.fill(journal.episodes()),
        kind=KIND,
        source=dict(source),
        lineage=[entry],
        metrics=metrics,
    )
    if before is not None:
        old = temporary_beside(goal)
        goal.replace(old)
        fresh.replace(goal)
        shutil.rmtree(old)
    return Written(goal, manifest, lookup.n_missing)


class _Lookup:
    """Fills in prompts, many inferences at a time."""

    def __init__(self, prompts: Prompts | None) -> None:
        self._prompts = prompts
        self.n_missing = 0
        """Inferences whose prompt was not found."""

    def fill(self, episodes: Iterator[Episode]) -> Iterator[Episode]:
        """Yield the episodes in order, with their exact prompts where they can be looked up."""
        batch: list[Episode] = []
        for episode in episodes:
            batch.append(episode)
            if sum(one.n_steps for one in batch) >= _BATCH_STEPS:
                yield from self._filled(batch)
                batch = []
        yield from self._filled(batch)

    def _filled(self, batch: Sequence[Episode]) -> Iterator[Episode]:
        ids = [
            step.inference_id
            for episode in batch
            for step in episode.steps
            if step.inference_id is not None and step.messages is None
        ]
        if self._prompts is None or not ids:
            yield from batch
            return
        found = self._prompts(ids)
        self.n_missing += sum(inference_id not in found for inference_id in ids)
        for episode in batch:
            yield with_prompts(episode, found)
