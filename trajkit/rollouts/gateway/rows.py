"""Check that the database has the rows a gateway acknowledged, and mark those of abandoned episodes.

Asynchronous writes lose rows silently. An export leaves out the episodes that are marked.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from trajkit.errors import RequestError, ServiceError
from trajkit.rollouts.faults import FaultKind, Faulty
from trajkit.rollouts.gateway.calls import Gateway, ask
from trajkit.rollouts.records.journal import Abandoned, Journal
from trajkit.rollouts.running.calling import Caller
from trajkit.schema import Episode
from trajkit.schema.feedback import ABANDONED_TAG

Stored = Callable[[Sequence[str]], Mapping[str, Collection[str]]]
"""Return the ids of all inferences and feedback that the database has, by episode id."""

_BATCH = 200
PATIENCE_S = 10.0
"""Seconds to wait for rows to appear."""


class Missing(NamedTuple):
    """An episode with rows missing in the database."""

    episode_id: str
    n_inferences: int
    """Missing inferences."""
    n_feedback: int
    """Missing feedback."""


class Checked(NamedTuple):
    """The result of a check of the rows."""

    missing: list[Missing]
    """Episodes with missing rows."""
    extra: list[str]
    """Ids of episodes with an extra inference: its answer was lost and the request was repeated."""


def check_rows(episodes: Iterable[Episode], stored: Stored, *, patience_s: float | None = None) -> Checked:
    """Compare the acknowledged rows with the database.

    Args:
        episodes: The episodes with acknowledged rows.
        stored: Queries the database.
        patience_s: Total seconds to wait for missing rows; None for `PATIENCE_S`.
    """
    deadline = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    rest = iter(episodes)
    checked = Checked([], [])
    while batch := [_wanted(episode) for episode in islice(rest, _BATCH)]:
        _check(batch, stored, deadline, checked)
    return checked


class _Wanted(NamedTuple):
    episode_id: str
    inferences: frozenset[str]
    feedback: frozenset[str]


def _wanted(episode: Episode) -> _Wanted:
    """Return the ids that a gateway acknowledged, without calls to other servers."""
    inferences = (
        step.inference_id for step in episode.steps if step.inference_id and step.function_name is not None
    )
    return _Wanted(
        episode.episode_id, frozenset(inferences), frozenset(item.feedback_id for item in episode.feedback)
    )


def _check(batch: list[_Wanted], stored: Stored, deadline: float, checked: Checked) -> None:
    pause_s = 0.2
    while True:
        found = stored([one.episode_id for one in batch])
        late = []
        for one in batch:
            there = frozenset(found.get(one.episode_id, ()))
            if not (one.inferences | one.feedback) <= there:
                late.append(one)
            elif there - one.inferences - one.feedback:
                checked.extra.append(one.episode_id)
        if not late or time.monotonic() + pause_s > deadline:
            break
        time.sleep(pause_s)
        pause_s *= 2
        batch = late
    for one in late:
        there = frozenset(found.get(one.episode_id, ()))
        checked.missing.append(
            Missing(one.episode_id, len(one.inferences - there), len(one.feedback - there))
        )


async def mark_abandoned(gateway: Gateway, caller: Caller, journal: Journal, *, limit_s: float) -> None:
    """Log a comment on every unmarked abandoned episode; those that fail are left to the next run.

    Args:
        gateway: An open gateway.
        caller: Sends the requests.
        journal: Records the abandoned episodes and which are marked.
        limit_s: Seconds after which the rest is left to the next run.
    """
    tasks = [
        asyncio.create_task(_mark(gateway, caller, journal, one)) for one in list(journal.unmarked.values())
    ]
    try:
        async with asyncio.timeout(limit_s):
            await asyncio.gather(*tasks)
    except TimeoutError:
        pass
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _mark(gateway: Gateway, caller: Caller, journal: Journal, one: Abandoned) -> None:
    arguments: dict[str, Any] = {
        "metric_name": "comment",
        "value": f"abandoned: {one.message}",
        "episode_id": one.episode_id,
        "tags": {"trajkit.run": journal.run, ABANDONED_TAG: one.reason},
    }
    with contextlib.suppress(RequestError, ServiceError):  # unmarked; reported at the end
        try:
            await ask(caller, gateway.feedback, arguments, is_paid=False)
        except Faulty as failure:
            is_unknown = failure.fault.kind == FaultKind.NOT_STORED and failure.fault.is_lasting
            if not is_unknown:  # an episode without rows in the database needs no mark
                return
        journal.mark(one.episode_id)
