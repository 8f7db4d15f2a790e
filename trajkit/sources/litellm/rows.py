"""Turn rows of the table `LiteLLM_SpendLogs` into sessions of calls.

The request of a call is in `proxy_server_request`, its answer in `response`; both are `{}` unless the proxy
has `store_prompts_in_spend_logs`. The column `messages` is empty for all but realtime calls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trajkit.formats.reading.document import BadDocument, object_at, shown, text_at, time_at
from trajkit.schema import Message, Role
from trajkit.schema.base import JsonObject
from trajkit.sources.calls import CUT_TEXT, NO_SESSION, Call, Session
from trajkit.sources.exchange import exchange_of
from trajkit.sources.files.importing import shown_place

NO_ANSWER = "a call without its answer"
"""Episodes with a call that succeeded, and whose answer was not stored."""
REDACTED = "a text that LiteLLM redacted"
"""Episodes of a proxy that logs no messages (`turn_off_message_logging`)."""
CUT_CHAIN = "a prompt without the part that an earlier response holds"
"""Episodes with a call of the Responses API whose `previous_response_id` names no call of the session."""
NO_CALL = "no call of a language model, such as an embedding"

NEEDED = ("request_id", "call_type", "startTime", "endTime")
"""Columns that every version of the table has."""
_CALLS = frozenset(
    {"completion", "text_completion", "responses", "anthropic_messages", "generate_content", "_arealtime"}
)
_JSON = ("metadata", "request_tags", "messages", "response", "proxy_server_request")
_OF_THE_PROXY = (
    "cache",
    "litellm_call_id",
    "litellm_metadata",
    "litellm_session_id",
    "litellm_trace_id",
    "metadata",
    "num_retries",
    "previous_response_id",
    "tags",
    "user",
)
"""Fields of a request that are no settings of the model."""
_KEPT = ("call_type", "model_group", "model_id", "custom_llm_provider", "litellm_call_id")
_NOT_KEPT = (
    "litellm_call_id",
    "model_map_information",
    "requester_ip_address",
    "spend_logs_metadata",
    "status",
    "user_api_key",
)
"""Metadata that another field has, a price list, and what is private."""
_STAMPED = ("headers", "spend_logs_metadata", "tags", "used_client_oauth_token")
"""What stands in the client's own metadata and is elsewhere, or is of the proxy."""
_TAGS = ("user", "end_user", "team_id", "organization_id")
_CUT = "litellm_truncated"
_REDACTED = "redacted-by-litellm"


def session_name(row: Mapping[str, Any]) -> str:
    """The session of a row: its session id, else its own id."""
    return str(row.get("session_id") or row.get("request_id") or "")


def is_call(row: Mapping[str, Any]) -> bool:
    """Whether a row is of a call of a language model."""
    kind = str(row.get("call_type") or "completion")
    return kind in _CALLS or kind.removeprefix("a") in _CALLS


def session_of(name: str, rows: Sequence[Mapping[str, Any]], place: str) -> Session:
    """Return the session of its rows.

    Args:
        name: The session id.
        rows: Rows of the table, in any order: values of JSON columns may be JSON or its text.
        place: What was read, for the origin.

    Raises:
        BadDocument: A row is not valid.
    """
    missing: set[str] = set()
    calls: list[Call] = []
    tags: dict[str, str] = {}
    notes: JsonObject = {}
    earlier: dict[str, Call] = {}
    read = [_parsed(row) for row in rows]
    for row in sorted(read, key=lambda row: row["startTime"]):
        call, lacks = _call(row, earlier)
        missing |= lacks
        calls.append(call)
        tags |= {key: row[key] for key in _TAGS if isinstance(row.get(key), str) and row[key]}
        tags |= _request_tags(row["request_tags"])
        said = row["metadata"].get("spend_logs_metadata")
        notes |= said if isinstance(said, dict) else {}
    if len(read) == 1 and _is_unnamed(name, read[0]):
        missing.add(NO_SESSION)
    return Session(
        session_id=name,
        source="litellm",
        calls=calls,
        tags=tags,
        origin={"from": place, **({"spend_logs_metadata": notes} if notes else {})},
        missing=tuple(sorted(missing)),
    )


def _is_unnamed(name: str, row: Mapping[str, Any]) -> bool:
    """Whether LiteLLM made the session id up: it does so for a call whose client named none."""
    request = row["proxy_server_request"]
    return not row.get("session_id") or (bool(request) and name not in json.dumps(request))


def _call(row: Mapping[str, Any], earlier: dict[str, Call]) -> tuple[Call, set[str]]:
    """Return the call of a row, and what it lacks; add it to the earlier ones by its ids."""
    metadata, sent, response = row["metadata"], row["proxy_server_request"], row["response"]
    request: Any = {key: value for key, value in sent.items() if key not in _OF_THE_PROXY} or None
    if request is None:
        request = row["messages"] or None  # a realtime call, or a version before 2025-04
    is_failed = (row.get("status") or metadata.get("status")) == "failure"
    exchange = exchange_of(request, response or None)
    missing = _lacks(request, response)
    prompt = exchange.prompt
    if isinstance(previous := sent.get("previous_response_id"), str) and prompt is not None:
        prompt, is_whole = _continued(prompt, earlier.get(previous))
        missing |= set() if is_whole else {CUT_CHAIN}
    if exchange.answer is None and not is_failed:
        missing.add(NO_ANSWER)
    started_at, ended_at = row["startTime"], row["endTime"]
    is_hit = str(row.get("cache_hit")).lower() == "true"
    spend = row.get("spend")
    call = Call(
        call_id=row["request_id"],
        prompt=prompt,
        answer=exchange.answer,
        tools=exchange.tools,
        model_name=row.get("model") or exchange.model_name,
        agent_name=row.get("agent_id") or None,
        started_at=started_at,
        latency_s=None if ended_at is None else max(0.0, (ended_at - started_at).total_seconds()),
        n_input_tokens=_count(row.get("prompt_tokens")),
        n_output_tokens=_count(row.get("completion_tokens")),
        cost_usd=_cost(spend, is_hit=is_hit),
        finish_reason=exchange.finish_reason,
        cached=True if is_hit else None,
        settings=exchange.settings,
        error=_error(metadata) if is_failed else None,
        extra={**_extra(row, sent), **exchange.extra},
    )
    for each in (row["request_id"], response.get("id")):
        if isinstance(each, str):
            earlier[each] = call
    return call, missing


def _continued(prompt: tuple[Message, ...], before: Call | None) -> tuple[tuple[Message, ...], bool]:
    """Return a prompt of the Responses API with what it continues, and whether that is known.

    Instructions are those of the new request: the API does not keep earlier ones.
    """
    if before is None or before.prompt is None or before.answer is None:
        return prompt, False
    n_new = next((n for n, one in enumerate(prompt) if one.role != Role.SYSTEM), len(prompt))
    old = [one for one in before.prompt if one.role != Role.SYSTEM]
    return (*prompt[:n_new], *old, before.answer, *prompt[n_new:]), True


def _lacks(*texts: Any) -> set[str]:
    text = json.dumps(texts)
    return {name for mark, name in ((_CUT, CUT_TEXT), (_REDACTED, REDACTED)) if mark in text}


def _error(metadata: Mapping[str, Any]) -> str:
    told = metadata.get("error_information")
    told = told if isinstance(told, dict) else {}
    return str(told.get("error_message") or told.get("error_class") or "it failed")


def _extra(row: Mapping[str, Any], sent: Mapping[str, Any]) -> JsonObject:
    extra: JsonObject = {key: row[key] for key in _KEPT if row.get(key)}
    if isinstance(base := row.get("api_base"), str) and base:
        extra["api_base"] = shown_place(base)
    said = {
        key: value
        for key, value in row["metadata"].items()
        if value not in (None, "", [], {}) and key not in _NOT_KEPT
    }
    if isinstance(told := said.get("error_information"), dict):
        said["error_information"] = {
            key: value for key, value in told.items() if key != "traceback" and value
        }
    for name in ("metadata", "litellm_metadata"):
        asked = sent[name].get("requester_metadata") if isinstance(sent.get(name), dict) else None
        own = {key: asked[key] for key in asked if key not in _STAMPED} if isinstance(asked, dict) else {}
        if own:
            extra["request_metadata"] = own
    if isinstance(previous := sent.get("previous_response_id"), str):
        extra["previous_response_id"] = previous
    return {**extra, **({"metadata": said} if said else {})}


def _request_tags(tags: Any) -> dict[str, str]:
    """Return the tags of a call: `a:b` and `a=b` have a value, others are true."""
    found = {}
    for tag in tags if isinstance(tags, list) else ():
        if str(tag).startswith("User-Agent:"):  # LiteLLM's own
            continue
        mark = min((one for one in ":=" if one in str(tag)), key=str(tag).find, default="")
        name, _, value = str(tag).partition(mark) if mark else (str(tag), "", "true")
        found[name.strip()] = value.strip()
    return {name: value for name, value in found.items() if name}


def _parsed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with JSON as values, aware times and numbers.

    Raises:
        BadDocument: A value is none.
    """
    found = dict(row)
    found["request_id"] = text_at(row.get("request_id"), "request_id")
    for name in _JSON:
        found[name] = _json(row.get(name), name)
    for name in ("metadata", "response", "proxy_server_request"):
        found[name] = object_at(found[name] or {}, name)
    for name in ("startTime", "endTime"):
        found[name] = time_at(row.get(name), name)
    if found["startTime"] is None:
        raise BadDocument("no time", "startTime")
    for name, kind in (("spend", float), ("prompt_tokens", int), ("completion_tokens", int)):
        if isinstance(text := row.get(name), str):
            try:
                found[name] = kind(text) if text else None
            except ValueError:
                raise BadDocument("not a number", name, shown(text)) from None
    return found


def _json(value: Any, name: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value else None
    except (ValueError, RecursionError):
        raise BadDocument("not JSON", name, shown(value)) from None


def _cost(value: Any, *, is_hit: bool) -> float | None:
    """Return the price of a call; LiteLLM writes 0 where it does not know one."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if value > 0 or is_hit else None


def _count(value: Any) -> int | None:
    """Return a number of tokens; LiteLLM writes 0 where it does not know one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
