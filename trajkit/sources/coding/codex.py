"""Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`, a file for each session or sub-agent.

A file is a list of items as the model read and wrote them (`response_item`) and of events (`event_msg`).
The items of one answer are adjacent. The offered tools are not logged. The system prompt is
logged whole; Codex sends it without the sections on missing tools.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from trajkit.formats.chat.response_items import item_of
from trajkit.formats.reading.document import BadDocument, objects_at, part_of, shown, text_at
from trajkit.schema import Message, Role, ToolCallBlock
from trajkit.schema.content import message
from trajkit.sources.calls import Call, Session, found_of, known_types
from trajkit.sources.coding.lines import (
    CUT_LINE,
    NO_ANSWER,
    NO_SYSTEM_PROMPT,
    Lines,
    Place,
    Row,
    home_folder,
    looks_like,
    moment_at,
    place_of,
    session_files,
    sum_at,
)
from trajkit.sources.coding.tree import Entry, run_of
from trajkit.sources.files.found import Found
from trajkit.sources.source import Source, changed, kept, lost
from trajkit.sources.wish import Wish

_INTERNAL = ("internal_chat_message_metadata_passthrough", "metadata")
"""Fields of an item that the model does not see."""
_EFFORT = ("effort", "summary", "personality")
_ITEMS = (
    *("message", "reasoning", "function_call", "function_call_output", "local_shell_call"),
    *("custom_tool_call", "custom_tool_call_output"),
)
"""Items of files from before September 2025."""


def read(path: str, _wish: Wish) -> Iterator[Found]:
    """Yield the sessions of a file or folder, each with its sub-agents and branches."""
    place = place_of(path)
    parents: dict[str, str] = {}
    files: dict[str, Path] = {}
    for file in session_files(place):
        name, parent = _ids(file, place)
        files[name] = file
        if parent is not None:
            parents[name] = parent
    below: dict[str, list[str]] = {}
    for name in files:
        top, seen = name, {name}
        while (above := parents.get(top)) in files and above not in seen:
            top = above
            seen.add(top)
        below.setdefault(top, []).append(name)
    for top, names in below.items():
        names.sort(key=lambda name: name != top)
        yield _found([files[name] for name in names], place)


def _ids(path: Path, place: Place) -> tuple[str, str | None]:
    """Return the id of a file's session, and of the session that started it."""
    try:
        meta = part_of(_wrapped(next(iter(Lines(path, place)), {})), "payload")
    except BadDocument:
        meta = {}  # read again later, and refused there
    name = meta.get("id")
    return name if isinstance(name, str) else str(path), _parent(meta)


def _parent(meta: Row) -> str | None:
    """Return the id of the session that started a sub-agent."""
    found: Any = meta.get("source")
    for name in ("subagent", "thread_spawn", "parent_thread_id"):
        found = found.get(name) if isinstance(found, dict) else None
    found = meta.get("parent_thread_id") or found
    return found if isinstance(found, str) else None


def _found(paths: list[Path], place: Place) -> Found:
    first = place.shown(paths[0])
    logs: list[_Log] = []
    is_cut = False
    lines: Lines | None = None
    try:
        with known_types():
            for path in paths:
                lines, log = Lines(path, place), _Log()
                for line in lines:
                    log.add(line)
                log.close()
                is_cut |= lines.is_cut
                logs.append(log)
            lines = None
            session = _session(logs, is_cut=is_cut)
    except BadDocument as error:
        return Found(lines.at if lines else first, problem=error.problem)
    return found_of(session, first) if session.calls else Found(first, aside=NO_ANSWER)


def _session(logs: list[_Log], *, is_cut: bool) -> Session:
    calls: list[Call] = []
    origins: dict[str, Row] = {}
    parents: dict[str, str] = {}
    main = logs[0]
    for log in logs:
        name = None if log is main else log.session_id
        run = run_of(log.entries, agent_run=name)
        calls += run.calls
        origins |= run.origins
        parents |= run.parents
        if name is not None:
            origins[name] = log.origin
            if log.parent not in (None, main.session_id):
                parents[name] = str(log.parent)
    has_system = all(log.has_system for log in logs)
    return Session(
        session_id=main.session_id,
        source="codex",
        calls=calls,
        agent_parents=parents,
        run_origins=origins,
        origin=main.origin,
        missing=(*([CUT_LINE] if is_cut else []), *([] if has_system else [NO_SYSTEM_PROMPT])),
    )


class _Log:
    """The lines of a file, and the calls that they describe."""

    def __init__(self) -> None:
        self.session_id = ""
        self.parent: str | None = None
        self.origin: Row = {}
        self.entries: list[Entry] = []
        self.has_system = False
        self._system: list[Message] = []
        self._names: dict[str, str] = {}
        self._answer: list[Row] = []
        self._last: Entry | None = None
        """The entry of the latest answer."""
        self._head: str | None = None
        self._turns: list[tuple[str, str | None]] = []
        """The entry before each turn."""
        self._model: str | None = None
        self._settings: Row = {}
        self._agent: str | None = None
        self._at: Any = None

    def add(self, line: Row) -> None:
        """Read a line.

        Raises:
            BadDocument: It is not as Codex writes it.
        """
        line = _wrapped(line)
        kind, payload = line.get("type"), part_of(line, "payload")
        if not self.session_id and kind != "session_meta":
            raise BadDocument(
                "not a session of Codex: its first line is not session_meta", "type", shown(kind)
            )
        at = line.get("timestamp")
        match kind:
            case "session_meta" if not self.session_id:  # a fork repeats the one of its origin
                self._begin(payload)
            case "turn_context":
                self._model = payload.get("model") or self._model
                self._settings = {name: payload[name] for name in _EFFORT if payload.get(name)}
                self._turn(payload)
            case "response_item":
                self._item(payload, at)
            case "compacted":
                self._compact(payload, at)
            case "token_usage_record":
                self._count(part_of(payload, "usage"), payload.get("response_id"))
            case "event_msg":
                self._event(payload, at)

    def _begin(self, meta: Row) -> None:
        self.session_id = text_at(meta.get("id"), "payload.id")
        self.parent = _parent(meta)
        self._agent = meta.get("agent_role") or meta.get("agent_nickname")
        given = meta.get("base_instructions") or meta.get("instructions")
        text = given.get("text") if isinstance(given, dict) else given
        if isinstance(text, str) and text:
            self.has_system = True
            self._system = [message(Role.SYSTEM, text)]
            self._append(Entry(entry_id="system", parent_id=None, messages=list(self._system)))
        known = ("id", "cwd", "cli_version", "git", "base_instructions", "instructions", "session_id")
        git = part_of(meta, "git", "payload")
        self.origin = {
            "cwd": meta.get("cwd"),
            "git_branch": git.get("branch"),
            "version": meta.get("cli_version"),
            "git": git or None,
            **{name: value for name, value in meta.items() if name not in known},
        }
        self.origin = {name: value for name, value in self.origin.items() if value is not None}

    def _append(self, entry: Entry) -> Entry:
        self.entries.append(entry)
        self._head = entry.entry_id
        return entry

    def _new(self, at: Any, **values: Any) -> Entry:
        name = f"entry-{len(self.entries)}"
        return self._append(
            Entry(entry_id=name, parent_id=self._head, at=moment_at(at, "timestamp"), **values)
        )

    def _turn(self, payload: Row) -> None:
        self.close()
        name = payload.get("turn_id")
        if isinstance(name, str) and name not in dict(self._turns):
            self._turns.append((name, self._head))

    def _item(self, payload: Row, at: Any) -> None:
        """Read an item: of an answer, or of a prompt, which ends the previous answer."""
        item = _respelled({name: value for name, value in payload.items() if name not in _INTERNAL})
        if item_of(item, self._names).role == Role.ASSISTANT:
            self._answer.append(item)
            self._at = at
            return
        self.close()
        self._new(at, messages=[self._read(item)])

    def _read(self, item: Row) -> Message:
        found = item_of(item, self._names)
        self._names.update({one.id: one.name for one in found.blocks if isinstance(one, ToolCallBlock)})
        return Message(role=found.role, content=found.blocks)

    def close(self) -> None:
        """End the answer that is being read."""
        if not self._answer:
            return
        blocks = [block for item in self._answer for block in self._read(item).content]
        answer = Message(role=Role.ASSISTANT, content=tuple(blocks))
        ids = [item["id"] for item in self._answer if isinstance(item.get("id"), str)]
        call = Call(
            call_id=ids[0] if ids else f"{self.session_id}-{len(self.entries)}",
            answer=answer,
            model_name=self._model,
            settings=dict(self._settings) or None,
            agent_name=self._agent,
        )
        self._last = self._new(self._at, messages=[answer], call=call)
        self._answer = []

    def _count(self, usage: Row, response_id: Any) -> None:
        """Set the tokens of the latest answer; the first report counts, as later ones repeat it."""
        self.close()
        call = self._last.call if self._last else None
        if self._last is None or call is None or call.n_input_tokens is not None or not usage:
            return
        self._last.call = replace(
            call,
            call_id=response_id if isinstance(response_id, str) else call.call_id,
            n_input_tokens=sum_at(usage, "input_tokens", where="payload.usage"),
            n_output_tokens=sum_at(usage, "output_tokens", where="payload.usage"),
            extra={**(call.extra or {}), "usage": usage},
        )

    def _compact(self, payload: Row, at: Any) -> None:
        """Begin a new prompt with the rest of the old one."""
        self.close()
        if self._last is not None and self._head == self._last.entry_id:
            self._last.is_prompt_known = False  # the call that wrote the summary
        items = objects_at(payload.get("replacement_history"), "payload.replacement_history")
        stay = [_respelled({k: v for k, v in one.items() if k not in _INTERNAL}) for one in items]
        summary = text_at(payload.get("message") or "", "payload.message")
        messages = [self._read(one) for one in stay] if stay else [message(Role.USER, summary)]
        note: Row = {"compaction": {"message": summary}}
        self._new(at, messages=self._system + messages, is_new_prompt=True, note=note)

    def _event(self, payload: Row, at: Any) -> None:
        match payload.get("type"):
            case "token_count":
                self._count(part_of(part_of(payload, "info"), "last_token_usage"), None)
            case "task_started":
                self._turn(payload)
            case "error":
                self._fail(str(payload.get("message")), payload, at)
            case "task_complete" if isinstance(payload.get("error"), dict):
                self._fail(str(payload["error"].get("message")), payload["error"], at)
            case "turn_aborted":
                self.close()
                self._new(at, note={"turn_aborted": {"reason": payload.get("reason")}})
            case "thread_rolled_back":
                self.close()
                number = payload.get("num_turns")
                if isinstance(number, int) and number > 0 and self._turns:
                    self._head = self._turns[-number:][0][1]
                    del self._turns[-number:]
                self._last = None

    def _fail(self, why: str, payload: Row, at: Any) -> None:
        self.close()
        if self.entries and (before := self.entries[-1].call) is not None and before.error == why:
            return  # the end of the turn repeats it
        call = Call(
            call_id=f"{self.session_id}-{len(self.entries)}",
            error=why,
            model_name=self._model,
            agent_name=self._agent,
            extra={"codex_error_info": payload.get("codex_error_info")},
        )
        self._new(at, call=call)


def _wrapped(line: Row) -> Row:
    """Return a line as Codex writes it since September 2025; older files have bare items."""
    if "payload" in line or "record_type" in line:
        return line
    if "type" not in line and "id" in line and "timestamp" in line:
        return {"type": "session_meta", "payload": line, "timestamp": line["timestamp"]}
    if line.get("type") in _ITEMS:
        return {"type": "response_item", "payload": line, "timestamp": line.get("timestamp")}
    return line


def _respelled(item: Row) -> Row:
    """Return an item; custom and shell calls become function calls."""
    match item.get("type"):
        case "custom_tool_call":
            rest = {name: value for name, value in item.items() if name != "input"}
            return {**rest, "type": "function_call", "arguments": item.get("input"), "kind": "custom"}
        case "custom_tool_call_output":
            return {**item, "type": "function_call_output"}
        case "local_shell_call":
            rest = {name: value for name, value in item.items() if name != "action"}
            action = json.dumps(item.get("action"))
            return {**rest, "type": "function_call", "name": "local_shell", "arguments": action}
    return item


SOURCE = Source(
    name="codex",
    about="sessions of Codex, with sub-agents and branches",
    read=read,
    recognises=partial(
        looks_like,
        lambda line: (
            (line.get("type") == "session_meta" and "payload" in line)
            or ("instructions" in line and {"id", "timestamp"} <= line.keys() and "type" not in line)
        ),
    ),
    default_place=partial(home_folder, "CODEX_HOME", "sessions", default=(".codex", "sessions")),
    is_personal=True,
    fidelity={
        "prompt": changed("the system prompt may have more than was sent; that of a summary is unknown"),
        "thoughts": kept("their summary; the rest is encrypted"),
        "images and files": kept("that an image was there; not its bytes"),
        "sampling settings": changed("only the effort of reasoning"),
        "latency": changed("from the item before the answer to its last item"),
        **lost(
            "tools offered",
            "cost",
            "finish reason",
            "metrics",
            "comments",
            "tags and user",
            "task and seed",
            "token ids",
        ),
    },
)
