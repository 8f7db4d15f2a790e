"""OpenCode: `~/.local/share/opencode/opencode.db`, a SQLite database of sessions, messages and their parts.

An assistant message is one model call; older versions put several into one, each begun by a part
`step-start`. The database has neither the system prompt nor the tools.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trajkit.errors import RequestError
from trajkit.formats.chat.conversation import conversation_of
from trajkit.formats.reading.document import BadDocument, object_at, part_of
from trajkit.schema import Message
from trajkit.sources.calls import Call, Session, found_by
from trajkit.sources.coding.lines import (
    NO_ANSWER,
    NO_SYSTEM_PROMPT,
    Row,
    home_folder,
    moment_at,
    place_of,
    sum_at,
)
from trajkit.sources.coding.tree import Entry, run_of
from trajkit.sources.files.found import Found
from trajkit.sources.files.texts import json_of
from trajkit.sources.source import Source, changed, kept, lost
from trajkit.sources.sqlite_file import check_columns, columns_of, database
from trajkit.sources.wish import Wish

_FILE = "opencode.db"
_COLUMNS = {
    "session": {"id", "parent_id", "directory", "title", "version", "time_created"},
    "message": {"id", "session_id", "time_created", "data"},
    "part": {"id", "message_id", "session_id", "data"},
}
"""The tables that are read, with the columns that they must have."""
_ABORTED = "MessageAbortedError"
"""The only error after which later prompts keep the partial answer."""
_SUMMARISED = "What did we do so far?"
"""The text that replaces a summary request in later prompts."""
_IN_TEXT = ("text/plain", "application/x-directory")
"""Files whose content is also in a text beside them."""


def read(path: str, _wish: Wish) -> Iterator[Found]:
    """Yield the sessions of a database, each with its sub-agents."""
    file = _file(path)
    with database(str(file)) as connection:
        check_columns(
            columns_of(connection), _COLUMNS, other="not an OpenCode database", hint="is it OpenCode's file?"
        )
        yield from _sessions(connection, file.name)


def _file(path: str) -> Path:
    root = place_of(path).root
    file = root / _FILE if root.is_dir() else root
    if not file.is_file():
        raise RequestError(f"there is no {_FILE} in {root}", hint="name the database, or its folder")
    return file


def _sessions(database: sqlite3.Connection, name: str) -> Iterator[Found]:
    parents: dict[str, str | None] = dict(
        tuple(row) for row in database.execute("SELECT id, parent_id FROM session ORDER BY time_created, id")
    )
    below: dict[str, list[str]] = {}
    for session_id in parents:
        top, seen = session_id, {session_id}
        while (above := parents[top]) in parents and above not in seen:
            top = str(above)
            seen.add(top)
        below.setdefault(top, []).append(session_id)
    for top, ids in below.items():
        ids.sort(key=lambda one: one != top)
        make = partial(_session, database, ids, parents)
        yield found_by(make, f"{name}:{top}", empty=NO_ANSWER)


def _session(database: sqlite3.Connection, ids: Sequence[str], parents: Mapping[str, str | None]) -> Session:
    calls: list[Call] = []
    origins: dict[str, Row] = {}
    for session_id in ids:
        own = None if session_id == ids[0] else session_id
        calls += run_of(_entries(database, session_id), agent_run=own).calls
        origins[session_id] = _origin(database, session_id)
    return Session(
        session_id=ids[0],
        source="opencode",
        calls=calls,
        agent_parents={one: str(parents[one]) for one in ids[1:] if parents[one] != ids[0]},
        run_origins=origins,
        origin=origins[ids[0]],
        missing=(NO_SYSTEM_PROMPT,),
    )


def _origin(database: sqlite3.Connection, session_id: str) -> Row:
    row = dict(database.execute("SELECT * FROM session WHERE id = ?", (session_id,)).fetchone())
    found = {"cwd": row["directory"], "title": row["title"], "version": row["version"]}
    names = ("agent", "project_id", "workspace_id", "slug", "revert", "metadata")
    return {**found, **{name: row[name] for name in names if row.get(name) is not None}}


def _entries(database: sqlite3.Connection, session_id: str) -> list[Entry]:
    """Return the entries of a session, which is a list: undone messages are not in the database."""
    parts: dict[str, list[Row]] = {}
    for row in database.execute(
        "SELECT message_id, id, data FROM part WHERE session_id = ? ORDER BY id", (session_id,)
    ):
        parts.setdefault(row["message_id"], []).append(_data(row))
    entries: list[Entry] = []
    for row in database.execute(
        "SELECT id, time_created, data FROM message WHERE session_id = ? ORDER BY time_created, id",
        (session_id,),
    ):
        message, own = _data(row), parts.get(row["id"], [])
        above = entries[-1].entry_id if entries else None
        if message.get("role") == "assistant":
            entries += _answers(row["id"], above, message, own)
        else:
            at = moment_at(row["time_created"], row["id"])
            entry = Entry(entry_id=row["id"], parent_id=above, at=at, messages=_said(own))
            entries.append(entry)
    return entries


def _data(row: sqlite3.Row) -> Row:
    data = row["data"]
    try:
        return object_at(json_of(data if isinstance(data, bytes) else str(data).encode()), "")
    except BadDocument as error:
        raise BadDocument(error.problem.kind, row["id"], error.problem.value) from error


def _said(parts: Sequence[Row]) -> list[Message]:
    content: list[Row] = []
    for part in parts:
        match part.get("type"):
            case "text" if not part.get("ignored"):
                content.append({"type": "text", "text": part.get("text")})
            case "file" if part.get("mime") not in _IN_TEXT:
                content.append(_file_part(part))
            case "compaction":
                content.append({"type": "text", "text": _SUMMARISED})
            case "subtask":
                content.append({"type": "text", "text": "The following tool was executed by the user"})
    return conversation_of([{"role": "user", "content": content}], "message") if content else []


def _file_part(part: Mapping[str, Any]) -> Row:
    if str(part.get("mime")).startswith("image/"):
        return {"type": "image_url", "image_url": {"url": part.get("url")}}
    return {"type": "file", "file": {"filename": part.get("filename"), "file_data": part.get("url")}}


def _answers(message_id: str, above: str | None, message: Row, parts: Sequence[Row]) -> Iterator[Entry]:
    """Yield the entries of an assistant message: its answers, each with its tool results."""
    steps: list[list[Row]] = [[]]
    for part in parts:
        if part.get("type") == "step-start" and steps[-1]:
            steps.append([])
        steps[-1].append(part)
    is_summary = bool(message.get("summary"))
    error = message.get("error")
    is_dropped = bool(error) and not (isinstance(error, dict) and error.get("name") == _ABORTED)
    for number, step in enumerate(steps):
        is_last = number == len(steps) - 1
        name = message_id if number == 0 else f"{message_id}-{number}"
        time = part_of(message, "time", message_id)
        begun = time.get("created") if number == 0 else None
        sent = _sent(step)
        answer = conversation_of([sent], message_id)[0] if sent is not None else None
        entry = Entry(entry_id=name, parent_id=above, at=_end(step, time, message_id))
        entry.call = _call(name, message, step, answer, begun, is_last=is_last, is_whole=len(steps) == 1)
        entry.messages = [answer] if answer is not None and not is_dropped else []
        entry.is_prompt_known = not is_summary
        yield entry
        above = name
        results = _results(step)
        if results and not is_dropped:
            at = moment_at(time.get("completed"), message_id) if is_last else None
            yield Entry(entry_id=f"{name}:results", parent_id=name, messages=results, at=at)
            above = f"{name}:results"
    if is_summary and not error and entry.messages:
        question = conversation_of([{"role": "user", "content": _SUMMARISED}], "message")
        yield Entry(
            entry_id=f"{message_id}:summary",
            parent_id=above,
            messages=[*question, *entry.messages],
            is_new_prompt=True,
            note={"compaction": {"message_id": message_id}},
        )


def _sent(parts: Sequence[Row]) -> Row | None:
    """Return an answer in the form of OpenAI's API; None if it is empty."""
    texts = [{"type": "text", "text": part.get("text")} for part in parts if part.get("type") == "text"]
    thoughts = [str(part.get("text") or "") for part in parts if part.get("type") == "reasoning"]
    calls = [
        {
            "id": part.get("callID"),
            "type": "function",
            "function": {
                "name": part.get("tool"),
                "arguments": part_of(part, "state").get("raw") or part_of(part, "state").get("input") or {},
            },
        }
        for part in parts
        if part.get("type") == "tool"
    ]
    if not texts and not calls and not any(thoughts):
        return None
    sent: Row = {"role": "assistant", "content": texts}
    if any(thoughts):
        sent["reasoning_content"] = "\n\n".join(thoughts)
    if calls:
        sent["tool_calls"] = calls
    return sent


def _results(parts: Sequence[Row]) -> list[Message]:
    sent: list[Row] = []
    for part in parts:
        if part.get("type") != "tool":
            continue
        state = part_of(part, "state")
        one = {"role": "tool", "tool_call_id": part.get("callID"), "name": part.get("tool")}
        match state.get("status"):
            case "completed":
                files = [
                    _file_part(each) for each in state.get("attachments") or () if isinstance(each, dict)
                ]
                text = state.get("output") or ""
                sent.append({**one, "content": [{"type": "text", "text": text}, *files] if files else text})
            case "error":
                sent.append({**one, "content": state.get("error") or "", "is_error": True})
            case _:
                sent.append({**one, "content": "[Tool execution was interrupted]", "is_error": True})
    return conversation_of(sent, "parts") if sent else []


def _end(parts: Sequence[Row], time: Mapping[str, Any], where: str) -> Any:
    """Return when an answer was complete: its tools start then, within the message's time."""
    ends = [part_of(part, "time").get("end") for part in parts if part.get("type") in ("text", "reasoning")]
    starts = [
        part_of(part_of(part, "state"), "time").get("start") for part in parts if part.get("type") == "tool"
    ]
    known = [one for one in (*ends, *starts) if isinstance(one, int | float)]
    return moment_at(max(known) if known else time.get("completed"), where)


def _call(
    name: str,
    message: Row,
    parts: Sequence[Row],
    answer: Message | None,
    begun: Any,
    *,
    is_last: bool,
    is_whole: bool,
) -> Call:
    done: Row = next((part for part in reversed(parts) if part.get("type") == "step-finish"), {})
    told = done or (message if is_whole else {})
    tokens = part_of(told, "tokens", name)
    cache = part_of(tokens, "cache", name)
    counts = {**tokens, "cache.read": cache.get("read"), "cache.write": cache.get("write")}
    error = message.get("error") if is_last else None
    others = [
        part
        for part in parts
        if part.get("type") not in ("text", "reasoning", "tool", "step-start", "step-finish")
    ]
    extra: Row = {"provider": message.get("providerID"), "tokens": tokens}
    if error:
        extra["error_data"] = error
    if others:
        extra["parts"] = others
    return Call(
        call_id=name,
        answer=answer,
        model_name=message.get("modelID"),
        agent_name=message.get("agent") or message.get("mode"),
        started_at=moment_at(begun, name),
        n_input_tokens=sum_at(counts, "input", "cache.read", "cache.write", where="tokens"),
        n_output_tokens=sum_at(counts, "output", "reasoning", where="tokens"),
        cost_usd=told.get("cost"),
        finish_reason=done.get("reason") or message.get("finish"),
        error=_error(error) if error else None,
        extra=extra,
    )


def _error(error: Any) -> str:
    if not isinstance(error, dict):
        return json.dumps(error)
    text = part_of(error, "data").get("message")
    return ": ".join(str(one) for one in (error.get("name"), text) if one)


def _recognises(place: str) -> bool:
    path = Path(place)
    return "://" not in place and (path.name == _FILE or (path / _FILE).is_file())


SOURCE = Source(
    name="opencode",
    about="sessions of OpenCode, with sub-agents",
    read=read,
    recognises=_recognises,
    default_place=partial(
        home_folder, "XDG_DATA_HOME", "opencode", _FILE, default=(".local", "share", "opencode", _FILE)
    ),
    is_personal=True,
    fidelity={
        "prompt": changed("without the system prompt, which is not logged; that of a summary is unknown"),
        "images and files": kept("that a file was there; not its bytes"),
        "latency": changed("from the message's time to the last part of the answer"),
        **lost(
            "tools offered",
            "sampling settings",
            "metrics",
            "comments",
            "tags and user",
            "task and seed",
            "token ids",
        ),
    },
)
