"""Read the spend logs of the LiteLLM proxy: the table in Postgres, or its rows as JSON, JSONL or CSV.

The request of a call is in `proxy_server_request`, its answer in `response`; both are `{}` unless the proxy
has `store_prompts_in_spend_logs`. The column `messages` is empty for all but realtime calls.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from trajkit.errors import RequestError
from trajkit.formats.reading.document import BadDocument, object_at, shown, text_at, time_at
from trajkit.schema import Message, Role
from trajkit.schema.base import JsonObject
from trajkit.sources.calls import CUT_TEXT, NO_SESSION, Call, Gathered, Session, found_by
from trajkit.sources.exchange import exchange_of
from trajkit.sources.files.exported import take_rows
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.files.importing import is_url, shown_place
from trajkit.sources.files.texts import opened
from trajkit.sources.source import Source, changed, kept, lost
from trajkit.sources.sqlite_file import json_cell
from trajkit.sources.wish import Wish

NO_ANSWER = "a call without its answer"
"""Episodes with a successful call whose answer was not stored."""
REDACTED = "a text that LiteLLM redacted"
"""Episodes of a proxy that logs no messages (`turn_off_message_logging`)."""
CUT_CHAIN = "a prompt without the part that an earlier response holds"
"""Episodes with a call of the Responses API whose `previous_response_id` names no call of the session."""
NO_CALL = "no language model call, such as an embedding"

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
"""Fields of a request that are not settings of the model."""
_KEPT = ("call_type", "model_group", "model_id", "custom_llm_provider", "litellm_call_id")
_NOT_KEPT = (
    "litellm_call_id",
    "model_map_information",
    "requester_ip_address",
    "spend_logs_metadata",
    "status",
    "user_api_key",
)
"""Metadata that another field has, a price list, and private data."""
_STAMPED = ("headers", "spend_logs_metadata", "tags", "used_client_oauth_token")
"""Keys of the client's metadata that are stored elsewhere, or belong to the proxy."""
_TAGS = ("user", "end_user", "team_id", "organization_id")
_CUT = "litellm_truncated"
_REDACTED = "redacted-by-litellm"
TABLE = "LiteLLM_SpendLogs"
_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv")
_OF_LIBPQ = frozenset(
    {"host", "port", "user", "password", "dbname", "sslmode", "sslrootcert", "sslcert", "sslkey", "options"}
)
"""URL parameters of Postgres's library; Prisma has others, such as `connection_limit`."""
_LARGEST_HEAD = 1_000_000


def read(place: str, wish: Wish) -> Iterator[Found | Unread]:
    """Yield the sessions of a database, a file, or a folder of files."""
    if is_url(place):
        yield from _of_database(place, wish)
        return
    path = Path(place)
    with Gathered() as gathered:
        yield from take_rows(path, partial(_gather, gathered), _SUFFIXES)
        for name, parts in gathered.groups():
            yield _found(name, parts[""], path.name)


def _gather(gathered: Gathered, row: dict[str, Any]) -> None:
    if lacking := [name for name in NEEDED if name not in row]:
        raise BadDocument(f"not a row of {TABLE}", lacking[0])
    gathered.add(_session_name(row), row)


def _found(name: str, rows: list[dict[str, Any]], place: str) -> Found:
    calls, where = [row for row in rows if _is_call(row)], f"{place}: session {name}"
    return found_by(partial(_session, name, calls, place), where) if calls else Found(where, aside=NO_CALL)


def _of_database(url: str, wish: Wish) -> Iterator[Found]:
    """Yield the sessions of a database, which sorts them: memory holds one."""
    import pyarrow as pa

    from trajkit.sources.tensorzero.connect.postgres.connection import Connection, bound
    from trajkit.sources.tensorzero.connect.url import parse_url

    parts = urlsplit(url)
    if parts.scheme not in ("postgres", "postgresql"):
        raise RequestError(
            f"LiteLLM's spend logs are in Postgres; {shown_place(url)} is not",
            hint="--from litellm postgresql://USER:PASSWORD@HOST:5432/DATABASE, or a file of the rows",
        )
    query = urlencode([pair for pair in parse_qsl(parts.query) if pair[0] in _OF_LIBPQ])
    address = parse_url(urlunsplit((*parts[:3], query, "")))
    values: dict[str, str] = {}
    with closing(Connection(address)) as connection:
        table, has_session = _table(connection, dict(parse_qsl(parts.query)).get("schema"))
        name = "coalesce(nullif(row.session_id, ''), row.request_id)" if has_session else "row.request_id"
        recent = ""
        if wish.since is not None:
            values["since"] = wish.since.replace(tzinfo=None).isoformat()
            recent = (
                f' WHERE {name} IN (SELECT {name} FROM {table} AS row WHERE row."endTime" >='
                f" {bound('since')}::timestamp)"
            )
        sql = (
            f"SELECT {name} AS name, row_to_json(row)::text AS row FROM {table} AS row{recent}"
            ' ORDER BY 1, row."startTime", row.request_id'
        )
        schema = pa.schema([("name", pa.string()), ("row", pa.string())])
        rows = (
            pair
            for batch in connection.stream(sql, schema, values)
            for pair in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        )
        for session, group in itertools.groupby(rows, key=lambda pair: pair[0]):
            yield _found(session, [json.loads(str(row)) for _, row in group], shown_place(url))


def _table(connection: Any, schema: str | None) -> tuple[str, bool]:
    """Return the table as a query names it, and whether it has sessions."""
    columns: dict[str, set[str]] = {}
    for name, column in connection.query(
        "SELECT n.nspname, a.attname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        f" WHERE c.relname = '{TABLE}' AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition"
        " AND has_table_privilege(c.oid, 'SELECT')"
    ):
        columns.setdefault(name, set()).add(column)
    wanted = {name: found for name, found in columns.items() if schema in (None, name)}
    if not wanted:
        raise RequestError(
            f"{connection.shown} has no readable table {TABLE}",
            hint="name the database of the LiteLLM proxy: its DATABASE_URL",
        )
    if len(wanted) > 1:
        raise RequestError(
            f"{TABLE} is in several schemas: {', '.join(sorted(wanted))}", hint="add ?schema=NAME to the URL"
        )
    ((name, found),) = wanted.items()
    if lacking := [column for column in NEEDED if column not in found]:
        raise RequestError(
            f"{TABLE} has no column {', '.join(lacking)}: it has {', '.join(sorted(found))}",
            hint="trajkit reads the tables of LiteLLM 1.6x to 1.10x",
        )
    quoted = name.replace('"', '""')
    return f'"{quoted}"."{TABLE}"', "session_id" in found


def _session_name(row: Mapping[str, Any]) -> str:
    """Return the session of a row: its session id, else its own id."""
    return str(row.get("session_id") or row.get("request_id") or "")


def _is_call(row: Mapping[str, Any]) -> bool:
    """Whether a row is a language model call."""
    kind = str(row.get("call_type") or "completion")
    return kind in _CALLS or kind.removeprefix("a") in _CALLS


def _session(name: str, rows: Sequence[Mapping[str, Any]], place: str) -> Session:
    """Make a session from its rows, in any order: JSON columns may have values or texts."""
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
    """Whether LiteLLM made up the session id, as it does if the client named none."""
    request = row["proxy_server_request"]
    return not row.get("session_id") or (bool(request) and name not in json.dumps(request))


def _call(row: Mapping[str, Any], earlier: dict[str, Call]) -> tuple[Call, set[str]]:
    """Return the call of a row, and the facts that it lacks; add it to the earlier ones by its ids."""
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
    """Return a Responses API prompt after the conversation that it continues, and whether that is known.

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
        BadDocument: A value is invalid.
    """
    found = dict(row)
    found["request_id"] = text_at(row.get("request_id"), "request_id")
    for name in _JSON:
        value = row.get(name)
        found[name] = (json_cell(value, name) if value else None) if isinstance(value, str) else value
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


def _cost(value: Any, *, is_hit: bool) -> float | None:
    """Return the price of a call; LiteLLM writes 0 if it is unknown."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if value > 0 or is_hit else None


def _count(value: Any) -> int | None:
    """Return a number of tokens; LiteLLM writes 0 if it is unknown."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _recognises(place: str) -> bool:
    """Whether a file begins with a row of the table."""
    if is_url(place) or not place.endswith(_SUFFIXES) or not Path(place).is_file():
        return False
    try:
        with opened(Path(place), None) as stream:
            head = stream.readline(_LARGEST_HEAD)
    except BadDocument:
        return False
    if place.endswith(".csv"):
        return all(name.encode() in head for name in NEEDED)
    return all(f'"{name}"'.encode() in head for name in (*NEEDED, "proxy_server_request", "spend"))


_STORED = kept("with store_prompts_in_spend_logs")
_ONLY_STORED = (
    "tool calls",
    "tool results",
    "tools offered",
    "thoughts",
    "images and files",
    "finish reason",
)
SOURCE = Source(
    name="litellm",
    about="spend logs of the LiteLLM proxy: its Postgres, or a JSON, JSONL or CSV file of the table",
    read=read,
    recognises=_recognises,
    fidelity={
        **dict.fromkeys((*_ONLY_STORED, "sampling settings"), _STORED),
        **dict.fromkeys(("prompt", "answer"), kept(f"{_STORED.note}; long texts are cut")),
        "session": kept("where the client sends litellm_session_id"),
        "cost": kept("where LiteLLM knows the price"),
        "tags and user": changed("a:b and a=b have a value, other tags are true"),
        **lost("sub-agents", "metrics", "comments", "task and seed", "token ids"),
    },
)
