"""Split preference pairs into a training and a validation set, with no group on both sides.

A hash of its key decides the side of a group, as in `trajkit.curation.selection.split`. With more pairs a
group keeps its side, except one that was moved to fill an empty side, and groups without a seed that now
share a prompt.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

import trajkit
from trajkit._core.files import building_folder
from trajkit.curation.keys import PLACES
from trajkit.curation.pair_file import Pairs, write_pairs
from trajkit.curation.selection.connected import least_connected
from trajkit.curation.selection.split import RULE
from trajkit.errors import NothingMatched
from trajkit.schema import Left, LineageEntry
from trajkit.schema.base import JsonObject

TRAIN, VALIDATION = "train", "val"
_PARTED = "between the sides"
_WORLD = '["world",'
"""Prefix of the key of a group whose world is known."""


class Cut(NamedTuple):
    """Counts of a split."""

    n_pairs: dict[str, int]
    """Pairs of each side."""
    n_parted: int
    """Pairs between two groups on different sides; they are on neither."""


def cut_pairs(pairs: Pairs, goal: Path, *, fraction: float, seed: int = 0) -> Cut:
    """Write two sets of pairs, `train` and `val`; a pair goes where the groups of both its episodes are.

    Args:
        pairs: The pairs.
        goal: The folder to write, with a folder for each side.
        fraction: The share of all groups for validation, between 0 and 1.
        seed: Another seed gives another split.

    Raises:
        NothingMatched: A side has no pair.
        StoreError: `goal` exists or cannot be written.
    """
    sides = _sides(pairs, fraction, seed)
    counts = Counter(sides)
    ids: dict[str, set[str]] = {}
    for side, row in zip(sides, pairs.rows("chosen_episode_id", "rejected_episode_id"), strict=True):
        ids.setdefault(side, set()).update(row.values())
    for name in (TRAIN, VALIDATION):
        if not counts[name]:
            raise NothingMatched(
                f"no pair of {pairs.path} falls to {name}: {len(pairs):,} pairs in few groups",
                hint="--val with other pairs, another --val-fraction, or 0 for none",
            )
    arguments: JsonObject = {"ratio": {TRAIN: 1 - fraction, VALIDATION: fraction}, "seed": seed, "rule": RULE}
    facts = pairs.manifest.model_dump(
        mode="json", include={"match", "level", "score", "split", "group", "functions", "variants"}
    )
    with building_folder(goal.absolute()) as folder:
        for name in (TRAIN, VALIDATION):
            entry = _entry(pairs, counts, name, {**arguments, "side": name}, ids)
            write_pairs(
                folder / name,
                (pair for pair, side in zip(pairs, sides, strict=True) if side == name),
                facts=facts,
                lineage=(*pairs.manifest.lineage, entry),
            )
    return Cut({name: counts[name] for name in (TRAIN, VALIDATION)}, counts[_PARTED])


def _sides(pairs: Pairs, fraction: float, seed: int) -> list[str]:
    """Return the side of each pair, in their order."""
    keys = _joined_keys(pairs)
    places = {key: _place(key, seed) for row in keys for key in row}
    sides = {key: TRAIN if place < (1 - fraction) * PLACES else VALIDATION for key, place in places.items()}
    whole = {mine for mine, theirs in keys if mine == theirs}  # groups with pairs of their own
    for side, nearest in ((VALIDATION, max), (TRAIN, min)):
        if len(whole) > 1 and side not in {sides[key] for key in whole}:
            sides[nearest(whole, key=lambda key: (places[key], key))] = side
    return [sides[mine] if sides[mine] == sides[theirs] else _PARTED for mine, theirs in keys]


def _place(key: str, seed: int) -> int:
    return int(hashlib.sha256(f"{seed}:{key}".encode()).hexdigest()[:13], 16)


def _joined_keys(pairs: Pairs) -> list[tuple[str, str]]:
    """Return both group keys of each pair; groups that share a prompt without a seed get their least key."""
    rows: list[tuple[str, str]] = []
    holders: dict[bytes, set[str]] = {}
    seedless: set[bytes] = set()
    for row in pairs.rows("chosen_group_key", "rejected_group_key", "seed", "prompt"):
        mine, theirs = row["chosen_group_key"], row["rejected_group_key"]
        text = hashlib.sha256(row["prompt"].encode()).digest()
        holders.setdefault(text, set()).update((mine, theirs))
        if row["seed"] is None and not (mine.startswith(_WORLD) and theirs.startswith(_WORLD)):
            seedless.add(text)
        rows.append((mine, theirs))
    known = sorted({key for row in rows for key in row})
    numbers = {key: number for number, key in enumerate(known)}
    shared = [(numbers[key], n) for n, text in enumerate(sorted(seedless)) for key in holders[text]]
    if not shared:
        return rows
    least = least_connected(*np.array([*shared, (len(known) - 1, -1)]).T)
    return [(known[least[numbers[mine]]], known[least[numbers[theirs]]]) for mine, theirs in rows]


def _entry(
    pairs: Pairs, counts: Counter[str], name: str, arguments: JsonObject, ids: Mapping[str, set[str]]
) -> LineageEntry:
    """Return the lineage entry of a side. Pairs are counted as steps."""
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
