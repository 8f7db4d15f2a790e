"""What a rollout is to play, decided before anything is played."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, NamedTuple

from pydantic import Field

from trajkit.errors import RequestError
from trajkit.rollout.ids import uuid7
from trajkit.schema import Model, Purpose
from trajkit.schema.base import Count, Name


class Job(NamedTuple):
    """One episode to play."""

    variant: str
    """Whose turn it is: a variant of the gateway's function, or the name of a scripted policy."""
    task: str
    seed: int


class Plan(Model):
    """Every choice of a rollout. The same plan, run identity aside, plays the same episodes."""

    env_id: Name
    """The environment, such as `babyai`."""
    tasks: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Tasks to play, each on every seed."""
    variants: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Policies to play with, by name, each on every task and seed."""
    seed_start: Count
    """First seed."""
    seed_stop: Count
    """The seed after the last."""
    purpose: Purpose = Purpose.TRAIN
    """What the episodes are for; `eval` episodes never train."""
    run_seed: Count = 0
    """Seed of everything that is sampled; another one gives other answers to the same prompts."""
    history: Count = 8
    """Latest steps shown to the model with each observation; 0 shows none."""
    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 16
    """Most requests in flight at once."""
    timeout_s: Annotated[float, Field(gt=0)] = 180.0
    """Longest wait for one request, in seconds."""
    retries: Count = 3
    """How often a request that failed for no fault of the agent is sent again."""
    run: Name = Field(default_factory=uuid7)
    """Identity of this run, in the tag `trajkit.run`."""

    @property
    def n_episodes(self) -> int:
        """Episodes to play."""
        return (self.seed_stop - self.seed_start) * len(self.tasks) * len(self.variants)

    def jobs(self) -> Iterator[Job]:
        """The episodes in the order in which they begin: seed by seed, so that a run cut short is even."""
        for seed in range(self.seed_start, self.seed_stop):
            for task in self.tasks:
                for variant in self.variants:
                    yield Job(variant, task, seed)

    def tags(self, job: Job) -> dict[str, str]:
        """The tags of an episode: on every inference and on its feedback."""
        return {
            "trajkit.env": self.env_id,
            "trajkit.task": job.task,
            "trajkit.seed": str(job.seed),
            "trajkit.purpose": self.purpose.value,
            "trajkit.run": self.run,
        }


def chosen(asked: tuple[str, ...], known: tuple[str, ...], *, noun: str, of: str) -> tuple[str, ...]:
    """The names asked for, without repeats, in the order asked; `all` stands for every known one.

    Raises:
        RequestError: One of them is not known.
    """
    names = tuple(dict.fromkeys(name for one in asked for name in (known if one == "all" else (one,))))
    for name in names:
        if name not in known:
            raise RequestError(f"no {noun} {name!r} in {of}", hint=f"known: {', '.join(known)}, or all")
    return names
