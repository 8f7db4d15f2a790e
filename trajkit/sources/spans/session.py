"""Make a session from the spans of traces: find the model calls, and the agent that made each.

OpenTelemetry, OpenInference and the systems that are built on them log spans: a tree for each trace, of
agents, model calls and tool calls. A source turns its rows into `Span`s; this module makes a
`Session` from those of one session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Any

from trajkit.formats.chat.conversation import conversation_of, tools_of
from trajkit.schema.base import JsonObject
from trajkit.sources.calls import CUT_TEXT, EARLIEST, NO_SESSION, Call, Score, Session
from trajkit.sources.spans.span import EVALUATION, Span, count_of, listed, number_of, text_of
from trajkit.sources.spans.spellings import SPELLINGS, Cut, loose

CUT_ATTRIBUTES = "a span with more attributes than its SDK keeps (OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT)"
"""Episodes with a call that lost attributes: an SDK keeps 128 per span."""

SESSION_KEYS = (
    "gen_ai.conversation.id",
    "session.id",
    "langfuse.session.id",
    "traceloop.association.properties.session_id",
)
"""Attributes with the id of a session, the first the most specific."""
USER_KEYS = ("user.id", "enduser.id", "langfuse.user.id", "traceloop.association.properties.user_id")
_SETTINGS = "gen_ai.request."
_NOT_SETTINGS = ("model", "messages", "tools", "functions", "input", "prompt", "instructions", "system")
_FINISH = ("gen_ai.response.finish_reasons", "gen_ai.response.finish_reason", "llm.finish_reason")
_MODEL = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "embedding.model_name")
_INPUT_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
_OUTPUT_TOKENS = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
)
_COST = ("llm.cost.total", "gen_ai.usage.cost", "gen_ai.usage.total_cost")
_TAKEN = {*_FINISH, *_MODEL, *_INPUT_TOKENS, *_OUTPUT_TOKENS, *_COST, "openinference.span.kind"}


class Kind(StrEnum):
    """What a span is."""

    MODEL = "model"
    AGENT = "agent"
    TOOL = "tool"
    OTHER = "other"


_OPERATIONS = {
    "chat": Kind.MODEL,
    "completion": Kind.MODEL,
    "text_completion": Kind.MODEL,
    "generate_content": Kind.MODEL,
    "invoke_agent": Kind.AGENT,
    "execute_tool": Kind.TOOL,
}
_KINDS = {"llm": Kind.MODEL, "chat_model": Kind.MODEL, "agent": Kind.AGENT, "tool": Kind.TOOL}
_OF_MODELS = ("gen_ai.system", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model")


def kind_of(span: Span) -> Kind:
    """Return the kind of a span from its attributes."""
    said = span.first("openinference.span.kind")
    if said is not None:
        return _KINDS.get(str(said).lower(), Kind.OTHER)
    operation = span.first("gen_ai.operation.name", "llm.request.type")
    if operation is not None:
        return _OPERATIONS.get(str(operation), Kind.OTHER)
    said = span.first("traceloop.span.kind")
    if said is not None:
        return _KINDS.get(str(said).lower(), Kind.OTHER)
    return Kind.MODEL if span.first(*_OF_MODELS) is not None else Kind.OTHER


def by_session(spans: Sequence[Span]) -> dict[str | None, list[Span]]:
    """Return the spans of one trace by session; None for a trace that names none.

    A span belongs to the session that it names, else to that of the nearest span above it, else to the first
    that the trace names.
    """
    ordered = sorted(spans, key=_start)
    tree = _Tree(spans)
    named = {span.span_id: text_of(span.first(*SESSION_KEYS)) for span in spans}
    first = next((named[span.span_id] for span in ordered if named[span.span_id]), None)
    found: dict[str | None, list[Span]] = {}
    for span in spans:
        above = (named[one.span_id] for one in (span, *tree.above(span)))
        found.setdefault(next((one for one in above if one), first), []).append(span)
    return found


def session_of(session_id: str, spans: Sequence[Span], source: str, *, is_named: bool = True) -> Session:
    """Make a session from its spans, of one or more traces, in any order. It has no calls without a model.

    Args:
        session_id: Becomes the id of the episode.
        spans: The spans.
        source: Name of the source.
        is_named: Whether the spans name the session; else its id is that of its only trace.

    Raises:
        BadDocument: A call is not valid.
    """
    spans = sorted({(span.trace_id, span.span_id): span for span in spans}.values(), key=_start)
    missing: set[str] = set() if is_named else {NO_SESSION}
    calls: list[Call] = []
    parents: dict[str, str] = {}
    scores: list[tuple[Score, str | None]] = []
    by_trace: dict[str, list[Span]] = {}
    for span in spans:
        by_trace.setdefault(span.trace_id, []).append(span)
    merged: dict[str, str] = {}
    for inner in by_trace.values():
        tree = _Tree(inner)
        runs = _runs(tree, parents)
        read: dict[str, Call] = {}
        for span in inner:
            scores += [(one, span.span_id) for one in _scores(span)]
            if tree.kinds[span.span_id] is not Kind.MODEL:
                continue
            call, cut = _call(span)
            missing |= {CUT_TEXT} if cut else set()
            missing |= {CUT_ATTRIBUTES} if span.n_dropped else set()
            agent, run = runs.get(span.span_id, (None, None))
            read[span.span_id] = replace(call, agent_name=agent, agent_run=run)
        for span in reversed(inner):  # the lower first, if one call has three spans
            below = tree.calls_below(span) if span.span_id in read else []
            if below:
                goal = _last(merged, below[-1].span_id)
                read[goal] = _joined(read[goal], read.pop(span.span_id))
                merged[span.span_id] = goal
        calls += read.values()
    ids = {call.call_id for call in calls}
    of_responses = {str((call.extra or {}).get("gen_ai.response.id")): call.call_id for call in calls}
    tags, origin = _facts(spans)
    return Session(
        session_id=session_id,
        source=source,
        calls=calls,
        scores=[
            replace(one, call_id=found if (found := _target(one, at, merged, of_responses)) in ids else None)
            for one, at in scores
        ],
        agent_parents=parents,
        tags=tags,
        origin={"trace_ids": list(by_trace), **origin},
        missing=tuple(sorted(missing)),
    )


class _Tree:
    """The tree of the spans of one trace."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._by_id = {span.span_id: span for span in spans}
        self._inner: dict[str, list[Span]] = {}
        self.kinds = {span.span_id: kind_of(span) for span in spans}
        for span in spans:
            self._inner.setdefault(span.parent_id or "", []).append(span)

    def above(self, span: Span) -> Iterator[Span]:
        """Yield the spans above a span, the nearest first."""
        seen = {span.span_id}
        while (parent := self._by_id.get(span.parent_id or "")) is not None and parent.span_id not in seen:
            seen.add(parent.span_id)
            yield parent
            span = parent

    def agents_above(self, span: Span) -> list[Span]:
        """Return the agents above a span, the outermost first."""
        return [one for one in self.above(span) if self.kinds[one.span_id] is Kind.AGENT][::-1]

    def calls_below(self, span: Span) -> list[Span]:
        """Return the nearest model calls in a span, outside tools and agents: the same call, logged again."""
        found: list[Span] = []
        seen = {span.span_id}
        waiting = list(self._inner.get(span.span_id, ()))
        while waiting:
            one = waiting.pop(0)
            if one.span_id in seen:
                continue
            seen.add(one.span_id)
            match self.kinds[one.span_id]:
                case Kind.MODEL:
                    found.append(one)
                case Kind.OTHER:
                    waiting += self._inner.get(one.span_id, ())
        return sorted(found, key=_start)

    def models(self) -> Iterator[Span]:
        """Yield the model calls."""
        return (one for one in self._by_id.values() if self.kinds[one.span_id] is Kind.MODEL)


def _runs(tree: _Tree, parents: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """Return the agent name and the sub-agent run of each call; add the nesting of runs to `parents`.

    The outermost agent is the session's own. So is the only agent in one that calls no model itself: two
    libraries log the same agent.
    """
    chains = {span.span_id: [one.span_id for one in tree.agents_above(span)] for span in tree.models()}
    calling = {chain[-1] for chain in chains.values() if chain}
    inner: dict[str, set[str]] = {}
    for chain in chains.values():
        for outer, agent in pairwise(chain):
            inner.setdefault(outer, set()).add(agent)
    found: dict[str, tuple[str | None, str | None]] = {}
    for span in tree.models():
        agents = tree.agents_above(span)
        own = [one for one in agents if one.span_id in calling or len(inner.get(one.span_id, ())) != 1]
        for parent, sub in pairwise(own[1:]):
            parents[sub.span_id] = parent.span_id
        name = text_of(span.first("gen_ai.agent.name", "agent.name"))
        if own:
            name = name or text_of(own[-1].first("gen_ai.agent.name", "agent.name")) or own[-1].name or None
        found[span.span_id] = name, own[-1].span_id if len(own) > 1 else None
    return found


def _joined(call: Call, outer: Call) -> Call:
    """Return a call with the facts that only the span around it has."""
    gaps: dict[str, Any] = {
        name: getattr(outer, name)
        for name in call.__slots__
        if name != "error" and getattr(call, name) is None and getattr(outer, name) is not None
    }
    return replace(call, **{**gaps, "extra": {**(outer.extra or {}), **(call.extra or {})} or None})


def _last(merged: Mapping[str, str], span_id: str) -> str:
    while span_id in merged:
        span_id = merged[span_id]
    return span_id


def _scores(span: Span) -> Iterator[Score]:
    for number, event in enumerate(span.events):
        if event.name != EVALUATION:
            continue
        said = event.attributes
        name = text_of(said.get("gen_ai.evaluation.name")) or "evaluation"
        label = text_of(said.get("gen_ai.evaluation.score.label"))
        reason = text_of(said.get("gen_ai.evaluation.explanation"))
        value = number_of(said.get("gen_ai.evaluation.score.value"))
        at = event.at or span.ended_at or span.started_at or EARLIEST
        given = {"label": label, "error": text_of(said.get("error.type"))}
        tags = {short: text for short, text in given.items() if text is not None}
        target = text_of(said.get("gen_ai.response.id"))
        score_id = f"{span.span_id}-{number}"
        score_of = partial(Score, name=name, call_id=target, created_at=at)
        if value is not None:
            yield score_of(value=value, score_id=score_id, tags=tags)
        elif label is not None:
            yield score_of(value=label, score_id=score_id)
        if reason is not None:
            yield score_of(value=reason, score_id=f"{score_id}-why", tags=tags)


def _target(
    score: Score, span_id: str | None, merged: Mapping[str, str], of_responses: Mapping[str, str]
) -> str | None:
    """The id of the call that a score may be of."""
    if score.call_id is not None and score.call_id in of_responses:
        return of_responses[score.call_id]
    return None if span_id is None else _last(merged, span_id)


def _facts(spans: Sequence[Span]) -> tuple[dict[str, str], JsonObject]:
    """Return the tags of a session, and other data of its spans."""
    tags: dict[str, str] = {}
    metadata: JsonObject = {}
    resource: JsonObject = {}
    for span in spans:
        if (user := text_of(span.first(*USER_KEYS))) is not None:
            tags.setdefault("user_id", user)
        for tag in listed(span.first("tag.tags", "langfuse.trace.tags")):
            tags.setdefault(str(tag), "true")
        for name, value in span.attributes.items():
            if name == "metadata" or name.startswith("metadata."):
                metadata.setdefault(name, value)
        for name, value in span.resource.items():
            resource.setdefault(name, value)
    return tags, {**metadata, **({"resource": resource} if resource else {})}


def _start(one: Span | Call) -> datetime:
    return one.started_at or EARLIEST


class Targets:
    """Finds the target of a score of a span or a trace: a call, or the whole session.

    Args:
        calls: The calls of a session, whose ids are those of their spans.
        spans: Its spans.
    """

    def __init__(self, calls: Sequence[Call], spans: Sequence[Span]) -> None:
        traces = {span.span_id: span.trace_id for span in spans}
        self._parents = parents = {span.span_id: span.parent_id for span in spans}
        self._ids = {call.call_id for call in calls}
        self._last_of_trace: dict[str, str] = {}
        self._last_below: dict[str, str] = {}
        for call in sorted(calls, key=_start):
            if call.agent_run is None or traces[call.call_id] not in self._last_of_trace:
                self._last_of_trace[traces[call.call_id]] = call.call_id
            seen: set[str] = set()
            above: str | None = call.call_id
            while above is not None and above in parents and above not in seen:
                seen.add(above)
                self._last_below[above] = call.call_id
                above = parents[above]

    def call_of(self, span_id: str | None, trace_id: str | None) -> str | None:
        """Return the call that a score is of; None for the whole session.

        That is the scored span, else the last call in it. A score of a trace, or of its root, belongs
        to the last call of the trace if the session has others.
        """
        if span_id in self._ids:
            return span_id
        if span_id is not None and self._parents.get(span_id) in self._parents:
            return self._last_below.get(span_id)
        return self._last_of_trace.get(trace_id or "") if len(self._last_of_trace) > 1 else None


def _call(span: Span) -> tuple[Call, bool]:
    """Return the call of a span, and whether a text in it was cut.

    Attributes that no spelling reads stay in `Call.extra` under their own names.
    """
    prompt: Any = None
    answers: Any = None
    tools: Any = None
    finish: Any = None
    is_cut = False
    taken: list[str] = []
    for read in SPELLINGS:
        try:
            said = read(span)
        except Cut:
            is_cut = True
            continue
        prompt = said.prompt if prompt is None else prompt
        answers = answers or said.answers
        tools = said.tools if tools is None else tools
        finish = said.finish if finish is None else finish
        taken += said.names if said.prompt or said.answers or said.tools else ()
    whole = bool(prompt) and bool(answers)
    rest = {
        name: value
        for name, value in span.attributes.items()
        if name not in _TAKEN and not _is_setting(name) and not name.startswith(tuple(taken))
        and not (whole and name.startswith(("input.", "output.")))
    }  # fmt: skip
    answer = None
    if answers:
        answer = {**answers[0], "role": "assistant"}
        if len(answers) > 1:
            rest["other_answers"] = answers[1:]
    finish = next(iter(listed(span.first(*_FINISH))), None) or finish
    latency = None
    if span.started_at is not None and span.ended_at is not None:
        latency = (span.ended_at - span.started_at).total_seconds()
    call = Call(
        call_id=span.span_id,
        prompt=conversation_of(prompt, f"{span.span_id}.prompt") if prompt else None,
        answer=conversation_of([answer], f"{span.span_id}.answer")[-1] if answer else None,
        tools=tools_of(tools, f"{span.span_id}.tools") if tools else None,
        model_name=text_of(span.first(*_MODEL)),
        started_at=span.started_at,
        latency_s=latency,
        n_input_tokens=count_of(span.first(*_INPUT_TOKENS)),
        n_output_tokens=count_of(span.first(*_OUTPUT_TOKENS)),
        cost_usd=number_of(span.first(*_COST)),
        finish_reason=text_of(finish),
        settings=_settings(span) or None,
        error=_error(span),
        extra={"span_name": span.name, "trace_id": span.trace_id, **rest},
    )
    return call, is_cut


def _is_setting(name: str) -> bool:
    return name.startswith(_SETTINGS) and name != "gen_ai.request.model"


def _settings(span: Span) -> JsonObject:
    found: JsonObject = {
        name.removeprefix(_SETTINGS): value for name, value in span.attributes.items() if _is_setting(name)
    }
    given = loose(span.first("llm.invocation_parameters"))
    for name, value in given.items() if isinstance(given, dict) else ():
        if name not in _NOT_SETTINGS:
            found.setdefault(name, value)
    return found


def _error(span: Span) -> str | None:
    thrown = next((one for one in span.events if one.name == "exception"), None)
    if not span.is_error and span.first("error.type") is None:
        return None
    said = thrown.attributes.get("exception.message") if thrown is not None else None
    return str(span.status or said or span.first("error.message", "error.type") or "error")
