"""Thirty episodes through OpenTelemetry's SDK, over HTTP into `trajkit receive`, come back the same."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import clickhouse_connect
import pytest

from tests.sources import thirty
from tests.sources.otel import collector
from trajkit.sources.files.importing import import_files
from trajkit.sources.otel.receiver import FILE, Receiver, receive
from trajkit.sources.wish import Wish
from trajkit.store.dataset import open_dataset

sdk = pytest.importorskip("opentelemetry.sdk.trace")


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
    try:
        yield provider
    finally:
        provider.shutdown()


class Sent(NamedTuple):
    """What was played, and the folders of the receivers."""

    played: list[thirty.Played]
    openinference: Path
    gen_ai: Path


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Sent:
    """The episodes, played once through two instrumentations, each with a receiver of its own."""
    from openinference.instrumentation import using_attributes
    from openinference.instrumentation.openai import OpenAIInstrumentor

    folder = tmp_path_factory.mktemp("sent")
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(receive(folder / "openinference", port=0))
        other = stack.enter_context(receive(folder / "gen_ai", port=0))
        answers = stack.enter_context(thirty.Answers())
        provider = stack.enter_context(provider_to(one, compression="gzip"))
        tracer = stack.enter_context(provider_to(other)).get_tracer("babyai")
        OpenAIInstrumentor().instrument(tracer_provider=provider)
        stack.callback(OpenAIInstrumentor().uninstrument)

        @contextmanager
        def episode(name: str) -> Iterator[thirty.Ask]:
            with (
                using_attributes(session_id=name, user_id="expert"),
                thirty.plain_client(answers.url) as client,
            ):
                yield lambda messages, tools: instrumented(tracer, name, client, messages, tools)

        def score(name: str, value: float) -> None:
            for each, key in (
                (provider.get_tracer("babyai"), "session.id"),
                (tracer, "gen_ai.conversation.id"),
            ):
                with each.start_as_current_span("score", attributes={key: name}) as span:
                    span.add_event(
                        "gen_ai.evaluation.result",
                        {
                            "gen_ai.evaluation.name": "episode_return",
                            "gen_ai.evaluation.score.value": value,
                        },
                    )

        played = thirty.play(answers, episode, score)
    assert (one.n_sessions, other.n_sessions) == (thirty.N_EPISODES, thirty.N_EPISODES)
    return Sent(played, folder / "openinference", folder / "gen_ai")


def imported(place: str | Path, goal: Path) -> Any:
    report, _ = import_files(place, goal, Wish())
    assert (report.format, report.left, report.missing, report.problems) == ("otel", {}, {}, ())
    return open_dataset(goal)


def test_thirty_episodes_come_back_by_openinference(sent: Sent, tmp_path: Path) -> None:
    episodes = imported(sent.openinference, tmp_path / "store")
    thirty.assert_same(episodes, sent.played)
    first = next(iter(episodes))
    step = first.steps[0]
    assert (step.model_name, step.n_input_tokens, step.n_output_tokens) == (thirty.MODEL, 100, 7)
    assert (step.finish_reason, first.tags) == ("tool_calls", {"user_id": "expert"})


def test_thirty_episodes_come_back_by_the_messages_of_gen_ai(sent: Sent, tmp_path: Path) -> None:
    episodes = imported(sent.gen_ai, tmp_path / "store")
    thirty.assert_same(episodes, sent.played)
    step = next(iter(episodes)).steps[0]
    assert (step.finish_reason, (step.extra or {})["settings"]) == ("tool_calls", {"temperature": 0.5})


def test_thirty_episodes_come_back_from_clickhouse(sent: Sent, server: Any, tmp_path: Path) -> None:
    requests = [json.loads(line) for line in (sent.openinference / FILE).read_text().splitlines()]
    server.ask("CREATE DATABASE IF NOT EXISTS otel")
    url = server.url_for(server.user, database="otel")
    with contextlib.closing(clickhouse_connect.get_client(dsn=url)) as client:
        collector.create(client)
        collector.insert(client, requests)
    episodes = imported(url.replace("http:", "clickhouse:"), tmp_path / "store")
    thirty.assert_same(episodes, sent.played)


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
