"""What runs beside Phoenix: the instrumentation of OpenAI, told by lines of JSON what to call.

`record.py` starts it in the environment where Phoenix is; nothing of trajkit is there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import httpx2
from openai import OpenAI, OpenAIError
from openinference.instrumentation import OITracer, using_attributes
from openinference.instrumentation.openai import OpenAIInstrumentor
from phoenix.client import Client
from phoenix.otel import register

ADDRESS, SERVER = os.environ["STAND_IN"], os.environ["PHOENIX_COLLECTOR_ENDPOINT"]
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    sys.stdout = sys.stderr  # the client says things on standard output
    provider = register(
        project_name=os.environ["PROJECT"], endpoint=f"{SERVER}/v1/traces", protocol="http/protobuf"
    )
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    tracer = provider.get_tracer("trajkit")
    with OpenAI(base_url=ADDRESS, api_key="none", max_retries=0) as model:
        for line in sys.stdin:
            request = json.loads(line)
            answer = DOES[request.pop("do")](model, tracer, **request)
            out.write(json.dumps(answer) + "\n")
            out.flush()
    provider.shutdown()


def ask(model: OpenAI, _: OITracer, session: str, messages: list[Any], tools: list[Any]) -> None:
    with using_attributes(session_id=session, user_id="expert"):
        model.chat.completions.create(model="stand-in", messages=messages, tools=tools)


def score(_: OpenAI, __: OITracer, session: str, value: float) -> None:
    client = Client(base_url=SERVER)
    wait(lambda: client.sessions.get(session_id=session))
    client.sessions.add_session_annotation(
        session_id=session, annotation_name="episode_return", annotator_kind="CODE", score=value, sync=True
    )


def wait(act: Callable[[], Any]) -> Any:
    """Do it until the server, which writes spans a little later, has what it asks for."""
    for _ in range(200):
        with suppress(httpx.HTTPStatusError, StopIteration):
            return act()
        time.sleep(0.1)
    return act()


def shapes(model: OpenAI, tracer: OITracer) -> None:
    """Log what the thirty episodes lack: sub-agents, settings, failures, images, every kind of annotation."""
    user = {"role": "user", "content": "What is the weather in Paris?"}
    client = Client(base_url=SERVER)
    with (
        using_attributes(session_id="trip", user_id="ada", metadata={"team": "search"}, tags=["beta"]),
        tracer.start_as_current_span("lead", openinference_span_kind="agent") as lead,
    ):
        first = model.chat.completions.create(
            model="gpt-4o-mini", messages=[user], temperature=0.5, max_tokens=64, stop=["END"]
        )
        with (
            tracer.start_as_current_span("delegate", openinference_span_kind="tool"),
            tracer.start_as_current_span("searcher", openinference_span_kind="agent"),
        ):
            look = [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": PIXEL}}]
            model.chat.completions.create(model="stand-in", messages=[{"role": "user", "content": look}])
            with tracer.start_as_current_span("reader", openinference_span_kind="agent"):
                model.chat.completions.create(
                    model="stand-in", messages=[{"role": "user", "content": "Read it."}]
                )
        with tracer.start_as_current_span("look up", openinference_span_kind="retriever") as found:
            found.set_attribute("retrieval.documents.0.document.content", "It rains in Paris.")
        said = [user, {"role": "assistant", "content": first.choices[0].message.content}]
        last = [*said, {"role": "user", "content": "And now?"}]
        model.chat.completions.create(model="stand-in", messages=last)
        context = lead.get_span_context()
    answers = httpx2.Client(transport=httpx2.MockTransport(refusal))
    other = OpenAI(base_url="http://other", api_key="none", max_retries=0, http_client=answers)
    with using_attributes(session_id="trip", user_id="ada"), suppress(OpenAIError):
        other.chat.completions.create(model="refuse", messages=[user])
    model.chat.completions.create(model="stand-in", messages=[user])  # in no session

    trace, root = f"{context.trace_id:032x}", f"{context.span_id:016x}"

    def first_call() -> Any:
        spans = client.spans.get_spans(project_identifier=os.environ["PROJECT"], limit=100)
        next(one for one in spans if one["context"]["span_id"] == root)
        return next(one for one in reversed(spans) if one["parent_id"] == root and one["span_kind"] == "LLM")

    called = wait(first_call)
    for number, explanation in ((0.25, "first"), (0.75, None)):  # the second replaces the first
        client.spans.add_span_annotation(
            span_id=called["context"]["span_id"],
            annotation_name="quality",
            annotator_kind="LLM",
            score=number,
            explanation=explanation,
            metadata={"judge": "j1"},
            sync=True,
        )
    client.spans.add_span_annotation(
        span_id=root, annotation_name="tone", annotator_kind="HUMAN", label="friendly", sync=True
    )
    client.spans.add_span_note(span_id=root, note="A note.")
    client.traces.add_trace_annotation(
        trace_id=trace,
        annotation_name="correct",
        annotator_kind="CODE",
        label="correct",
        score=1.0,
        explanation="It rains.",
        sync=True,
    )
    client.spans.add_document_annotation(
        span_id=f"{found.get_span_context().span_id:016x}",
        document_position=0,
        annotation_name="relevance",
        annotator_kind="CODE",
        score=1.0,
        sync=True,
    )


def costs(_: OpenAI, __: OITracer) -> None:
    """Wait until the server, which does it later, has computed what the calls cost."""
    time.sleep(8)


def refusal(_: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(400, json={"error": {"message": "no such model", "type": "invalid"}})


DOES = {"ask": ask, "score": score, "shapes": shapes, "costs": costs}

if __name__ == "__main__":
    main()
