"""Rows of plain text by columns: SQL that replaces what stands around the texts, which are JSON already.

In a store a message of one text is always spelled `{"role":"…","content":[{"type":"text","text":"…"}]}`, and
within a text every quotation mark has a backslash before it. So what follows one text and precedes the next
can be found by searching, and nothing is parsed. Whatever is spelled otherwise keeps a `"type"` and is no
plain row; Python writes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from trajkit.formats.base import PlainText
from trajkit.store.engine import literal

_TEXT = '","content":[{"type":"text","text":"'
_END = '"}]}'
_ANSWER = '{"role":"assistant' + _TEXT
_ROLES = ("system", "user", "assistant")
_NEWLINE = "chr(10)"
_ROLE = '{"role":"'
_NEXT = _END + "," + _ROLE


def _start(role: str) -> str:
    return '{"role":"' + role + _TEXT


def step_line(plain: PlainText, prompt: str, answer: str) -> str:
    """SQL for the line of one step, its line break included; null where it is not plain.

    Args:
        plain: How the format writes messages of one text.
        prompt: SQL for the prompt's JSON.
        answer: SQL for the answer's.
    """
    given = f"({prompt} || {answer} || {_NEWLINE})"
    if (usual := _usual(plain)) is not None:
        return _usual_line(plain, prompt, answer, usual)
    replaced = _replaced(
        "given",
        [
            (f"{_END}]{_ANSWER}", plain.after + plain.last),
            *_between(plain, is_first=True),
            *_starts(plain, is_first=True),
        ],
    )
    if plain.tail != _END:
        replaced = f"replace({replaced}, {literal(_END)} || {_NEWLINE}, {literal(plain.tail)} || {_NEWLINE})"
    # a list of one element takes a lambda, which is SQL's way to name a value and use it twice
    return f"""list_transform([{given}], lambda given: CASE WHEN {_is_taken(plain, "given")}
        AND {_takes_turns(plain, "given", is_first=True)} AND contains(given, {literal(f"{_END}]{_ANSWER}")})
        THEN list_transform([{replaced}], lambda line: CASE WHEN {_is_done("line")} THEN line END)[1]
        END)[1]"""


def _usual(plain: PlainText) -> str | None:
    """What replaces the beginning of a text after its role, where the format spells roles as a store does."""
    role, before = next(iter(plain.before.items()))
    new = before.removeprefix(f'{{"role":"{role}')
    if (
        new == before
        or len(new) == len(_TEXT)
        or not plain.head.endswith("[")
        or plain.system is not None
        or (plain.after, plain.between) != ('"}', ",")
        or any(plain.before.get(each) != f'{{"role":"{each}{new}' for each in ("system", "user"))
    ):
        return None
    return new


def _usual_line(plain: PlainText, prompt: str, answer: str, new: str) -> str:
    """The line where two replacements do for all roles: each goes through the whole text."""
    head = plain.head.removesuffix("[")
    begun = f"replace(given, {literal(_TEXT)}, {literal(new)})"
    parted = f"""replace(begun, {literal(_NEXT)}, '"}},{_ROLE}')"""
    n_texts = f"(strlen(given) - strlen(begun)) // {len(_TEXT) - len(new)}"
    n_parts = f"(strlen(begun) - strlen(parted)) // {len(_NEXT) - len(_ROLE) - 3}"
    joint = literal(f"{_END}]{_ROLE}assistant{new}")
    line = f"replace({_with_context(plain, new)}, {joint}, {literal(plain.after + plain.last)})"
    if plain.tail != _END:
        line = f"replace({line}, {literal(_END)} || {_NEWLINE}, {literal(plain.tail)} || {_NEWLINE})"
    # lists of one element and lambdas are SQL's way to name a value and use it twice
    return f"""CASE WHEN ends_with({prompt}, {literal(_END + "]")})
            AND starts_with({answer}, {literal(_ANSWER)})
        THEN list_transform([{literal(head)} || {prompt} || {answer} || {_NEWLINE}], lambda given:
            CASE WHEN {_is_taken(plain, "given", empty=None)} THEN list_transform([{begun}], lambda begun:
                list_transform([{parted}], lambda parted:
                    CASE WHEN {n_texts} = {n_parts} + 2 AND {_is_done("parted")}
                        AND {_has_roles(plain, n_parts)}
                    THEN {line} END)[1])[1] END)[1] END"""


def _has_roles(plain: PlainText, n_parts: str) -> str:
    """The roles are those that the format writes. Mostly it is a system message and one of the user."""
    system, first = (
        f"starts_with(parted, {literal(plain.head + _ROLE + each)})" for each in ("system", "user")
    )
    user = f"""contains(parted, '"}},{_ROLE}user"')"""
    usual = f"({n_parts} = 1 AND {system} AND {user})"
    if plain.alternates:
        return f"({usual} OR ({n_parts} = 0 AND {first}))"
    others = ["tool"] if "assistant" in plain.before else ["tool", "assistant"]
    none = [
        f"""NOT contains(parted, '{before}{_ROLE}{each}"')""" for each in others for before in ('"},', "[")
    ]
    return f"({usual} OR ({' AND '.join(none)}))"


def _with_context(plain: PlainText, new: str) -> str:
    """SQL in which the answers before the last are marked as context, where the format marks them."""
    start = f"{_ROLE}assistant{new}"
    context = plain.before.get("assistant", start)
    if context == start:
        return "parted"
    between, first = '"},' + start, plain.head + start
    marked = f"""CASE WHEN contains(parted, {literal(between)})
        THEN replace(parted, {literal(between)}, {literal('"},' + context)}) ELSE parted END"""
    return f"""CASE WHEN starts_with(parted, {literal(first)})
        THEN replace({marked}, {literal(first)}, {literal(plain.head + context)}) ELSE {marked} END"""


def fragment(plain: PlainText, messages: str, *, is_first: bool) -> str:
    """SQL for the messages that a step adds to a conversation; null where they are not plain.

    Args:
        plain: How the format writes messages of one text.
        messages: SQL for their JSON; the empty list gives no text.
        is_first: They begin the row, so that what the row begins with is there too.
    """
    replaced = _replaced("given", [*_between(plain, is_first=is_first), *_starts(plain, is_first=is_first)])
    replaced = f"replace({replaced}, {literal(_END + ']')} || {_NEWLINE}, {literal(plain.after)})"
    return f"""CASE WHEN {messages} = '[]' THEN '' ELSE
        list_transform([{messages} || {_NEWLINE}], lambda given: CASE WHEN {_is_taken(plain, "given")}
        AND {_takes_turns(plain, "given", is_first=is_first)}
        THEN list_transform([{replaced}], lambda line: CASE WHEN {_is_done("line")}
        AND NOT contains(line, {_NEWLINE}) THEN line END)[1] END)[1] END"""


def answer_text(plain: PlainText, answer: str) -> str:
    """SQL for the text of an answer as JSON without its quotation marks; null where it is not plain."""
    replaced = f"replace({_replaced('given', [(_ANSWER, '')])}, {literal(_END)} || {_NEWLINE}, '')"
    return f"""list_transform([{answer} || {_NEWLINE}], lambda given: CASE
        WHEN starts_with(given, {literal(_ANSWER)}) AND {_is_taken(plain, "given")}
        THEN list_transform([{replaced}], lambda line: CASE WHEN {_is_done("line")}
        AND NOT contains(line, {_NEWLINE}) THEN line END)[1] END)[1]"""


def _replaced(sql: str, pairs: Sequence[tuple[str, str]]) -> str:
    for old, new in pairs:
        sql = f"replace({sql}, {literal(old)}, {literal(new)})"
    return sql


def _between(plain: PlainText, *, is_first: bool) -> list[tuple[str, str]]:
    """What stands between two messages, by the role of the second."""
    if plain.system is not None and is_first:  # then the system message is the only one before another
        return [(f"{_END},{_start('user')}", plain.system[1] + plain.head + plain.before["user"])]
    return [
        (f"{_END},{_start(role)}", plain.after + plain.between + plain.before[role])
        for role in _ROLES
        if role in plain.before
    ]


def _starts(plain: PlainText, *, is_first: bool) -> list[tuple[str, str]]:
    """What stands before the first message, by its role."""
    head = plain.opening + plain.head if is_first else ""
    starts = [(f"[{_start(role)}", head + plain.before[role]) for role in _ROLES if role in plain.before]
    if plain.system is not None and is_first:
        starts.append((f"[{_start('system')}", plain.opening + plain.system[0]))
    return starts


def _is_taken(plain: PlainText, sql: str, *, empty: str | None = '"content":[]') -> str:
    """Nothing in it that Python has to look at, such as control codes, which are spelled in two ways."""
    refused = ["\\u", '"text":""', *plain.refused, *([] if empty is None else [empty])]
    return " AND ".join(f"NOT contains({sql}, {literal(text)})" for text in refused)


def _is_done(sql: str) -> str:
    """Every message was found: the type of a block is not left anywhere."""
    return f"""NOT contains({sql}, '"type"')"""


def _takes_turns(plain: PlainText, sql: str, *, is_first: bool) -> str:
    """Where turns must alternate: only a system message (at the beginning) and one of the user."""
    if not plain.alternates:
        return "true"
    users = literal(f"{_END},{_start('user')}")
    system, user = (literal(f"[{_start(role)}") for role in ("system", "user"))
    n_more = f"(strlen({sql}) - strlen(replace({sql}, {users}, ''))) // strlen({users})"
    others = " AND ".join(
        f"NOT contains({sql}, {literal(f'{_END},{_start(role)}')})" for role in ("system", "assistant")
    )
    first = f"(starts_with({sql}, {system}) AND {n_more} = 1)" if is_first else "false"
    return f"({others} AND ((starts_with({sql}, {user}) AND {n_more} = 0) OR {first}))"
