"""Render the prompts of a gateway's variant from its configuration, without the gateway."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import JsonValue

from trajkit.environments import environment_info, known
from trajkit.errors import ConfigError, RequestError
from trajkit.rollouts.gateway_policy import called_action, request_input
from trajkit.rollouts.own_prompt import JsonMode, OwnPrompt, OwnPrompts
from trajkit.rollouts.policies import Situation
from trajkit.schema import Message, Role, TextBlock, ToolCallBlock
from trajkit.schema.base import JsonObject
from trajkit.sources.tensorzero.render.config import DATA, Configuration, table_in
from trajkit.sources.tensorzero.render.engine import Engine
from trajkit.sources.tensorzero.render.files import from_file
from trajkit.sources.tensorzero.render.prompt import Renderer

_CALL_ID = "call_0"


class VariantOf(NamedTuple):
    """A variant of a function in a gateway's configuration, whose prompts are used."""

    config: Path
    """Its `tensorzero.toml`."""
    function: str
    variant: str


class Sampling(NamedTuple):
    """The sampling parameters of a variant; None if it sets none."""

    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    stop: tuple[str, ...]


class VariantPrompt(NamedTuple):
    """A rendered prompt, and the parser of its answers."""

    messages: Sequence[Mapping[str, Any]]
    json_schema: Mapping[str, Any] | None
    tools: tuple[JsonObject, ...] | None
    input: JsonValue
    output_schema: Mapping[str, Any] | None
    """The schema that an answer must fit; None for a function of type chat."""
    tool_choice: str | Mapping[str, Any] | None = None

    def action(self, answer: Message) -> JsonValue:
        """Return the action as the gateway parses it: a json function's answer must fit the output schema."""
        if (called := called_action(answer)) is not None:
            return called
        said = answer.text.strip()
        try:
            found = json.loads(said)
        except ValueError:
            return (said or None) if self.output_schema is None else None
        if not isinstance(found, dict) or not fits(found, self.output_schema or {}):
            return None
        action: JsonValue = found.get("action")
        return action

    def answer(self, action: str) -> Message:
        """Return the function's answer with this action; its other required fields are empty."""
        if self.tools:
            call = ToolCallBlock(id=_CALL_ID, name=str(self.tools[0]["name"]), arguments=_object(action, {}))
            return Message(role=Role.ASSISTANT, content=(call,))
        said = action if self.output_schema is None else _object(action, self.output_schema)
        return Message(role=Role.ASSISTANT, content=(TextBlock(text=said),))


class VariantPrompts:
    """Renders the prompts of a variant.

    Args:
        which: The variant.
        history: Number of latest steps to show; 0 leaves the argument out.
        mode: How answers are constrained to the output schema; auto follows the variant.

    Raises:
        RequestError: The function has no such variant.
        ConfigError: The configuration is invalid.
        MissingExtra: minijinja is not installed.
    """

    def __init__(self, which: VariantOf, *, history: int, mode: JsonMode = JsonMode.AUTO) -> None:
        declared = from_file(which.config)
        if which.variant not in (known := declared.variants(which.function)):
            raise RequestError(
                f"function {which.function!r} has no variant {which.variant!r} in {which.config}",
                hint=f"it has {', '.join(known)}" if known else "--function NAME",
            )
        function = declared.function(which.function)
        variant = table_in(table_in(function, "variants"), which.variant)
        templates = declared.variant(which.function, which.variant)
        self.function_name: str | None = which.function
        self.variant_name: str | None = which.variant
        stop = tuple(map(str, variant.get("stop_sequences", ())))
        self.sampling = Sampling(
            variant.get("temperature"), variant.get("top_p"), variant.get("max_tokens"), stop
        )
        self._history = history
        self._renderer = Renderer(Engine(declared.load), templates)
        self._output_schema = _output_schema(function, which)
        self._tools = tuple(_tool(declared, str(name), which) for name in function.get("tools", ())) or None
        self._tool_choice = _tool_choice(function.get("tool_choice")) if self._tools else None
        self._schema = _held_to(mode, self._output_schema, variant)
        said = json.dumps(
            [templates, self._output_schema, self._tools, self._tool_choice, variant],
            sort_keys=True,
            default=str,
        )
        self.digest = hashlib.sha256(said.encode()).hexdigest()

    def of(self, situation: Situation) -> VariantPrompt:
        """Return the prompt of a situation, exactly as the gateway renders it.

        Raises:
            DataError: The templates do not fit the environment's texts.
        """
        given = request_input(situation, history=self._history)
        made = self._renderer.prompt(json.dumps(given))
        system = [] if made.system is None else [{"role": "system", "content": made.system}]
        messages = [*system, *map(_plain, json.loads(made.messages))]
        return VariantPrompt(
            messages, self._schema, self._tools, given, self._output_schema, self._tool_choice
        )


Prompt = OwnPrompt | VariantPrompt
"""The prompt of one step, and the parser of its answer."""
Prompts = OwnPrompts | VariantPrompts
"""Writes the prompts of an episode."""


def listed_actions(config: Path, function: str) -> tuple[str, ...]:
    """Return the actions of a function; empty if any text may be one.

    They are those in the schema of its answers or in a tool's parameters, or else those of a known
    environment, where its prompts name every one.

    Raises:
        ConfigError: The configuration is invalid.
    """
    declared, which = from_file(config), VariantOf(config, function, "")
    table = declared.function(function)
    answer = table_in(table_in(_output_schema(table, which) or {}, "properties"), "action")
    called = [_tool(declared, str(name), which)["parameters"] for name in table.get("tools", ())]
    fields = [answer, *(field for each in called for field in table_in(each, "properties").values())]
    listed = [value for field in fields for value in table_in(field).get("enum", ())]
    if listed:
        return tuple(map(str, listed))
    texts = json.dumps(dict(table), default=str)
    rules = (environment_info(name).rule for name in known())
    return next((rule.actions for rule in rules if rule and all(one in texts for one in rule.actions)), ())


_STRICT = ("strict", "tool", "implicit_tool")


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """Replace a list with one text block by its text."""
    match message["content"]:
        case [{"type": "text", "text": text}]:
            return {**message, "content": text}
    return message


def _held_to(
    mode: JsonMode, output_schema: Mapping[str, Any] | None, variant: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    if output_schema is None or mode == JsonMode.OFF:
        return None
    if mode == JsonMode.OBJECT:
        return {"type": "object"}
    is_strict = mode == JsonMode.SCHEMA or variant.get("json_mode") in _STRICT
    return output_schema if is_strict else None


def _output_schema(function: Mapping[str, Any], which: VariantOf) -> Mapping[str, Any] | None:
    """Return the output schema of a json function; any object where it declares none."""
    if function.get("type") != "json":
        return None
    file = function.get("output_schema")
    if file is None:
        return {"type": "object"}
    return _json(table_in(file).get(DATA), f"{which.config}: the output schema of {which.function}")


def _tool(declared: Configuration, name: str, which: VariantOf) -> JsonObject:
    """Return a tool in the store's form."""
    table = declared.tool(name)
    if not table:
        raise ConfigError(f"{which.config}: there is no tool {name!r}, which {which.function} names")
    try:
        text = Path(str(table.get("parameters"))).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{which.config}: the parameters of tool {name!r}: {error}") from error
    made: JsonObject = {
        "name": str(table.get("name", name)),
        "description": str(table.get("description", "")),
        "parameters": dict(_json(text, f"{which.config}: the parameters of tool {name!r}")),
        "strict": bool(table.get("strict", False)),
    }
    return made


def _tool_choice(said: Any) -> str | Mapping[str, Any]:
    """Return the tool choice in OpenAI's form; without a setting, the model decides."""
    if isinstance(said, Mapping):
        return {"type": "function", "function": {"name": said.get("specific")}}
    return str(said or "auto")


def _json(text: Any, what: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{what} is not a JSON schema of an object")
    return found


def _object(action: str, schema: Mapping[str, Any]) -> str:
    """Return an answer with this action, in the order of the schema.

    Raises:
        RequestError: The schema requires a field that cannot be empty.
    """
    declared = table_in(schema, "properties")
    said: dict[str, Any] = {}
    for name in declared or ("action",):
        if name == "action":
            said[name] = action
        elif name in schema.get("required", ()):
            if declared[name].get("type") != "string":
                raise RequestError(
                    f"the output schema requires {name!r}, which an expert cannot give",
                    hint="play --policy expert with another function",
                )
            said[name] = ""
    return json.dumps(said, ensure_ascii=False)


_KINDS: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "number": (int, float),
    "integer": int,
}


def fits(value: JsonValue, schema: Mapping[str, Any]) -> bool:
    """Check whether a value fits a schema.

    Supported are `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`, `anyOf`,
    `oneOf` and `allOf`; other keywords, such as lengths and patterns, are ignored.
    """
    kinds = schema.get("type")
    if kinds is not None and not any(
        _is(value, str(kind)) for kind in (kinds if isinstance(kinds, list) else [kinds])
    ):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if isinstance(value, dict) and not _fits_object(value, schema):
        return False
    if isinstance(value, list) and not all(_may_be(each, schema.get("items", True)) for each in value):
        return False
    return _fits_parts(value, schema)


def _fits_object(value: Mapping[str, JsonValue], schema: Mapping[str, Any]) -> bool:
    declared = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    if any(name not in value for name in schema.get("required", ())):
        return False
    for name, each in value.items():
        if name in declared:
            if not _may_be(each, declared[name]):
                return False
        elif not _may_be(each, others):
            return False
    return True


def _may_be(value: JsonValue, schema: Any) -> bool:
    """Check a value against a schema, which may also be true, for anything, or false, for nothing."""
    return fits(value, schema) if isinstance(schema, Mapping) else schema is not False


def _fits_parts(value: JsonValue, schema: Mapping[str, Any]) -> bool:
    parts = ("allOf", "anyOf", "oneOf")
    n_fitting = {name: [_may_be(value, part) for part in schema.get(name, ())] for name in parts}
    return (
        all(n_fitting["allOf"])
        and (not n_fitting["anyOf"] or any(n_fitting["anyOf"]))
        and (not n_fitting["oneOf"] or sum(n_fitting["oneOf"]) == 1)
    )


def _is(value: JsonValue, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _KINDS.get(kind, object))
