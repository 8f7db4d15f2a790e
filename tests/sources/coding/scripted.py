"""A stand-in for a model's server that coding agents talk to: it plays a script and notes what it was sent.

It speaks Anthropic's Messages API, OpenAI's Responses API and OpenAI's chat API, as streams. A prompt names
its script in its text, as `[main]`. The answer is the next one of the script of the latest such prompt: after
as many answers as there are behind it in the conversation. What names no script (titles) gets a fixed text.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Mapping[str, Any]
"""`thought`, `text` and `calls` (a list of `[name, arguments]`) of an answer, or `error` with a status;
`input` is the number of tokens of its prompt."""

_SCRIPT = re.compile(r"\[(\w+)\]")
_N_INPUT, _N_OUTPUT = 120, 9


class Scripted:
    """The server. Use it as a context manager."""

    def __init__(
        self, scripts: Mapping[str, Sequence[Answer]], *, other: str = "A title", summary: str = "\0"
    ) -> None:
        self.asked: list[dict[str, Any]] = []
        """What it was sent and answered, in order: `script`, `body` and `answer`."""
        self._scripts = scripts
        self._other = other
        self._summary = summary
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(b'{"data": [], "models": []}', "application/json")

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
                path = self.path.partition("?")[0]
                if path.endswith("/count_tokens"):
                    self._send(b'{"input_tokens": 120}', "application/json")
                    return
                kind = next((each for each in _WRITERS if path.endswith(each)), None)
                if kind is None:
                    self._send(b"{}", "application/json")
                    return
                answer = server.answer(body)
                if "error" in answer:
                    text = json.dumps({"error": {"type": "invalid_request_error", "message": "scripted"}})
                    self._send(text.encode(), "application/json", answer["error"])
                    return
                events = list(_WRITERS[kind](body, answer))
                if not body.get("stream"):
                    self._send(json.dumps(_whole(events)).encode(), "application/json")
                    return
                lines = []
                for event in events:
                    lines += [f"event: {event['type']}\n"] if "type" in event else []
                    lines.append(f"data: {json.dumps(event)}\n\n")
                lines += [] if "type" in events[0] else ["data: [DONE]\n\n"]
                self._send("".join(lines).encode(), "text/event-stream")

            def _send(self, body: bytes, kind: str, status: int = 200) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Scripted:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Choose and note the answer to a request."""
        sent = body.get("messages") or body.get("input") or []
        script, number = _place(sent, self._scripts)
        if not body.get("tools") or (sent and self._summary in _texts(sent[-1])):
            script = None  # a title or a summary
        answers = self._scripts.get(script or "", ())
        answer = dict(answers[number]) if number < len(answers) else {"text": self._other, "input": 20}
        with self._lock:
            is_scripted = script is not None and number < len(answers)
            one = {"script": script if is_scripted else None, "body": body, "answer": answer}
            answer["number"] = len(self.asked)
            self.asked.append(one)
        return answer


def _place(messages: Any, scripts: Mapping[str, Any]) -> tuple[str | None, int]:
    """The script of a conversation, and how many answers came since it began."""
    found: tuple[str | None, int] = (None, 0)
    was_answer = False
    for one in messages if isinstance(messages, list) else []:
        is_answer = one.get("role") == "assistant" or one.get("type") in (
            "reasoning",
            "function_call",
            "custom_tool_call",
        )
        names = [] if is_answer else _SCRIPT.findall(_texts(one))
        names = [name for name in names if name in scripts]
        if names:
            found = (names[-1], 0)
        elif is_answer and not was_answer:
            found = (found[0], found[1] + 1)
        was_answer = is_answer
    return found


def _texts(one: Mapping[str, Any]) -> str:
    if one.get("role") == "tool":
        return ""
    content = one.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    return " ".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


def call_id(answer: Answer, position: int) -> str:
    """The id of a call in an answer."""
    return f"call_{answer['number']:03d}_{position}"


def _anthropic(body: Mapping[str, Any], answer: Answer) -> Iterator[dict[str, Any]]:
    message: dict[str, Any] = {
        "id": f"msg_{answer['number']:04d}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": answer.get("input", _N_INPUT), "output_tokens": 1},
    }
    yield {"type": "message_start", "message": message}
    blocks: list[tuple[dict[str, Any], dict[str, Any]]] = []
    if answer.get("thought"):
        delta = {"type": "thinking_delta", "thinking": answer["thought"]}
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, delta))
    if answer.get("text"):
        blocks.append(({"type": "text", "text": ""}, {"type": "text_delta", "text": answer["text"]}))
    for position, (name, given) in enumerate(answer.get("calls") or ()):
        start = {"type": "tool_use", "id": call_id(answer, position), "name": name, "input": {}}
        blocks.append((start, {"type": "input_json_delta", "partial_json": json.dumps(given)}))
    for index, (start, delta) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": start}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        if start["type"] == "thinking":
            signed = {"type": "signature_delta", "signature": "c2lnbmVk"}
            yield {"type": "content_block_delta", "index": index, "delta": signed}
        yield {"type": "content_block_stop", "index": index}
    reason = "tool_use" if answer.get("calls") else "end_turn"
    stop = {"stop_reason": reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": _N_OUTPUT}}
    yield {"type": "message_stop"}


def _whole(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The answer of a request that is not streamed, for Anthropic's API."""
    message: dict[str, Any] = dict(events[0].get("message") or {})
    for event in events:
        match event.get("type"):
            case "content_block_start":
                message["content"] = [*message["content"], dict(event["content_block"])]
            case "content_block_delta" if event["delta"]["type"] == "text_delta":
                message["content"][-1]["text"] += event["delta"]["text"]
            case "message_delta":
                message["stop_reason"] = event["delta"]["stop_reason"]
    return message


def _responses(body: Mapping[str, Any], answer: Answer) -> Iterator[dict[str, Any]]:
    number = answer["number"]
    response: dict[str, Any] = {
        "id": f"resp_{number:04d}",
        "object": "response",
        "created_at": 1_790_000_000,
        "status": "in_progress",
        "model": body.get("model"),
        "output": [],
    }
    yield {"type": "response.created", "response": response}
    items: list[dict[str, Any]] = []
    if answer.get("thought"):
        summary = [{"type": "summary_text", "text": answer["thought"]}]
        thought = {"type": "reasoning", "id": f"rs_{number:04d}", "summary": summary}
        items.append({**thought, "encrypted_content": "c2VhbGVk"})
    if answer.get("text"):
        part = {"type": "output_text", "text": answer["text"], "annotations": []}
        said = {"type": "message", "id": f"msg_{number:04d}", "role": "assistant", "content": [part]}
        items.append({**said, "status": "completed"})
    for position, (name, given) in enumerate(answer.get("calls") or ()):
        space, _, name = name.rpartition(":")
        call = {"id": f"fc_{number:04d}_{position}", "call_id": call_id(answer, position), "name": name}
        call |= {"namespace": space} if space else {}
        if isinstance(given, str):
            call |= {"type": "custom_tool_call", "input": given}
        else:
            call |= {"type": "function_call", "arguments": json.dumps(given)}
        items.append({**call, "status": "completed"})
    for index, item in enumerate(items):
        added = {**item, "content": []} if item["type"] == "message" else item
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        if item["type"] == "message":
            place = {"item_id": item["id"], "output_index": index, "content_index": 0}
            yield {"type": "response.output_text.delta", **place, "delta": answer["text"]}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    usage = {
        "input_tokens": answer.get("input", _N_INPUT),
        "input_tokens_details": {"cached_tokens": 20},
        "output_tokens": _N_OUTPUT,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.get("input", _N_INPUT) + _N_OUTPUT,
    }
    done = {**response, "status": "completed", "output": items, "usage": usage}
    yield {"type": "response.completed", "response": done}


def _chat(body: Mapping[str, Any], answer: Answer) -> Iterator[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if answer.get("thought"):
        deltas.append({"reasoning_content": answer["thought"]})
    if answer.get("text"):
        deltas.append({"content": answer["text"]})
    for position, (name, given) in enumerate(answer.get("calls") or ()):
        function = {"name": name, "arguments": json.dumps(given)}
        call = {"index": position, "id": call_id(answer, position), "type": "function", "function": function}
        deltas.append({"tool_calls": [call]})
    whole = {
        "id": f"chatcmpl-{answer['number']:04d}",
        "object": "chat.completion.chunk",
        "created": 1_790_000_000,
        "model": body.get("model"),
    }
    for delta in deltas:
        yield {**whole, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    reason = "tool_calls" if answer.get("calls") else "stop"
    yield {**whole, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    usage = {
        "prompt_tokens": answer.get("input", _N_INPUT),
        "completion_tokens": _N_OUTPUT,
        "total_tokens": answer.get("input", _N_INPUT) + _N_OUTPUT,
    }
    yield {**whole, "choices": [], "usage": usage}


_WRITERS = {"/messages": _anthropic, "/responses": _responses, "/chat/completions": _chat}
