"""Render a prompt from an inference's input and a variant's templates, exactly as the gateway does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from trajkit.sources.tensorzero.export.texts.json_mode import with_prefix
from trajkit.sources.tensorzero.render.config import Variant
from trajkit.sources.tensorzero.render.engine import Engine, RenderError
from trajkit.sources.tensorzero.render.literal import read_json

_SPELLING = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)

_LONGEST_NAME = 60

_TEXT_OF = {"text": "text", "tool_result": "result"}


class Prompt(NamedTuple):
    """A rendered prompt, in the columns of a model inference."""

    system: str | None
    """The system message; None for none."""
    messages: str
    """The other messages, a JSON list."""


class Renderer:
    """Renders the prompts of one function under one variant.

    Args:
        engine: The engine of the configuration that declares the variant.
        variant: Its templates.
    """

    def __init__(self, engine: Engine, variant: Variant) -> None:
        self._engine = engine
        self._variant = variant

    def prompt(self, stored: str | None) -> Prompt:
        """Return the prompt for an input.

        Args:
            stored: The input in the database, as JSON; None when it is gone.

        Raises:
            DataError: The templates do not fit the input; the message has the reason without data, so that
                equal ones count together.
        """
        given = _read(stored)
        system = self._system(given.get("system"))
        messages = [self._message(message) for message in _list(given.get("messages"))]
        if self._variant.is_prefixed:
            system = with_prefix(system, _texts(messages))
        try:
            text = _SPELLING.encode(messages)
            f"{system}{text}".encode()
        except UnicodeEncodeError as error:
            raise RenderError("the input has an unpaired surrogate") from error
        except ValueError as error:
            raise RenderError("the input has a number that is too large") from error
        return Prompt(system, text)

    def _system(self, given: Any) -> str | None:
        template = self._variant.templates.get("system")
        if template is None:
            if given is None or isinstance(given, str):
                return given
            raise RenderError("the input has arguments for a system template, and the variant has none")
        if template.is_wrapper:
            if isinstance(given, dict):
                raise RenderError("the input has arguments for the system template, which takes text")
            return self._engine.render(template, {"system_text": given})
        # a text has no named values for the template
        return self._engine.render(template, given if isinstance(given, dict) else {})

    def _message(self, message: Any) -> dict[str, Any]:
        if not isinstance(message, dict):
            raise RenderError("the input has a message that is not an object")
        role = message.get("role")
        if role not in ("user", "assistant"):
            raise RenderError("the input has a message that is neither user nor assistant")
        return {"role": role, "content": [self._block(role, block) for block in _blocks(role, message)]}

    def _block(self, role: str, block: Any) -> Any:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text":
            return _text(self._said(role, str(block["text"])))
        if kind == "template":
            return _text(self._templated(role, str(block.get("name")), block.get("arguments")))
        if kind == "raw_text":
            return _text(str(block.get("value", "")))
        return block

    def _said(self, role: str, text: str) -> str:
        template = self._variant.templates.get(role)
        if template is None or not template.takes_text:
            return text
        return self._engine.render(template, {f"{role}_text": text})

    def _templated(self, role: str, name: str, arguments: Any) -> str:
        template = self._variant.templates.get(name)
        if template is None:
            shown = (
                repr(name) if name.isidentifier() and len(name) <= _LONGEST_NAME else "of a name in the input"
            )
            raise RenderError(f"the variant has no template {shown}")
        if template.is_wrapper:
            raise RenderError(f"the input has arguments for the template {name!r}, which takes text")
        return self._engine.render(template, arguments if isinstance(arguments, dict) else {})


def _read(stored: str | None) -> Mapping[str, Any]:
    if not stored:
        raise RenderError("the input is gone")
    given = read_json(stored)
    if not isinstance(given, dict):
        raise RenderError("the input is not an object")
    return given


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _blocks(role: str, message: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the blocks of a message, in the current spelling of text and templates."""
    content = message.get("content")
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, str):
            yield _text(block)
        elif not isinstance(block, dict) or "type" not in block:
            yield {"type": "template", "name": role, "arguments": block}
        elif block["type"] == "text":
            said = next(
                (block[key] for key in ("text", "value", "arguments") if block.get(key) is not None), ""
            )
            yield (
                _text(said)
                if isinstance(said, str)
                else {"type": "template", "name": role, "arguments": said}
            )
        else:
            yield block


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _texts(messages: list[dict[str, Any]]) -> Iterator[str]:
    """The texts in which a gateway looks for a mention of JSON."""
    for message in messages:
        for block in message["content"]:
            if isinstance(block, dict) and (key := _TEXT_OF.get(str(block.get("type")))):
                yield str(block.get(key, ""))
