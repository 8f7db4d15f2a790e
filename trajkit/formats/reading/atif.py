"""Read ATIF, Harbor's trajectory format, versions 1.0 to 1.8.

Each step of the agent becomes a step here, and the messages since its previous step are the new part of the
prompt. A step that is marked as copied context is part of a prompt and not an answer. Values that the nouns
have no field for stay in `extra` and `origin`, under `atif`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from trajkit._core.times import utc_of
from trajkit.formats.chat.message import read_tools
from trajkit.formats.chat.turns import arguments_value
from trajkit.formats.profile import KEY, with_episode_rest, with_step_rest
from trajkit.formats.reading.atif_parts import calls_of, content_of, results_of
from trajkit.formats.reading.document import (
    BadDocument,
    Reading,
    episode_of,
    object_at,
    objects_at,
    shown,
    text_at,
)
from trajkit.schema import Episode
from trajkit.schema.base import JsonObject

VERSIONS = tuple(f"ATIF-v1.{minor}" for minor in range(9))
"""Versions that can be read; the last one is written."""

_SOURCES = ("system", "user", "agent")
_ONLY_OF_AGENTS = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")
FACTS = {
    "prompt_tokens": "n_input_tokens",
    "completion_tokens": "n_output_tokens",
    "cost_usd": "cost_usd",
    "prompt_token_ids": "prompt_token_ids",
    "completion_token_ids": "completion_token_ids",
    "logprobs": "logprobs",
}
"""Field of a transition for each metric of a step."""
_READ_OF_STEPS = frozenset(
    {
        "step_id",
        "timestamp",
        "source",
        "model_name",
        "message",
        "reasoning_content",
        "tool_calls",
        "observation",
        "metrics",
        "is_copied_context",
    }
)
_TAGS = (("agent", "name"), ("agent_version", "version"))


def is_atif(value: Any) -> bool:
    """Whether a JSON value declares itself as ATIF."""
    return isinstance(value, dict) and str(value.get("schema_version", "")).startswith("ATIF-")


def read_atif(value: JsonObject) -> Reading:
    """Return the episode of a trajectory, then those of its embedded sub-agents.

    Raises:
        BadDocument: It is not a trajectory, or of an unknown version.
    """
    refuse_circles(value)
    main, is_exact = _episode(value, "", None)
    found = [main, *_subagents(value, main, "")]
    # several documents may share the id of a session
    return Reading(tuple(found), is_exact, bool(value.get("trajectory_id")))


def _episode(value: JsonObject, where: str, parent: Episode | None) -> tuple[Episode, bool]:
    version = value.get("schema_version")
    if version not in VERSIONS:
        raise BadDocument(
            f"not a known version ({VERSIONS[0]} to {VERSIONS[-1]})",
            f"{where}schema_version",
            shown(version),
        )
    agent = object_at(value.get("agent"), f"{where}agent")
    tools = tools_of_agent(agent, f"{where}agent")
    steps = _Steps(where, agent.get("model_name"))
    given = objects_at(value.get("steps"), f"{where}steps")
    if not given:
        raise BadDocument("no steps", f"{where}steps")
    for position, step in enumerate(given):
        steps.take(step, position)
    extra = object_at(value.get("extra") or {}, f"{where}extra")
    fields: dict[str, Any] = {
        "episode_id": value.get("trajectory_id") or value.get("session_id") or "unnamed",
        "source": "atif",
        "tags": tags_of(agent),
        "origin": origin_of(value, agent, extra, parent),
        **steps.bounds(),
        "steps": steps.found,
    }
    if (rest := extra.get(KEY)) is not None:
        fields = with_episode_rest(fields, rest)
    episode = episode_of(fields)
    if tools is not None:
        with_tools = tuple(
            step if has else step.model_copy(update={"tools": tools})
            for step, has in zip(episode.steps, steps.has_tools, strict=True)
        )
        episode = episode.model_copy(update={"steps": with_tools})
    return episode, rest is not None


def tools_of_agent(agent: dict[str, Any], where: str) -> tuple[JsonObject, ...] | None:
    """Return the tools, validated once and not for each step.

    Raises:
        BadDocument: They are not a list of objects.
    """
    given = objects_at(agent.get("tool_definitions"), f"{where}.tool_definitions")
    try:
        return read_tools(given)
    except ValueError as error:
        raise BadDocument("a tool is not JSON", f"{where}.tool_definitions", shown(str(error))) from error


class _Steps:
    """Reads the steps of a trajectory in order."""

    def __init__(self, where: str, model_name: Any) -> None:
        self._where = where
        self._model_name = model_name
        self._new: list[dict[str, Any]] = []
        self._seen: list[str] = []
        """Texts of the user and of tools since the last message of the assistant or the system."""
        self._n_before = 0
        self._times: list[datetime] = []
        self.found: list[dict[str, Any]] = []
        """The fields of the transitions."""
        self.has_tools: list[bool] = []
        """Whether each step has its own tools."""

    def take(self, step: dict[str, Any], position: int) -> None:
        where = f"{self._where}steps.{position}"
        if step.get("step_id") != position + 1:
            raise BadDocument(f"not {position + 1}", f"{where}.step_id", shown(step.get("step_id")))
        source = step.get("source")
        if source not in _SOURCES:
            raise BadDocument("not a source", f"{where}.source", shown(source))
        if source == "agent":
            self._take_agent(step, where)
        else:
            self._take_other(step, str(source), where)

    def _take_other(self, step: dict[str, Any], source: str, where: str) -> None:
        for name in _ONLY_OF_AGENTS:
            if step.get(name) is not None:
                raise BadDocument(f"{name} in a step of the {source}", where)
        content = content_of(step.get("message"), f"{where}.message")
        self._at(step, where)
        self._new.append({"role": source, "content": content})
        self._note_seen(source, _texts(content))
        for result in results_of(step, {}, where):
            self._new.append(result)
            self._note_seen("user", _texts(result["content"]))

    def _take_agent(self, step: dict[str, Any], where: str) -> None:
        content = content_of(step.get("message"), f"{where}.message")
        at = self._at(step, where)
        if isinstance(thought := step.get("reasoning_content"), str) and thought:
            content.insert(0, {"type": "thought", "text": thought})
        calls = objects_at(step.get("tool_calls"), f"{where}.tool_calls")
        names: dict[str, str] = {}
        content.extend(calls_of(calls, names, where))
        answer = {"role": "assistant", "content": content}
        results = list(results_of(step, names, where))
        if step.get("is_copied_context"):
            self._new += [answer, *results]
        else:
            self._answer(step, answer, calls, at, where)
            self._n_before += len(self._new) + 1
            self._new = results
        self._seen = []
        for result in results:
            self._note_seen("tool", _texts(result["content"]))

    def _answer(
        self,
        step: dict[str, Any],
        answer: dict[str, Any],
        calls: Sequence[dict[str, Any]],
        at: datetime | None,
        where: str,
    ) -> None:
        fields: dict[str, Any] = {
            "step_index": len(self.found),
            "n_prompt_kept": self._n_before,
            "messages": self._new,
            "completion": answer,
            "observation": "\n".join(self._seen) or None,
            "action": _action(answer),
            "model_name": step.get("model_name") or self._model_name,
            "started_at": at,
        }
        if step.get("llm_call_count") == 0:
            fields |= {"loss_weight": 0.0, "mask_reason": "no model was asked"}
        metrics = object_at(step.get("metrics") or {}, f"{where}.metrics")
        fields |= {ours: metrics[name] for name, ours in FACTS.items() if metrics.get(name) is not None}
        extra = object_at(step.get("extra") or {}, f"{where}.extra")
        fields["extra"] = left_of_step(step, metrics, calls, extra)
        if (rest := extra.get(KEY)) is not None:
            fields = with_step_rest(fields, rest)
        self.has_tools.append("tools" in fields)
        self.found.append(fields)

    def _note_seen(self, speaker: str, texts: Sequence[str]) -> None:
        if speaker == "system":
            self._seen = []
        else:
            self._seen.append("\n".join(texts))

    def _at(self, step: dict[str, Any], where: str) -> datetime | None:
        at = iso_time_at(step.get("timestamp"), f"{where}.timestamp")
        if at is not None:
            self._times.append(at)
        return at

    def bounds(self) -> dict[str, Any]:
        """Return start and end, if the steps have times; also keep the observation after the last answer."""
        after = "\n".join(self._seen)
        if after and self._new and self.found:
            last = self.found[-1]
            last["info"] = last.get("info") or {"after": after}
        if not self._times:
            return {}
        return {"started_at": min(self._times), "ended_at": max(self._times)}


def _texts(content: Sequence[dict[str, Any]]) -> list[str]:
    """Return the texts of results first, then other texts, as `turns.observation_of` does."""
    results = [block["result"] for block in content if block["type"] == "tool_result"]
    return [*results, *(block["text"] for block in content if block["type"] == "text")]


def iso_time_at(text: Any, where: str) -> datetime | None:
    """Return a time; local time without an offset is taken for UTC.

    Raises:
        BadDocument: It is not a time.
    """
    if text is None:
        return None
    try:
        return utc_of(text_at(text, where))
    except ValueError:
        raise BadDocument("not an ISO 8601 time", where, shown(text)) from None


def _action(answer: dict[str, Any]) -> list[dict[str, Any]] | None:
    return [
        {"name": block["name"], "arguments": arguments_value(block["arguments"])}
        for block in answer["content"]
        if block["type"] == "tool_call"
    ] or None


def _subagents(value: JsonObject, parent: Episode, where: str) -> Iterator[Episode]:
    for position, sub in enumerate(
        objects_at(value.get("subagent_trajectories"), f"{where}subagent_trajectories")
    ):
        at = f"{where}subagent_trajectories.{position}."
        if not sub.get("trajectory_id"):
            raise BadDocument("no id", f"{at}trajectory_id")
        episode, _ = _episode(sub, at, parent)
        name = (sub.get("agent") or {}).get("name")
        steps = tuple(
            step if step.agent_name else step.model_copy(update={"agent_name": name})
            for step in episode.steps
        )
        episode_id = f"{parent.episode_id}/{episode.episode_id}"
        own = episode.model_copy(update={"episode_id": episode_id, "steps": steps})
        yield own
        yield from _subagents(sub, own, at)


def refuse_circles(value: JsonObject) -> None:
    """Refuse sub-agents that call each other in a circle: they have no order in time.

    Raises:
        BadDocument: There is a circle, or an id is repeated.
    """
    called: dict[str, set[str]] = {}
    _collect(value, called, "")
    left = {name: others & called.keys() for name, others in called.items()}
    while ended := [name for name, others in left.items() if not others]:
        for name in ended:
            del left[name]
        for others in left.values():
            others.difference_update(ended)
    if left:
        path = [next(iter(left))]
        while path[-1] not in path[:-1]:
            path.append(min(left[path[-1]]))
        circle = " → ".join(path[path.index(path[-1]) :])
        raise BadDocument("sub-agents that call each other in a circle", "subagent_trajectories", circle)


def _collect(value: JsonObject, called: dict[str, set[str]], where: str) -> None:
    name = str(value.get("trajectory_id") or "")
    if name and name in called:
        raise BadDocument("a trajectory id that is there twice", f"{where}trajectory_id", shown(name))
    called[name] = {
        str(each["trajectory_id"]) for each in _references(value, where) if each.get("trajectory_id")
    }
    subs = objects_at(value.get("subagent_trajectories"), f"{where}subagent_trajectories")
    for position, sub in enumerate(subs):
        _collect(sub, called, f"{where}subagent_trajectories.{position}.")


def _references(value: JsonObject, where: str) -> Iterator[dict[str, Any]]:
    steps = value.get("steps")
    for step in steps if isinstance(steps, list) else ():
        observation = step.get("observation") if isinstance(step, dict) else None
        results = observation.get("results") if isinstance(observation, dict) else None
        for result in results if isinstance(results, list) else ():
            if isinstance(result, dict) and result.get("subagent_trajectory_ref"):
                yield from objects_at(result["subagent_trajectory_ref"], f"{where}subagent_trajectory_ref")


def tags_of(agent: dict[str, Any]) -> dict[str, str]:
    """Return name and version of the agent as tags."""
    return {name: str(agent[key]) for name, key in _TAGS if agent.get(key) is not None}


def origin_of(
    value: JsonObject, agent: dict[str, Any], extra: dict[str, Any], parent: Episode | None
) -> JsonObject:
    """Return the values that an episode has no field for, and the calling episode's id."""
    known = {"schema_version", "trajectory_id", "agent", "steps", "subagent_trajectories", "extra"}
    others: dict[str, Any] = {
        name: item for name, item in value.items() if name not in known and item is not None
    }
    if rest := {name: item for name, item in extra.items() if name != KEY}:
        others["extra"] = rest
    if agent.get("extra"):
        others["agent_extra"] = agent["extra"]
    origin: JsonObject = {"atif": others} if others else {}
    if parent is not None:
        origin["parent_episode_id"] = parent.episode_id
    return origin


def left_of_step(
    step: dict[str, Any],
    metrics: dict[str, Any],
    calls: Sequence[dict[str, Any]],
    extra: dict[str, Any],
) -> JsonObject | None:
    """Return the values of a step that a transition has no field for."""
    left = {name: item for name, item in step.items() if name not in _READ_OF_STEPS and item is not None}
    left.pop("extra", None)
    if more := {name: item for name, item in extra.items() if name != KEY}:
        left["extra"] = more
    if more := {name: item for name, item in metrics.items() if name not in FACTS and item is not None}:
        left["metrics"] = more
    # calls and results were validated when they were read
    of_calls = {call["tool_call_id"]: call["extra"] for call in calls if set(call.get("extra") or ()) - {KEY}}
    if of_calls:
        left["tool_call_extra"] = of_calls
    of_results = [
        {name: item for name, item in result.items() if name != "content" and item is not None}
        for result in (step.get("observation") or {}).get("results") or ()
        if result.get("subagent_trajectory_ref") or result.get("extra")
    ]
    if of_results:
        left["results"] = of_results
    return {"atif": left} if left else None
