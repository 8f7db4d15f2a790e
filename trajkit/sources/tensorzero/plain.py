"""Which prompts are plain text: those can pass as they are, being the store's JSON already.

A prompt is looked through by searches for what may not be in it: that is several times faster than parsing.
Inside a string a quote is escaped, so that no search finds what a text only mentions. A text that looks odd
without being so (minified code) costs time and changes nothing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from itertools import groupby
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute  # the stubs know too few of the types that its functions take

_ROLES = ("user", "assistant")
_BLOCK = '{"type":"text","text":"'
_MESSAGES = tuple(f'{{"role":"{role}","content":[{_BLOCK}' for role in _ROLES)
_FIRST = tuple(f"[{message}" for message in (*_MESSAGES, f'{{"role":"system","content":[{_BLOCK}'))
_LAST = '"}]}]'


def _unlike(texts: Iterable[str], *, n_loose: int = 0) -> str:
    """A pattern for what does not go on like one of these texts.

    Args:
        texts: None of them begins another.
        n_loose: At how many places from the beginning an escape or a space may stand too: quoted JSON does
            not look odd.
    """
    branches = [
        (re.escape(first), [text[1:] for text in found])
        for first, found in groupby(sorted(texts), key=lambda text: text[0])
    ]
    others = f"[^{''.join(first for first, _ in branches)}{_LOOSE if n_loose else ''}]"
    longer = [first + _unlike(rest, n_loose=max(n_loose - 1, 0)) for first, rest in branches if rest != [""]]
    return f"(?:{'|'.join([others, *longer])})"


_LOOSE = r"\\\s"

_ODD = (
    '"type"' + _unlike([':"text","text":"']),
    # the next block, or the next message
    r"\}," + _unlike([_BLOCK, *_MESSAGES], n_loose=2),
    # more members of a message, or of a block
    r'\}\],"',
    '","' + _unlike(["content", "text"]),
    # escapes that trajkit spells in another way
    r"\\[u/]",
)


def are_plain(messages: pa.Array[Any]) -> pa.Array[Any]:
    """Whether each list of messages (JSON, or null) is messages of text blocks and nothing else."""
    starts = functools.reduce(pc.or_, (pc.starts_with(messages, first) for first in _FIRST))
    odd = functools.reduce(pc.or_, (pc.match_substring_regex(messages, pattern) for pattern in _ODD))
    found = pc.and_not(pc.and_(starts, pc.ends_with(messages, _LAST)), odd)
    return cast("pa.Array[Any]", pc.fill_null(found, False))
