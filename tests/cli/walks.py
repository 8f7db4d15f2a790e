"""Walks in twenty worlds, each with a better and a worse answer: what preferences are learned from."""

from __future__ import annotations

from pathlib import Path

from trajkit.schema import Episode, Transition, message
from trajkit.store.writer import write_episodes


def write_walks(path: str, *, loss_weight: float = 1.0) -> None:
    """A store of forty episodes of one step.

    Args:
        path: Where.
        loss_weight: Of every step.
    """
    both = [(seed, answer, score) for seed in range(20) for answer, score in (("left", 1.0), ("right", 0.0))]
    write_episodes(Path(path), [_episode(*each, loss_weight) for each in both], kind="test")


def _episode(seed: int, answer: str, score: float, loss_weight: float) -> Episode:
    step = Transition(
        step_index=0,
        messages=(message("user", f"world {seed}: which way? "),),
        completion=message("assistant", answer),
        observation=f"world {seed}",
        action=answer,
        action_executed=answer,
        loss_weight=loss_weight,
    )
    return Episode(
        episode_id=f"{seed}-{answer}",
        source="test",
        env_id="walk",
        task="go",
        seed=seed,
        metrics={"episode_return": score},
        outcome="success" if score else "failure",
        steps=(step,),
    )
