"""Read logged requests and answers of model APIs.

Supported: OpenAI's chat, completions and Responses APIs and compatible ones, Anthropic's messages, Gemini's
contents, Bedrock's Converse, messages of LangChain and of OpenTelemetry, and plain texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from trajkit.formats.chat.conversation import conversation_of, tools_of
from trajkit.formats.chat.parts import text_of
from trajkit.formats.chat.response_items import conversation_of_items, item_of, messages_of_items
from trajkit.formats.reading.document import BadDocument
from trajkit.schema import Message, Role, ToolCallBlock
from trajkit.schema.base import JsonObject
from trajkit.schema.content import message
from trajkit.sources.spans.spellings import of_parts

_NO_SETTINGS = (
    *("messages", "input", "instructions", "system", "contents", "prompt", "tools", "functions", "model"),
    *("stream", "stream_options", "extra_headers", "timeout", "model_id", "modelId", "toolConfig"),
)
"""Fields of a request that are not settings: its content, and how it was sent."""
_LANGCHAIN = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "chat": "user"}
_REASONS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
"""Anthropic's stop reasons, in OpenAI's terms."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """A request to a model and its answer."""

    prompt: tuple[Message, ...] | None = None
    """None when it is missing, or in no supported form."""
    answer: Message | None = None
    tools: tuple[JsonObject, ...] | None = None
    model_name: str | None = None
    settings: JsonObject = field(default_factory=dict)
    finish_reason: str | None = None
    n_input_tokens: int | None = None
    n_output_tokens: int | None = None
    extra: JsonObject = field(default_factory=dict)
    """`request` and `response`, verbatim, if they are in no supported form."""


def exchange_of(request: Any, response: Any) -> Exchange:
    """Return a request and its answer; unsupported forms go to `extra`, and are not refused.

    Args:
        request: JSON; None when it was not logged.
        response: JSON; None when there is none.
    """
    request, offered = _without_tools(request)
    asked = {"tools": offered} if offered else request if isinstance(request, dict) else {}
    said = response if isinstance(response, dict) else {}
    extra: JsonObject = {}
    prompt, answer, tools = None, None, None
    with suppress(BadDocument, ValidationError):
        prompt = _prompt(request)
        if prompt is not None and said.get("object") == "response" and "instructions" not in asked:
            prompt = (*_system(said.get("instructions")), *prompt)
    with suppress(BadDocument, ValidationError):
        answer = _answer(response, prompt)
    with suppress(BadDocument, ValidationError):
        tools = tools_of(_tools(asked) or _tools(said), "request.tools")
    if prompt is None and request not in (None, "", {}, []):
        extra["request"] = request
    elif tools is None and asked.get("tools"):
        extra["tools"] = asked["tools"]
    if answer is None and response not in (None, "", {}, []):
        extra["response"] = response
    usage = next(
        (each for each in (said.get("usage"), said.get("usage_metadata")) if isinstance(each, dict)), {}
    )
    return Exchange(
        prompt=prompt,
        answer=answer,
        tools=tools,
        model_name=_text(said.get("model") or asked.get("model") or asked.get("modelId")),
        settings=_settings(asked) if prompt is not None else {},
        finish_reason=_finish_reason(response, answer),
        n_input_tokens=_count(usage, "prompt_tokens", "input_tokens", "inputTokens", "prompt_token_count"),
        n_output_tokens=_count(
            usage, "completion_tokens", "output_tokens", "outputTokens", "candidates_token_count"
        ),
        extra=extra,
    )


def _prompt(request: Any) -> tuple[Message, ...] | None:
    match request:
        case str():
            return (message(Role.USER, request),)
        case [[*inner]]:  # LangChain asks for a batch of one
            return _prompt(inner)
        case [dict(), *_]:
            return _conversation(request)
        case {"messages": [[*inner]]}:
            return _prompt(inner)
        case {"messages": [*sent]}:
            return (*_system(request.get("system")), *(_conversation(sent) or ()))
        case {"messages": str(text)}:
            return (message(Role.USER, text),)
        case {"contents": contents}:
            config = request.get("config") or {}
            system = config.get("system_instruction") if isinstance(config, dict) else None
            return (*_system(system), *_conversation(_of_gemini(contents)))
        case {"input": str() | list() as sent}:
            instructions = request.get("instructions")
            return (*_system(instructions), *conversation_of_items(sent))
        case {"prompt": str(text)} | {"prompt": [str(text)]}:
            return (message(Role.USER, text),)
        case {"prompt": [dict(), *_] as sent}:
            return _conversation(sent)
    return None


def _answer(response: Any, prompt: Sequence[Message] | None) -> Message | None:
    said: Mapping[str, Any] = response if isinstance(response, dict) else {}
    sent: Any = None
    match response:
        case str() if response:
            return message(Role.ASSISTANT, response)
        case {"choices": [{"message": dict() as sent}, *_]} | {"message": {"role": _} as sent}:
            pass
        case {"choices": [{"text": str(text)}, *_]}:
            return message(Role.ASSISTANT, text)
        case {"output": {"message": dict() as sent}}:  # Bedrock's Converse
            pass
        case {"output": [dict(), *_] as items}:
            names = {
                one.id: one.name
                for each in prompt or ()
                for one in each.content
                if isinstance(one, ToolCallBlock)
            }
            return next(iter(messages_of_items([item_of(each, names) for each in items])), None)
        case {"candidates": [{"content": dict() as content}, *_]} | {"content": {"parts": _} as content}:
            sent = _of_gemini([content])[-1]
        case {"generations": [[{"message": dict() as sent}, *_], *_]}:
            pass
        case {"generations": [[{"text": str(text)}, *_], *_]}:
            return message(Role.ASSISTANT, text)
        case {"messages": [*_, {"role": _} | {"type": _} as sent]} | [{"role": _} | {"type": _} as sent]:
            pass
        case {"content": str() | list()}:
            sent = {name: said[name] for name in _OF_A_MESSAGE if name in said}
    if sent is None:
        return None
    found = _conversation([{**_respelled(sent), "role": "assistant"}])
    return found[-1] if found else None


_OF_A_MESSAGE = ("content", "tool_calls", "reasoning_content", "reasoning", "refusal", "additional_kwargs")


def _conversation(sent: Sequence[Any]) -> tuple[Message, ...]:
    if any(isinstance(one, dict) and one.get("type") == "function_call_output" for one in sent):
        return tuple(conversation_of_items(sent))
    said = [each for one in sent for each in (of_parts(one) if _has_parts(one) else [_respelled(one)])]
    return tuple(conversation_of(said, "request.messages"))


def _has_parts(one: Any) -> bool:
    """Whether a message has the form that OpenTelemetry defines."""
    parts = one.get("parts") if isinstance(one, dict) and "content" not in one else None
    return isinstance(parts, list) and all(isinstance(part, dict) and "type" in part for part in parts)


def _without_tools(request: Any) -> tuple[Any, list[Any]]:
    """Take the tools out of a list of messages: Langfuse's client for LangChain appends them."""
    if not isinstance(request, list):
        return request, []
    tools = [one["content"] for one in request if _is_tool(one)]
    return [one for one in request if not _is_tool(one)] if tools else request, tools


def _is_tool(one: Any) -> bool:
    match one:
        case {"role": "tool", "content": {"function": {"name": str(), "parameters": dict()}}}:
            return True
        case {"role": "tool", "content": {"name": str(), "parameters": dict()} | {"input_schema": dict()}}:
            return True
    return False


def _system(text: Any) -> tuple[Message, ...]:
    match text:
        case str() if text:
            return (message(Role.SYSTEM, text),)
        case [{"text": _}, *_]:
            return _conversation([{"role": "system", "content": text}])
        case {"parts": [*parts]}:
            return _conversation([{"role": "system", "content": parts}])
    return ()


def _respelled(one: Any) -> Any:
    """Return a message of LangChain or Bedrock in OpenAI's form; any other as it is."""
    if not isinstance(one, dict):
        return one
    if "role" not in one and isinstance(one.get("type"), str):
        own = {name: one[name] for name in ("content", "tool_call_id", "name") if one.get(name) is not None}
        calls = [
            _call(each.get("id"), each.get("name"), each.get("args"))
            for each in one.get("tool_calls") or ()
            if isinstance(each, dict)
        ]
        role = _LANGCHAIN.get(one["type"], one["type"])
        one = {"role": role, **own, **({"tool_calls": calls} if calls else {})}
    content = one.get("content")
    if isinstance(content, list):
        one = {**one, "content": [_part(part) for part in content]}
    return {name: value for name, value in one.items() if value is not None or name == "content"}


def _part(part: Any) -> Any:
    """Return a part of Bedrock's, named by its only key, in Anthropic's form."""
    match part:
        case {"type": _}:
            return part
        case {"text": str(text)}:
            return {"type": "text", "text": text}
        case {"toolUse": dict() as call}:
            return {
                "type": "tool_use",
                "id": call.get("toolUseId"),
                "name": call.get("name"),
                "input": call.get("input"),
            }
        case {"toolResult": dict() as result}:
            inner = result.get("content")
            content = [_part(each) for each in inner] if isinstance(inner, list) else inner
            return {"type": "tool_result", "tool_use_id": result.get("toolUseId"), "content": content}
        case dict():
            return {"type": next(iter(part), "empty"), **part}
    return part


def _of_gemini(contents: Any) -> list[dict[str, Any]]:
    """Return Gemini contents as messages; calls without an id are numbered."""
    sent = []
    ids: list[str] = []
    for one in contents if isinstance(contents, list) else [contents]:
        one = {"role": "user", "parts": [{"text": one}]} if isinstance(one, str) else one
        if not isinstance(one, dict):
            raise BadDocument("not Gemini content", "request.contents")
        parts: list[Any] = []
        for part in one.get("parts") or ():
            match part:
                case {"function_call": dict() as call} | {"functionCall": dict() as call}:
                    ids.append(call.get("id") or f"call_{len(ids) + 1}")
                    parts.append(
                        {
                            "type": "tool_use",
                            "id": ids[-1],
                            "name": call.get("name"),
                            "input": call.get("args"),
                        }
                    )
                case {"function_response": dict() as result} | {"functionResponse": dict() as result}:
                    call_id = result.get("id") or (ids[-1] if ids else "")
                    inner = [{"type": "text", "text": text_of(result.get("response"))}]
                    parts.append({"type": "tool_result", "tool_use_id": call_id, "content": inner})
                case {"thought": True, "text": str(text)}:
                    parts.append({"type": "thinking", "thinking": text})
                case _:
                    parts.append(_part(part))
        role = "assistant" if one.get("role") == "model" else one.get("role") or "user"
        sent.append({"role": role, "content": parts})
    return sent


def _call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    return {"id": call_id or "", "type": "function", "function": {"name": name, "arguments": arguments or {}}}


def _tools(request: Mapping[str, Any]) -> Any:
    config = request.get("config")
    match request:
        case {"tools": [*tools]}:
            return tools
        case {"functions": [*functions]}:
            return [{"type": "function", "function": each} for each in functions]
        case {"toolConfig": {"tools": [*tools]}}:
            specs = [each.get("toolSpec", each) for each in tools if isinstance(each, dict)]
            return [
                {
                    "name": each.get("name"),
                    "description": each.get("description"),
                    "parameters": (each.get("inputSchema") or {}).get("json"),
                }
                for each in specs
            ]
    declared = config.get("tools") if isinstance(config, dict) else None
    if isinstance(declared, list):
        found = [each.get("function_declarations") or () for each in declared if isinstance(each, dict)]
        return [{**each, "type": "function"} for group in found for each in group]
    return None


def _settings(request: Mapping[str, Any]) -> JsonObject:
    return {name: value for name, value in request.items() if name not in _NO_SETTINGS and value is not None}


def _finish_reason(response: Any, answer: Message | None) -> str | None:
    match response:
        case {"choices": [{"finish_reason": str(reason)}, *_]} | [{"finish_reason": str(reason)}]:
            return reason
        case {"stop_reason": str(reason)} | {"stopReason": str(reason)}:
            return _REASONS.get(reason, reason)
        case {"candidates": [{"finish_reason": str(reason)} | {"finishReason": str(reason)}, *_]}:
            return reason.lower()
        case {"content": {"parts": _}, "finish_reason": str(reason)}:
            return reason.lower()
        case {"output": [*_], "status": "completed"} if answer is not None:
            return "tool_calls" if any(isinstance(one, ToolCallBlock) for one in answer.content) else "stop"
        case {"incomplete_details": {"reason": str(reason)}}:
            return "length" if reason == "max_output_tokens" else reason
    return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(usage: Mapping[str, Any], *names: str) -> int | None:
    found = (usage.get(name) for name in names)
    return next((each for each in found if isinstance(each, int) and not isinstance(each, bool)), None)
