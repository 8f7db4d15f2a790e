"""The requests that newer versions of Claude Code log: from them a call is read as it was sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trajkit.formats.chat.conversation import conversation_of, tools_of
from trajkit.formats.reading.document import part_of
from trajkit.schema import Message
from trajkit.schema.base import JsonObject
from trajkit.sources.calls import Call
from trajkit.sources.coding.tree import named


class Requests:
    """The requests of a session: each says which messages of an earlier one it begins with.

    Messages have the SHA-256 of their JSON as a name. Those that are lines of their own are not logged again.
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
        """Take a message that is a line of its own."""
        text = json.dumps(message, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        name = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
        self._blobs.setdefault(name, message)

    def unanswered(self, run: str | None) -> str | None:
        """Return the latest request of an agent, which failed."""
        return self._waiting.pop(run, None)

    def answered(self, run: str | None) -> None:
        """Take note that the latest request of an agent has an answer."""
        self._waiting.pop(run, None)

    def exact(self, call: Call, names: Mapping[str, str]) -> Call:
        """Return a call as it was sent; unchanged where the file does not have all of it."""
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
