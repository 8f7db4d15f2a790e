"""Parse one call of the journal; content that cannot be parsed is kept unchanged."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from pydantic import ValidationError

from trajkit.formats.chat.parts import clean, unknown
from trajkit.rollouts.recorder.calls import sse
from trajkit.rollouts.recorder.calls.chat import ChatReader, Said, action_of
from trajkit.rollouts.recorder.calls.responses import ResponsesReader
from trajkit.schema import Message, Role, ToolResultBlock, Transition

_NOT_UNDERSTOOD = (ValidationError, ValueError, TypeError, AttributeError, KeyError, RecursionError)
"""Exceptions of parsing JSON of another shape than the API's."""


class Call(NamedTuple):
    """A parsed call."""

    header: dict[str, Any]
    said: Said
    step: Transition
    """Its step, without index and prompt."""
    request: dict[str, Any] | None
    """The whole request, where the prompt may be incomplete without it."""


def read_call(
    header: dict[str, Any], body: bytes, answered: bytes, reader: ChatReader | ResponsesReader
) -> Call:
    """Parse a call; content that cannot be parsed is kept unchanged."""
    request, answer = _object(body), put_together(header, answered)
    with contextlib.suppress(*_NOT_UNDERSTOOD):
        return _understood(header, request, answer, reader)
    # retry without half surrogate pairs, which may be the only problem
    request, answer = _clean(request, body), _clean(answer, answered)
    with contextlib.suppress(*_NOT_UNDERSTOOD):
        return _understood(header, request, answer, reader)
    whole = Message(role=Role.ASSISTANT, content=(unknown(answer),))
    with contextlib.suppress(*_NOT_UNDERSTOOD):
        said = Said(reader.said(request, {}).prompt, whole, None, {}, {})
        return _call(header, request, said, "answer not understood")
    said = Said((), whole, None, {}, {}, is_prompt_known=False)
    return _call(header, request, said, "request not understood")


def _understood(
    header: dict[str, Any],
    request: dict[str, Any],
    answer: dict[str, Any],
    reader: ChatReader | ResponsesReader,
) -> Call:
    said = reader.said(request, answer)
    mask_reason: str | None = None
    if said.is_failed:
        mask_reason = "answer failed"
    elif said.completion is None and not said.is_in_background:
        raise ValueError("there is no answer")
    elif header["is_stream"] and said.facts["finish_reason"] is None:
        mask_reason = "answer broken off"
    return _call(header, request, said, mask_reason)


def _call(header: dict[str, Any], request: dict[str, Any], said: Said, mask_reason: str | None) -> Call:
    extra = {name: value for name, value in said.extra.items() if value not in (None, {}, [])}
    if header.get("n_retries"):
        extra["n_retries"] = header["n_retries"]
    step = Transition.model_validate(
        {
            **said.facts,
            "step_index": 0,
            "inference_id": header["id"],
            "tools": said.tools,
            "completion": said.completion,
            "observation": _observation(said.prompt),
            "action": action_of(said.completion, request),
            "latency_s": header["latency_s"],
            "started_at": header["started_at"],
            "agent_name": header.get("agent"),
            "loss_weight": 1.0 if mask_reason is None else 0.0,
            "mask_reason": mask_reason,
            "extra": extra or None,
        }
    )
    # keeping the requests of a long conversation would fill the memory
    is_whole = said.is_prompt_known and said.previous_id is None
    return Call(header, said, step, None if is_whole else request)


def _observation(prompt: tuple[Message, ...]) -> str | None:
    """Return the latest texts of the user and of tools after the last answer."""
    texts: list[str] = []
    for message in reversed(prompt):
        if message.role not in (Role.USER, Role.TOOL):
            break
        results = [block.result for block in message.content if isinstance(block, ToolResultBlock)]
        texts.append("\n".join([*results, *([message.text] if message.text else [])]))
    return "\n".join(reversed(texts)) or None


def put_together(header: dict[str, Any], answered: bytes) -> dict[str, Any]:
    """Return the answer of a call, assembled from its chunks if it was streamed."""
    if not header["is_stream"] or header.get("is_put_together"):
        return _object(answered)
    found = list(sse.events(answered))
    try:
        return sse.chat_completion(found) if header["api"] == "chat" else sse.response(found)
    except _NOT_UNDERSTOOD:
        return {"events": found}


def _clean(value: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Return the part of a JSON object that a store can hold; the text of one that is nested too deep."""
    try:
        cleaned: dict[str, Any] = clean(value)
        unknown(cleaned)
    except (ValidationError, RecursionError):
        return {"text": body.decode("utf-8", "replace")}
    return cleaned


def _object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; wrap anything else as the text of one."""
    value = sse.json_object(body)
    return {"text": body.decode("utf-8", "replace")} if value is None else value
