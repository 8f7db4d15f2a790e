"""Write plain-text steps of a conversation in SQL, replacing only the text between the messages' texts.

In a store a message of one text is always spelled `{"role":"…","content":[{"type":"text","text":"…"}]}`, and
every quotation mark in a text has a backslash before it. So the text between two messages can be found by
searching, and nothing is parsed. A step that is spelled otherwise keeps a `"type"` and is not plain; Python
writes it. If no prompt keeps messages of another, `plain_line` does the same without SQL.
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


def _start(role: str) -> str:
    return '{"role":"' + role + _TEXT


def fragment(plain: PlainText, messages: str, *, is_first: bool) -> str:
    """Return SQL of the messages that a step adds to a conversation; null if they are not plain.

    Args:
        plain: How the format writes messages of one text.
        messages: SQL of their JSON; the empty list gives no text.
        is_first: Whether they begin the row, with the row's own beginning.
    """
    replaced = _replaced("given", [*_between(plain, is_first=is_first), *_starts(plain, is_first=is_first)])
    replaced = f"replace({replaced}, {literal(_END + ']')} || {_NEWLINE}, {literal(plain.after)})"
    return f"""CASE WHEN {messages} = '[]' THEN '' ELSE
        list_transform([{messages} || {_NEWLINE}], lambda given: CASE WHEN {_is_taken(plain, "given")}
        AND {_takes_turns(plain, "given", is_first=is_first)}
        THEN list_transform([{replaced}], lambda line: CASE WHEN {_is_done("line")}
        AND NOT contains(line, {_NEWLINE}) THEN line END)[1] END)[1] END"""


def answer_text(plain: PlainText, answer: str) -> str:
    """Return SQL of an answer's text as JSON without its quotation marks; null if it is not plain."""
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
    """Return what to replace between two messages, by the role of the second."""
    if plain.system is not None and is_first:  # the only message before another is then the system message
        return [(f"{_END},{_start('user')}", plain.system[1] + plain.head + plain.before["user"])]
    return [
        (f"{_END},{_start(role)}", plain.after + plain.between + plain.before[role])
        for role in _ROLES
        if role in plain.before and role != "system"  # trainers refuse a later one, and Python reports it
    ]


def _starts(plain: PlainText, *, is_first: bool) -> list[tuple[str, str]]:
    """Return what to replace before the first message, by its role."""
    head = plain.opening + plain.head if is_first else ""
    starts = [
        (f"[{_start(role)}", head + plain.before[role])
        for role in _ROLES
        if role in plain.before and (is_first or role != "system")
    ]
    if plain.system is not None and is_first:
        starts.append((f"[{_start('system')}", plain.opening + plain.system[0]))
    return starts


def _is_taken(plain: PlainText, sql: str) -> str:
    """Return SQL that is false if Python must look at the text, as for control codes with two spellings."""
    refused = ["\\u", '"text":""', *plain.refused, '"content":[]']
    return " AND ".join(f"NOT contains({sql}, {literal(text)})" for text in refused)


def _is_done(sql: str) -> str:
    """Return SQL that is true if every message was found: no type of a block is left."""
    return f"""NOT contains({sql}, '"type"')"""


def _takes_turns(plain: PlainText, sql: str, *, is_first: bool) -> str:
    """Return SQL that is true if turns alternate: one user message, after a system message or none."""
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
