"""Cut preference pairs into those that are learned and those that measure, so that no group is on both sides.

A group's place follows from a hash of its key, as in `trajkit.curate.split`: more pairs move nobody.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import trajkit
from trajkit._files import building_folder
from trajkit.curate.keys import PLACES
from trajkit.curate.pair_file import DATA_NAME, Pairs, PairsManifest, write_pairs
from trajkit.curate.split import RULE
from trajkit.errors import NothingMatched
from trajkit.schema import Left, LineageEntry
from trajkit.schema.base import JsonObject

TRAIN, VALIDATION = "train", "val"
_PARTED = "between the sides"
_KEYS = ("chosen_group_key", "rejected_group_key")
_IDS = ("chosen_episode_id", "rejected_episode_id")


class Cut(NamedTuple):
    """What a cut came to."""

    n_pairs: dict[str, int]
    """Pairs of each side."""
    n_parted: int
    """Pairs of two groups that came to different sides: they are on none."""


def cut_pairs(pairs: Pairs, goal: Path, *, fraction: float, seed: int = 0) -> Cut:
    """Write two sets of pairs, `train` and `val`, each pair where the groups of both its episodes are.

    Args:
        pairs: What is cut.
        goal: The folder that holds the two afterwards.
        fraction: The share of all groups that measures, between 0 and 1.
        seed: Another one gives another cut.

    Raises:
        NothingMatched: No pair falls to a side.
        StoreError: `goal` exists or cannot be written.
    """
    sides = _sides(pairs, fraction, seed)
    counts = Counter(sides)
    for name in (TRAIN, VALIDATION):
        if not counts[name]:
            raise NothingMatched(
                f"no pair of {pairs.path} falls to {name}: {len(pairs):,} pairs, few groups of them",
                hint="--val with pairs of their own, another --val-fraction, or 0 for none",
            )
    arguments: JsonObject = {"ratio": {TRAIN: 1 - fraction, VALIDATION: fraction}, "seed": seed, "rule": RULE}
    with building_folder(goal.absolute()) as folder:
        for name in (TRAIN, VALIDATION):
            write_pairs(
                folder / name,
                (pair for pair, side in zip(pairs, sides, strict=True) if side == name),
                facts=_facts(pairs.manifest),
                lineage=(
                    *pairs.manifest.lineage,
                    _entry(pairs, counts, name, {**arguments, "side": name}, sides),
                ),
            )
    return Cut({name: counts[name] for name in (TRAIN, VALIDATION)}, counts[_PARTED])


def _sides(pairs: Pairs, fraction: float, seed: int) -> list[str]:
    """The side of each pair, in their order."""
    import pyarrow.parquet as pq

    places: dict[str, str] = {}
    found = []
    table = pq.read_table(pairs.path / DATA_NAME, columns=list(_KEYS))
    for keys in zip(*(column.to_pylist() for column in table.columns), strict=True):
        for key in keys:
            if key not in places:
                digest = hashlib.sha256(f"{seed}:{key}".encode()).hexdigest()
                is_learned = int(digest[:13], 16) < (1 - fraction) * PLACES
                places[key] = TRAIN if is_learned else VALIDATION
        ours, theirs = (places[key] for key in keys)
        found.append(ours if ours == theirs else _PARTED)
    return found


def _facts(manifest: PairsManifest) -> JsonObject:
    kept = manifest.model_dump(
        mode="json", include={"match", "level", "score", "split", "group", "functions", "variants"}
    )
    now = datetime.now(UTC).isoformat()
    return {**kept, "created_at": now, "trajkit_version": trajkit.__version__}


def _entry(
    pairs: Pairs, counts: Counter[str], name: str, arguments: JsonObject, sides: list[str]
) -> LineageEntry:
    """What was done; what a store counts as steps are pairs here."""
    ids = _ids(pairs, sides)
    seen, left = set(ids[name]), []
    for side in sorted(ids.keys() - {name}):
        reason = "its two episodes would be parted" if side == _PARTED else f"in {side}"
        left.append(Left(reason=reason, n_episodes=len(ids[side] - seen), n_steps=counts[side]))
        seen |= ids[side]
    return LineageEntry(
        verb="split",
        arguments=arguments,
        parent_digest=pairs.manifest.digest,
        n_episodes_in=pairs.manifest.n_episodes,
        n_episodes_out=len(ids[name]),
        n_steps_in=len(pairs),
        n_steps_out=counts[name],
        left=tuple(left),
        done_at=datetime.now(UTC),
        trajkit_version=trajkit.__version__,
    )


def _ids(pairs: Pairs, sides: list[str]) -> dict[str, set[str]]:
    """The episodes of each side."""
    import pyarrow.parquet as pq

    found: dict[str, set[str]] = {}
    table = pq.read_table(pairs.path / DATA_NAME, columns=list(_IDS))
    for side, *ids in zip(sides, *(column.to_pylist() for column in table.columns), strict=True):
        found.setdefault(side, set()).update(ids)
    return found
