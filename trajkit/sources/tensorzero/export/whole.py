"""Add up the tallies of the shards of an export."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from trajkit.errors import DataError
from trajkit.schema import Left
from trajkit.sources.request import ExportRequest, Since, Tally
from trajkit.sources.tensorzero.export.choose import (
    COPIES,
    LATER,
    ONLY_OWN_NAMES,
    OTHER_NAME,
    OTHER_SHARD,
    OTHER_TIME,
)

_OF_ALL = (LATER, OTHER_TIME, OTHER_NAME, ONLY_OWN_NAMES)
"""Reasons that are counted before the database is divided: each shard counts all of them."""


def added_up(tallies: Sequence[Tally], request: ExportRequest) -> Tally:
    """Add up the tallies of all shards, in the order that an export in one piece has.

    Args:
        tallies: One per shard, also for those without an episode.
        request: The request of the whole export, without a shard.

    Raises:
        DataError: The shards together have more rows that cannot be read than the request allows.
    """
    first = tallies[0]
    n_unreadable = sum(tally.n_unreadable for tally in tallies)
    if n_unreadable > request.max_bad:
        raise DataError(
            f"{n_unreadable:,} rows cannot be read in {len(tallies)} shards together",
            hint=f"--max-bad {n_unreadable} keeps them, as steps that are not trained on",
        )
    of_all = [left for left in first.left if left.reason in _OF_ALL]
    others = _sum(
        left for tally in tallies for left in tally.left if left.reason not in (*_OF_ALL, OTHER_SHARD)
    )
    copies = [left for left in others if left.reason == COPIES]
    rest = sorted(
        (left for left in others if left.reason != COPIES), key=lambda left: (-left.n_episodes, left.reason)
    )
    sinces = [tally.since for tally in tallies if tally.since is not None]
    return Tally(
        n_episodes_seen=first.n_episodes_seen,
        n_episodes_kept=sum(tally.n_episodes_kept for tally in tallies),
        n_steps_seen=first.n_steps_seen,
        n_steps_kept=sum(tally.n_steps_kept for tally in tallies),
        left=(*of_all, *copies, *rest),
        masked=tuple(
            sorted(_sum(left for tally in tallies for left in tally.masked), key=lambda left: left.reason)
        ),
        n_unreadable=n_unreadable,
        since=Since(**{name: sum(getattr(each, name) for each in sinces) for name in Since.model_fields})
        if sinces
        else None,
    )


def _sum(counted: Iterable[Left]) -> list[Left]:
    n_episodes: Counter[str] = Counter()
    n_steps: Counter[str] = Counter()
    for left in counted:
        n_episodes[left.reason] += left.n_episodes
        n_steps[left.reason] += left.n_steps
    return [Left(reason=reason, n_episodes=n_episodes[reason], n_steps=n_steps[reason]) for reason in n_steps]
