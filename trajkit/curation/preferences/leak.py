"""Find what training pairs and validation pairs share.

The rules are those of `trajkit.curation.leaks.leak` for stores: an episode, a world, an initial state or a
reserved world on both sides is a leak, and so is an identical prompt if a side has no seeds.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from trajkit._core.settings import Reservation, reserved
from trajkit.curation.keys import FROM_TEXT
from trajkit.curation.leaks.report import Aliased, Example, Finding, LeakKind, LeakReport, LeakSide
from trajkit.curation.pair_file import Pairs

_MOST_EXAMPLES = 3
_COLUMNS = (
    *("chosen_episode_id", "rejected_episode_id", "chosen_group_key", "rejected_group_key"),
    *("env_id", "task", "seed", "initial_state_hash", "prompt"),
)


class _World(NamedTuple):
    env_id: str | None
    task: str | None
    seed: int

    def __str__(self) -> str:
        return f"{self.env_id or '?'} {self.task or '?'} seed {self.seed}"


class _Side:
    """Ids, worlds, states and prompts of a set of pairs, each with an episode that has it."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs
        self.ids: dict[str, str] = {}
        self.worlds: dict[_World, str] = {}
        self.states: dict[str, str] = {}
        self.prompts: dict[str, str] = {}
        self.texts_without_seed: set[str] = set()
        self._seeded: set[str] = set()
        self._stated: set[str] = set()
        for row in pairs.rows(*_COLUMNS):
            self._add(row)

    def _add(self, row: dict[str, Any]) -> None:
        chosen, rejected = row["chosen_episode_id"], row["rejected_episode_id"]
        prompt = hashlib.sha256(row["prompt"].encode()).hexdigest()
        self.prompts.setdefault(prompt, chosen)
        for episode, key in ((chosen, row["chosen_group_key"]), (rejected, row["rejected_group_key"])):
            self.ids.setdefault(episode, episode)
            if (world := _world_of(key)) is not None:
                self.worlds.setdefault(world, episode)
                self._seeded.add(episode)
        if row["seed"] is not None:  # both have the same
            self.worlds.setdefault(_World(row["env_id"], row["task"], row["seed"]), chosen)
            self._seeded.update((chosen, rejected))
        if not {chosen, rejected} <= self._seeded:
            self.texts_without_seed.add(prompt)
        if (state := row["initial_state_hash"]) and not state.startswith(FROM_TEXT):
            self.states.setdefault(state, chosen)
            self._stated.update((chosen, rejected))

    def described(self) -> LeakSide:
        return LeakSide(
            path=str(self.pairs.path),
            digest=self.pairs.manifest.digest,
            n_episodes=len(self.ids),
            n_without_seed=len(self.ids) - len(self._seeded),
            n_without_state=len(self.ids) - len(self._stated),
            n_steps=len(self.pairs),
            n_without_prompt=0,
            n_for_evaluation=0,
        )


def leak_of_pairs(
    train: Pairs, evaluation: Pairs | None, *, reservations: Iterable[Reservation] | None = None
) -> LeakReport:
    """Compare training pairs with validation pairs and with reserved worlds.

    Args:
        train: The training pairs.
        evaluation: The validation pairs; None to look for reserved worlds only.
        reservations: Reserved worlds; None for the `trajkit.toml` of the working folder and those above it.

    Raises:
        ConfigError: A `trajkit.toml` is not valid.
    """
    kept = tuple(reserved() if reservations is None else reservations)
    ours = _Side(train)
    findings = [_reserved(ours, kept)]
    theirs = None if evaluation is None else _Side(evaluation)
    if theirs is not None:
        findings += [
            _shared(LeakKind.EPISODE_ID, ours.ids, theirs.ids),
            _shared(LeakKind.WORLD, ours.worlds, theirs.worlds),
            _shared(LeakKind.INITIAL_STATE, ours.states, theirs.states),
            _shared(
                LeakKind.PROMPT,
                ours.prompts,
                theirs.prompts,
                blocks=(ours.texts_without_seed | theirs.texts_without_seed).__contains__,
            ),
        ]
    return LeakReport(
        train=ours.described(),
        evaluation=None if theirs is None else theirs.described(),
        strict_text=False,
        near=None,
        n_reserved=len(kept),
        findings=tuple(finding for finding in findings if finding.n),
        aliased=Aliased(n=0, n_of=0, worlds=()),
    )


def worlds_of_pairs(pairs: Pairs) -> set[tuple[str | None, str | None, int]]:
    """Return environment, task and seed of the episodes on either side, where known."""
    return {(world.env_id, world.task, world.seed) for world in _Side(pairs).worlds}


def _shared(
    kind: LeakKind,
    ours: Mapping[Any, str],
    theirs: Mapping[Any, str],
    *,
    blocks: Callable[[Any], bool] = lambda value: True,
) -> Finding:
    both = [value for value in theirs if value in ours]
    forbidden = [value for value in both if blocks(value)]
    shown = [*forbidden, *(value for value in both if not blocks(value))]
    counts = (len(both), len(theirs), len(forbidden))
    return _finding(kind, *counts, ((str(value), ours[value], theirs[value]) for value in shown))


def _reserved(side: _Side, kept: Sequence[Reservation]) -> Finding:
    found = {episode: str(world) for world, episode in side.worlds.items() if _is_reserved(world, kept)}
    states = {state for each in kept for state in each.states}
    found |= {episode: f"state {state}" for state, episode in side.states.items() if state in states}
    counts = (len(found), len(side.ids), len(found))
    return _finding(LeakKind.RESERVED, *counts, ((what, mine, None) for mine, what in found.items()))


def _finding(
    kind: LeakKind, n: int, n_of: int, n_blocking: int, shown: Iterable[tuple[str, str, str | None]]
) -> Finding:
    examples = tuple(
        Example(what=what, train_episode=mine, eval_episode=other)
        for what, mine, other in itertools.islice(shown, _MOST_EXAMPLES)
    )
    return Finding(kind=kind, n=n, n_of=n_of, n_blocking=n_blocking, examples=examples)


def _is_reserved(world: _World, kept: Sequence[Reservation]) -> bool:
    return any(
        each.env == world.env_id and world.task in each.tasks and each.seeds.has(world.seed) for each in kept
    )


def _world_of(key: str) -> _World | None:
    """Return the world that a group key names; None if it names none."""
    try:
        kind, *parts = json.loads(key)
        if kind != "world":
            return None
        env_id, task, seed = parts
        return _World(env_id, task, int(seed))
    except (ValueError, TypeError):
        return None
