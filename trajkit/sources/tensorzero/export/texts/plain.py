"""Find the prompts that are plain text: they are in the store's JSON already and pass unchanged.

One pattern describes such a prompt completely, so a match need not be parsed: it is JSON, spelled as the
store spells it. Prompts that do not match go through SQL, which parses them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

pc: Any = pyarrow.compute  # the stubs know too few of the types that its functions take

# An escape that trajkit spells in another way (`\u`, `\/`) is not plain.
_TEXT = r'"(?:[^"\\\x00-\x1f]|\\["\\bfnrt])*"'
_BLOCK = r'\{"type":"text","text":' + _TEXT + r"\}"


def _message(roles: str) -> str:
    return rf'\{{"role":"(?:{roles})","content":\[{_BLOCK}(?:,{_BLOCK})*\]\}}'


_FIRST, _NEXT = _message("user|assistant|system"), _message("user|assistant")
_ONE = rf"\A\[{_FIRST}\]\z"
_SEVERAL = rf"\A\[{_FIRST}(?:,{_NEXT})+\]\z"

_BEGIN, _END = '[{"role":"user","content":[{"type":"text","text":"', '"}]}]'
_QUOTE, _BACKSLASH, _NEWLINE, _TAB, _FIRST_PRINTABLE = b'"\\nt '
_LOOK_BYTES = 1 << 17


class Plain(NamedTuple):
    """Facts about lists of messages, one value per list; false for null."""

    is_plain: pa.Array[Any]
    """Messages of text blocks, and nothing else."""
    is_one: pa.Array[Any]
    """The same, and only one message."""


def plain_of(messages: pa.Array[Any]) -> Plain:
    """Look at each list of messages (JSON, or null)."""
    if _are_one_text(messages):
        yes = pa.repeat(True, len(messages))
        return Plain(yes, yes)
    is_one = _matches(messages, _ONE)
    if pc.all(is_one).as_py():
        return Plain(is_one, is_one)
    return Plain(pc.or_(is_one, _matches(messages, _SEVERAL)), is_one)


def _are_one_text(messages: pa.Array[Any]) -> bool:
    """Whether each is one user message with one text, the usual case, which `_ONE` matches too.

    This takes a third of its time, as bytes are compared many at once.
    """
    begins, ends = pc.starts_with(messages, _BEGIN), pc.ends_with(messages, _END)
    is_long = pc.greater_equal(pc.binary_length(messages), len(_BEGIN + _END))  # the two share no quote
    is_framed = pc.all(pc.and_(pc.and_(begins, ends), is_long)).as_py()
    if messages.null_count or not len(messages) or not is_framed:
        return False
    offsets, data = cast("list[Any]", messages.buffers()[1:])
    bounds = np.frombuffer(offsets, np.int32)[messages.offset : messages.offset + len(messages) + 1]
    return _hold_one_text(np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]], bounds[1:] - bounds[0])


def _hold_one_text(text: NDArray[np.uint8], ends: NDArray[np.int32]) -> bool:
    """The same of texts that begin and end so, one after another."""
    n_quotes = 0
    for start in range(0, len(text) - 1, _LOOK_BYTES):  # small pieces, read several times, stay in the cache
        part = text[start : start + _LOOK_BYTES + 1]  # and the first byte of the next one
        after = part[1:]
        escapes, quotes = part[:-1] == _BACKSLASH, after == _QUOTE
        is_usual = quotes | (after == _NEWLINE) | (after == _TAB)
        if part.min() < _FIRST_PRINTABLE or (escapes > is_usual).any():
            return False
        n_quotes += int(np.count_nonzero(quotes > escapes))
    # those at the ends are there, and no others; the first byte is none
    is_end_escaped = text[ends - len(_END) - 1] == _BACKSLASH
    return n_quotes == (_BEGIN + _END).count('"') * len(ends) and not is_end_escaped.any()


def _matches(texts: pa.Array[Any], pattern: str) -> Any:
    return pc.fill_null(pc.match_substring_regex(texts, pattern), False)
