"""Evaluation stores as the tests need them: any variants on any worlds, with any ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from trajkit.evaluation.report import report
from trajkit.evaluation.reports.object import Report
from trajkit.schema import Episode, Transition, message
from trajkit.store.writer import write_episodes

FEW = 500
"""Resamples that are enough for tests."""
_numbers = itertools.count()


def make_played(
    variant: str,
    seed: int | None,
    *,
    task: str = "goto",
    is_success: bool | None = True,
    score: float | None = None,
    n_steps: int = 2,
    decoding: str | None = None,
    n_tokens: int | None = None,
    prompt: str | None = None,
    step: dict[str, Any] | None = None,
    **fields: Any,
) -> Episode:
    """An episode of evaluation; its prompts name its world unless they are given."""
    steps = tuple(
        Transition(
            **{
                "step_index": index,
                "messages": (message("user", prompt or f"{task} {seed} turn {index}"),),
                "completion": message("assistant", "go forward"),
                "observation": f"{task} {seed} turn {index}",
                "action": "go forward",
                "action_executed": "go forward",
                "action_valid": True,
                "variant_name": variant,
                "n_input_tokens": None if n_tokens is None else 3 * n_tokens,
                "n_output_tokens": n_tokens,
                **(step or {}),
            }
        )
        for index in range(n_steps)
    )
    default: dict[str, Any] = {
        "episode_id": f"{variant}-{task}-{seed}-{next(_numbers)}",
        "source": "test",
        "env_id": "world",
        "task": task,
        "seed": seed,
        "purpose": "eval",
        "outcome": {True: "success", False: "truncated", None: "error"}[is_success],
        "metrics": {"episode_return": float(bool(is_success)) if score is None else score},
        "tags": {} if decoding is None else {"trajkit.decoding": decoding},
        "steps": steps,
    }
    return Episode(**{**default, **fields})


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Write episodes as a store; return its folder."""
    numbers = itertools.count()

    def write(episodes: Iterable[Episode], **more: Any) -> Path:
        goal = tmp_path_factory.mktemp("stores") / f"store-{next(numbers)}"
        write_episodes(goal, episodes, kind="test", **more)
        return goal

    return write


@pytest.fixture(scope="session")
def two_sides(evaluated: Callable[..., Path]) -> Path:
    """`base` wins seeds 0 to 5 of 20 in both tasks, `tuned` 3 to 17; with tokens, costs and stop reasons."""
    episodes = []
    for variant, wins in (("base", range(6)), ("tuned", range(3, 18))):
        for task in ("goto", "pickup"):
            for seed in range(20):
                is_success = seed in wins
                n_steps = 2 + seed % 5 if is_success else 12
                episodes.append(
                    make_played(
                        variant,
                        seed,
                        task=task,
                        is_success=is_success,
                        score=0.9 - n_steps / 100 if is_success else 0.0,
                        n_steps=n_steps,
                        n_tokens=8,
                        step={"finish_reason": "stop", "cost_usd": 0.001, "model_name": f"{variant}-model"},
                    )
                )
    return evaluated(episodes)


@pytest.fixture(scope="session")
def found(two_sides: Path) -> Report:
    return report(two_sides, resamples=FEW)
