"""Find the texts of messages in a column of JSON, by searching its bytes as one array.

In a store a message of one text is always spelled `{"role":"…","content":[{"type":"text","text":"…"}]}`, and
every quotation mark in a text has a backslash before it. So an object begins wherever a brace precedes a bare
quotation mark, and nothing is parsed: a message begins in one of three ways and ends where the next begins.
A row with any other beginning is not plain; Python reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trajkit.curation.rows.bridge import Numbers, bounds_in, bytes_in

ROLES = ("system", "user", "assistant")
"""The roles of plain messages; roles are indices of this tuple."""

_BEGINNINGS = [f'{{"role":"{role}","content":[{{"type":"text","text":"'.encode() for role in ROLES]
_END = b'"}]}'
_SHORTEST = min(map(len, _BEGINNINGS))
_WORD = 8
_SAMPLE = 1 << 12
_FEW = _SAMPLE >> 7
_BLOCK = 1 << 20


class Spans(NamedTuple):
    """The texts of the plain rows of a column, in order."""

    data: Numbers
    """The column's bytes."""
    counts: Numbers
    """Per row: its number of texts; 0 if it is not plain."""
    roles: Numbers
    """Per text: the role of its message."""
    starts: Numbers
    """Per text: its offset in the bytes."""
    sizes: Numbers
    """Per text: its number of bytes; at least one."""


class Finder:
    """Finds the texts of one column after another.

    Args:
        refused: Byte strings that no plain row contains.
    """

    def __init__(self, refused: Sequence[bytes] = ()) -> None:
        self._refused = refused
        # kept between calls: new memory each time costs more than the comparison
        self._marks = np.empty((2, _BLOCK), bool)

    def spans(self, column: pa.Array[Any], *, is_list: bool) -> Spans:
        """Find the texts of a column.

        Args:
            column: JSON as text.
            is_list: Whether each row is a list of messages, or one message.
        """
        data, bounds = _bytes_of(column)
        if len(data) < _SHORTEST:
            return Spans(data, np.zeros(len(column), np.int64), *(np.zeros(0, np.int64) for _ in range(3)))
        words = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))  # eight bytes at each offset
        objects = self._places(data, b'{"')
        objects = objects[objects < len(words)]  # a brace nearer to the end closes a text
        begun = words[objects]
        is_role, is_type = begun == _number(b'{"role":'), begun == _number(b'{"type":')
        is_text = (begun & 0xFFFFFF) == _number(b'{"}')
        roles = objects[is_role]
        counts, n_types, n_others = (
            np.diff(np.searchsorted(found, bounds))
            for found in (roles, objects[is_type], objects[~(is_role | is_type | is_text)])
        )
        is_plain = (counts > 0) & (counts == n_types) & (n_others == 0)
        is_plain &= _end_well(words, bounds[1:], _END + b"]" if is_list else _END)
        for text in self._refused:
            is_plain[np.searchsorted(bounds, self._places(data, text), "right") - 1] = False
        role, begins = _beginnings(data, roles)
        ends, follows = _ends(words, roles, counts, bounds, is_list=is_list)
        is_good = (role >= 0) & follows & (ends > begins)
        rows = np.repeat(np.arange(len(counts)), counts)
        is_plain[rows[~is_good]] = False
        kept = is_plain[rows]
        return Spans(data, np.where(is_plain, counts, 0), role[kept], begins[kept], ends[kept] - begins[kept])

    def _places(self, data: Numbers, text: bytes) -> Numbers:
        """Return the offsets of a text of at least two bytes."""
        counts = np.bincount(data[:_SAMPLE], minlength=256)
        # search for its rarest byte; if that one is frequent, for a neighbour, too
        rare = min(range(len(text)), key=lambda position: int(counts[text[position]]))
        other = None if counts[text[rare]] <= _FEW else rare + 1 if rare + 1 < len(text) else rare - 1
        found = []
        for begin in range(1, len(data) - 1, _BLOCK):
            end = min(begin + _BLOCK, len(data) - 1)
            is_rare, is_other = self._marks[:, : end - begin]
            np.equal(data[begin:end], text[rare], out=is_rare)
            if other is not None:
                shift = other - rare
                np.equal(data[begin + shift : end + shift], text[other], out=is_other)
                np.logical_and(is_rare, is_other, out=is_rare)
            if is_rare.any():
                found.append(np.flatnonzero(is_rare) + (begin - rare))
        ends = (-rare, len(data) - 1 - rare)  # offsets without a neighbour on one side
        places = np.concatenate([np.array(ends[:1]), *found, np.array(ends[1:])])
        places = places[(places >= 0) & (places + len(text) <= len(data))]
        for position, byte in enumerate(text):
            places = places[data[places + position] == byte]
        return places


def pieces_at(data: Numbers, places: Numbers, size: int) -> Numbers:
    """Return up to `size` bytes from each place on."""
    whole = np.ndarray((max(0, len(data) - size + 1),), f"S{size}", data, strides=(1,))
    is_whole = places < len(whole)
    if bool(is_whole.all()):
        return whole[places]
    pieces = np.zeros(len(places), f"S{size}")
    pieces[is_whole] = whole[places[is_whole]]
    for position in np.flatnonzero(~is_whole).tolist():
        pieces[position] = data[places[position] :].tobytes()
    return pieces


def _bytes_of(column: pa.Array[Any]) -> tuple[Numbers, Numbers]:
    """Return the bytes of a column of texts, and the offset of each row and of the end."""
    bounds = bounds_in(column)
    return bytes_in(column.buffers()[2])[bounds[0] : bounds[-1]], bounds - bounds[0]


def _number(text: bytes) -> int:
    return int.from_bytes(text, "little")


def _end_well(words: Numbers, ends: Numbers, text: bytes) -> Numbers:
    """Whether each row ends with a text."""
    last = words[np.maximum(ends - _WORD, 0)]
    is_there: Numbers = last >> (8 * (_WORD - len(text))) == _number(text)
    return is_there


def _beginnings(data: Numbers, places: Numbers) -> tuple[Numbers, Numbers]:
    """Return each message's role, -1 if it does not begin like a plain one, and where its text begins."""
    role = np.full(len(places), -1)
    begins = places.copy()
    for code, text in enumerate(_BEGINNINGS):
        is_so = pieces_at(data, places, len(text)) == text
        role[is_so] = code
        begins[is_so] += len(text)
    return role, begins


def _ends(
    words: Numbers, places: Numbers, counts: Numbers, bounds: Numbers, *, is_list: bool
) -> tuple[Numbers, Numbers]:
    """Return where each message's text ends, and whether its surroundings are those of plain messages."""
    last = np.cumsum(counts)[counts > 0] - 1
    first = last - counts[counts > 0] + 1
    ends = np.empty(len(places), np.int64)
    ends[:-1] = places[1:] - len(_END) - 1
    ends[last] = bounds[1:][counts > 0] - len(_END) - is_list
    follows = np.ones(len(places), bool)
    follows[:-1] = words[np.maximum(ends[:-1], 0).clip(max=len(words) - 1)] == _number(_END + b',{"r')
    follows[last] = True  # `_end_well` has checked the end of the row
    follows[first] &= places[first] == bounds[:-1][counts > 0] + is_list
    return ends, follows
