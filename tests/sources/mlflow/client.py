"""What runs beside MLflow: its OpenAI autologging, told by lines of JSON what to call.

`record.py` starts it in the environment where MLflow is; nothing of trajkit is there.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any

import httpx2
import mlflow
from mlflow.entities import AssessmentSource, SpanType
from openai import OpenAI, OpenAIError

ADDRESS = os.environ["STAND_IN"]


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    sys.stdout = sys.stderr  # MLflow says things on standard output
    mlflow.openai.autolog(silent=True)
    with OpenAI(base_url=ADDRESS, api_key="none", max_retries=0) as model:
        for line in sys.stdin:
            request = json.loads(line)
            answer = DOES[request.pop("do")](model, **request)
            out.write(json.dumps(answer) + "\n")
            out.flush()


def use(_: OpenAI, experiment: str) -> None:
    mlflow.set_experiment(experiment)


def ask(model: OpenAI, session: str, messages: list[Any], tools: list[Any]) -> str | None:
    with mlflow.tracing.context(session_id=session, user="expert"):
        model.chat.completions.create(model="stand-in", messages=messages, tools=tools)
    return mlflow.get_last_active_trace_id()


def score(_: OpenAI, trace: str, value: float) -> None:
    mlflow.flush_trace_async_logging()
    mlflow.log_feedback(
        trace_id=trace,
        name="episode_return",
        value=value,
        source=AssessmentSource(source_type="CODE", source_id="babyai"),
    )


def shapes(model: OpenAI) -> None:
    """Log what the thirty episodes lack: sub-agents, settings, failures, other APIs, every kind of score."""
    user = {"role": "user", "content": "What is the weather in Paris?"}
    with (
        mlflow.tracing.context(session_id="trip", user="ada", tags={"team": "search"}),
        mlflow.start_span("lead", span_type=SpanType.AGENT) as lead,
    ):
        lead.set_inputs({"question": user["content"]})
        first = model.chat.completions.create(
            model="stand-in", messages=[user], temperature=0.5, max_tokens=64, stop=["END"]
        )
        with (
            mlflow.start_span("delegate", span_type=SpanType.TOOL),
            mlflow.start_span("searcher", span_type=SpanType.AGENT),
        ):
            look = [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": PIXEL}}]
            model.chat.completions.create(
                model="stand-in", messages=[{"role": "user", "content": look}], stream=False
            )
            with mlflow.start_span("reader", span_type=SpanType.AGENT):
                model.chat.completions.create(
                    model="stand-in", messages=[{"role": "user", "content": "Read it."}]
                )
        said = [user, {"role": "assistant", "content": first.choices[0].message.content}]
        last = [*said, {"role": "user", "content": "And now?"}]
        model.chat.completions.create(model="stand-in", messages=last)
    trace = mlflow.get_last_active_trace_id()
    mlflow.flush_trace_async_logging()
    spans = mlflow.get_trace(trace).data.spans
    called = next(span for span in spans if span.span_type == SpanType.CHAT_MODEL)
    human = AssessmentSource(source_type="HUMAN", source_id="ada")
    wrong = mlflow.log_feedback(trace_id=trace, name="helpful", value=False, source=human)
    mlflow.override_feedback(
        trace_id=trace, assessment_id=wrong.assessment_id, value=True, rationale="It found it.", source=human
    )
    mlflow.log_feedback(trace_id=trace, name="quality", value=0.75, span_id=called.span_id)
    mlflow.log_feedback(trace_id=trace, name="tone", value="friendly", source=human)
    mlflow.log_feedback(trace_id=trace, name="parts", value={"style": 3, "facts": 5})
    mlflow.log_feedback(trace_id=trace, name="judge", error=ValueError("no answer"))
    mlflow.log_expectation(trace_id=trace, name="expected_facts", value=["it rains"])
    mlflow.log_expectation(trace_id=trace, name="expected_answer", value="It rains.", source=human)

    answers = httpx2.Client(transport=httpx2.MockTransport(other_answer))
    other = OpenAI(base_url="http://other", api_key="none", max_retries=0, http_client=answers)
    with mlflow.tracing.context(session_id="trip", user="ada"), suppress(OpenAIError):
        other.chat.completions.create(model="refuse", messages=[user])
    model.chat.completions.create(model="stand-in", messages=[user])  # in no session
    with mlflow.tracing.context(session_id="others"):
        other.responses.create(
            model="stand-in",
            instructions="Be brief.",
            input=[
                {"role": "user", "content": "One?"},
                {"type": "function_call", "call_id": "c1", "name": "count", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "1"},
            ],
            tools=[{"type": "function", "name": "count", "parameters": {"type": "object"}}],
        )
        list(other.chat.completions.create(model="stream", messages=[user], stream=True))
        with mlflow.start_span("Messages.create", span_type=SpanType.CHAT_MODEL) as span:
            span.set_attribute("mlflow.message.format", "anthropic")
            span.set_attribute(
                "mlflow.llm.cost", {"input_cost": 0.5, "output_cost": 0.25, "total_cost": 0.75}
            )
            span.set_inputs({"system": "Be kind.", "model": "claude", "max_tokens": 9, "messages": [user]})
            thought = {"type": "thinking", "thinking": "Rain.", "signature": "s"}
            span.set_outputs(
                {
                    "role": "assistant",
                    "type": "message",
                    "model": "claude",
                    "stop_reason": "end_turn",
                    "content": [thought, {"type": "text", "text": "It rains."}],
                    "usage": {"input_tokens": 5, "output_tokens": 4},
                }
            )
    mlflow.flush_trace_async_logging()


def other_answer(request: httpx2.Request) -> httpx2.Response:
    """Answer as OpenAI does: a refusal, a stream, or an object of the Responses API."""
    sent = json.loads(request.content)
    if sent["model"] == "refuse":
        return httpx2.Response(400, json={"error": {"message": "no such model", "type": "invalid"}})
    if sent["model"] == "stream":
        pieces = [{"role": "assistant", "content": "It "}, {"content": "rains."}]
        calls = [
            {"index": 0, "id": "c1", "type": "function", "function": {"name": "umbrella", "arguments": "{"}},
            {"index": 0, "function": {"arguments": "}"}},
        ]
        pieces += [{"tool_calls": [one]} for one in calls]
        chunks = [
            {
                "id": "chatcmpl-2",
                "object": "chat.completion.chunk",
                "created": 1_790_000_000,
                "model": "stream",
                "choices": [{"index": 0, "delta": each, "finish_reason": None}],
            }
            for each in pieces
        ]
        chunks[-1]["choices"][0]["finish_reason"] = "tool_calls"
        text = "".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + "data: [DONE]\n\n"
        return httpx2.Response(200, text=text, headers={"Content-Type": "text/event-stream"})
    said = {"type": "output_text", "text": "One.", "annotations": []}
    call = {"type": "function_call", "id": "f", "call_id": "c2", "name": "count", "arguments": "{}"}
    body = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_790_000_000,
        "model": "stand-in",
        "status": "completed",
        "output": [
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Count."}]},
            {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [said]},
            {**call, "status": "completed"},
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 11,
            "output_tokens": 3,
            "total_tokens": 14,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }
    return httpx2.Response(200, json=body)


DOES = {"use": use, "ask": ask, "score": score, "shapes": shapes}
PIXEL = "data:image/png;base64,iVBORw0KGgo="

if __name__ == "__main__":
    main()
