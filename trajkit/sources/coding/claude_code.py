"""Claude Code: `~/.claude/projects`, a file for each session, and the files of its sub-agents beside it.

Anthropic calls the format internal. A line has the id of the line before it; the lines of one answer have one
message id. Versions from 2.1.3xx also log each request: then prompts and tools are exactly as sent.
Otherwise a prompt is made from the messages on the path.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from trajkit.formats.chat.conversation import conversation_of, tools_of
from trajkit.formats.reading.document import BadDocument, object_at, part_of, shown
from trajkit.schema import Message, ToolResultBlock
from trajkit.schema.base import JsonObject
from trajkit.sources.calls import Call, Session, found_of, known_types
from trajkit.sources.coding.lines import (
    CUT_LINE,
    NO_ANSWER,
    NO_SYSTEM_PROMPT,
    Lines,
    Place,
    home_folder,
    looks_like,
    moment_at,
    place_of,
    session_files,
    sum_at,
)
from trajkit.sources.coding.tree import Entry, learn, named, run_of
from trajkit.sources.files.found import Found
from trajkit.sources.files.texts import read_json
from trajkit.sources.source import Source, changed, kept, lost
from trajkit.sources.wish import Wish

_NEWEST = 2
"""The newest major version whose files are supported."""
_BOOKKEEPING = (
    *("queue-operation", "atis-latch", "last-prompt", "mode", "permission-mode", "tools-used"),
    *("file-history-snapshot", "file-history-delta", "content-replacement", "progress"),
)
"""Lines without content of the conversation."""
_TITLES = {
    "custom-title": "customTitle",
    "agent-name": "agentName",
    "ai-title": "aiTitle",
    "summary": "summary",
}
"""Lines with a title of the session, the best first."""
_TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class _Files(NamedTuple):
    main: list[Path]
    agents: list[Path]


def read(path: str, _wish: Wish) -> Iterator[Found]:
    """Yield the sessions of a file or folder, each with its sub-agents and branches."""
    place = place_of(path)
    for (_, session_id), files in _sessions(place).items():
        yield _found(session_id, files, place)


def _sessions(place: Place) -> dict[tuple[Path, str], _Files]:
    """The files of each session, by folder and id."""
    found: dict[tuple[Path, str], _Files] = {}
    for path in session_files(place):
        if "subagents" in path.parts:
            folder = next(one for one in path.parents if one.name == "subagents").parent
            found.setdefault((folder.parent, folder.name), _Files([], [])).agents.append(path)
        elif path.stem.startswith("agent-"):
            key = (path.parent, _session_of(path, place))
            found.setdefault(key, _Files([], [])).agents.append(path)
        else:
            found.setdefault((path.parent, path.stem), _Files([], [])).main.append(path)
    if place.root.is_file():
        for (folder, session_id), files in found.items():
            beside = folder / session_id / "subagents"
            if files.main and beside.is_dir():
                files.agents.extend(session_files(place_of(str(beside))))
    return found


def _session_of(path: Path, place: Place) -> str:
    """Return the session of an agent's file of versions up to 2.0."""
    try:
        return next((str(one["sessionId"]) for one in Lines(path, place) if "sessionId" in one), path.stem)
    except BadDocument:
        return path.stem  # read again later, and refused there


def _found(session_id: str, files: _Files, place: Place) -> Found:
    log = _Log()
    first = place.shown((files.main or files.agents)[0])
    lines: Lines | None = None
    try:
        with known_types():
            for path in files.main + files.agents:
                agent = None if path in files.main else path.stem.removeprefix("agent-")
                lines = Lines(path, place)
                for line in lines:
                    log.add(line, agent)
                log.is_cut |= lines.is_cut
                lines = None
                about = path.with_name(f"{path.stem}.meta.json")
                if agent is not None and about.is_file():
                    log.about[agent] = object_at(read_json(about, about.name, place.within), "")
            session = log.session(session_id)
    except BadDocument as error:
        return Found(lines.at if lines else first, problem=error.problem)
    return found_of(session, first) if session.calls else Found(first, aside=NO_ANSWER)


class _Requests:
    """The requests of a session: each names the messages of an earlier one that it begins with.

    A message is named by the SHA-256 of its JSON. Messages with their own lines are not logged again.
    """

    def __init__(self) -> None:
        self._shapes: dict[str, tuple[list[Message], tuple[JsonObject, ...] | None]] = {}
        self._blobs: dict[str, dict[str, Any]] = {}
        self._messages: dict[str, list[Message]] = {}
        self._requests: dict[str, dict[str, Any]] = {}
        self._hashes: dict[str, list[str]] = {}
        self._waiting: dict[str | None, str] = {}

    def add(self, line: dict[str, Any]) -> None:
        """Read a line."""
        match line["type"]:
            case "api-request-shape":
                shape = part_of(line, "shape")
                system = shape.get("system")
                messages = conversation_of([{"role": "system", "content": system}], "shape") if system else []
                self._shapes[str(line.get("shapeHash"))] = (messages, tools_of(shape.get("tools")))
            case "api-request-blob":
                self._blobs[str(line.get("hash"))] = part_of(line, "message")
            case "api-request":
                name = str(line.get("id"))
                self._requests[name] = line
                self._waiting[line.get("agentId")] = name
                before = self._hashes.get(str(line.get("base")), [])
                self._hashes[name] = [*before[: line.get("keep") or 0], *map(str, line.get("tail") or ())]

    def know(self, message: dict[str, Any]) -> None:
        """Add a message that has its own line."""
        text = json.dumps(message, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        name = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
        self._blobs.setdefault(name, message)

    def unanswered(self, run: str | None) -> str | None:
        """Return the latest request of an agent, which failed."""
        return self._waiting.pop(run, None)

    def answered(self, run: str | None) -> None:
        """Record that the latest request of an agent has an answer."""
        self._waiting.pop(run, None)

    def exact(self, call: Call, names: Mapping[str, str]) -> Call:
        """Return a call as it was sent; unchanged if the file does not have all of it."""
        request = self._requests.get(str((call.extra or {}).get("request")))
        if request is None or part_of(request, "thread").get("type", "none") != "none":
            return call
        hashes = self._hashes[str(request["id"])]
        shape = self._shapes.get(str(request.get("shapeHash")))
        if shape is None or not all(one in self._blobs for one in hashes):
            return call
        system, tools = shape
        prompt = [*system, *(message for one in hashes for message in self._read(one, names))]
        settings = dict(part_of(request, "params"))
        model = settings.pop("model", None)
        return replace(
            call, prompt=prompt, tools=tools or (), settings=settings, model_name=call.model_name or model
        )

    def _read(self, name: str, names: Mapping[str, str]) -> list[Message]:
        if name not in self._messages:
            self._messages[name] = named(conversation_of([self._blobs[name]], "message"), names)
        return self._messages[name]


class _Log:
    """The lines of a session, and the calls that they describe."""

    def __init__(self) -> None:
        self.is_cut = False
        self.about: dict[str, JsonObject] = {}
        """The file about each sub-agent."""
        self._runs: dict[str | None, dict[str, Entry]] = {}
        self._entry: dict[str, Entry] = {}
        """By the id of a line."""
        self._run: dict[str, str | None] = {}
        self._answers: dict[tuple[str | None, str], list[dict[str, Any]]] = {}
        self._results: dict[str, Entry] = {}
        """The latest entry with tool results, by answer."""
        self._names: dict[str, str] = {}
        self._parents: dict[str, str | None] = {}
        self._requests = _Requests()
        self._origin: JsonObject = {}
        self._titles: dict[str, str] = {}
        self._others: list[JsonObject] = []
        self._preserved: dict[str, list[Message]] = {}

    def add(self, line: dict[str, Any], agent: str | None) -> None:
        """Read a line.

        Raises:
            BadDocument: It is not as Claude Code writes it.
        """
        kind = line.get("type")
        _refuse_unknown(line.get("version"))
        if kind in ("user", "assistant", "system", "attachment", "progress") and "uuid" in line:
            self._add_entry(line, agent)
        elif isinstance(kind, str) and kind.startswith("api-request"):
            self._requests.add(line)
        elif kind in _TITLES:
            self._titles[kind] = str(line.get(_TITLES[kind]))
        elif kind == "cost-state":
            self._origin["cost_usd"] = line.get("totalCostUSD")
        elif kind not in _BOOKKEEPING:
            self._others.append(line)

    def _add_entry(self, line: dict[str, Any], agent: str | None) -> None:
        for name, key in (("cwd", "cwd"), ("gitBranch", "git_branch"), ("version", "version")):
            if line.get(name) and not line.get("isSidechain"):
                self._origin.setdefault(key, line[name])
        uuid, parent = str(line["uuid"]), line.get("parentUuid") or line.get("logicalParentUuid")
        # a line of the session's own may name the agent whose result it is
        run = agent if line.get("isSidechain") is False else line.get("agentId") or agent
        if run is None and line.get("isSidechain"):
            run = self._run.get(str(parent)) or f"sidechain-{len(self._runs)}"
        self._run[uuid] = run
        entries = self._runs.setdefault(run, {})
        above = self._entry.get(str(parent))
        at = moment_at(line.get("timestamp"), "timestamp")
        entry = Entry(entry_id=uuid, parent_id=above.entry_id if above else None, at=at)
        match line["type"]:
            case "assistant":
                entry = self._answer(line, run, entry)
            case "user":
                entry = self._said(line, run, entry, above)
            case "system" if line.get("subtype") == "compact_boundary":
                entry.is_new_prompt = True
                entry.note = {"compaction": part_of(line, "compactMetadata")}
                self._keep_some(part_of(line, "compactMetadata"))
            case "system" if line.get("subtype") not in ("turn_duration", "stop_hook_summary"):
                entry.note = {"system": [line]}
            case "attachment" if "rendered" not in line:
                attachment = part_of(line, "attachment")
                if attachment.get("type") != "prompt_snapshot":  # repeats the system prompt
                    entry.note = {"attachment": attachment}
        self._entry[uuid] = entries.setdefault(entry.entry_id, entry)

    def _answer(self, line: dict[str, Any], run: str | None, entry: Entry) -> Entry:
        """Read a line of an answer; the lines of one message are one answer."""
        message = part_of(line, "message")
        if line.get("isApiErrorMessage"):
            text = " ".join(one.text for one in conversation_of([message], "message"))
            request = self._requests.unanswered(run)
            entry.call = Call(
                call_id=entry.entry_id,
                error=text,
                extra=None if request is None else {"request": request},
                **_kept_of(line, run),
            )
            return entry
        if message.get("model") == "<synthetic>":
            entry.messages = conversation_of([message], "message")
            return entry
        key = (run, str(message.get("id") or entry.entry_id))
        lines = self._answers.setdefault(key, [])
        lines.append(line)
        whole = self._entry[str(lines[0]["uuid"])] if len(lines) > 1 else entry
        blocks = [block for one in lines for block in _blocks(one["message"].get("content"))]
        sent = {"role": "assistant", "content": blocks}
        answer = conversation_of([sent], "message")
        self._requests.know(sent)
        learn(self._names, answer)
        whole.messages, whole.at = answer, entry.at
        whole.call = self._call(key[1], lines, answer[0] if answer else None, run)
        return whole

    def _call(
        self, message_id: str, lines: Sequence[dict[str, Any]], answer: Message | None, run: str | None
    ) -> Call:
        message = lines[-1]["message"]
        usage = part_of(message, "usage", "message")
        reasons = [one["message"].get("stop_reason") for one in lines]
        extra: JsonObject = {"usage": usage, "uuid": lines[0]["uuid"]}
        request = lines[-1].get("requestRef")
        self._requests.answered(run)
        return Call(
            call_id=message_id,
            answer=answer,
            model_name=message.get("model"),
            n_input_tokens=sum_at(usage, *_TOKENS, where="message.usage"),
            n_output_tokens=sum_at(usage, "output_tokens", where="message.usage"),
            cost_usd=next((one["costUSD"] for one in lines if one.get("costUSD") is not None), None),
            finish_reason=next((one for one in reversed(reasons) if one is not None), None),
            extra=extra if request is None else {**extra, "request": request},
            **_kept_of(lines[-1], run),
        )

    def _said(self, line: dict[str, Any], run: str | None, entry: Entry, above: Entry | None) -> Entry:
        """Read a message of the user, or tool results; the results of one answer are together."""
        self._requests.know(part_of(line, "message"))
        messages = named(conversation_of([part_of(line, "message")], "message"), self._names)
        result = line.get("toolUseResult")
        if isinstance(result, dict) and isinstance(agent := result.get("agentId"), str) and agent != run:
            self._parents.setdefault(agent, run)
        while above is not None and not above.messages and above.call is None and above.parent_id:
            above = self._runs[run].get(above.parent_id)
        ids = _result_ids(messages)
        if ids and above is not None and above.call is not None:
            other = self._results.get(above.entry_id)
            if other is not None and not _result_ids(other.messages) & ids:
                other.messages += messages
                other.at = entry.at
                return other
            self._results[above.entry_id] = entry
            entry.parent_id = above.entry_id
        entry.messages = messages + self._preserved.pop(entry.entry_id, [])
        return entry

    def _keep_some(self, metadata: JsonObject) -> None:
        """Record the messages that stay in the prompt after the summary."""
        preserved = part_of(metadata, "preservedMessages", "compactMetadata")
        for uuid in preserved.get("uuids") or ():
            if (one := self._entry.get(str(uuid))) is not None:
                self._preserved.setdefault(str(preserved.get("anchorUuid")), []).extend(one.messages)

    def session(self, session_id: str) -> Session:
        """Return the session.

        Raises:
            BadDocument: A logged request is not whole.
        """
        calls: list[Call] = []
        origins: dict[str, JsonObject] = {}
        parents: dict[str, str] = {}
        for agent, above in self._parents.items():
            if above is not None:
                parents[agent] = above
        is_exact = True
        for run, entries in self._runs.items():
            found = run_of(list(entries.values()), agent_run=run)
            for call in found.calls:
                calls.append(self._requests.exact(call, self._names))
                is_exact &= calls[-1].tools is not None
            origins |= found.origins
            parents |= found.parents
            if run in self.about:
                origins[run] = {"agent": self.about[run]}
        title = next((self._titles[kind] for kind in _TITLES if kind in self._titles), None)
        origin = {**self._origin, **({"title": title} if title else {})}
        if self._others:
            origin["others"] = list(self._others)
        missing = [*([CUT_LINE] if self.is_cut else []), *([] if is_exact else [NO_SYSTEM_PROMPT])]
        return Session(
            session_id=session_id,
            source="claude-code",
            calls=calls,
            agent_parents=parents,
            run_origins=origins,
            origin=origin,
            missing=tuple(missing),
        )


def _kept_of(line: Mapping[str, Any], run: str | None) -> dict[str, Any]:
    return {"agent_run": run, "agent_name": line.get("attributionAgent")}


def _blocks(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _result_ids(messages: Sequence[Message]) -> set[str]:
    return {block.id for one in messages for block in one.content if isinstance(block, ToolResultBlock)}


def _refuse_unknown(version: Any) -> None:
    major = str(version).partition(".")[0]
    if version is not None and not (major.isdigit() and int(major) <= _NEWEST):
        raise BadDocument(f"a version of Claude Code after {_NEWEST}", "version", shown(version))


SOURCE = Source(
    name="claude-code",
    about="sessions of Claude Code, with sub-agents and branches",
    read=read,
    recognises=partial(
        looks_like, lambda line: "sessionId" in line and ("parentUuid" in line or "leafUuid" in line)
    ),
    default_place=partial(home_folder, "CLAUDE_CONFIG_DIR", "projects", default=(".claude", "projects")),
    is_personal=True,
    fidelity={
        "prompt": kept("whole where requests are logged (2.1.3xx); before, without the system prompt"),
        "tools offered": kept("where requests are logged (2.1.3xx)"),
        "thoughts": kept("as far as the API shows them"),
        "images and files": kept("that a file was there; not its bytes"),
        "sampling settings": kept("where requests are logged (2.1.3xx)"),
        "cost": kept("of each call up to version 1.0; later that of the session, in origin.cost_usd"),
        "latency": changed("from the message before the answer to its last line"),
        **lost("metrics", "comments", "tags and user", "task and seed", "token ids"),
    },
)
