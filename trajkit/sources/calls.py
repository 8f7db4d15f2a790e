"""Make episodes from logged model calls: one for each session, and one for each run of a sub-agent in it.

Systems that log calls (traces, gateways) keep the prompt of each call as it was sent. A source turns its
rows into a `Session` of `Call`s. This module orders them, stores only the new part of each prompt, and
attaches the scores.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self

from trajkit.formats.chat.turns import steps_of_calls
from trajkit.formats.reading.document import BadDocument, Reading, episode_of, shown
from trajkit.schema import Feedback, FeedbackKind, Message
from trajkit.schema.base import JsonObject
from trajkit.schema.episode import MetricValue
from trajkit.sources.files.found import Found

NO_SESSION = "no session id: each trace is an episode of its own"
"""Episodes whose source does not say which traces belong together."""
CUT_TEXT = "a text that the source cut"
"""Episodes with a text that the logging system truncated."""
NO_PROMPT = "a call without its prompt"
"""Episodes with a call whose prompt was not stored."""
NO_CALL = "it has no model call"
"""Why a session is left out."""

EARLIEST = datetime(1, 1, 1, tzinfo=UTC)
"""Stands for an unknown time when sorting."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """A number, a boolean, a label or a comment on a session or a call."""

    name: str
    """Name of the metric."""
    value: float | bool | str
    """A number or a boolean is a metric; a text is a comment."""
    score_id: str
    """Its id in the source; of several on one target the latest counts."""
    call_id: str | None = None
    """The call; None for the whole session."""
    created_at: datetime
    """When it was given."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Other facts, such as who gave it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call of a language model."""

    call_id: str
    """Unique in the session."""
    prompt: Sequence[Message] | None = None
    """The whole prompt as it was sent; None when it is unknown."""
    answer: Message | None = None
    """What the model answered; None when it failed or the answer is unknown."""
    tools: tuple[JsonObject, ...] | None = None
    """The tools it could call, as `tools_of` gives them."""
    model_name: str | None = None
    function_name: str | None = None
    agent_name: str | None = None
    agent_run: str | None = None
    """Id of the run of a sub-agent that made the call; None for the session's own agent."""
    started_at: datetime | None = None
    latency_s: float | None = None
    n_input_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None
    finish_reason: str | None = None
    cached: bool | None = None
    settings: JsonObject | None = None
    """Sampling settings, such as temperature."""
    error: str | None = None
    """Why the call failed."""
    prompt_token_ids: Sequence[int] | None = None
    completion_token_ids: Sequence[int] | None = None
    """The tokens as they were sampled."""
    logprobs: Sequence[float] | None = None
    """One for each token of the completion."""
    extra: JsonObject | None = None
    """Other data of the source, verbatim."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """The calls that belong together."""

    session_id: str
    """Becomes the id of the episode."""
    source: str
    """Name of the source."""
    calls: Sequence[Call]
    """In any order: they are sorted by time, those of one time by their place."""
    scores: Sequence[Score] = ()
    agent_parents: Mapping[str, str] = field(default_factory=dict)
    """The run that started each sub-agent run; a run without an entry was started by the session's agent."""
    run_origins: Mapping[str, JsonObject] = field(default_factory=dict)
    """Further fields of `origin` for each sub-agent run."""
    tags: Mapping[str, str] = field(default_factory=dict)
    origin: JsonObject = field(default_factory=dict)
    """Its place in the source, and other data of the source."""
    env_id: str | None = None
    task: str | None = None
    seed: int | None = None
    purpose: str | None = None
    missing: tuple[str, ...] = ()
    """Facts that the source does not have about this session, such as `NO_SESSION`."""
    is_named: bool = True
    """Whether the source gave the session id."""


def reading_of(session: Session) -> Reading:
    """Return the episodes of a session: that of its agent, then those of its sub-agents.

    Raises:
        BadDocument: A value is not valid.
    """
    runs: dict[str | None, list[Call]] = {None: []}
    for call in sorted(session.calls, key=lambda call: call.started_at or EARLIEST):
        runs.setdefault(call.agent_run, []).append(call)
    if not runs[None]:  # a session in which only sub-agents called a model
        first = next(iter(runs.keys() - {None}), None) if len(runs) == 2 else None
        if first is not None:
            runs = {None: runs[first]}
        else:
            del runs[None]
    names = {run: _name(session, run) for run in runs}
    episodes = [
        episode_of(_episode(session, run, calls, names, is_first=place == 0))
        for place, (run, calls) in enumerate(runs.items())
    ]
    return Reading(tuple(episodes), is_named=session.is_named, is_log=True)


def found_of(session: Session, place: str) -> Found:
    """Return a session as the import takes it; an error in it becomes its problem."""
    missing = set(session.missing)
    if any(call.prompt is None for call in session.calls):
        missing.add(NO_PROMPT)
    try:
        with known_types():
            reading = reading_of(session)
        return Found(place, reading, session.session_id.encode(), missing=tuple(sorted(missing)))
    except BadDocument as error:
        return Found(place, problem=error.problem)


def found_by(make: Callable[[], Session | None], place: str, *, empty: str = NO_CALL) -> Found:
    """Return the session that a function makes from records; one without a call is set aside.

    Args:
        make: Makes it; an error in the records becomes the problem of the session.
        place: Where it is.
        empty: Why it is left out if it has no call.
    """
    try:
        with known_types():
            session = make()
    except BadDocument as error:
        return Found(place, problem=error.problem)
    return found_of(session, place) if session and session.calls else Found(place, aside=empty)


@contextmanager
def known_types() -> Iterator[None]:
    """Report a value of an unexpected type as a problem: logged rows have no schema to check.

    Raises:
        BadDocument: There was such a value.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadDocument("a value of an unknown type", value=shown(str(error))) from error


def _name(session: Session, run: str | None) -> str:
    return session.session_id if run is None else f"{session.session_id}/{run}"


def _episode(
    session: Session,
    run: str | None,
    calls: Sequence[Call],
    names: Mapping[str | None, str],
    *,
    is_first: bool,
) -> dict[str, Any]:
    name = names[run] if not is_first else session.session_id
    ids = {call.call_id for call in calls}
    scores = [one for one in session.scores if (is_first if one.call_id is None else one.call_id in ids)]
    more = session.run_origins.get(run or "", {})
    origin: JsonObject = {**session.origin, **more, "session_id": session.session_id}
    if not is_first:
        parent = session.agent_parents.get(run or "")
        origin["parent_episode_id"] = names.get(parent, session.session_id)
    metrics = _latest(one for one in scores if one.call_id is None)
    starts = [call.started_at for call in calls if call.started_at is not None]
    ends = [
        call.started_at + timedelta(seconds=call.latency_s or 0)
        for call in calls
        if call.started_at is not None
    ]
    return {
        "episode_id": name,
        "source": session.source,
        "env_id": session.env_id,
        "task": session.task,
        "seed": session.seed,
        **({} if session.purpose is None else {"purpose": session.purpose}),
        "started_at": min(starts, default=None),
        "ended_at": max(ends, default=None),
        "metrics": metrics,
        "tags": dict(session.tags),
        "origin": origin,
        "steps": list(steps_of_calls((call.prompt, call.answer, _facts(call, scores)) for call in calls)),
        "feedback": [_feedback(one, name) for one in sorted(scores, key=_when)],
    }


def _facts(call: Call, scores: Sequence[Score]) -> dict[str, Any]:
    extra = {**(call.extra or {})}
    if call.settings:
        extra["settings"] = call.settings
    if call.error:
        extra["error"] = call.error
    return {
        **{name: getattr(call, name) for name in _OF_A_STEP},
        "inference_id": call.call_id,
        "metrics": _latest(one for one in scores if one.call_id == call.call_id),
        "extra": extra or None,
    }


_OF_A_STEP = (
    *("function_name", "model_name", "agent_name", "tools", "started_at", "latency_s", "finish_reason"),
    *("n_input_tokens", "n_output_tokens", "cost_usd", "cached"),
    *("prompt_token_ids", "completion_token_ids", "logprobs"),
)
"""Fields of a call that a step also has."""


def _when(score: Score) -> tuple[datetime, str]:
    return score.created_at, score.score_id


def _latest(scores: Iterable[Score]) -> dict[str, MetricValue]:
    ordered = sorted(scores, key=_when)
    return {one.name: one.value for one in ordered if not isinstance(one.value, str)}


def _feedback(score: Score, episode_id: str) -> Feedback:
    match score.value:
        case bool():
            kind = FeedbackKind.BOOLEAN
        case str():
            kind = FeedbackKind.COMMENT
        case _:
            kind = FeedbackKind.FLOAT
    is_comment = kind == FeedbackKind.COMMENT
    return Feedback(
        feedback_id=score.score_id,
        episode_id=episode_id,
        inference_id=score.call_id,
        kind=kind,
        metric_name="comment" if is_comment else score.name,
        value=score.value,
        tags={**score.tags, **({"name": score.name} if is_comment else {})},
        created_at=score.created_at,
    )


class Gathered:
    """Rows that arrive in any order, kept on disk until those of one group are read together.

    Use it as a context manager. Memory holds one group.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="trajkit-")
        self._rows = sqlite3.connect(Path(self._folder.name) / "rows.db", isolation_level=None)
        self._rows.execute("PRAGMA journal_mode = OFF")
        self._rows.execute("PRAGMA synchronous = OFF")
        self._rows.execute("CREATE TABLE row (name TEXT, part TEXT, value TEXT)")
        self._rows.execute("CREATE TABLE moved (name TEXT PRIMARY KEY, goal TEXT)")
        self._rows.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()
        self._folder.cleanup()

    def add(self, name: str, value: Any, *, part: str = "") -> None:
        """Keep a JSON value as one of a group.

        Args:
            name: The group, such as a trace.
            value: The value.
            part: What kind of row it is, such as `span` or `score`.
        """
        self._rows.execute("INSERT INTO row VALUES (?, ?, ?)", (name, part, json.dumps(value)))

    def move(self, name: str, goal: str) -> None:
        """Put a group into another one, such as a trace into its session; the last goal counts."""
        self._rows.execute("INSERT OR REPLACE INTO moved VALUES (?, ?)", (name, goal))

    def groups(self) -> Iterator[tuple[str, dict[str, list[Any]]]]:
        """Yield each group with its rows by part, in the order of the first row of each."""
        self._rows.execute(
            "CREATE TABLE grouped AS SELECT coalesce(goal, row.name) AS name, part, value, row.rowid AS place"
            " FROM row LEFT JOIN moved ON moved.name = row.name"
        )
        self._rows.execute("CREATE INDEX by_name ON grouped (name, place)")
        self._rows.execute(
            "CREATE TABLE first AS SELECT name, min(place) AS place FROM grouped GROUP BY name ORDER BY 2"
        )
        for (name,) in self._rows.execute("SELECT name FROM first ORDER BY place"):
            parts: dict[str, list[Any]] = {}
            rows = self._rows.execute(
                "SELECT part, value FROM grouped WHERE name = ? ORDER BY place", (name,)
            )
            for part, value in rows:
                parts.setdefault(part, []).append(json.loads(value))
            yield name, parts

    def sessions(self, make: Callable[..., Session], *, beside: str = "") -> Iterator[Found]:
        """Yield the session of each group, whose name is `session ID`, or the kind and id of a lone record.

        Args:
            make: Makes the session of an id and its rows by part; `is_named` is whether a session has it.
            beside: A group with only this part is not a session, such as scores of missing calls.
        """
        for name, parts in self.groups():
            what, _, own = name.partition(" ")
            if parts.keys() != {beside}:
                yield found_by(partial(make, own, parts, is_named=what == "session"), name)
