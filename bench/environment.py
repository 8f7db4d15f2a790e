"""Steps per second of BabyAI on one core, against minigrid stepping the same world without our text.

Run as `python bench/environment.py`. The peer is plain minigrid: the same levels, seeds and actions, and
`env.step` with minigrid's own image observation and nothing made of it.
"""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from trajkit.environments.babyai import ACTIONS, TASKS, BabyAI
from trajkit.environments.babyai_level import Level
from trajkit.environments.base import DEFAULT_SUCCESS, DEFAULT_TASK, EnvironmentInfo
from trajkit.environments.guard import Memory, guarded

SEEDS = range(40)
LIMIT = 0.5
"""Least share of the plain speed that may be left with our text."""
GUARD_LIMIT_S = 20e-6
"""Most that the checks around somebody's own environment may cost a step."""
ROUNDS = 3
"""The fastest of so many counts."""


class Timing(NamedTuple):
    """Steps played and the time they took."""

    n_steps: int
    seconds: float


def actions_of(seed: int) -> list[int]:
    """The same random actions for both sides, as many as the longest episode."""
    chance = random.Random(seed)
    return [chance.randrange(len(ACTIONS)) for _ in range(128)]


def plain(task: str) -> Timing:
    """Steps and seconds of minigrid alone."""
    level = Level(task)
    n_steps, seconds = 0, 0.0
    for seed in SEEDS:
        level.reset(seed=seed)
        started = time.perf_counter()
        for number in actions_of(seed):
            _, _, terminated, truncated, _ = level.step(number)
            n_steps += 1
            if terminated or truncated:
                break
        seconds += time.perf_counter() - started
    return Timing(n_steps, seconds)


def ours(task: str) -> Timing:
    """Steps and seconds of the text environment."""
    world = BabyAI(task)
    n_steps, seconds = 0, 0.0
    for seed in SEEDS:
        world.reset(seed)
        started = time.perf_counter()
        for number in actions_of(seed):
            result = world.step(ACTIONS[number])
            n_steps += 1
            if result.terminated or result.truncated:
                break
        seconds += time.perf_counter() - started
    return Timing(n_steps, seconds)


def resets_per_second(task: str) -> float:
    """Episodes begun per second, with their first observation and hash."""
    world = BabyAI(task)
    started = time.perf_counter()
    for seed in range(300):
        world.reset(seed)
    return 300 / (time.perf_counter() - started)


class Still:
    """Somebody's environment that does nothing: what is left is what guarding it costs."""

    def reset(self, seed: int) -> tuple[str, str]:
        """Always the same."""
        return "Stay.", "Nothing."

    def step(self, text: str | None) -> tuple[str, float, bool, bool]:
        """Always the same."""
        return "Nothing.", 0.0, False, False


def guard_cost_s(n_steps: int = 20_000) -> float:
    """Seconds that the guard around somebody's own environment adds to a step."""
    alone = Still()
    info = EnvironmentInfo("still", (DEFAULT_TASK,), None, DEFAULT_SUCCESS, BabyAI)  # nothing is made
    world = guarded(alone, info, DEFAULT_TASK, Memory())
    world.reset(0)
    seconds = []
    for step in (world.step, alone.step):
        rounds = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            for _ in range(n_steps):
                step("go")
            rounds.append(time.perf_counter() - started)
        seconds.append(min(rounds))
    return (seconds[0] - seconds[1]) / n_steps


def main() -> int:
    """Print the speeds and their ratio; 1 when the ratio is under its limit or the guard over its own."""
    n_steps = 0
    plain_s = ours_s = 0.0
    for task in TASKS:
        rounds = [
            (plain(task), ours(task)) for _ in range(ROUNDS)
        ]  # in turns: a busy machine slows both sides
        counts = {n for sides in rounds for n, _ in sides}
        if len(counts) != 1:
            print(f"{task}: the two sides played different episodes: {sorted(counts)} steps")
            return 1
        n_steps += counts.pop()
        plain_s += min(side.seconds for side, _ in rounds)
        ours_s += min(side.seconds for _, side in rounds)
    ratio = plain_s / ours_s
    print(f"babyai         {n_steps / ours_s:,.0f} steps/s on one core")
    print(f"plain minigrid {n_steps / plain_s:,.0f} steps/s, the same episodes")
    print(f"ratio          {ratio:.2f} of the plain speed (at least {LIMIT})")
    goto, opening = resets_per_second("goto"), resets_per_second("open")
    print(f"resets         {goto:,.0f} /s (goto), {opening:,.0f} /s (open)")
    guard_s = guard_cost_s()
    print(f"guard          {guard_s * 1e6:.1f} µs a step of somebody's own environment (at most 20)")
    return 0 if ratio >= LIMIT and guard_s <= GUARD_LIMIT_S else 1


if __name__ == "__main__":
    raise SystemExit(main())
