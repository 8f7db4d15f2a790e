"""Which prompts are plain text: those can pass as they are, being the store's JSON already.

One pattern says all that such a prompt is, so that what matches it need not be parsed: it is JSON, spelled as
the store spells it. What does not match goes through SQL, which looks into it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute  # the stubs know too few of the types that its functions take

# An escape that trajkit spells in another way (`\u`, `\/`) is not plain.
_TEXT = r'"(?:[^"\\\x00-\x1f]|\\["\\bfnrt])*"'
_BLOCK = r'\{"type":"text","text":' + _TEXT + r"\}"


def _message(roles: str) -> str:
    return rf'\{{"role":"(?:{roles})","content":\[{_BLOCK}(?:,{_BLOCK})*\]\}}'


_FIRST, _NEXT = _message("user|assistant|system"), _message("user|assistant")
_ONE = rf"\A\[{_FIRST}\]\z"
_SEVERAL = rf"\A\[{_FIRST}(?:,{_NEXT})+\]\z"


class Plain(NamedTuple):
    """What is known of lists of messages, a value each; false for null."""

    is_plain: pa.Array[Any]
    """Messages of text blocks, and nothing else."""
    is_one: pa.Array[Any]
    """The same, and only one message."""


def plain_of(messages: pa.Array[Any]) -> Plain:
    """Look at each list of messages (JSON, or null)."""
    is_one = _matches(messages, _ONE)
    if pc.all(is_one).as_py():
        return Plain(is_one, is_one)
    return Plain(pc.or_(is_one, _matches(messages, _SEVERAL)), is_one)


def _matches(texts: pa.Array[Any], pattern: str) -> Any:
    return pc.fill_null(pc.match_substring_regex(texts, pattern), False)
