"""Tools of a request: select the callable ones, constrain the answer, and parse its calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajkit.formats.chat.rows import TOOL_FIELDS
from trajkit.models.generation.ask import Ask, AskError, ToolCall
from trajkit.models.generation.tools.call_style import CallStyle
from trajkit.models.generation.tools.grammar import Grammars, json_rule

_NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""A function without parameters, as OpenAI defines it."""


class Tools(NamedTuple):
    """The tools of a request."""

    listed: Sequence[Mapping[str, Any]]
    """Tools in the prompt, in OpenAI's format, with the fields and field order of training rows."""
    callable: Sequence[Mapping[str, Any]]
    """Functions that the model may call: all of them, or the one that `tool_choice` names."""
    must_call: bool
    """Whether the model must call a tool."""
    is_single: bool
    """Whether the model may call at most one tool."""


_HEAD = '%llguidance {"no_forcing": true}'
"""Prevents the grammar from inserting forced text, whose tokens may differ from those of training."""


def tools_of(ask: Ask) -> Tools | None:
    """Return the tools of a request; None when the model may call none.

    Raises:
        AskError: A tool or `tool_choice` is invalid.
    """
    choice = ask.tool_choice or "auto"
    listed = list(ask.tools or ())
    if not listed:
        if choice not in ("auto", "none"):
            raise AskError("tool_choice requires a tool, and there are no tools", param="tool_choice")
        return None
    functions = [_function(tool) for tool in listed]
    listed = [{"type": "function", "function": function} for function in functions]
    if isinstance(choice, Mapping):
        wanted = (choice.get("function") or choice).get("name")
        chosen = [function for function in functions if function["name"] == wanted]
        if not chosen:
            names = ", ".join(str(function["name"]) for function in functions)
            raise AskError(f"there is no tool {wanted!r}", param="tool_choice", hint=f"tools: {names}")
        return Tools(listed, chosen, must_call=True, is_single=True)
    if choice not in ("none", "auto", "required"):
        raise AskError(f"tool_choice {choice!r} is not none, auto, required or a tool", param="tool_choice")
    if choice == "none":
        return None
    return Tools(listed, functions, must_call=choice == "required", is_single=not ask.parallel_tool_calls)


def grammar_of(ask: Ask, tools: Tools | None, style: CallStyle, grammars: Grammars) -> str | None:
    """Return the grammar of an answer; None when it may be any text."""
    schema = None if ask.json_schema is None else json_rule(ask.json_schema, "json_schema")
    if tools is None:
        return None if schema is None else f"{_HEAD}\nstart: {schema}\n"
    rules = [f"call_{place}: {_call(each, style)}" for place, each in enumerate(tools.callable)]
    rules.append("call: " + " | ".join(f"call_{place}" for place in range(len(tools.callable))))
    begin, end = grammars.literal(style.begin), grammars.literal(style.end)
    rules.append(f"one: {begin} call {end}")
    several = "one" if tools.is_single else 'one ("\\n"? one)*'
    if tools.must_call:
        rules.append(f"start: {several}")
    elif schema is not None:
        rules += [f"answer: {schema}", f"start: answer | {several}"]
    elif not style.mark:
        return None  # without a mark a call begins like any text, so calls are parsed afterwards
    else:
        rules += ["TEXT: /(.|\\n)*/", *_after_text(style, grammars, end)]
        rules.append("start: TEXT | said" if tools.is_single else "start: said* TEXT")
    return "\n".join([_HEAD, *rules, ""])


def read_calls(text: str, style: CallStyle) -> tuple[str, tuple[ToolCall, ...]]:
    """Split an answer into text and calls.

    Incomplete calls, and calls that are not a JSON object with a name, stay in the text.
    """
    if not style.mark:
        found = _call_at(text.strip(), style)
        return ("", (found[0],)) if found and found[1] == len(text.strip()) else (text, ())
    left, calls, at = [], [], 0
    while (start := text.find(style.mark, at)) >= 0:
        found = _call_at(text[start + len(style.mark) :], style)
        if found is None:
            left.append(text[at : start + len(style.mark)])
            at = start + len(style.mark)
            continue
        left.append(text[at:start])
        calls.append(found[0])
        at = start + len(style.mark) + found[1]
    left.append(text[at:])
    kept = "".join(left)
    return (kept.strip() if calls else kept), tuple(calls)


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    if tool.get("type", "function") != "function" or not isinstance(function, Mapping):
        raise AskError(f"a tool of type {tool.get('type')!r} is not a function", param="tools")
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not name or json.dumps(name) != f'"{name}"':
        raise AskError(f"invalid tool name {name!r}", param="tools")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise AskError(f"the parameters of the tool {name} are not a JSON schema", param="tools")
    # TensorZero has `strict` beside the function. The spelling and order of fields must equal those of the
    # training, because another form is another prompt to the model.
    fields = {"strict": tool.get("strict"), **function}
    known = {field: fields[field] for field in TOOL_FIELDS if fields.get(field) is not None}
    return known | {field: value for field, value in function.items() if field not in TOOL_FIELDS}


def _call(function: Mapping[str, Any], style: CallStyle) -> str:
    schema = function.get("parameters") or _NOTHING
    arguments = json_rule(schema, "tools", is_strict=bool(function.get("strict")))
    before = json.dumps(f"{style.head}{function['name']}{style.middle}", ensure_ascii=False)
    return f"{before} {arguments} {json.dumps(style.tail)}"


def _after_text(style: CallStyle, grammars: Grammars, end: str) -> list[str]:
    """Return rules for a call after any text, which ends at the mark of the call."""
    begin = grammars.literal(style.begin)
    if begin.startswith("<["):  # a special token, which no text contains
        return [f"said: TEXT {begin} call {end}"]
    mark = json.dumps(style.mark, ensure_ascii=False)
    rest = style.begin[style.begin.index(style.mark) + len(style.mark) :]
    after = json.dumps(rest, ensure_ascii=False) if rest else ""
    return [f"said_mark[lazy]: TEXT {mark}", f"said: said_mark {after} call {end}"]


def _call_at(text: str, style: CallStyle) -> tuple[ToolCall, int] | None:
    """Parse the call at the beginning of a text, and return it with its end; None when there is none."""
    begin = len(text) - len(text.lstrip())
    try:
        call, length = json.JSONDecoder().raw_decode(text[begin:])
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", call.get("parameters", {}))
    spelled = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    stop, mark = begin + length, style.end.strip()
    if mark:
        space = len(text[stop:]) - len(text[stop:].lstrip())
        if not text[stop + space :].startswith(mark):
            return None
        stop += space + len(mark)
    return ToolCall(call["name"], spelled), stop
