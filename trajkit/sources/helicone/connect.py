"""Read sessions from files of Helicone's requests, as `/v1/request/query` returns them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trajkit.errors import RequestError
from trajkit.formats.reading.document import BadDocument, shown, time_at
from trajkit.sources.calls import NO_SESSION, Call, Gathered, Score, Session
from trajkit.sources.exchange import exchange_of
from trajkit.sources.files.exported import nested, nested_object, take_rows
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.source import Source, kept, lost
from trajkit.sources.spans.span import number_of, text_of
from trajkit.sources.wish import Wish

NO_BODY = "bodies that are only at an address (signed_body_url)"
"""Sessions with a call whose bodies Helicone keeps outside its database."""
_SESSION, _PATH, _NAME = "helicone-session-id", "helicone-session-path", "helicone-session-name"
_READ = (
    *("request_id", "request_created_at", "request_body", "request_user_id", "request_properties"),
    *("properties", "response_body", "response_status", "response_created_at", "delay_ms", "model"),
    *("prompt_tokens", "completion_tokens", "total_tokens", "costUSD", "scores", "llmSchema", "assets"),
    *("feedback_rating", "feedback_id", "feedback_created_at", "signed_body_url", "request_model"),
    *("response_model", "model_override", "prompt_id", "cache_reference_id", "response_id"),
    *("helicone_user", "asset_urls", "asset_ids"),
)
_NO_CACHE = "00000000-0000-0000-0000-000000000000"


def read(place: str, wish: Wish) -> Iterator[Found | Unread]:
    """Yield the sessions of files of requests."""
    if "://" in place:
        raise RequestError("Helicone is read from files: save the answers of /v1/request/query")
    with Gathered() as gathered:
        yield from take_rows(Path(place), partial(_gather, gathered))
        yield from gathered.sessions(_session)


def _gather(gathered: Gathered, row: dict[str, Any]) -> None:
    if not isinstance(row.get("request_id"), str) or not row.get("request_created_at"):
        raise BadDocument("not a Helicone request", value=shown(sorted(row)[:6]))
    session = text_of(_properties(row).get(_SESSION))
    name = f"request {row['request_id']}" if session is None else f"session {session}"
    gathered.add(name, row, part="request")


def _properties(row: dict[str, Any]) -> dict[str, str]:
    """Return the properties of a request, with names in small letters."""
    found = {
        **nested_object(row.get("request_properties"), "request_properties"),
        **nested_object(row.get("properties"), "properties"),
    }
    return {name.lower(): str(value) for name, value in found.items() if value is not None}


def _session(name: str, parts: Mapping[str, Sequence[dict[str, Any]]], *, is_named: bool) -> Session:
    """Return the session of its requests; the last row of a request counts."""
    latest = {row["request_id"]: row for row in parts["request"]}
    tags: dict[str, str] = {}
    origin: dict[str, Any] = {}
    for row in latest.values():
        for key, value in _properties(row).items():
            if key == _NAME:
                origin.setdefault("session_name", value)
            elif key not in (_SESSION, _PATH):
                tags.setdefault(key, value)
        if (user := text_of(row.get("request_user_id") or row.get("helicone_user"))) is not None:
            tags.setdefault("user_id", user)
    is_elsewhere = any(row.get("signed_body_url") and not row.get("request_body") for row in latest.values())
    return Session(
        session_id=name,
        source="helicone",
        calls=[_call(row) for row in latest.values()],
        scores=[score for row in latest.values() for score in _scores(row)],
        tags=tags,
        origin=origin,
        missing=(*(() if is_named else (NO_SESSION,)), *((NO_BODY,) if is_elsewhere else ())),
        is_named=is_named,
    )


def _call(row: dict[str, Any]) -> Call:
    request, response = nested(row.get("request_body")), nested(row.get("response_body"))
    status = number_of(row.get("response_status"))
    has_failed = status is not None and not 200 <= status < 300
    told = exchange_of(request, None if has_failed else response)
    delay = number_of(row.get("delay_ms"))
    extra = {key: value for key, value in row.items() if key not in _READ and value not in (None, "", {}, [])}
    if (path := _properties(row).get(_PATH)) is not None:
        extra["session_path"] = path
    reference = text_of(row.get("cache_reference_id"))
    return Call(
        call_id=row["request_id"],
        prompt=told.prompt,
        answer=told.answer,
        tools=told.tools,
        model_name=_first(row, "response_model", "model", "request_model") or told.model_name,
        function_name=text_of(row.get("prompt_id")),
        started_at=time_at(row.get("request_created_at"), "request_created_at"),
        latency_s=None if delay is None else delay / 1000,
        n_input_tokens=_count(row.get("prompt_tokens"), told.n_input_tokens),
        n_output_tokens=_count(row.get("completion_tokens"), told.n_output_tokens),
        cost_usd=number_of(row.get("costUSD")),
        finish_reason=told.finish_reason,
        cached=None if reference is None else reference != _NO_CACHE,
        settings=told.settings or None,
        error=_error(status, response) if has_failed else None,
        extra={**extra, **told.extra} or None,
    )


def _error(status: float | None, response: Any) -> str:
    match response:
        case {"error": {"message": str(text)}} | {"error": str(text)} | {"message": str(text)}:
            return f"HTTP {int(status or 0)}: {text}"
    return f"HTTP {int(status or 0)}"


def _scores(row: dict[str, Any]) -> Iterator[Score]:
    at = time_at(row.get("request_created_at"), "request_created_at")
    assert at is not None
    call_id = row["request_id"]
    for name, sent in nested_object(row.get("scores"), "scores").items():
        value = sent.get("value") if isinstance(sent, dict) else sent
        kind = sent.get("valueType") if isinstance(sent, dict) else None
        number = number_of(value)
        found = value if isinstance(value, bool) else None if number is None else number
        if found is not None:
            found = bool(found) if kind == "boolean" else found
            score_id = f"{call_id}-{name}"
            yield Score(name=name, value=found, score_id=score_id, call_id=call_id, created_at=at)
    rating = {"true": True, "false": False, "1": True, "0": False}.get(
        str(row.get("feedback_rating")).lower()
    )
    if rating is not None:
        yield Score(
            name="rating",
            value=rating,
            score_id=text_of(row.get("feedback_id")) or f"{call_id}-rating",
            call_id=call_id,
            created_at=time_at(row.get("feedback_created_at"), "feedback_created_at") or at,
        )


def _first(row: dict[str, Any], *names: str) -> str | None:
    return next((found for name in names if (found := text_of(row.get(name))) is not None), None)


def _count(value: Any, other: int | None) -> int | None:
    number = number_of(value)
    return other if number is None or number < 0 else int(number)


SOURCE = Source(
    name="helicone",
    about="sessions of Helicone: exported requests with their bodies",
    read=read,
    fidelity={
        "session": kept("the property `Helicone-Session-Id`, else each request is an episode"),
        "prompt": kept("where the export has the bodies"),
        "answer": kept("where the export has the bodies"),
        "tool results": kept("those that a later prompt has"),
        "thoughts": kept("where the model's API gives them"),
        "images and files": kept("those that are in the request"),
        "metrics": kept("scores, and feedback as `rating`"),
        "tags and user": kept("properties are tags"),
        **lost("sub-agents", "comments", "task and seed", "token ids"),
    },
)
