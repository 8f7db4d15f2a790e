"""The report of a search for leaks: what blocks training, what is only counted, what cannot be checked."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from trajkit._core.output.console import line
from trajkit._core.output.result import Result
from trajkit.errors import DataError
from trajkit.schema import Model
from trajkit.schema.base import Count, Name, Text
from trajkit.schema.manifest import Sha256


class LeakKind(StrEnum):
    """What two stores can share, the most certain first."""

    EPISODE_ID = "episode_id"
    """The same episode."""
    WORLD = "world"
    """The same environment, task and seed."""
    INITIAL_STATE = "initial_state"
    """The same initial state, as the environment hashed it; the seeds may differ."""
    RESERVED = "reserved"
    """A world that `trajkit.toml` reserves for evaluation."""
    GROUP = "group"
    """The same values of the columns that the user named, such as a customer."""
    PROMPT = "prompt"
    """The same prompt, byte for byte."""
    NEAR_PROMPT = "near_prompt"
    """A prompt that differs only by case, spaces and punctuation, or in few of its words."""
    PROMPT_ANSWER = "prompt_answer"
    """A prompt with its answer that differ at most by case, spaces and punctuation."""
    ROOM = "room"
    """The same environment, seed and first observation under another task: only counted."""
    FIRST_TEXT = "first_text"
    """Mission and first observation that differ at most by case, spaces and punctuation."""


NAMES = {
    LeakKind.EPISODE_ID: ("episode id", "episode ids"),
    LeakKind.WORLD: ("world (environment, task and seed)", "worlds (environment, task and seed)"),
    LeakKind.INITIAL_STATE: ("initial state", "initial states"),
    LeakKind.RESERVED: ("episode of a reserved world", "episodes of reserved worlds"),
    LeakKind.GROUP: ("group", "groups"),
    LeakKind.PROMPT: ("identical prompt", "identical prompts"),
    LeakKind.NEAR_PROMPT: ("near-identical prompt", "near-identical prompts"),
    LeakKind.PROMPT_ANSWER: ("prompt with its answer", "prompts with their answers"),
    LeakKind.ROOM: (
        "room (environment and seed, under another task)",
        "rooms (environment and seed, under another task)",
    ),
    LeakKind.FIRST_TEXT: ("mission and first text", "missions and first texts"),
}
"""Each kind in words, singular and plural."""


class Example(Model):
    """One item that both stores have."""

    what: Text
    """The id, the world, the hash, or the beginning of the text."""
    train_episode: Name
    """An episode of the training store that has it."""
    eval_episode: Name | None
    """An episode of the evaluation store that has it; None for a reserved world."""


class Finding(Model):
    """All items of one kind that both stores have."""

    kind: LeakKind
    """The kind of item."""
    n: Count
    """Number of distinct shared items; for `reserved`, of episodes of the training store."""
    n_of: Count
    """Number of distinct items in the evaluation store; for `reserved`, of episodes of the training store."""
    n_blocking: Count
    """Number of them that forbid training; the others are only counted."""
    examples: tuple[Example, ...]
    """Some of them, blocking ones first."""

    @property
    def words(self) -> str:
        """The counts in words: `3 of 20 worlds (environment, task and seed)`."""
        return f"{self.n:,} of {self.n_of:,} {NAMES[self.kind][self.n_of != 1]}"


class World(Model):
    """One world of an environment."""

    env_id: Text
    """The environment."""
    task: Text
    """The task within it."""
    seed: int
    """Its seed."""

    def __str__(self) -> str:
        return f"{self.env_id} {self.task} seed {self.seed}"


class Aliased(Model):
    """Worlds of the evaluation store whose first text also occurs in the training store."""

    n: Count
    """Number of such worlds."""
    n_of: Count
    """Number of worlds with environment, task and seed in the evaluation store."""
    worlds: tuple[World, ...]
    """These worlds, so that results can be given on the others alone."""

    def __str__(self) -> str:
        return f"aliased text: {self.n:,} of {self.n_of:,}"


class LeakSide(Model):
    """Facts about one of the two stores."""

    path: Name
    """Path of the store."""
    digest: Sha256
    """Digest of its content."""
    n_episodes: Count
    """Its episodes."""
    n_without_seed: Count
    """Episodes without environment, task or seed: their text blocks."""
    n_without_state: Count
    """Episodes whose environment gave no hash of the initial state."""
    n_steps: Count
    """Its steps."""
    n_without_prompt: Count
    """Steps whose prompt is unknown: they cannot be compared as text."""
    n_for_evaluation: Count
    """Episodes that were played for evaluation."""

    def unchecked(self) -> Iterator[str]:
        """Yield what cannot be compared, in words."""
        n = self.n_episodes
        if n and self.n_without_seed == self.n_without_state == n:
            yield (
                f"none of {n:,} episodes has a world (environment, task and seed) or an initial state: they "
                "are compared by id and text, and shared text is a leak"
            )
        elif self.n_without_seed:
            yield (
                f"{self.n_without_seed:,} of {n:,} episodes have no environment, task and seed: their worlds "
                "cannot be compared, so shared text is a leak"
            )
        if self.n_without_state > 0 and not self.n_without_seed == self.n_without_state == n:
            yield (
                f"{self.n_without_state:,} of {n:,} episodes have no hash of their initial state by the "
                "environment: the same world under two seeds is not recognised"
            )
        if self.n_without_prompt:
            yield (
                f"{self.n_without_prompt:,} of {self.n_steps:,} steps have no prompt: "
                "they cannot be compared as text"
            )


class LeakReport(Model, Result):
    """What a training store and an evaluation store share; it holds for these digests."""

    train: LeakSide
    """The training store."""
    evaluation: LeakSide | None
    """The evaluation store; None if only reserved worlds were looked for."""
    strict_text: bool
    """Whether shared text blocks even if both sides have seeds."""
    near: float | None
    """Share of common words from which on prompts were near-identical; None if they had to read the same."""
    n_reserved: Count
    """Number of reservations that were compared."""
    findings: tuple[Finding, ...]
    """Shared items by kind, without kinds that found none."""
    aliased: Aliased
    """Worlds with different seeds and the same text, which small environments have."""
    is_allowed: bool = False
    """Whether `--allow-leak` let training continue in spite of a leak."""

    @property
    def blocking(self) -> tuple[Finding, ...]:
        """The findings that forbid training."""
        return tuple(finding for finding in self.findings if finding.n_blocking)

    @property
    def leaks(self) -> bool:
        """Whether any finding forbids training."""
        return bool(self.blocking)

    def checked(self, *, allow_leak: bool = False) -> LeakReport:
        """Return this report if training may begin, with `is_allowed` set if it leaks and that was allowed.

        Args:
            allow_leak: Train in spite of a leak; every report of that training run says so.

        Raises:
            DataError: It leaks and that is not allowed; the message lists the leaks.
        """
        if (failure := self.failure) is None:
            return self
        if allow_leak:
            return self.model_copy(update={"is_allowed": True})
        raise failure

    @property
    def failure(self) -> DataError | None:
        """The leaks as an error; None without a leak."""
        if not self.leaks:
            return None
        found = ", ".join(
            f"{finding.n_blocking:,} {NAMES[finding.kind][finding.n_blocking != 1]}"
            for finding in self.blocking
        )
        other = "reserved worlds" if self.evaluation is None else self.evaluation.path
        way_out = (
            "`trajkit select --unreserved` leaves them out"
            if all(finding.kind is LeakKind.RESERVED for finding in self.blocking)
            else "`trajkit split --by prompt` splits a store without a leak, and `trajkit leak --drop eval` "
            "cleans a side"
        )
        return DataError(
            f"{self.train.path} leaks: it shares with {other}: {found}",
            hint=f"{way_out}; --allow-leak trains anyway",
        )

    def to_json(self) -> dict[str, Any]:
        """Return whether there is a leak, and the report."""
        return {"leaks": self.leaks, **self.model_dump(mode="json")}

    def __str__(self) -> str:
        return "\n".join(map(line, self.lines()))

    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text."""
        for finding in self.findings:
            yield f"{'LEAK' if finding.n_blocking else 'counted'}  {finding.words}{_part(finding)}"
            for example in finding.examples:
                other = "" if example.eval_episode is None else f" and {example.eval_episode}"
                yield f"    {example.what}: {example.train_episode}{other}"
        if self.evaluation is not None:
            yield str(self.aliased)
        if self.is_allowed:
            yield "this leak was allowed: results on these worlds are not held out"
        elif self.evaluation is None and not self.n_reserved:
            yield "nothing was compared: there is no evaluation store, and no seeds are reserved"
        elif not self.leaks:
            yield "no leak"

    def unchecked(self) -> Iterator[str]:
        """Yield what could not be compared, and notes about the stores."""
        for name, side in (("TRAIN", self.train), ("EVAL", self.evaluation)):
            if side is not None:
                yield from (f"{name}: {text}" for text in side.unchecked())
        if n := self.train.n_for_evaluation:
            yield (
                f"TRAIN: {n:,} of {self.train.n_episodes:,} episodes were played for evaluation; `trajkit "
                "sft` leaves them out, and `trajkit convert` refuses them without --include-eval"
            )


def _part(finding: Finding) -> str:
    if finding.n_blocking in (0, finding.n):
        return ""
    return f", of which {finding.n_blocking:,} where a side has no seeds"
