"""What a step adds to a conversation of plain text, in SQL: only what stands around its texts is replaced.

In a store a message of one text is always spelled `{"role":"…","content":[{"type":"text","text":"…"}]}`, and
within a text every quotation mark has a backslash before it. So what follows one text and precedes the next
can be found by searching, and nothing is parsed. Whatever is spelled otherwise keeps a `"type"` and is no
plain row; Python writes it. Where no prompt keeps messages of another, `plain_line` does without SQL.
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
        if role in plain.before and role != "system"  # trainers refuse it there, which Python says
    ]


def _starts(plain: PlainText, *, is_first: bool) -> list[tuple[str, str]]:
    """What stands before the first message, by its role."""
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
    """Nothing in it that Python has to look at, such as control codes, which are spelled in two ways."""
    refused = ["\\u", '"text":""', *plain.refused, '"content":[]']
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
