"""Thirty episodes through OpenTelemetry's SDK, over HTTP into `trajkit receive`, come back the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.sources import thirty
from trajkit.sources.files.importing import import_files
from trajkit.sources.otel.receiver import Receiver, receive
from trajkit.sources.wish import Wish
from trajkit.store.dataset import open_dataset

sdk = pytest.importorskip("opentelemetry.sdk.trace")
EVALUATION = "gen_ai.evaluation.result"


@contextmanager
def provider_to(receiver: Receiver, *, compression: str = "none") -> Iterator[Any]:
    """A provider of tracers as a program has it; what it sends is there afterwards."""
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = sdk.TracerProvider(
        resource=Resource({"service.name": "babyai"}), span_limits=sdk.SpanLimits(max_attributes=100_000)
    )
    exporter = OTLPSpanExporter(f"{receiver.url}/v1/traces", compression=Compression(compression))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    yield provider
    provider.shutdown()


def scored(span: Any, value: float) -> None:
    span.add_event(
        EVALUATION, {"gen_ai.evaluation.name": "episode_return", "gen_ai.evaluation.score.value": value}
    )


def imported(folder: Path, goal: Path) -> Any:
    report, _ = import_files(folder, goal, Wish())
    assert (report.format, report.left, report.missing, report.problems) == ("otel", {}, {}, ())
    return open_dataset(goal)


def test_thirty_episodes_come_back_by_openinference(tmp_path: Path) -> None:
    from openinference.instrumentation import using_attributes
    from openinference.instrumentation.openai import OpenAIInstrumentor

    with receive(tmp_path / "traces", port=0) as receiver, thirty.Answers() as answers:
        with provider_to(receiver, compression="gzip") as provider:
            tracer = provider.get_tracer("babyai")
            OpenAIInstrumentor().instrument(tracer_provider=provider)

            @contextmanager
            def episode(name: str) -> Iterator[thirty.Ask]:
                with (
                    using_attributes(session_id=name, user_id="expert"),
                    thirty.plain_client(answers.url) as ask,
                ):
                    yield ask

            def score(name: str, value: float) -> None:
                with tracer.start_as_current_span("score", attributes={"session.id": name}) as span:
                    scored(span, value)

            try:
                played = thirty.play(answers, episode, score)
            finally:
                OpenAIInstrumentor().uninstrument()
        assert receiver.n_sessions == thirty.N_EPISODES
    episodes = imported(tmp_path / "traces", tmp_path / "store")
    thirty.assert_same(episodes, played)
    step = next(iter(episodes)).steps[0]
    assert (step.model_name, step.n_input_tokens, step.n_output_tokens) == (thirty.MODEL, 100, 7)
    assert step.finish_reason == "tool_calls"


def test_thirty_episodes_come_back_by_the_messages_of_gen_ai(tmp_path: Path) -> None:
    with receive(tmp_path / "traces", port=0) as receiver, thirty.Answers() as answers:  # noqa: SIM117
        with provider_to(receiver) as provider:
            tracer = provider.get_tracer("babyai")

            @contextmanager
            def episode(name: str) -> Iterator[thirty.Ask]:
                with thirty.plain_client(answers.url) as client:
                    yield lambda messages, tools: instrumented(tracer, name, client, messages, tools)

            def score(name: str, value: float) -> None:
                with tracer.start_as_current_span(
                    "score", attributes={"gen_ai.conversation.id": name}
                ) as span:
                    scored(span, value)

            played = thirty.play(answers, episode, score)
    episodes = imported(tmp_path / "traces", tmp_path / "store")
    thirty.assert_same(episodes, played)
    step = next(iter(episodes)).steps[0]
    assert step.finish_reason == "tool_calls"
    assert step.extra is not None
    assert step.extra["settings"] == {"temperature": 0.5}


def instrumented(
    tracer: Any, name: str, client: Callable[..., Any], messages: list[Any], tools: list[Any]
) -> Any:
    """A call as the semantic conventions since 1.37 describe it."""
    asked = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": thirty.MODEL,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.conversation.id": name,
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": messages[0]["content"]}]),
        "gen_ai.input.messages": json.dumps([parts(one) for one in messages[1:]]),
        "gen_ai.tool.definitions": json.dumps([{"type": "function", **one["function"]} for one in tools]),
    }
    with tracer.start_as_current_span(f"chat {thirty.MODEL}", attributes=asked) as span:
        answer = client(messages, tools)
        choice = answer.choices[0]
        said = {**parts(choice.message.model_dump(exclude_none=True)), "finish_reason": choice.finish_reason}
        span.set_attribute("gen_ai.output.messages", json.dumps([said]))
        span.set_attribute("gen_ai.response.finish_reasons", [choice.finish_reason])
        span.set_attribute("gen_ai.usage.input_tokens", answer.usage.prompt_tokens)
        return answer


def parts(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        part = {"type": "tool_call_response", "id": message["tool_call_id"], "response": message["content"]}
        return {"role": "tool", "parts": [part]}
    calls = [
        {
            "type": "tool_call",
            "id": one["id"],
            "name": one["function"]["name"],
            "arguments": json.loads(one["function"]["arguments"]),
        }
        for one in message.get("tool_calls") or ()
    ]
    return {"role": message["role"], "parts": [{"type": "text", "content": message["content"]}, *calls]}
