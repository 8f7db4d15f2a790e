"""Rows of plain text by columns: their texts are JSON already, only what stands around them is another.

No text is copied but once, into the file's bytes: a row is a list of pieces of the store's columns and of
constants, which Arrow puts together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from trajkit.curation.rows.bridge import Numbers, buffer_of, bytes_in, lines_of, numbers_in
from trajkit.curation.rows.spans import ROLES, Finder, Spans, pieces_at
from trajkit.formats.base import PlainText

_SYSTEM, _USER, _ASSISTANT = range(len(ROLES))
_FIRST, _OTHER, _AFTER_SYSTEM, _BEFORE_ANSWER = (len(ROLES) * i for i in range(4))
_AFTER_ANSWER = _BEFORE_ANSWER + 1
_INLINE = 12  # bytes that stand in a view itself: Arrow's columnar format, "variable-size binary view"


class PlainLines:
    """Writes the lines of steps whose prompts are whole.

    Args:
        plain: How the format writes messages of one text.
    """

    def __init__(self, plain: PlainText) -> None:
        self._plain = plain
        # control codes, which are spelled in two ways, are for Python to write
        self._finder = Finder([b"\\u", *(text.encode() for text in plain.refused)])

    def of(self, prompts: pa.Array[Any], answers: pa.Array[Any], is_wanted: Numbers) -> pa.Array[Any]:
        """The lines, each with its line break; null where one is not plain.

        Args:
            prompts: Their JSON, as text.
            answers: The answers' JSON.
            is_wanted: Which rows shall have one.
        """
        said = self._finder.spans(prompts, is_list=True)
        answered = self._finder.spans(answers, is_list=False)
        is_plain = is_wanted & _is_plain(self._plain, said) & (answered.counts == 1)
        is_plain[np.flatnonzero(answered.counts)[answered.roles != _ASSISTANT]] = False
        if not is_plain.any():
            return pa.nulls(len(prompts), pa.large_string())
        return _joined(self._plain, _only(said, is_plain), _only(answered, is_plain), is_plain)


def _is_plain(plain: PlainText, said: Spans) -> Numbers:
    """The prompts whose messages the format can say with texts alone."""
    rows = np.repeat(np.arange(len(said.counts)), said.counts)
    is_first = np.arange(len(rows)) == (np.cumsum(said.counts) - said.counts)[rows]
    is_known = np.array([role in plain.before for role in ROLES])[said.roles]
    is_known &= is_first | (said.roles != _SYSTEM)  # trainers refuse a later one, which Python says
    if plain.system is not None:
        is_known |= is_first & (said.roles == _SYSTEM)
    is_plain: Numbers = said.counts > 0
    is_plain[rows[~is_known]] = False
    if plain.system is not None:  # what follows the system message closes it
        is_plain[rows[is_first & (said.roles == _SYSTEM) & (said.counts[rows] == 1)]] = False
    if plain.alternates:  # a message of the user, and before it a system message or none
        is_plain &= said.counts <= 2
        right = np.where(is_first & (said.counts[rows] > 1), _SYSTEM, _USER)
        is_plain[rows[said.roles != right]] = False
    return is_plain


def _only(spans: Spans, is_kept: Numbers) -> Spans:
    """The texts of some rows."""
    if bool(is_kept.all()):
        return spans
    texts = np.repeat(is_kept, spans.counts)
    return Spans(spans.data, np.where(is_kept, spans.counts, 0), *(each[texts] for each in spans[2:]))


def _constants(plain: PlainText) -> list[bytes]:
    """What stands around the texts.

    That is: before a first message, before another one and before one after a system message that stands
    elsewhere, each by its role; before the answer; and after it.
    """
    first, other, after_system = [], [], []
    for role in ROLES:
        before = plain.before.get(role, "")
        first.append(plain.opening + plain.head + before)
        other.append(plain.after + plain.between + before)
        after_system.append("" if plain.system is None else plain.system[1] + plain.head + before)
    if plain.system is not None:
        first[_SYSTEM] = plain.opening + plain.system[0]
    around = (plain.after + plain.last, plain.tail + "\n")
    return [text.encode() for text in (*first, *other, *after_system, *around)]


def _joined(plain: PlainText, said: Spans, answered: Spans, is_plain: Numbers) -> pa.Array[Any]:
    """The lines of the plain rows, from texts of theirs alone."""
    constants = _constants(plain)
    fixed = bytes_in(b"".join(constants))
    sizes = np.array([len(text) for text in constants])
    of_constants = _views(fixed, np.cumsum(sizes) - sizes, sizes, buffer=2)
    n_pieces = np.where(is_plain, 2 * said.counts + 3, 0)
    bounds = np.concatenate(([0], np.cumsum(n_pieces)))
    views = np.empty((bounds[-1], 4), np.int32)
    # of each text of a prompt: the place among the pieces of what stands before it
    before_texts = np.cumsum(said.counts) - said.counts
    rows = np.repeat(np.arange(len(is_plain)), said.counts)
    position = np.arange(len(rows)) - before_texts[rows]
    places = bounds[rows] + 2 * position
    kind = np.where(position == 0, _FIRST, _OTHER)
    if plain.system is not None:
        kind[np.flatnonzero((position == 0) & (said.roles == _SYSTEM)) + 1] = _AFTER_SYSTEM
    views[places] = of_constants[kind + said.roles]
    views[places + 1] = _views(said.data, said.starts, said.sizes, buffer=0)
    ends = bounds[1:][is_plain]
    views[ends - 3] = of_constants[_BEFORE_ANSWER]
    views[ends - 2] = _views(answered.data, answered.starts, answered.sizes, buffer=1)
    views[ends - 1] = of_constants[_AFTER_ANSWER]
    buffers = [None, *map(buffer_of, (views, said.data, answered.data, fixed))]
    pieces = pa.Array.from_buffers(pa.binary_view(), len(views), buffers).cast(pa.large_binary())
    _, offsets, data = pieces.buffers()
    return lines_of(data, numbers_in(offsets)[bounds], is_plain)


def _views(data: Numbers, starts: Numbers, sizes: Numbers, *, buffer: int) -> Numbers:
    """Arrow's views of pieces of some bytes, one of four numbers each.

    Args:
        data: The bytes.
        starts: Where the pieces begin.
        sizes: How long they are.
        buffer: Which of the array's buffers the bytes are.
    """
    views = np.empty((len(starts), 4), np.int32)
    views[:, 1:] = pieces_at(data, starts, _INLINE).view(np.int32).reshape(-1, _INLINE // 4)
    views[:, 0] = sizes
    is_long = sizes > _INLINE
    views[is_long, 2] = buffer
    views[is_long, 3] = starts[is_long]
    return views
