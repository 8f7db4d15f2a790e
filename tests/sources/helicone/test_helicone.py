"""Sessions of Helicone, from requests in the published form, made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sources.langfuse.server import file_of
from tests.sources.reading import Reader
from trajkit.errors import RequestError
from trajkit.sources.calls import NO_PROMPT, NO_SESSION
from trajkit.sources.helicone.connect import NO_BODY, SOURCE
from trajkit.sources.wish import Wish
from trajkit.testing import SourceContract

READ = Reader(SOURCE)

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
LOOK = [
    {"type": "text", "text": "Paris?"},
    {"type": "image_url", "image_url": {"url": "https://a.org/p.png"}},
]
USER = {"role": "user", "content": LOOK}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
ANSWER = {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}


def request(number: int, session: str | None, body: Any, answer: Any, **fields: Any) -> dict[str, Any]:
    """A request as `/v1/request/query` gives it."""
    properties = {"Customer": "acme"}
    if session is not None:
        properties |= {"Helicone-Session-Id": session, "Helicone-Session-Path": "/lead/weather"}
        properties["Helicone-Session-Name"] = "Weather"
    return {
        "request_id": f"q{number}",
        "request_created_at": f"2026-11-01T10:00:{number:02d}.000Z",
        "request_body": body,
        "request_path": "https://api.openai.com/v1/chat/completions",
        "request_user_id": "ada",
        "request_properties": properties,
        "request_model": "gpt-4o",
        "response_id": f"a{number}",
        "response_created_at": f"2026-11-01T10:00:{number:02d}.500Z",
        "response_status": 200,
        "response_model": "gpt-4o-2026",
        "response_body": answer,
        "provider": "OPENAI",
        "delay_ms": 500,
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "costUSD": 0.25,
        "scores": None,
        "properties": properties,
        "signed_body_url": None,
        **fields,
    }


def completion(message: dict[str, Any], reason: str) -> dict[str, Any]:
    return {"model": "gpt-4o-2026", "choices": [{"index": 0, "message": message, "finish_reason": reason}]}


TALK = [USER, ANSWER, {"role": "tool", "tool_call_id": "c1", "content": "Rain."}]
THOUGHT = {"type": "thinking", "thinking": "Rain.", "signature": "s"}
REQUESTS = [
    request(
        1,
        "trip",
        {"model": "gpt-4o", "messages": [USER], "tools": [TOOL], "temperature": 0.5},
        completion(ANSWER, "tool_calls"),
        scores={"quality": 75, "safe": {"value": 1, "valueType": "boolean"}},
    ),
    request(
        2,
        "trip",
        {"model": "claude", "max_tokens": 9, "messages": TALK},
        {
            "role": "assistant",
            "content": [THOUGHT, {"type": "text", "text": "Rain."}],
            "stop_reason": "end_turn",
        },
        feedback_rating=False,
        feedback_id="f1",
        feedback_created_at="2026-11-01T11:00:00.000Z",
    ),
    request(3, "trip", {"messages": [USER]}, {"error": {"message": "slow down"}}, response_status=429),
    request(4, None, None, None, signed_body_url="https://bodies.example.org/q4", response_status=200),
]


def saved(folder: Path, suffix: str, rows: list[dict[str, Any]] = REQUESTS) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"requests{suffix}"
    if suffix == ".json":
        path.write_text(json.dumps({"data": rows, "error": None}))
    else:
        path.write_bytes(file_of(rows, suffix))
    return path


class TestHelicone(SourceContract):
    source = SOURCE
    n_episodes = 2
    n_steps = 4

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        type(self).place = str(saved(tmp_path_factory.mktemp("helicone"), ".jsonl", REQUESTS[::-1]))


def test_a_session_has_its_calls_in_order_with_their_facts(tmp_path: Path) -> None:
    trip = READ.episodes(saved(tmp_path, ".jsonl"))["trip"]
    assert [step.n_prompt_kept for step in trip.steps] == [0, 2, 0]
    assert trip.tags == {"customer": "acme", "user_id": "ada"}
    assert (trip.origin or {})["session_name"] == "Weather"
    first, second, failed = trip.steps
    assert (first.extra or {})["settings"] == {"temperature": 0.5}
    assert (first.extra or {})["session_path"] == "/lead/weather"
    assert (first.latency_s, first.cost_usd, first.n_input_tokens) == (0.5, 0.25, 10)
    assert (first.finish_reason, first.model_name) == ("tool_calls", "gpt-4o-2026")
    assert first.metrics == {"quality": 75.0, "safe": True}
    assert second.metrics == {"rating": False}
    assert ((failed.extra or {})["error"], failed.completion) == ("HTTP 429: slow down", None)


@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_every_kind_of_file_says_the_same(tmp_path: Path, suffix: str) -> None:
    place = saved(tmp_path, suffix)
    assert READ.episodes(place) == READ.episodes(saved(tmp_path, ".jsonl"))


def test_bodies_that_are_elsewhere_are_told(tmp_path: Path) -> None:
    (lone,) = [one for one in READ.found(saved(tmp_path, ".jsonl")) if one.missing]
    assert set(lone.missing) == {NO_BODY, NO_PROMPT, NO_SESSION}


def test_bad_rows_are_named(tmp_path: Path) -> None:
    rows = [{"id": "x"}, {**REQUESTS[0], "request_created_at": "soon"}, {**REQUESTS[3], "scores": 3}]
    wrong = [
        (one.place, one.problem.kind) for one in READ.found(saved(tmp_path, ".jsonl", rows)) if one.problem
    ]
    assert wrong == [
        ("requests.jsonl:1", "not a Helicone request"),
        ("session trip", "not a time"),
        ("request q4", "not an object"),
    ]
    with pytest.raises(RequestError, match="read from files"):
        list(SOURCE.read("https://api.helicone.ai", Wish()))
