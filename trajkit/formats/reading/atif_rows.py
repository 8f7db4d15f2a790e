"""Read common ATIF documents as rows of a store, without an object for each message.

A common document has no profile, no sub-agents and no parts; its messages are texts, its results belong to
calls of the same step, and its numbers are valid. For any other document the result is None: `read_atif`
reads it, or names what is wrong with it. Both give the same rows (`tests/formats/test_atif_rows.py`).
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, NamedTuple

from pydantic_core import to_json

from trajkit._core.times import utc_of
from trajkit.formats.chat.parts import tool_of
from trajkit.formats.profile import KEY
from trajkit.formats.reading.atif import VERSIONS, origin_of, tags_of
from trajkit.formats.reading.atif_parts import compact, is_finite
from trajkit.formats.reading.document import BadDocument, shown
from trajkit.schema.base import JsonObject

_DOCUMENT = frozenset(
    {
        *("schema_version", "session_id", "trajectory_id", "agent", "steps", "notes", "final_metrics"),
        *("continued_trajectory_ref", "extra"),
    }
)
_SAID = frozenset({"step_id", "source", "message"})
_ANSWER = frozenset(
    {
        *("step_id", "source", "message", "reasoning_content", "model_name", "timestamp"),
        *("tool_calls", "observation", "metrics"),
    }
)
_N_OF_CALL, _N_OF_RESULT = 3, 2
"""The exact number of fields of a call and of a result."""
_COUNTS = {
    "prompt_tokens": "n_input_tokens",
    "completion_tokens": "n_output_tokens",
    "cached_tokens": "cached_tokens",  # no column: `spelled` moves it to `extra`
}
_INFINITE = math.inf
_N_BITS = 63
"""Of the largest count."""
_JSON = ("messages", "completion", "info", "extra")


class Rows(NamedTuple):
    """An episode as a row of each table, by column. A missing column is null."""

    episode: dict[str, Any]
    """Its own row, without the sums over its steps."""
    steps: list[dict[str, Any]]
    """The rows of its steps, without episode id and tools."""
    tools: list[dict[str, Any]]
    """The tools of every step, as in the document."""
    is_named: bool
    """Whether the document has an id of its own."""

    def spelled(self, episode_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return the rows under an id, with JSON as text, as in a store. To be called once.

        Raises:
            BadDocument: A number in a tool or in arguments is not finite.
        """
        tools = _spelled_tools(self.tools)
        for row in self.steps:
            row["action"] = _action(row["completion"]["content"], row["step_index"])
            row["observation"] = _observation(row["messages"])
            row |= {"episode_id": episode_id, "tools": tools, "loss_weight": 1.0, "metrics": "{}"}
            if "cached_tokens" in row:
                row["extra"] = {"atif": {"metrics": {"cached_tokens": row.pop("cached_tokens")}}}
            for column in _JSON:
                if (value := row.get(column)) is not None:
                    row[column] = to_json(value).decode()
        self.episode["episode_id"] = episode_id
        for column in ("n_input_tokens", "n_output_tokens", "cost_usd"):
            numbers = [row.get(column) for row in self.steps]
            self.episode[column] = None if None in numbers else sum(numbers)
        for column in ("tags", "origin", "metrics"):
            self.episode[column] = to_json(self.episode[column]).decode()
        return self.episode, self.steps


def usual_rows(value: dict[str, Any]) -> Rows | None:
    """Return the rows of a document; None if it is not a common one."""
    steps, agent, extra = value.get("steps"), value.get("agent"), value.get("extra")
    if not value.keys() <= _DOCUMENT or value.get("schema_version") not in VERSIONS:
        return None
    if type(steps) is not list or type(agent) is not dict or not (extra is None or type(extra) is dict):
        return None
    if extra is not None and KEY in extra:
        return None
    name = value.get("trajectory_id") or value.get("session_id") or "unnamed"
    model_name = agent.get("model_name")
    if type(name) is not str or not (model_name is None or type(model_name) is str):
        return None
    tools = [] if agent.get("tool_definitions") is None else agent["tool_definitions"]
    if type(tools) is not list or not all(type(tool) is dict for tool in tools):
        return None
    try:
        talk = _talk_of(steps, model_name)
    except KeyError:  # a field is missing, or a result is of no call
        return None
    if talk is None or not talk.rows:
        return None
    origin = origin_of(value, agent, extra or {}, None)
    if not is_finite(compact(origin)):
        return None
    episode = _episode(name, talk, tags_of(agent), origin)
    return Rows(episode, talk.rows, tools, bool(value.get("trajectory_id")))


def _episode(name: str, talk: _Talk, tags: dict[str, str], origin: JsonObject) -> dict[str, Any]:
    row: dict[str, Any] = {
        "episode_id": name,
        "source": "atif",
        "purpose": "unknown",
        "outcome": "unknown",
        "function_names": [],
        "variant_names": [],
        "n_steps": len(talk.rows),
        "metrics": {},
        "tags": tags,
        "origin": origin,
    }
    if talk.times:
        row["started_at"], row["ended_at"] = min(talk.times), max(talk.times)
    return row


class _Talk(NamedTuple):
    """What the steps of a document say."""

    rows: list[dict[str, Any]]
    """A row of each answer."""
    times: list[datetime]
    """The times of the answers."""


def _talk_of(steps: list[Any], default_model: str | None) -> _Talk | None:
    """Read steps in order; None if one is not a common one. It is one function since calls take time.

    Raises:
        KeyError: A step, call or result lacks a field, a result is of no call, or a metric has no column.
    """
    rows: list[dict[str, Any]] = []
    times: list[datetime] = []
    new: list[dict[str, Any]] = []
    waiting: set[str] = set()
    n_before = 0
    for number, step in enumerate(steps, 1):
        if type(step) is not dict or step["step_id"] != number:
            return None
        source, text, get = step["source"], step["message"], step.get
        if type(text) is not str:
            return None
        if source != "agent":
            if not text or source not in ("user", "system") or not _SAID.issuperset(step):
                return None
            new.append({"role": source, "content": [{"type": "text", "text": text}]})
            continue
        model_name = get("model_name") or default_model
        if not (model_name is None or type(model_name) is str) or not _ANSWER.issuperset(step):
            return None
        content: list[Any] = []
        if (thought := get("reasoning_content")) is not None:
            if type(thought) is not str:
                return None
            if thought:
                content.append({"type": "thought", "text": thought})
        if text:
            content.append({"type": "text", "text": text})
        names: dict[str, str] = {}
        if (calls := get("tool_calls")) is not None:
            if type(calls) is not list:
                return None
            for call in calls:
                if type(call) is not dict or len(call) != _N_OF_CALL:
                    return None
                call_id, name, arguments = call["tool_call_id"], call["function_name"], call["arguments"]
                if type(call_id) is not str or type(name) is not str or type(arguments) is not dict:
                    return None
                if call_id in waiting:
                    return None
                waiting.add(call_id)
                names[call_id] = name
                content.append({"type": "tool_call", "id": call_id, "name": name, "arguments": arguments})
        if not content:
            return None
        if (at := get("timestamp")) is not None:
            if (at := _moment(at)) is None:
                return None
            times.append(at)
        row = {
            "step_index": len(rows),
            "n_prompt_kept": n_before,
            "messages": new,
            "completion": {"role": "assistant", "content": content},
            "model_name": model_name,
            "started_at": at,
        }
        if (metrics := get("metrics")) is not None and not _measured(metrics, row):
            return None
        rows.append(row)
        n_before += len(new) + 1
        new = []
        if (observation := get("observation")) is not None:
            if type(observation) is not dict or len(observation) != 1:
                return None
            if type(results := observation["results"]) is not list:
                return None
            for result in results:
                if type(result) is not dict or len(result) != _N_OF_RESULT:
                    return None
                text, call_id = result["content"], result["source_call_id"]
                if type(text) is not str or type(call_id) is not str:
                    return None
                block = {"type": "tool_result", "id": call_id, "name": names[call_id], "result": text}
                new.append({"role": "tool", "content": [block]})
                waiting.discard(call_id)
    if rows and (after := _observation(new)) is not None:
        rows[-1]["info"] = {"after": after}
    return _Talk(rows, times)


def _moment(text: Any) -> datetime | None:
    """Return a time in UTC, also one without an offset; None if it is not a time."""
    if type(text) is not str:
        return None
    try:
        return utc_of(text)
    except ValueError:
        return None


def _measured(metrics: Any, row: dict[str, Any]) -> bool:
    """Copy counts and the price into a row; False if there is any other metric."""
    if type(metrics) is not dict:
        return False
    for name, value in metrics.items():
        if type(value) is int:
            if value >> _N_BITS:
                return False
            row[_COUNTS[name]] = value
        elif name == "cost_usd" and type(value) is float and 0 <= value < _INFINITE:
            row[name] = value
        else:
            return False
    return True


def _observation(messages: list[dict[str, Any]]) -> str | None:
    """Return the latest observation, as `turns.observation_of` does; each message is one block."""
    texts: list[str] = []
    for one in reversed(messages):
        if one["role"] == "system":
            break
        block = one["content"][0]
        texts.append(block.get("result") or block.get("text") or "")
    return "\n".join(reversed(texts)) or None


def _action(content: list[dict[str, Any]], step_index: int) -> str | None:
    """Write the arguments of an answer's calls as text in place, and return the calls as JSON."""
    calls = []
    for block in content:
        if block["type"] == "tool_call":
            block["arguments"] = arguments = compact(block["arguments"])
            if not is_finite(arguments):
                raise BadDocument(
                    "a number that is not finite", f"steps.{step_index}.completion", shown(arguments)
                )
            calls.append(f'{{"name":{compact(block["name"])},"arguments":{arguments}}}')
    return f"[{','.join(calls)}]" if calls else None


def _spelled_tools(tools: list[dict[str, Any]]) -> str | None:
    text = compact([tool_of(tool) for tool in tools])
    if not is_finite(text):
        raise BadDocument("a number that is not finite", "agent.tool_definitions", shown(text))
    return text if tools else None
