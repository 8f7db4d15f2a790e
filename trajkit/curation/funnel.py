"""From what was exported to what is learned: the lineage of a store told as stages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from trajkit.curation.stats_model import Stage, Weights
from trajkit.schema import LineageEntry, Manifest


def funnel(manifests: Sequence[Manifest], weights: Weights, n_tokens: int | None) -> tuple[Stage, ...]:
    """The stages, oldest first; the last is what is learned.

    Args:
        manifests: Of the stores; of several the history that they have in common.
        weights: What is learned of them.
        n_tokens: Tokens of all answers in the stores; None when nobody counted them.
    """
    histories = [manifest.lineage for manifest in manifests]
    common = [entries[0] for entries in takewhile(_are_equal, zip(*histories, strict=False))]
    stages = [_seen(common[0])] if common else []
    stages += [_done(entry) for entry in common]
    n_episodes = sum(manifest.counts.n_episodes for manifest in manifests)
    n_steps = sum(manifest.counts.n_steps for manifest in manifests)
    here = "in this store" if len(manifests) == 1 else f"in these {len(manifests)} stores"
    stages.append(Stage(name=here, n_episodes=n_episodes, n_steps=n_steps, n_tokens=n_tokens))
    stages.append(
        Stage(
            name="learned",
            n_episodes=weights.n_episodes_learned,
            n_steps=weights.n_learned,
            n_tokens=weights.n_tokens,
        )
    )
    return tuple(stages)


def _are_equal(entries: tuple[LineageEntry, ...]) -> bool:
    return all(entry == entries[0] for entry in entries)


def _seen(entry: LineageEntry) -> Stage:
    return Stage(name=f"seen by {entry.verb}", n_episodes=entry.n_episodes_in, n_steps=entry.n_steps_in)


def _done(entry: LineageEntry) -> Stage:
    return Stage(
        name=entry.verb,
        n_episodes=entry.n_episodes_out,
        n_steps=entry.n_steps_out,
        left=(*entry.left, *entry.masked),
    )
