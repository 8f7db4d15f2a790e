"""The contract of a source, which reads the records of another system as episodes.

A source is a module with a `Source`. trajkit's own are listed in `trajkit.sources.catalog`; a package outside
offers one as an entry point of the group `trajkit.sources`. `trajkit.testing.SourceContract` checks one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from trajkit.schema import Episode, FileBlock, ThoughtBlock, ToolCallBlock, ToolResultBlock, Transition
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.wish import Wish


class Fate(StrEnum):
    """How a field is carried from a source to a store."""

    KEPT = "kept"
    CHANGED = "changed"
    LOST = "lost"


class Fact(NamedTuple):
    """How a source carries one field."""

    fate: Fate
    note: str = ""
    """How it is changed, or when it is missing, in a few words."""


KEPT = Fact(Fate.KEPT)
LOST = Fact(Fate.LOST)


def lost(*names: str) -> dict[str, Fact]:
    """Return the facts of fields that no record has."""
    return dict.fromkeys(names, LOST)


def changed(note: str) -> Fact:
    """Return the fact that a field is kept in another form."""
    return Fact(Fate.CHANGED, note)


def kept(note: str) -> Fact:
    """Return the fact that a field is kept under a condition."""
    return Fact(Fate.KEPT, note)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A reader of the records of one system."""

    name: str
    """Its name after `--from`; also `Episode.source`."""
    about: str
    """The records that it reads, in one line."""
    read: Callable[[str, Wish], Iterator[Found | Unread]]
    """Yields the sessions at a path or URL, one at a time, in a fixed order. Memory holds one session.
    Raises `RequestError` if nothing can be read there, and `ServiceError` if a server fails; an invalid
    session is a `Found` with a problem."""
    recognises: Callable[[str], bool] = lambda _place: False
    """Whether a path or URL certainly belongs to this source; opens at most a few files."""
    default_place: Callable[[], Path | None] = lambda: None
    """The place of its records if no path is given; None if there is none."""
    is_personal: bool = False
    """Whether the records come from the user's own machine, so that they probably hold secrets."""
    fidelity: Mapping[str, Fact] = field(default_factory=dict)
    """How the fields of `FIELDS` are carried that are not kept as they are; all others are."""

    def fact(self, name: str) -> Fact:
        """Return how a field of `FIELDS` is carried."""
        return self.fidelity.get(name, KEPT)


def _of_steps(has: Callable[[Transition], bool]) -> Callable[[Episode], bool]:
    return lambda episode: any(has(step) for step in episode.steps)


def _in_answer(kind: type) -> Callable[[Episode], bool]:
    return _of_steps(
        lambda step: (
            step.completion is not None and any(isinstance(one, kind) for one in step.completion.content)
        )
    )


def _in_prompt(kind: type) -> Callable[[Episode], bool]:
    return _of_steps(
        lambda step: any(isinstance(one, kind) for message in step.messages or () for one in message.content)
    )


FIELDS: Mapping[str, Callable[[Episode], bool]] = {
    "session": lambda episode: "session_id" in (episode.origin or {}),
    "sub-agents": lambda episode: "parent_episode_id" in (episode.origin or {}),
    "prompt": _of_steps(lambda step: bool(step.messages)),
    "answer": _of_steps(lambda step: step.completion is not None),
    "tool calls": _in_answer(ToolCallBlock),
    "tool results": _in_prompt(ToolResultBlock),
    "tools offered": _of_steps(lambda step: step.tools is not None),
    "thoughts": _in_answer(ThoughtBlock),
    "images and files": _in_prompt(FileBlock),
    "model": _of_steps(lambda step: step.model_name is not None),
    "sampling settings": _of_steps(lambda step: "settings" in (step.extra or {})),
    "tokens": _of_steps(lambda step: step.n_input_tokens is not None),
    "cost": _of_steps(lambda step: step.cost_usd is not None),
    "time": _of_steps(lambda step: step.started_at is not None),
    "latency": _of_steps(lambda step: step.latency_s is not None),
    "finish reason": _of_steps(lambda step: step.finish_reason is not None),
    "failed calls": _of_steps(lambda step: "error" in (step.extra or {})),
    "metrics": lambda episode: bool(episode.metrics) or any(step.metrics for step in episode.steps),
    "comments": lambda episode: any(one.kind == "comment" for one in episode.feedback),
    "tags and user": lambda episode: bool(episode.tags),
    "task and seed": lambda episode: episode.task is not None,
    "token ids": _of_steps(lambda step: step.completion_token_ids is not None),
}
"""The fields that a source describes, each with a test of whether an episode has it."""
