"""The plan of a rollout: every choice, made before the first episode is played."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, NamedTuple

from pydantic import Field, PlainSerializer, PlainValidator

from trajkit._core.ids import uuid7
from trajkit.errors import RequestError
from trajkit.rollouts.decoding import Decoding, as_decoding
from trajkit.rollouts.seeds import Seeds, as_seeds, derived_seed, shuffled
from trajkit.schema import Model, Purpose
from trajkit.schema.base import Count, Name, Text
from trajkit.store.conditions.nameable import nearest

DECODING_TAG = "trajkit.decoding"
"""Tag of the decoding of an episode, where the plan fixes it."""


class Job(NamedTuple):
    """One episode to play."""

    variant: str
    """The policy's name: a variant of the gateway's function, or a scripted policy."""
    task: str
    seed: int
    decoding: str = ""
    """Decoding, as in `Plan.decodings`; empty if the plan fixes none."""

    @property
    def parts(self) -> tuple[str | int, ...]:
        """The values that identify it in hashes and journals."""
        return tuple(self) if self.decoding else self[:3]


class Shard(NamedTuple):
    """One part of a plan that several runners play in parallel."""

    number: int
    """Number of the part, from 1."""
    of: int
    """Number of parts."""

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def has(self, job: Job) -> bool:
        """Check whether a job is in this part: its hash puts each job in exactly one part."""
        return self.of == 1 or derived_seed("shard", *job.parts) % self.of == self.number - 1


def as_shard(value: object) -> Shard:
    """Parse a shard.

    Raises:
        RequestError: The text is not `I/N` with I from 1 to N.
    """
    if isinstance(value, Shard):
        return value
    number, slash, of = str(value).partition("/")
    if not (slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise RequestError(f"{value!r} is not a shard", hint="write I/N, I from 1 to N, such as 3/16")
    return Shard(int(number), int(of))


class Plan(Model):
    """Every choice of a rollout. The same plan, run identity aside, plays the same episodes."""

    env_id: Name
    """The environment, such as `babyai` or `my_pkg.env:MyEnv`."""
    env_name: Text = ""
    """Name in tags and stores, if it differs; empty for `env_id`."""
    env_settings: dict[str, str] = {}
    """Settings of the environment, as they were typed."""
    tasks: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Tasks to play, each on every seed."""
    variants: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Policies to play with, by name, each on every task and seed."""
    decodings: tuple[
        Annotated[Decoding, PlainValidator(as_decoding), PlainSerializer(str, return_type=str)], ...
    ] = ()
    """Decodings, each for every variant, task and seed; empty leaves it to the policies."""
    seeds: Annotated[Seeds, PlainValidator(as_seeds), PlainSerializer(str, return_type=str)]
    """Seeds to play, such as `0:20`."""
    shard: Annotated[Shard, PlainValidator(as_shard), PlainSerializer(str, return_type=str)] = Shard(1, 1)
    """Part of the episodes that is played here."""
    purpose: Purpose = Purpose.TRAIN
    """Purpose of the episodes; models never train on `eval` episodes."""
    run_seed: Count = 0
    """Seed of all sampling, and of the order; another seed gives other answers."""
    history: Count = 8
    """Number of latest steps in the model's prompt; 0 shows none."""
    max_steps: Annotated[int, Field(ge=1)] | None = None
    """Actions after which an episode is cut off; None leaves that to the environment."""
    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 16
    """Maximum number of requests in flight."""
    timeout_s: Annotated[float, Field(gt=0)] = 180.0
    """Longest wait for one request, in seconds."""
    episode_timeout_s: Annotated[float, Field(gt=0)] | None = None
    """Longest time for one episode, in seconds; None for no limit."""
    retries: Count = 3
    """Maximum retries of a request that failed through no fault of the agent."""
    run: Name = Field(default_factory=uuid7)
    """Identity of this run, in the tag `trajkit.run`."""

    @property
    def n_jobs(self) -> int:
        """Number of episodes in all shards."""
        return len(self.seeds) * len(self.tasks) * len(self._players)

    @cached_property
    def n_episodes(self) -> int:
        """Number of episodes to play here."""
        return self.n_jobs if self.shard.of == 1 else sum(1 for _ in self.jobs())

    def jobs(self) -> Iterator[Job]:
        """Yield the episodes in the order in which they begin, which depends on the run seed.

        Tasks and seeds come in a random order, so that a slow hour affects all of them alike. The variants of
        each world come next to each other, so that a run cut short compares them on the same worlds.
        """
        n_tasks = len(self.tasks)
        for place in shuffled(len(self.seeds) * n_tasks, "jobs", self.run_seed):
            task, seed = self.tasks[place % n_tasks], self.seeds[place // n_tasks]
            jobs = [Job(variant, task, seed, decoding) for variant, decoding in self._players]
            if len(jobs) > 1:
                jobs.sort(key=lambda job: derived_seed("turn", self.run_seed, *job.parts))
            yield from (job for job in jobs if self.shard.has(job))

    def position(self, job: Job) -> int:
        """Return the index of a job among all those of the plan, whatever the order and the shard.

        Raises:
            ValueError: The plan has no such job.
        """
        of_seed = self.seeds.index(job.seed) * len(self.tasks) + self.tasks.index(job.task)
        return of_seed * len(self._players) + self._players.index((job.variant, job.decoding))

    @cached_property
    def _players(self) -> tuple[tuple[str, str], ...]:
        """Each variant with each decoding."""
        ways = [str(decoding) for decoding in self.decodings] or [""]
        return tuple((variant, way) for way in ways for variant in self.variants)

    def decoding(self, job: Job) -> Decoding:
        """Return the decoding of an episode."""
        return as_decoding(job.decoding) if job.decoding else Decoding()

    def inference_seed(self, job: Job, step_index: int, *later: int) -> int:
        """Return the seed of a model's answer, the same for every policy.

        Args:
            job: The episode.
            step_index: The step.
            later: Number of the call in its step, from 1 for the second one.
        """
        return derived_seed("inference", self.run_seed, job.task, job.seed, step_index, *later)

    def tags(self, job: Job) -> dict[str, Text]:
        """Return the tags of an episode, for every inference and its feedback."""
        tags = {
            "trajkit.env": self.env_name or self.env_id,
            "trajkit.task": job.task,
            "trajkit.seed": str(job.seed),
            "trajkit.purpose": self.purpose.value,
            "trajkit.run": self.run,
        }
        return {**tags, DECODING_TAG: job.decoding} if job.decoding else tags


def chosen(asked: tuple[str, ...], known: tuple[str, ...], *, noun: str, of: str) -> tuple[str, ...]:
    """Return the requested names, without repeats, in order; `all` stands for every known one.

    Raises:
        RequestError: A name is unknown.
    """
    names = tuple(dict.fromkeys(name for one in asked for name in (known if one == "all" else (one,))))
    for name in names:
        if name not in known:
            near = nearest(name, known)
            like = f"{near}; " if near.startswith("nearest") else ""
            raise RequestError(f"no {noun} {name!r} in {of}", hint=f"{like}known: {', '.join(known)}, or all")
    return names
