"""pi: `~/.pi/agent/sessions`, a file for each session with a tree of entries.

The package describes the format in docs/session-format.md. A file has no system prompt and no tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from trajkit.formats.chat.conversation import conversation_of
from trajkit.formats.reading.document import BadDocument, objects_at, part_of, shown, text_at
from trajkit.schema import Message
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

_NEWEST = 3
"""The newest supported version of the format; 1 is a list, later ones are trees."""
_SUMMARY = "The conversation history before this point was compacted into the following summary:"
_BRANCH = "The following is a summary of a branch that this conversation came back from:"


def read(path: str, _wish: Wish) -> Iterator[Found]:
    """Yield the sessions of a file or folder, each with its branches."""
    place = place_of(path)
    for file in session_files(place):
        yield _found(file, place)


def _found(path: Path, place: Place) -> Found:
    lines = Lines(path, place)
    first = lines.at
    header: Row | None = None
    entries: dict[str, Entry] = {}
    origin: Row = {}
    level: Any = None
    last: str | None = None
    try:
        with known_types():
            for line in lines:
                if header is None:
                    header = _header(line)
                    continue
                name = str(line.get("id") or f"entry-{len(entries)}")
                above = line.get("parentId", last)
                entry = Entry(
                    entry_id=name, parent_id=above, at=moment_at(line.get("timestamp"), "timestamp")
                )
                last = name
                entries[name] = entry
                match line.get("type"):
                    case "message":
                        _take(entry, part_of(line, "message"), level)
                    case "custom_message":
                        entry.messages = _user(line.get("content"))
                    case "branch_summary" if line.get("summary"):
                        entry.messages = _user(f"{_BRANCH}\n\n<summary>\n{line['summary']}</summary>")
                        entry.note = {"branch_summary": _rest(line)}
                    case "compaction":
                        entry.is_new_prompt = True
                        entry.messages = _user(f"{_SUMMARY}\n\n<summary>\n{line.get('summary')}\n</summary>")
                        entry.messages += _messages_from(str(line.get("firstKeptEntryId")), entry, entries)
                        entry.note = {"compaction": _rest(line)}
                    case "thinking_level_change":
                        level = line.get("thinkingLevel")
                    case "session_info":
                        origin["title"] = line.get("name")
                    case "model_change":
                        pass  # each answer names its model
                    case _:
                        entry.note = {str(line.get("type")): _rest(line)}
            if header is None:
                raise BadDocument("not a pi session: line 1 is not a header")
            session = Session(
                session_id=text_at(header.get("id"), "id"),
                source="pi",
                calls=(run := run_of(list(entries.values()))).calls,
                run_origins=run.origins,
                origin={**_rest(header), **origin},
                missing=(NO_SYSTEM_PROMPT, *([CUT_LINE] if lines.is_cut else [])),
            )
    except BadDocument as error:
        return Found(lines.at, problem=error.problem)
    return found_of(session, first) if session.calls else Found(first, aside=NO_ANSWER)


def _header(line: Row) -> Row:
    if line.get("type") != "session":
        raise BadDocument("not a pi session: line 1 is not a header", "type", shown(line.get("type")))
    version = line.get("version", 1)
    if not isinstance(version, int) or not 1 <= version <= _NEWEST:
        raise BadDocument(f"a version of pi's format after {_NEWEST}", "version", shown(version))
    return line


def _rest(line: Mapping[str, Any]) -> Row:
    known = ("type", "id", "parentId", "timestamp", "summary")
    return {name: value for name, value in line.items() if name not in known}


def _take(entry: Entry, message: Row, level: Any) -> None:
    """Read a message."""
    match message.get("role"):
        case "user" | "custom" | "hookMessage":
            entry.messages = _user(message.get("content"))
        case "assistant":
            entry.call = _call(entry.entry_id, message, level)
            entry.at = entry.at or moment_at(message.get("timestamp"), "message.timestamp")
            if entry.call.answer is not None and message.get("stopReason") not in ("error", "aborted"):
                entry.messages = [entry.call.answer]
        case "toolResult":
            result = {
                "role": "tool",
                "tool_call_id": message.get("toolCallId"),
                "name": message.get("toolName"),
            }
            failed = {"is_error": True} if message.get("isError") else {}
            content = _content(message.get("content"))
            entry.messages = conversation_of([{**result, "content": content, **failed}], "message")
        case "bashExecution":
            if not message.get("excludeFromContext"):
                entry.messages = _user(_command(message))
        case "compactionSummary":
            entry.messages = _user(f"{_SUMMARY}\n\n<summary>\n{message.get('summary')}\n</summary>")
        case "branchSummary":
            entry.messages = _user(f"{_BRANCH}\n\n<summary>\n{message.get('summary')}</summary>")
        case role:
            raise BadDocument("a message with an unknown role", "message.role", shown(role))


def _call(entry_id: str, message: Row, level: Any) -> Call:
    usage = part_of(message, "usage", "message")
    texts: list[Row] = []
    thoughts: list[str] = []
    calls: list[Row] = []
    for part in objects_at(message.get("content"), "message.content"):
        match part.get("type"):
            case "thinking":
                thoughts.append(str(part.get("thinking") or ""))
            case "toolCall":
                function = {"name": part.get("name"), "arguments": part.get("arguments") or {}}
                calls.append({"id": part.get("id"), "type": "function", "function": function})
            case _:
                texts.append({name: value for name, value in part.items() if name != "textSignature"})
    sent: Row = {"role": "assistant", "content": texts}
    if any(thoughts):
        sent["reasoning_content"] = "\n\n".join(thoughts)
    if calls:
        sent["tool_calls"] = calls
    reason = message.get("stopReason")
    is_failed = reason in ("error", "aborted")
    is_empty = not texts and not calls and not any(thoughts)
    cost = part_of(usage, "cost", "message.usage").get("total")
    extra: Row = {
        name: message[name] for name in ("provider", "api", "usage", "responseId") if name in message
    }
    return Call(
        call_id=entry_id,
        answer=None if is_empty and is_failed else conversation_of([sent], "message")[0],
        model_name=message.get("model"),
        n_input_tokens=sum_at(usage, "input", "cacheRead", "cacheWrite", where="message.usage"),
        n_output_tokens=sum_at(usage, "output", where="message.usage"),
        cost_usd=cost,
        finish_reason=reason,
        error=str(message.get("errorMessage") or reason) if is_failed else None,
        settings=None if level is None else {"thinking_level": level},
        extra=extra,
    )


def _content(content: Any) -> Any:
    """Return parts in the form of OpenAI's API."""
    if not isinstance(content, list):
        return content
    return [
        _image(part) if isinstance(part, dict) and part.get("type") == "image" else part for part in content
    ]


def _image(part: Row) -> Row:
    return {
        "type": "image_url",
        "image_url": {"url": f"data:{part.get('mimeType')};base64,{part.get('data') or ''}"},
    }


def _user(content: Any) -> list[Message]:
    return conversation_of([{"role": "user", "content": _content(content)}], "message")


def _command(message: Mapping[str, Any]) -> str:
    """Return the text that the model gets for a command of the user."""
    output = message.get("output")
    text = f"Ran `{message.get('command')}`\n" + (f"```\n{output}\n```" if output else "(no output)")
    if message.get("cancelled"):
        return f"{text}\n\n(command cancelled)"
    code = message.get("exitCode")
    return f"{text}\n\nCommand exited with code {code}" if code else text


def _messages_from(name: str, entry: Entry, entries: Mapping[str, Entry]) -> list[Message]:
    """Return the messages from an entry on, which stay in the prompt after the summary."""
    path: list[Entry] = []
    above = entries.get(entry.parent_id or "")
    while above is not None:
        path.append(above)
        if above.entry_id == name:
            return [message for one in reversed(path) for message in one.messages]
        above = entries.get(above.parent_id or "")
    return []


SOURCE = Source(
    name="pi",
    about="sessions of the coding agent pi, with branches",
    read=read,
    recognises=partial(
        looks_like, lambda line: line.get("type") == "session" and "cwd" in line and "id" in line
    ),
    default_place=partial(
        home_folder, "PI_CODING_AGENT_DIR", "sessions", default=(".pi", "agent", "sessions")
    ),
    is_personal=True,
    fidelity={
        "sub-agents": kept("each branch is an episode beside its session; pi has no sub-agents"),
        "prompt": changed("without the system prompt, which is not logged"),
        "images and files": kept("that an image was there; not its bytes"),
        "sampling settings": changed("only the level of thinking"),
        "latency": changed("from the message before the answer to its entry"),
        **lost("tools offered", "metrics", "comments", "tags and user", "task and seed", "token ids"),
    },
)
