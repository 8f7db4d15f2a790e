"""Spans become the calls of sessions: by spelling, by agent, each call once; whatever is odd is a problem."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.sources.files.test_mutations import places
from tests.sources.otel.record import GOAL, new_call, openinference, request, requests, span, text
from tests.sources.reading import Reader, answer, written
from trajkit.schema import Episode, FileBlock, ThoughtBlock, ToolCallBlock, ToolResultBlock
from trajkit.sources.calls import CUT_TEXT, NO_PROMPT, NO_SESSION
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.otel.connect import NO_CALLS, SOURCE
from trajkit.sources.spans.session import CUT_ATTRIBUTES
from trajkit.sources.wish import Wish
from trajkit.testing import SourceContract

READ = Reader(SOURCE)


@pytest.fixture(scope="module")
def fixture() -> dict[str, Episode]:
    return READ.episodes(GOAL)


class TestOtel(SourceContract):
    source = SOURCE
    place = str(GOAL)
    n_episodes = 4
    n_steps = 7


def test_the_fixture_is_what_its_script_writes() -> None:
    assert [json.loads(line) for line in GOAL.read_text().splitlines()] == requests()


def hello(**more: Any) -> dict[str, Any]:
    return new_call([{"role": "user", "parts": [text("hello")]}], [text("hi")], **more)


def test_messages_of_parts_are_read_whole(fixture: dict[str, Episode]) -> None:
    first, second, failed = fixture["new"].steps
    (system, question) = first.messages or ()
    assert (system.text, question.text) == ("You look for keys.", "Where is the key?")
    (image,) = [block for block in question.content if isinstance(block, FileBlock)]
    assert image.source_url == "https://example.org/key.png"
    assert answer(first).content == (
        ThoughtBlock(text="I look."),
        ToolCallBlock(id="c1", name="look", arguments='{"at":"door"}'),
    )
    assert second.n_prompt_kept == 3
    ((result,),) = [message.content for message in second.messages or ()]
    assert result == ToolResultBlock(id="c1", name="look", result="a key")
    assert [tool["name"] for tool in first.tools or ()] == ["look"]
    assert (first.n_input_tokens, first.n_output_tokens, first.cost_usd) == (20, 5, 0.25)
    assert (first.model_name, first.finish_reason, first.latency_s) == ("small", "stop", 0.5)
    assert (first.extra or {})["settings"] == {"temperature": 0.5}
    assert (failed.extra or {})["error"] == "quota exceeded"
    assert failed.completion is None


def test_an_agent_in_an_agent_is_a_sub_agent_and_a_call_logged_twice_is_one(
    fixture: dict[str, Episode],
) -> None:
    main = fixture["new"]
    (name,) = [name for name in fixture if name.startswith("new/")]
    sub = fixture[name]
    assert (sub.origin or {})["parent_episode_id"] == "new"
    assert {step.agent_name for step in main.steps} == {"finder"}
    (step,) = sub.steps  # the span `ChatOpenAI` and the client's own in it
    assert (step.agent_name, step.model_name, step.cost_usd) == ("helper", "tiny", 0.5)
    assert [message.text for message in step.messages or ()] == ["What is there?"]
    assert answer(step).text == "a key"
    assert (step.extra or {})["settings"] == {"top_p": 0.9}


def test_evaluations_are_metrics_and_comments_of_what_they_are_of(fixture: dict[str, Episode]) -> None:
    episode = fixture["new"]
    assert episode.metrics == {"found": 1.0}
    assert [(one.kind, one.value, one.inference_id) for one in episode.feedback] == [
        ("float", 1.0, None),
        ("comment", "The key was there.", None),
        ("comment", "friendly", f"{102:016x}"),
    ]
    assert episode.tags == {"user_id": "ada", "night": "true"}


def test_the_older_spellings_are_one_conversation(fixture: dict[str, Episode]) -> None:
    first, second = fixture["old"].steps
    assert first.n_prompt_kept == 0
    assert [message.text for message in first.messages or ()] == ["Be brief.", "Look!"]
    assert second.n_prompt_kept == 3
    assert answer(second).text == "A wall."
    assert (first.finish_reason, second.finish_reason) == ("tool_calls", "stop")
    assert (second.n_input_tokens, [tool["name"] for tool in second.tools or ()]) == (9, ["look"])
    assert (fixture["old"].origin or {})["trace_ids"] == [f"{2:032x}", f"{3:032x}"]


def test_what_was_cut_and_what_has_no_session_is_counted() -> None:
    by_place = {one.place: one for one in READ.found(GOAL)}
    assert set(by_place[f"{4:032x}"].missing) == {CUT_TEXT, NO_PROMPT, NO_SESSION}
    assert by_place[f"{5:032x}"].aside == NO_CALLS
    assert by_place["new"].missing == (NO_PROMPT,)  # of the call that failed


def test_a_trace_with_several_sessions_is_taken_apart(tmp_path: Path) -> None:
    spans = [
        span(1, 1, attributes={}),
        *(span(1, number, 1, attributes=hello(gen_ai__conversation__id=f"s{number}")) for number in (2, 3)),
        span(1, 4, 3, name="tool", attributes={"gen_ai.operation.name": "execute_tool"}),
        span(1, 5, 4, attributes=hello()),
        span(2, 1, attributes=hello(gen_ai__conversation__id="s2")),
    ]
    made = READ.episodes(written(tmp_path / "a.jsonl", [request(*spans)]))
    assert {name: one.n_steps for name, one in made.items()} == {"s2": 2, "s3": 2}


def test_an_agent_that_two_libraries_log_is_one(tmp_path: Path) -> None:
    agent = {"gen_ai.operation.name": "invoke_agent"}
    spans = [
        span(1, 1, name="outer", attributes=agent),
        span(1, 2, 1, name="inner", attributes=agent),
        span(1, 3, 2, attributes=hello()),
    ]
    (episode,) = READ.episodes(written(tmp_path / "a.jsonl", [request(*spans)])).values()
    assert [step.agent_name for step in episode.steps] == ["inner"]


def test_a_retried_call_stays_two_and_only_the_last_takes_what_the_span_around_says(tmp_path: Path) -> None:
    bare = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "small"}
    spans = [
        span(1, 1, attributes=openinference("hello", "hi", 0.5)),
        span(1, 2, 1, attributes=bare, error="busy"),
        span(1, 3, 1, attributes=bare),
    ]
    (episode,) = READ.episodes(written(tmp_path / "a.jsonl", [request(*spans)])).values()
    failed, answered = episode.steps
    assert ((failed.extra or {})["error"], failed.completion, failed.messages) == ("busy", None, None)
    assert "error" not in (answered.extra or {})
    assert (answer(answered).text, answered.cost_usd) == ("hi", 0.5)


def test_attributes_that_an_sdk_dropped_are_seen(tmp_path: Path) -> None:
    said = openinference("x", "y", 0.1)
    said = {name.replace("input_messages.0", "input_messages.4"): value for name, value in said.items()}
    path = written(tmp_path / "a.jsonl", [request(span(1, 1, attributes=said, droppedAttributesCount=9))])
    (one,) = READ.found(path)
    assert set(one.missing) == {CUT_TEXT, CUT_ATTRIBUTES, NO_PROMPT, NO_SESSION}


def test_bad_spans_and_lines_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    good = json.dumps(request(span(1, 1, attributes=hello()), {**span(1, 2), "traceId": 5}))
    path.write_text(f'{{"no": 1}}\n{{broken\n{good}\n{{"resourceSpans": [7]}}\n')
    problems = [(one.place, str(one.problem)) for one in READ.found(path) if one.problem is not None]
    assert [place for place, _ in problems] == ["a.jsonl:1", "a.jsonl:2", "a.jsonl:3", "a.jsonl:4"]
    assert "not an id: 5" in problems[2][1] or "not an id" in problems[2][1]
    assert len(READ.episodes(path)) == 1


def test_one_json_document_and_base64_ids_and_protobuf_are_read(tmp_path: Path) -> None:
    import base64

    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    made = span(1, 1, attributes=hello())
    spelled = {**made, "traceId": base64.b64encode(bytes.fromhex(made["traceId"])).decode()}
    spelled["spanId"] = base64.b64encode(bytes.fromhex(made["spanId"])).decode()
    (tmp_path / "a.json").write_text(json.dumps([request(made)], indent=2))
    (tmp_path / "b.json").write_text(json.dumps(request(spelled)))
    data = ParseDict(request(spelled), ExportTraceServiceRequest()).SerializeToString()
    (tmp_path / "c.pb").write_bytes(data)
    (tmp_path / "d.bin").write_bytes((len(data).to_bytes(4, "big") + data) * 2)
    whole = [READ.episodes(tmp_path / name) for name in ("a.json", "b.json", "c.pb", "d.bin")]
    assert len(whole[0]) == 1
    assert all(one == whole[0] for one in whole)


def test_a_folder_is_recognised(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", [request(span(1, 1, attributes=hello()))])
    assert SOURCE.recognises(str(tmp_path))
    assert SOURCE.recognises("clickhouse://user:secret@host/otel")
    assert not SOURCE.recognises("clickhouse://user:secret@host/langfuse")
    (tmp_path / "a.jsonl").write_text('{"messages": []}\n')
    assert not SOURCE.recognises(str(tmp_path))


ODD = [
    *(None, 7, -1, "x", "", [], {}, [1], {"a": 1}, True, 1e30, "[{", "[1]", "[[]]", [{}], "null", "{}"),
    *('[{"role": 5}]', '[{"role": "user", "parts": [null, 5, {"type": 5}]}]', "\\ud800", 10**30),
    '[{"role": "user", "content": {"a": 1}}]',
]


@pytest.mark.parametrize("seed", range(2))
def test_odd_values_are_problems_and_nothing_else(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    for number in range(15):
        value = copy.deepcopy(requests())
        holder, key = chosen.choice(list(places(value)))
        holder[key] = chosen.choice(ODD)
        path = written(tmp_path / f"{number}.jsonl", value)
        assert all(isinstance(one, Found | Unread) for one in SOURCE.read(str(path), Wish()))
