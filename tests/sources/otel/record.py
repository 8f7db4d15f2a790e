"""Write `tests/data/sources/otel/traces.jsonl`: spans of every spelling, as a collector's file exporter does.

Run `python -m tests.sources.otel.record` from the repository. The spellings are those of the semantic
conventions 1.36 (events) and 1.38 (attributes), OpenLLMetry 0.47 and OpenInference 0.1.42.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.sources.otel.collector import attributes_of

GOAL = Path("tests/data/sources/otel/traces.jsonl")
BASE_S = 1_790_000_000
TOOL = {"name": "look", "description": "Look around.", "parameters": {"type": "object", "properties": {}}}


def span(
    trace: int, number: int, parent: int | None = None, *, name: str = "", events: Any = (), **said: Any
) -> dict[str, Any]:
    """A span that starts `number` seconds after the trace and takes half of one; `error` is its status."""
    begin = (BASE_S + 100 * trace + number) * 10**9
    error = said.pop("error", None)
    made = {
        "traceId": f"{trace:032x}",
        "spanId": f"{100 * trace + number:016x}",
        "name": name or f"span {number}",
        "kind": 3,
        "startTimeUnixNano": str(begin),
        "endTimeUnixNano": str(begin + 500_000_000),
        "attributes": attributes_of(said.pop("attributes", {})),
        "events": [
            {"name": name, "timeUnixNano": str(begin + place), "attributes": attributes_of(values)}
            for place, (name, values) in enumerate(events)
        ],
        "status": {"code": 2, "message": error} if error else {},
        **said,
    }
    return made if parent is None else {**made, "parentSpanId": f"{100 * trace + parent:016x}"}


def request(*spans: dict[str, Any]) -> dict[str, Any]:
    """A request with spans of one program."""
    resource = {"attributes": attributes_of({"service.name": "tests"})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


def new_call(prompt: list[Any], answer: list[Any], **more: Any) -> dict[str, Any]:
    """Attributes of a call in OpenTelemetry's present spelling."""
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "small",
        "gen_ai.input.messages": json.dumps(prompt),
        "gen_ai.output.messages": json.dumps(
            [{"role": "assistant", "parts": answer, "finish_reason": "stop"}]
        ),
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def text(said: str) -> dict[str, Any]:
    """A part with a text."""
    return {"type": "text", "content": said}


def requests() -> list[dict[str, Any]]:
    """All requests, not in the order of time."""
    question = {"role": "user", "parts": [text("Where is the key?"), IMAGE]}
    called = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"at": "door"}}
    asked = {"role": "assistant", "parts": [{"type": "reasoning", "content": "I look."}, called]}
    result = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "a key"}]}
    shared: dict[str, Any] = {
        "gen_ai__system_instructions": json.dumps([text("You look for keys.")]),
        "gen_ai__tool__definitions": json.dumps([{"type": "function", **TOOL}]),
        "gen_ai__request__temperature": 0.5,
        "gen_ai__usage__input_tokens": 20,
        "gen_ai__usage__output_tokens": 5,
        "gen_ai__usage__cost": 0.25,
        "gen_ai__response__id": "resp-1",
    }
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "finder"}
    owner = {"gen_ai.conversation.id": "new", "user.id": "ada", "tag.tags": ["night"]}
    score = ("gen_ai.evaluation.result", {
        "gen_ai.evaluation.name": "found",
        "gen_ai.evaluation.score.value": 1.0,
        "gen_ai.evaluation.explanation": "The key was there.",
    })  # fmt: skip
    sub = {"openinference.span.kind": "AGENT", "agent.name": "helper"}
    first = request(
        span(1, 6, 1, attributes=new_call([question, asked, result], [text("At the door.")], **shared)),
        span(1, 2, 1, attributes=new_call([question], asked["parts"], **shared)),
    )
    second = request(
        span(1, 1, name="invoke_agent finder", attributes=agent | owner, events=[score]),
        span(1, 3, 1, attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}),
        span(1, 4, 3, name="helper", attributes=sub),
        span(1, 5, 4, name="ChatOpenAI", attributes=openinference("What is there?", "a key", 0.5)),
        span(
            1, 7, 5, name="chat", attributes={"gen_ai.operation.name": "chat", "gen_ai.request.model": "tiny"}
        ),
        span(1, 8, 1, error="quota exceeded", attributes={"gen_ai.operation.name": "chat"}),
    )
    return [first, second, old_forms(), alone(), {"resourceMetrics": []}, logs()]


IMAGE = {"type": "uri", "modality": "image", "mime_type": "image/png", "uri": "https://example.org/key.png"}


def openinference(prompt: str, answer: str, cost: float) -> dict[str, Any]:
    """Attributes of a call in OpenInference's spelling."""
    return {
        "openinference.span.kind": "LLM",
        "llm.model_name": "tiny",
        "llm.invocation_parameters": json.dumps({"model": "tiny", "top_p": 0.9}),
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.contents.0.message_content.type": "text",
        "llm.input_messages.0.message.contents.0.message_content.text": prompt,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": answer,
        "llm.token_count.prompt": 4,
        "llm.token_count.completion": 2,
        "llm.cost.total": cost,
    }


def old_forms() -> dict[str, Any]:
    """A session in two traces: one with events, one with numbers in the names of attributes."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    events = [
        ("gen_ai.system.message", {"content": "Be brief."}),
        ("gen_ai.user.message", {"content": "Look!"}),
        (
            "gen_ai.choice",
            {"index": 0, "finish_reason": "tool_calls", "message": json.dumps({"tool_calls": [call]})},
        ),
    ]
    numbered = {
        "gen_ai.system": "OpenAI",
        "llm.request.type": "chat",
        "session.id": "old",
        "gen_ai.request.model": "small",
        "gen_ai.usage.prompt_tokens": 9,
        "gen_ai.prompt.0.role": "system",
        "gen_ai.prompt.0.content": "Be brief.",
        "gen_ai.prompt.1.role": "user",
        "gen_ai.prompt.1.content": "Look!",
        "gen_ai.prompt.2.role": "assistant",
        "gen_ai.prompt.2.tool_calls.0.id": "c1",
        "gen_ai.prompt.2.tool_calls.0.name": "look",
        "gen_ai.prompt.2.tool_calls.0.arguments": "{}",
        "gen_ai.prompt.3.role": "tool",
        "gen_ai.prompt.3.tool_call_id": "c1",
        "gen_ai.prompt.3.content": "a wall",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "A wall.",
        "gen_ai.completion.0.finish_reason": "stop",
        "llm.request.functions.0.name": "look",
        "llm.request.functions.0.description": "Look around.",
        "llm.request.functions.0.parameters": json.dumps(TOOL["parameters"]),
    }
    system = {"gen_ai.system": "openai", "gen_ai.request.model": "small", "session.id": "old"}
    return request(
        span(3, 1, attributes=numbered),
        span(2, 1, attributes=system, events=events, droppedAttributesCount=0),
    )


def alone() -> dict[str, Any]:
    """Traces without a session: one with a prompt that was cut, one without a call."""
    cut = new_call([{"role": "user", "parts": [text("long " * 40)]}], [text("yes")])
    cut["gen_ai.input.messages"] = cut["gen_ai.input.messages"][:100]
    return request(span(4, 1, attributes=cut), span(5, 1, name="GET /", attributes={"http.method": "GET"}))


def logs() -> dict[str, Any]:
    """A label that came later, for the first call of the session `new`."""
    said = {"gen_ai.evaluation.name": "tone", "gen_ai.evaluation.score.label": "friendly"}
    record = {
        "timeUnixNano": str((BASE_S + 900) * 10**9),
        "eventName": "gen_ai.evaluation.result",
        "traceId": f"{1:032x}",
        "spanId": f"{102:016x}",
        "attributes": attributes_of(said),
    }
    return {
        "resourceLogs": [
            {
                "scopeLogs": [
                    {
                        "logRecords": [
                            record,
                            {"body": {"stringValue": "started"}, "timeUnixNano": str(BASE_S * 10**9)},
                        ]
                    }
                ]
            }
        ]
    }


if __name__ == "__main__":
    GOAL.parent.mkdir(parents=True, exist_ok=True)
    GOAL.write_text("".join(json.dumps(one) + "\n" for one in requests()))
