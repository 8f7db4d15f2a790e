"""Read chat messages from a span, in the spellings of OpenTelemetry, OpenLLMetry and OpenInference."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from trajkit.formats.reading.document import BadDocument, shown
from trajkit.sources.spans.span import Span, SpanEvent, flat

_OLD_EVENTS = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_NEW_EVENT = "gen_ai.client.inference.operation.details"
_ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "chatbot": "assistant"}
_PARTS = (
    "text",
    "image_url",
    "input_text",
    "tool_use",
    "tool_result",
    "thinking",
    "image",
    "file",
    "input_audio",
)


class Cut(Exception):
    """A text that was cut and cannot be read."""


class Said(NamedTuple):
    """The content of a span in one spelling, as chat messages and tools."""

    prompt: list[dict[str, Any]] | None = None
    answers: list[dict[str, Any]] | None = None
    tools: list[Any] | None = None
    finish: Any = None
    names: tuple[str, ...] = ()
    """Attributes, or the beginnings of their names, that need not be kept beside it."""


def _of_attributes(span: Span) -> Said:
    """OpenTelemetry since 1.37: messages of parts, as JSON in attributes."""
    return _messages_of_parts(span.attributes)


def _of_new_events(span: Span) -> Said:
    """The same in an event."""
    event = next((one for one in span.events if one.name == _NEW_EVENT), None)
    return Said() if event is None else _messages_of_parts(event.attributes)


def _messages_of_parts(attributes: Mapping[str, Any]) -> Said:
    system = _json(attributes, "gen_ai.system_instructions")
    prompt = _json(attributes, "gen_ai.input.messages")
    answers = _json(attributes, "gen_ai.output.messages")
    tools = _json(attributes, "gen_ai.tool.definitions")
    said = None if prompt is None else [one for message in _listed(prompt) for one in of_parts(message)]
    if system is not None and said is not None:
        parts = [{"type": "text", "content": system}] if isinstance(system, str) else _listed(system)
        said = [*of_parts({"role": "system", "parts": parts}), *said]
    heard = None if answers is None else [of_parts(message, "assistant")[-1] for message in _listed(answers)]
    finish = next((one.get("finish_reason") for one in _listed(answers) if isinstance(one, dict)), None)
    names = (
        "gen_ai.system_instructions",
        "gen_ai.input.",
        "gen_ai.output.messages",
        "gen_ai.tool.definitions",
    )
    return Said(said, heard, tools, finish, names)


def of_parts(message: Any, role: str = "user") -> list[dict[str, Any]]:
    """Return a message of parts as chat messages: each tool result becomes a separate one.

    Args:
        message: As OpenTelemetry defines it since 1.37; some programs log a text in its place.
        role: The role of a message without one.

    Raises:
        BadDocument: It is neither.
    """
    if isinstance(message, str):
        return [{"role": role, "content": message}]
    if not isinstance(message, dict):
        raise BadDocument("not a chat message", "messages", shown(message))
    role = _role(message.get("role") or role)
    parts = message.get("parts")
    if not isinstance(parts, list):
        return [{**{name: item for name, item in message.items() if name != "finish_reason"}, "role": role}]
    content: list[Any] = []
    calls: list[Any] = []
    results: list[dict[str, Any]] = []
    thoughts: list[str] = []
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        match kind:
            case None:
                content.append(
                    {"type": "text", "text": part}
                    if isinstance(part, str)
                    else {"type": "part", "part": part}
                )
            case "text" if isinstance(part.get("content"), str):
                content.append({"type": "text", "text": part["content"]})
            case "reasoning" | "thinking" if isinstance(part.get("content"), str):
                thoughts.append(part["content"])
            case "tool_call":
                calls.append(_called(part.get("id"), part.get("name"), part.get("arguments")))
            case "tool_call_response":
                result = part.get("response", part.get("result"))
                results.append(
                    {"role": "tool", "tool_call_id": part.get("id") or "", "content": _spelled(result)}
                )
            case "uri" if str(part.get("modality", part.get("mime_type"))).startswith("image"):
                content.append({"type": "image_url", "image_url": {"url": part.get("uri")}})
            case "blob" if str(part.get("mime_type", part.get("modality"))).startswith("image"):
                kind = part.get("mime_type") or "image/png"
                data = f"data:{kind};base64,{part.get('content', part.get('data'))}"
                content.append({"type": "image_url", "image_url": {"url": data}})
            case _:
                content.append(part)
    if not (content or calls or thoughts) and results:
        return results
    own: dict[str, Any] = {"role": role, "content": _plain(content)}
    if thoughts:
        own["reasoning_content"] = "".join(thoughts)
    if calls:
        own["tool_calls"] = calls
    if isinstance(message.get("name"), str):
        own["name"] = message["name"]
    return [*results, own]


def _of_old_events(span: Span) -> Said:
    """OpenTelemetry before 1.37: an event for each message."""
    prompt: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    finish = None
    for event in span.events:
        if (role := _OLD_EVENTS.get(event.name)) is not None:
            prompt.append(_of_event(_body(event), role))
        elif event.name == "gen_ai.choice":
            body = _body(event)
            message = _parsed(body.get("message"), "message")
            inner = message if isinstance(message, dict) else {"content": message, **body}
            answers.append(_of_event(inner, "assistant"))
            finish = finish or body.get("finish_reason")
        elif event.name == "gen_ai.content.prompt":
            found = _json(event.attributes, "gen_ai.prompt")
            prompt += [_of_event(one, "user") for one in _listed(found) if isinstance(one, dict)]
        elif event.name == "gen_ai.content.completion":
            found = _json(event.attributes, "gen_ai.completion")
            answers += [_of_event(one, "assistant") for one in _listed(found) if isinstance(one, dict)]
    return Said(prompt or None, answers or None, finish=finish)


def _body(event: SpanEvent) -> dict[str, Any]:
    """The fields of an event of an old form, which are its attributes, its body or JSON in one attribute."""
    inside = _json(event.attributes, "gen_ai.event.content")
    return {**event.attributes, **(inside if isinstance(inside, dict) else {})}


def _of_event(body: Mapping[str, Any], role: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "role": _role(body.get("role") or role),
        "content": _content(body.get("content")),
    }
    calls = _parsed(body.get("tool_calls"), "tool_calls")
    if calls:
        found["tool_calls"] = calls
    if found["role"] == "tool":
        found["tool_call_id"] = body.get("id") or body.get("tool_call_id") or ""
    return found


def _of_openllmetry(span: Span) -> Said:
    """OpenLLMetry: an attribute for each field of each message, with its number in the name."""
    prompt = _numbered(span.attributes, "gen_ai.prompt")
    answers = _numbered(span.attributes, "gen_ai.completion")
    tools = _numbered(span.attributes, "llm.request.functions")
    for tool in tools or ():
        tool["parameters"] = _parsed(tool.get("parameters", tool.pop("input_schema", None)), "parameters")
    finish = next((one.get("finish_reason") for one in answers or ()), None)
    names = ("gen_ai.prompt.", "gen_ai.completion.", "llm.request.functions.")
    return Said(_of_numbers(prompt), _of_numbers(answers), tools, finish, names)


def _of_numbers(rows: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    if rows is None:
        return None
    found = []
    for row in rows:
        own = {"role": _role(row.get("role") or "assistant"), "content": _content(row.get("content"))}
        calls = _numbered(row, "tool_calls")
        if calls:
            own["tool_calls"] = [
                _called(one.get("id"), one.get("name"), one.get("arguments")) for one in calls
            ]
        if own["role"] == "tool":
            own["tool_call_id"] = row.get("tool_call_id") or ""
        if row.get("reasoning"):
            own["reasoning_content"] = row["reasoning"]
        found.append(own)
    return found


def _of_openinference(span: Span) -> Said:
    """OpenInference: the same with other names."""
    prompt = _rows(span.attributes, "llm.input_messages")
    answers = _rows(span.attributes, "llm.output_messages")
    tools = _numbered(span.attributes, "llm.tools")
    said = None if prompt is None else [_of_message(row) for row in prompt]
    heard = None if answers is None else [_of_message(row) for row in answers]
    offered = None if tools is None else [_parsed(row.get("tool.json_schema", row), "tools") for row in tools]
    names = ("llm.input_messages", "llm.output_messages", "llm.tools.", "llm.invocation_parameters")
    return Said(said, heard, offered, None, names)


def _of_message(row: Mapping[str, Any]) -> dict[str, Any]:
    said = {name.removeprefix("message."): value for name, value in row.items()}
    own: dict[str, Any] = {"role": _role(said.get("role")), "content": said.get("content")}
    parts = _numbered(said, "contents")
    if parts:
        own["content"] = [one for part in parts if (one := _of_content(part, own)) is not None]
        if isinstance(said.get("content"), str) and not any(
            one.get("type") == "text" for one in own["content"]
        ):
            own["content"].insert(0, {"type": "text", "text": said["content"]})
        own["content"] = _plain(own["content"])
    calls = _numbered(said, "tool_calls")
    if calls:
        own["tool_calls"] = [
            _called(
                one.get("tool_call.id"),
                one.get("tool_call.function.name"),
                one.get("tool_call.function.arguments"),
            )
            for one in calls
        ]
    if "function_call_name" in said:
        arguments = said.get("function_call_arguments_json")
        own["tool_calls"] = [*own.get("tool_calls", ()), _called("", said["function_call_name"], arguments)]
    if own["role"] == "tool":
        own["tool_call_id"] = said.get("tool_call_id") or ""
        own["content"] = (
            own["content"] if isinstance(own["content"], str | list | None) else _spelled(own["content"])
        )
    if isinstance(said.get("name"), str):
        own["name"] = said["name"]
    return own


def _of_content(part: Mapping[str, Any], own: dict[str, Any]) -> dict[str, Any] | None:
    """Return a part of a message; reasoning goes to the message itself."""
    said = {name.removeprefix("message_content."): value for name, value in part.items()}
    text = said.get("text")
    match said.get("type"):
        case "text" | "input_text" | "output_text" if isinstance(text, str):
            return {"type": "text", "text": text}
        case "reasoning" | "thinking":
            own["reasoning_content"] = own.get("reasoning_content", "") + str(text or "")
            return None
        case "image" if isinstance(url := said.get("image.image.url"), str):
            return {"type": "image_url", "image_url": {"url": url}}
        case kind:
            return {**said, "type": str(kind)}


def _of_values(span: Span) -> Said:
    """The request and the answer as they were sent, if nothing better exists."""
    request = loose(span.first("input.value", "gen_ai.prompt"))
    answer = loose(span.first("output.value", "gen_ai.completion"))
    prompt: Any = request
    tools = None
    if isinstance(request, dict):
        prompt = request.get("messages", request.get("prompt", request.get("input")))
        tools = request.get("tools")
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    finish = None
    if isinstance(answer, dict):
        choices = answer.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            finish = choices[0].get("finish_reason")
            answer = [
                one.get("message", {"content": one.get("text")}) for one in choices if isinstance(one, dict)
            ]
        else:
            finish = answer.get("stop_reason", answer.get("finish_reason"))
            answer = [{"content": answer.get("content", answer.get("completion"))}]
    elif isinstance(answer, str):
        answer = [{"content": answer}]
    said = _chat(prompt)
    heard = _chat(answer, "assistant")
    names: tuple[str, ...] = ("input.", "gen_ai.prompt") if said else ()
    names += ("output.", "gen_ai.completion") if heard else ()
    return Said(said, heard, tools if isinstance(tools, list) else None, finish, names)


def _chat(value: Any, role: str = "user") -> list[dict[str, Any]] | None:
    """Return a list of chat messages; None for anything else."""
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        return None
    if not all(isinstance(one.get("content"), str | list) or one.get("tool_calls") for one in value):
        return None
    return [{**one, "role": _role(one.get("role") or role)} for one in value]


def _json(attributes: Mapping[str, Any], name: str) -> Any:
    return _parsed(attributes.get(name), name)


def _parsed(value: Any, name: str) -> Any:
    """Parse a value that may be a JSON text; a text that only looks like JSON was cut."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise Cut(name) from None


def loose(value: Any) -> Any:
    """Return a JSON text as its value, and anything else as it is."""
    try:
        return _parsed(value, "")
    except Cut:
        return value if not str(value).lstrip().startswith(('{"', "[{")) else None


def _numbered(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]] | None:
    """Return the attributes below a name, by the number after it, in order; None without any.

    Raises:
        Cut: A number is missing: an SDK dropped attributes.
    """
    begin = f"{prefix}."
    rows: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        if name.startswith(begin):
            number, _, rest = name.removeprefix(begin).partition(".")
            if number.isdecimal() and rest:
                rows.setdefault(int(number), {})[rest] = value
    if not rows:
        return None
    if set(rows) != set(range(len(rows))):
        raise Cut(prefix)
    return [rows[number] for number in range(len(rows))]


def _rows(attributes: Mapping[str, Any], name: str) -> list[dict[str, Any]] | None:
    """The same; some programs write the whole list as JSON into one attribute."""
    whole = _json(attributes, name)
    if isinstance(whole, list) and whole and all(isinstance(one, dict) for one in whole):
        return _numbered(flat({name: whole}), name)
    return _numbered(attributes, name)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _content(value: Any) -> Any:
    """Return the content of a message: a text, or parts that were logged as JSON."""
    if isinstance(value, str) and value.startswith('[{"'):
        found = _parsed(value, "content")
        is_parts = isinstance(found, list) and all(
            isinstance(one, dict) and one.get("type") in _PARTS for one in found
        )
        return found if is_parts else value
    return value if isinstance(value, str | list | None) else _spelled(value)


def _plain(content: list[Any]) -> Any:
    """Return one text instead of a list with one."""
    if not content:
        return None
    is_text = (
        len(content) == 1 and content[0].get("type") == "text" and isinstance(content[0].get("text"), str)
    )
    return content[0]["text"] if is_text else content


def _called(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else _spelled({} if arguments is None else arguments)
    return {"id": call_id or "", "type": "function", "function": {"name": name or "", "arguments": text}}


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _role(value: Any) -> str:
    text = str(value or "user").lower()
    return _ROLES.get(text, text)


SPELLINGS: Sequence[Callable[[Span], Said]] = (
    _of_attributes,
    _of_new_events,
    _of_openinference,
    _of_openllmetry,
    _of_old_events,
    _of_values,
)
"""The first spelling with a prompt gives the prompt, the first with an answer the answer, and so on."""
