"""The tree of a session: each path to a last answer is an attempt, with the prompt of every call.

When a user edits a message or retries, the old messages stay in the file. The path that
the program would continue is the episode. Every other path is its own episode with the answers that are
only on it; its first prompt has everything before them. So no answer is in two episodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from trajkit.schema import Block, Message, ToolCallBlock, ToolResultBlock
from trajkit.schema.base import JsonObject
from trajkit.sources.calls import Call


@dataclass(kw_only=True, slots=True)
class Entry:
    """One entry of a session, such as a message of the user, or an answer."""

    entry_id: str
    """Its id in the file."""
    parent_id: str | None
    """The entry that it follows."""
    messages: list[Message] = field(default_factory=list)
    """The messages that it adds to later prompts."""
    call: Call | None = None
    """The call that gave it; None if no model answered. If it has no prompt, the path's is used."""
    is_prompt_known: bool = True
    """Whether the path is the whole prompt: that of a summary has an instruction that is not logged."""
    is_new_prompt: bool = False
    """Whether later prompts leave out everything before it, because it was summarised."""
    at: datetime | None = None
    """When it was written."""
    note: JsonObject = field(default_factory=dict)
    """Data for the `extra` of the next call."""


@dataclass(kw_only=True, slots=True)
class Run:
    """The paths of an agent through a session."""

    calls: list[Call] = field(default_factory=list)
    origins: dict[str, JsonObject] = field(default_factory=dict)
    """Where each branch leaves the path, by the name of its run."""
    parents: dict[str, str] = field(default_factory=dict)
    """The sub-agent's run for each of its branches."""


def run_of(entries: Sequence[Entry], *, agent_run: str | None = None) -> Run:
    """Return the calls of one agent; each other path has a run `branch-N`.

    Args:
        entries: In the order of the file. An entry without an earlier parent begins a path.
        agent_run: The run of a sub-agent.
    """
    place: dict[str, int] = {}
    parent: list[int | None] = []
    for number, entry in enumerate(entries):
        parent.append(place.get(entry.parent_id or ""))
        place[entry.entry_id] = number
    answers = [number for number, entry in enumerate(entries) if entry.call is not None]
    is_inner = set()
    for number in answers:
        above = parent[number]
        while above is not None and above not in is_inner:
            is_inner.add(above)
            above = parent[above]
    ends = [number for number in answers if number not in is_inner]
    run, taken = Run(), set[int]()
    for n_before, end in enumerate([*ends[-1:], *ends[:-1]]):
        path: list[int] = []
        at: int | None = end
        while at is not None:
            path.append(at)
            at = parent[at]
        path.reverse()
        own = next(n for n, number in enumerate(path) if number not in taken)
        name = agent_run
        if n_before:
            name = f"branch-{n_before}" if agent_run is None else f"{agent_run}/branch-{n_before}"
            shared = [entries[number] for number in path[:own]]
            leaves = shared[-1].entry_id if shared else None
            n_shared = sum(one.call is not None for one in shared)
            run.origins[name] = {"branch": {"leaves_after": leaves, "n_calls_before": n_shared}}
            if agent_run is not None:
                run.parents[name] = agent_run
        run.calls += _calls([entries[number] for number in path], own, name)
        taken.update(path)
    return run


def _calls(path: Iterable[Entry], own: int, name: str | None) -> Iterable[Call]:
    prompt: list[Message] = []
    note: JsonObject = {}
    before: datetime | None = None
    latest: datetime | None = None
    for number, entry in enumerate(path):
        if entry.is_new_prompt:
            prompt = []
        note |= entry.note
        call = entry.call
        if call is not None:
            if number >= own:
                started = call.started_at or before or entry.at
                if started is not None and latest is not None:
                    started = max(started, latest)
                latency = call.latency_s
                if latency is None and started is not None and entry.at is not None and entry.at >= started:
                    latency = (entry.at - started).total_seconds()
                latest = started
                yield replace(
                    call,
                    agent_run=name,
                    prompt=tuple(prompt) if call.prompt is None and entry.is_prompt_known else call.prompt,
                    started_at=started,
                    latency_s=latency,
                    extra={**note, **(call.extra or {})} or None,
                )
            note = {}
        prompt += entry.messages
        if entry.at is not None:
            before = entry.at


def named(messages: Iterable[Message], names: Mapping[str, str]) -> list[Message]:
    """Return messages with the names of the tools in their results.

    Args:
        messages: The messages.
        names: The name of the tool by call id.
    """
    return [
        one.model_copy(update={"content": tuple(_named(block, names) for block in one.content)})
        if any(isinstance(block, ToolResultBlock) and not block.name for block in one.content)
        else one
        for one in messages
    ]


def _named(block: Block, names: Mapping[str, str]) -> Block:
    if isinstance(block, ToolResultBlock) and not block.name:
        return block.model_copy(update={"name": names.get(block.id, "")})
    return block


def learn(names: dict[str, str], messages: Iterable[Message]) -> None:
    """Add the names of the tools that messages call."""
    for one in messages:
        names.update({block.id: block.name for block in one.content if isinstance(block, ToolCallBlock)})
