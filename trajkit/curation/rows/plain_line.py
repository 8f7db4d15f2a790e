"""Write plain-text rows from columns: their texts are JSON already, only the text around them differs.

Each text is copied once, into the file's bytes: a row is a list of pieces of the store's columns and of
constants, which Arrow concatenates.
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
        # Python writes control codes, because they have two spellings
        self._finder = Finder([b"\\u", *(text.encode() for text in plain.refused)])

    def of(self, prompts: pa.Array[Any], answers: pa.Array[Any], is_wanted: Numbers) -> pa.Array[Any]:
        """Return the lines, each with its line break; null if a row is not plain.

        Args:
            prompts: The prompts' JSON.
            answers: The answers' JSON.
            is_wanted: Whether each row needs a line.
        """
        prompted = self._finder.spans(prompts, is_list=True)
        answered = self._finder.spans(answers, is_list=False)
        is_plain = is_wanted & _is_plain(self._plain, prompted) & (answered.counts == 1)
        is_plain[np.flatnonzero(answered.counts)[answered.roles != _ASSISTANT]] = False
        if not is_plain.any():
            return pa.nulls(len(prompts), pa.large_string())
        return _joined(self._plain, _only(prompted, is_plain), _only(answered, is_plain), is_plain)


def _is_plain(plain: PlainText, prompted: Spans) -> Numbers:
    """Return which prompts the format can write from their texts alone."""
    rows = np.repeat(np.arange(len(prompted.counts)), prompted.counts)
    is_first = np.arange(len(rows)) == (np.cumsum(prompted.counts) - prompted.counts)[rows]
    is_known = np.array([role in plain.before for role in ROLES])[prompted.roles]
    is_known &= is_first | (prompted.roles != _SYSTEM)  # trainers refuse a later one, and Python reports it
    if plain.system is not None:
        is_known |= is_first & (prompted.roles == _SYSTEM)
    is_plain: Numbers = prompted.counts > 0
    is_plain[rows[~is_known]] = False
    if plain.system is not None:  # the next message closes the system message
        is_plain[rows[is_first & (prompted.roles == _SYSTEM) & (prompted.counts[rows] == 1)]] = False
    if plain.alternates:  # one user message, after a system message or none
        is_plain &= prompted.counts <= 2
        right = np.where(is_first & (prompted.counts[rows] > 1), _SYSTEM, _USER)
        is_plain[rows[prompted.roles != right]] = False
    return is_plain


def _only(spans: Spans, is_kept: Numbers) -> Spans:
    """Return the spans of some rows."""
    if bool(is_kept.all()):
        return spans
    texts = np.repeat(is_kept, spans.counts)
    return Spans(spans.data, np.where(is_kept, spans.counts, 0), *(each[texts] for each in spans[2:]))


def _constants(plain: PlainText) -> list[bytes]:
    """Return the texts around the messages' texts.

    By role: before a first message, before a later one, and before one after a system message that the format
    writes elsewhere. Then the text before the answer, and after it.
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


def _joined(plain: PlainText, prompted: Spans, answered: Spans, is_plain: Numbers) -> pa.Array[Any]:
    """Concatenate the lines of the plain rows; the spans have no other rows."""
    constants = _constants(plain)
    fixed = bytes_in(b"".join(constants))
    sizes = np.array([len(text) for text in constants])
    of_constants = _views(fixed, np.cumsum(sizes) - sizes, sizes, buffer=2)
    n_pieces = np.where(is_plain, 2 * prompted.counts + 3, 0)
    bounds = np.concatenate(([0], np.cumsum(n_pieces)))
    views = np.empty((bounds[-1], 4), np.int32)
    # for each text of a prompt: the index of the piece before it
    before_texts = np.cumsum(prompted.counts) - prompted.counts
    rows = np.repeat(np.arange(len(is_plain)), prompted.counts)
    position = np.arange(len(rows)) - before_texts[rows]
    places = bounds[rows] + 2 * position
    kind = np.where(position == 0, _FIRST, _OTHER)
    if plain.system is not None:
        kind[np.flatnonzero((position == 0) & (prompted.roles == _SYSTEM)) + 1] = _AFTER_SYSTEM
    views[places] = of_constants[kind + prompted.roles]
    views[places + 1] = _views(prompted.data, prompted.starts, prompted.sizes, buffer=0)
    ends = bounds[1:][is_plain]
    views[ends - 3] = of_constants[_BEFORE_ANSWER]
    views[ends - 2] = _views(answered.data, answered.starts, answered.sizes, buffer=1)
    views[ends - 1] = of_constants[_AFTER_ANSWER]
    buffers = [None, *map(buffer_of, (views, prompted.data, answered.data, fixed))]
    pieces = pa.Array.from_buffers(pa.binary_view(), len(views), buffers).cast(pa.large_binary())
    _, offsets, data = pieces.buffers()
    return lines_of(data, numbers_in(offsets)[bounds], is_plain)


def _views(data: Numbers, starts: Numbers, sizes: Numbers, *, buffer: int) -> Numbers:
    """Return Arrow's binary views of pieces of a buffer, four numbers each.

    Args:
        data: The bytes.
        starts: Where the pieces begin.
        sizes: Their lengths.
        buffer: Index of the bytes among the array's buffers.
    """
    views = np.empty((len(starts), 4), np.int32)
    views[:, 1:] = pieces_at(data, starts, _INLINE).view(np.int32).reshape(-1, _INLINE // 4)
    views[:, 0] = sizes
    is_long = sizes > _INLINE
    views[is_long, 2] = buffer
    views[is_long, 3] = starts[is_long]
    return views
