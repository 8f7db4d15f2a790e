"""Tools in an ask: which may be called, what the answer keeps to, and reading the calls in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajkit.formats.chat_rows import TOOL_FIELDS
from trajkit.models.generation.ask import Ask, AskError, ToolCall
from trajkit.models.generation.call_style import CallStyle
from trajkit.models.generation.grammar import Grammars, json_rule

_NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""OpenAI's meaning of a function without parameters."""


class Tools(NamedTuple):
    """What may be called."""

    listed: Sequence[Mapping[str, Any]]
    """What the model is told of, in OpenAI's shape and as training rows have it, field by field."""
    callable: Sequence[Mapping[str, Any]]
    """The functions that it may call: those, or the one that was chosen for it."""
    must_call: bool
    """Whether it has to call one."""
    is_single: bool
    """Whether it calls at most one."""


_HEAD = '%llguidance {"no_forcing": true}'
"""Without it the grammar writes what can only go on in one way, in other tokens than the model learned."""


def tools_of(ask: Ask) -> Tools | None:
    """What may be called; None when nothing may.

    Raises:
        AskError: A tool or the choice is not one.
    """
    choice = ask.tool_choice or "auto"
    listed = list(ask.tools or ())
    if not listed:
        if choice not in ("auto", "none"):
            raise AskError("a tool is to be called, and there are none", param="tool_choice")
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
    """What an answer keeps to; None when it may be any text."""
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
        return None  # a call begins as any text does: what is no call is read as a text
    else:
        rules += ["TEXT: /(.|\\n)*/", *_after_text(style, grammars, end)]
        rules.append("start: TEXT | said" if tools.is_single else "start: said* TEXT")
    return "\n".join([_HEAD, *rules, ""])


def read_calls(text: str, style: CallStyle) -> tuple[str, tuple[ToolCall, ...]]:
    """The calls in an answer, and the text that is left of it.

    Calls that are no JSON object with a name, or that are not whole, stay in the text.
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
        raise AskError(f"a tool cannot be called {name!r}", param="tools")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise AskError(f"the parameters of the tool {name} are not a JSON schema", param="tools")
    # TensorZero says `strict` beside the function. A model was tuned on one spelling and order of fields, and
    # another is another prompt to it.
    said = {"strict": tool.get("strict"), **function}
    known = {field: said[field] for field in TOOL_FIELDS if said.get(field) is not None}
    return known | {field: value for field, value in function.items() if field not in TOOL_FIELDS}


def _call(function: Mapping[str, Any], style: CallStyle) -> str:
    schema = function.get("parameters") or _NOTHING
    arguments = json_rule(schema, "tools", is_strict=bool(function.get("strict")))
    before = json.dumps(f"{style.head}{function['name']}{style.middle}", ensure_ascii=False)
    return f"{before} {arguments} {json.dumps(style.tail)}"


def _after_text(style: CallStyle, grammars: Grammars, end: str) -> list[str]:
    """A call after any text, which ends where the mark of a call begins."""
    begin = grammars.literal(style.begin)
    if begin.startswith("<["):  # a special token, which is no text
        return [f"said: TEXT {begin} call {end}"]
    mark = json.dumps(style.mark, ensure_ascii=False)
    rest = style.begin[style.begin.index(style.mark) + len(style.mark) :]
    after = json.dumps(rest, ensure_ascii=False) if rest else ""
    return [f"said_mark[lazy]: TEXT {mark}", f"said: said_mark {after} call {end}"]


def _call_at(text: str, style: CallStyle) -> tuple[ToolCall, int] | None:
    """The call at the beginning of a text, and where it ends; None when there is none."""
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
