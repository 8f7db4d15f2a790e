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
from trajkit.store.nameable import nearest

DECODING_TAG = "trajkit.decoding"
"""How the answers of an episode were drawn, where that was fixed for it."""


class Job(NamedTuple):
    """One episode to play."""

    variant: str
    """Whose turn it is: a variant of the gateway's function, or the name of a scripted policy."""
    task: str
    seed: int
    decoding: str = ""
    """How its answers are drawn, as in `Plan.decodings`; empty where the plan fixes nothing."""

    @property
    def parts(self) -> tuple[str | int, ...]:
        """The values that identify it in hashes and journals."""
        return tuple(self) if self.decoding else self[:3]


class Shard(NamedTuple):
    """One part of a plan that several runners play side by side."""

    number: int
    """Which, from 1."""
    of: int
    """How many there are."""

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def has(self, job: Job) -> bool:
        """Whether a job is in this part: by a hash of it, so that each is in exactly one."""
        return self.of == 1 or derived_seed("shard", *job.parts) % self.of == self.number - 1


def as_shard(value: object) -> Shard:
    """A part from its text.

    Raises:
        RequestError: It is not `I/N` with I from 1 to N.
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
    """What it is called in tags and stores, where it has a name of its own; empty for `env_id`."""
    env_settings: dict[str, str] = {}
    """Settings of the environment, as they were typed."""
    tasks: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Tasks to play, each on every seed."""
    variants: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Policies to play with, by name, each on every task and seed."""
    decodings: tuple[
        Annotated[Decoding, PlainValidator(as_decoding), PlainSerializer(str, return_type=str)], ...
    ] = ()
    """Ways to draw answers, each for every variant, task and seed; none leaves it to the policies."""
    seeds: Annotated[Seeds, PlainValidator(as_seeds), PlainSerializer(str, return_type=str)]
    """Seeds to play, such as `0:20`."""
    shard: Annotated[Shard, PlainValidator(as_shard), PlainSerializer(str, return_type=str)] = Shard(1, 1)
    """Which part of all that is played here."""
    purpose: Purpose = Purpose.TRAIN
    """What the episodes are for; `eval` episodes never train."""
    run_seed: Count = 0
    """Seed of everything that is sampled, and of the order; another one gives other answers."""
    history: Count = 8
    """Latest steps shown to the model with each observation; 0 shows none."""
    max_steps: Annotated[int, Field(ge=1)] | None = None
    """Actions after which an episode is cut off; None leaves that to the environment."""
    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 16
    """Most requests in flight at once."""
    timeout_s: Annotated[float, Field(gt=0)] = 180.0
    """Longest wait for one request, in seconds."""
    episode_timeout_s: Annotated[float, Field(gt=0)] | None = None
    """Longest time for one episode, in seconds; None for no limit."""
    retries: Count = 3
    """How often a request that failed for no fault of the agent is sent again."""
    run: Name = Field(default_factory=uuid7)
    """Identity of this run, in the tag `trajkit.run`."""

    @property
    def n_jobs(self) -> int:
        """Episodes of all shards together."""
        return len(self.seeds) * len(self.tasks) * len(self._players)

    @cached_property
    def n_episodes(self) -> int:
        """Episodes to play here."""
        return self.n_jobs if self.shard.of == 1 else sum(1 for _ in self.jobs())

    def jobs(self) -> Iterator[Job]:
        """The episodes in the order in which they begin, which follows from the run seed.

        Tasks and seeds come in a random order, so that a slow hour falls on none of them, and the variants
        side by side on each, so that a run cut short compares them on the same worlds.
        """
        n_tasks = len(self.tasks)
        for place in shuffled(len(self.seeds) * n_tasks, "jobs", self.run_seed):
            task, seed = self.tasks[place % n_tasks], self.seeds[place // n_tasks]
            jobs = [Job(variant, task, seed, decoding) for variant, decoding in self._players]
            if len(jobs) > 1:
                jobs.sort(key=lambda job: derived_seed("turn", self.run_seed, *job.parts))
            yield from (job for job in jobs if self.shard.has(job))

    def position(self, job: Job) -> int:
        """The place of a job among all those of the plan, from 0, whatever the order and the shard.

        Raises:
            ValueError: The plan has no such job.
        """
        of_seed = self.seeds.index(job.seed) * len(self.tasks) + self.tasks.index(job.task)
        return of_seed * len(self._players) + self._players.index((job.variant, job.decoding))

    @cached_property
    def _players(self) -> tuple[tuple[str, str], ...]:
        """Each variant with each way to draw its answers."""
        ways = [str(decoding) for decoding in self.decodings] or [""]
        return tuple((variant, way) for way in ways for variant in self.variants)

    def decoding(self, job: Job) -> Decoding:
        """How the answers of an episode are drawn."""
        return as_decoding(job.decoding) if job.decoding else Decoding()

    def tags(self, job: Job) -> dict[str, Text]:
        """The tags of an episode: on every inference and on its feedback."""
        tags = {
            "trajkit.env": self.env_name or self.env_id,
            "trajkit.task": job.task,
            "trajkit.seed": str(job.seed),
            "trajkit.purpose": self.purpose.value,
            "trajkit.run": self.run,
        }
        return {**tags, DECODING_TAG: job.decoding} if job.decoding else tags


def chosen(asked: tuple[str, ...], known: tuple[str, ...], *, noun: str, of: str) -> tuple[str, ...]:
    """The names asked for, without repeats, in the order asked; `all` stands for every known one.

    Raises:
        RequestError: One of them is not known.
    """
    names = tuple(dict.fromkeys(name for one in asked for name in (known if one == "all" else (one,))))
    for name in names:
        if name not in known:
            near = nearest(name, known)
            like = f"{near}; " if near.startswith("nearest") else ""
            raise RequestError(f"no {noun} {name!r} in {of}", hint=f"{like}known: {', '.join(known)}, or all")
    return names
