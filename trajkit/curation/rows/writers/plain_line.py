"""Write plain-text rows from columns: their texts are JSON already, only the text around them differs.

Each text is copied once, into the file's bytes: a row is a list of pieces of the store's columns and of
constants, which Arrow concatenates.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trajkit.curation.rows.bridge import Numbers, bounds_in, buffer_of, bytes_in, lines_of, numbers_in
from trajkit.curation.rows.writers.spans import ROLES, Finder, Spans, pieces_at
from trajkit.formats.base import PlainText

_SYSTEM, _USER, _ASSISTANT = range(len(ROLES))
_FIRST, _OTHER, _AFTER_SYSTEM, _LEARNED = (len(ROLES) * i for i in range(4))
_LAST, _TAIL = _LEARNED + 1, _LEARNED + 2
_PROMPT, _ANSWER, _CONSTANT = range(3)  # the buffers of the pieces
_INLINE = 12  # bytes that stand in a view itself: Arrow's columnar format, "variable-size binary view"


class Facts(NamedTuple):
    """Facts about each step of some whole episodes, besides its texts."""

    is_first: Numbers
    """Whether it is the first of its episode."""
    is_joint: Numbers
    """Whether it is written only if every step of its episode is plain."""
    n_kept: Numbers
    """Messages of the step before, and its answer, with which its prompt begins."""
    has_answer: Numbers
    is_learned: Numbers
    is_simple: Numbers
    """Whether it has no tools, and its weight is 1 if it is learned."""


class Plain(NamedTuple):
    """The lines of some steps."""

    lines: pa.Array[Any]
    """Each with its line break, at the last step that it teaches."""
    is_raw: Numbers
    """Whether Python must write the step."""
    starts: Numbers
    """Per step: the index of the step with which its conversation begins."""


class PlainLines:
    """Writes the lines of steps.

    A prompt that keeps everything of the step before continues its conversation.

    Args:
        plain: How the format writes messages of one text.
        merges: Whether a row has all learned answers of a conversation, or one.
    """

    def __init__(self, plain: PlainText, *, merges: bool) -> None:
        self._plain, self._merges = plain, merges
        # Python writes control codes, because they have two spellings
        self._finder = Finder([b"\\u", *(text.encode() for text in plain.refused)])

    def of(self, prompts: pa.Array[Any], answers: pa.Array[Any], facts: Facts) -> Plain:
        """Return the lines.

        Args:
            prompts: JSON of the messages that each step adds to what it keeps.
            answers: The answers' JSON.
            facts: Other facts about the steps.
        """
        prompted = self._finder.spans(prompts, is_list=True)
        answered = self._finder.spans(answers, is_list=False)
        goes_on = _goes_on(facts, prompted.counts)
        is_empty = np.diff(bounds_in(prompts)) == len("[]")
        is_plain = self._is_plain(prompted, answered, facts, goes_on, is_empty)
        episodes, firsts = np.cumsum(facts.is_first) - 1, np.flatnonzero(facts.is_first)
        if facts.is_joint.any():
            is_plain &= ~facts.is_joint | np.logical_and.reduceat(is_plain, firsts)[episodes]
        is_raw = ~is_plain & (facts.is_joint | facts.is_learned)
        starts = np.maximum.accumulate(np.where(goes_on, 0, np.arange(len(goes_on))))
        is_line = is_plain & facts.is_learned
        if self._merges:
            taught = np.flatnonzero(is_line)
            is_line[taught[:-1][starts[taught[1:]] == starts[taught[:-1]]]] = False
        if not is_line.any():
            return Plain(pa.nulls(len(is_line), pa.large_string()), is_raw, starts)
        texts = self._texts(_only(prompted, is_plain), _only(answered, is_plain), facts.is_learned)
        return Plain(_joined(self._plain, texts, starts, is_line), is_raw, starts)

    def _is_plain(
        self, prompted: Spans, answered: Spans, facts: Facts, goes_on: Numbers, is_empty: Numbers
    ) -> Numbers:
        """Return which steps the format can write from their texts alone."""
        plain = self._plain
        is_answered = answered.counts == 1
        is_answered[np.flatnonzero(answered.counts)[answered.roles != _ASSISTANT]] = False
        is_plain = _has_plain_prompt(plain, prompted, goes_on)
        if plain.alternates:
            is_plain &= is_answered
        else:
            is_plain |= is_empty & goes_on
            is_plain &= is_answered | ~facts.has_answer
        if self._merges:  # Python compares whole prompts: one of them may be that of the step before and more
            is_plain[_may_go_on(prompted, facts) & ~goes_on] = False
        if "assistant" not in plain.before:  # the format would learn an answer that is only context
            is_plain &= (facts.is_learned | ~facts.has_answer) if self._merges else ~goes_on
        found: Numbers = is_plain & facts.is_simple & (goes_on | (facts.n_kept == 0))
        return found

    def _texts(self, prompted: Spans, answered: Spans, is_learned: Numbers) -> _Texts:
        """Return the texts of all steps in the order of the conversations."""
        counts = prompted.counts + answered.counts
        ends = np.cumsum(counts)
        of_prompts = np.repeat(np.arange(len(counts)), prompted.counts)
        of_answers = np.flatnonzero(answered.counts)
        nth = np.arange(len(of_prompts)) - (np.cumsum(prompted.counts) - prompted.counts)[of_prompts]
        places = np.concatenate(((ends - counts)[of_prompts] + nth, ends[of_answers] - 1))
        views = np.empty((len(places), 4), np.int32)
        before = np.empty(len(places), np.int64)
        views[places] = np.concatenate((_views(prompted, _PROMPT), _views(answered, _ANSWER)))
        before[places] = _OTHER + np.concatenate((prompted.roles, answered.roles))
        if self._merges:
            before[ends[of_answers[is_learned[of_answers]]] - 1] = _LEARNED
        if self._plain.system is not None:
            after = places[: len(of_prompts)][prompted.roles == _SYSTEM] + 1
            before[after] += _AFTER_SYSTEM - _OTHER
        return _Texts(views, before, ends - counts, ends, (prompted.data, answered.data))


class _Texts(NamedTuple):
    """Texts in the order of the conversations."""

    views: Numbers
    """Per text: Arrow's view of it."""
    before: Numbers
    """Per text: which constant precedes it."""
    begins: Numbers
    """Per step: its first text."""
    ends: Numbers
    """Per step: the text after its last one."""
    data: tuple[Numbers, Numbers]
    """The buffers of prompts and answers."""


def _goes_on(facts: Facts, n_messages: Numbers) -> Numbers:
    """Return whether each prompt is that of the step before, its answer and more."""
    n_after = facts.n_kept + n_messages + facts.has_answer
    goes_on = ~facts.is_first & (facts.n_kept > 0)
    goes_on[1:] &= facts.n_kept[1:] == n_after[:-1]
    return goes_on


def _may_go_on(prompted: Spans, facts: Facts) -> Numbers:
    """Return whether each prompt could be that of the step before, its answer and more."""
    rows = np.repeat(np.arange(len(prompted.counts)), prompted.counts)
    may = ~np.roll(facts.has_answer, 1)
    may[rows[prompted.roles == _ASSISTANT]] = True
    found: Numbers = may & ~facts.is_first
    return found


def _has_plain_prompt(plain: PlainText, prompted: Spans, goes_on: Numbers) -> Numbers:
    """Return which prompts the format can write from their texts alone."""
    rows = np.repeat(np.arange(len(prompted.counts)), prompted.counts)
    begins = np.arange(len(rows)) == (np.cumsum(prompted.counts) - prompted.counts)[rows]
    begins &= ~goes_on[rows]
    is_known = np.array([role in plain.before for role in ROLES])[prompted.roles]
    if plain.system is not None:
        is_known |= prompted.roles == _SYSTEM
    is_known &= begins | (prompted.roles != _SYSTEM)  # trainers refuse a later one, and Python reports it
    is_plain: Numbers = prompted.counts > 0
    is_plain[rows[~is_known]] = False
    if plain.system is not None:  # the next message closes the system message
        is_plain[rows[begins & (prompted.roles == _SYSTEM) & (prompted.counts[rows] == 1)]] = False
    if plain.alternates:  # one user message, after a system message or none
        is_plain &= prompted.counts <= np.where(goes_on, 1, 2)
        right = np.where(begins & (prompted.counts[rows] > 1), _SYSTEM, _USER)
        is_plain[rows[prompted.roles != right]] = False
    return is_plain


def _only(spans: Spans, is_kept: Numbers) -> Spans:
    """Return the spans of some rows."""
    if bool(is_kept.all()):
        return spans
    texts = np.repeat(is_kept, spans.counts)
    return spans._replace(
        counts=np.where(is_kept, spans.counts, 0),
        roles=spans.roles[texts],
        starts=spans.starts[texts],
        sizes=spans.sizes[texts],
    )


def _constants(plain: PlainText) -> list[bytes]:
    """Return the texts around the messages' texts.

    By role: before a first message, before a later one, and before one after a system message that the format
    writes elsewhere. Then the text before a learned answer, before the last one, and after it.
    """
    first, other, after_system = [], [], []
    for role in ROLES:
        before = plain.before.get(role, "")
        first.append(plain.opening + plain.head + before)
        other.append(plain.after + plain.between + before)
        after_system.append("" if plain.system is None else plain.system[1] + plain.head + before)
    if plain.system is not None:
        first[_SYSTEM] = plain.opening + plain.system[0]
    learned = plain.after + plain.between + plain.learned
    around = (learned, plain.after + plain.last, plain.tail + "\n")
    return [text.encode() for text in (*first, *other, *after_system, *around)]


def _joined(plain: PlainText, texts: _Texts, starts: Numbers, is_line: Numbers) -> pa.Array[Any]:
    """Concatenate the lines: each has the texts from the first of its conversation to the step's answer."""
    constants = _constants(plain)
    fixed = bytes_in(b"".join(constants))
    sizes = np.array([len(text) for text in constants])
    of_constants = _views_at(fixed, np.cumsum(sizes) - sizes, sizes, _CONSTANT)
    steps = np.flatnonzero(is_line)
    first, n_texts = texts.begins[starts[steps]], texts.ends[steps] - texts.begins[starts[steps]]
    lines = np.repeat(np.arange(len(steps)), n_texts)
    nth = np.arange(len(lines)) - (np.cumsum(n_texts) - n_texts)[lines]
    which = first[lines] + nth
    before = texts.before[which]
    before[nth == 0] += _FIRST - _OTHER  # it is a prompt's
    before[np.cumsum(n_texts) - 1] = _LAST
    n_pieces = np.zeros(len(is_line), np.int64)
    n_pieces[steps] = 2 * n_texts + 1
    bounds = np.concatenate(([0], np.cumsum(n_pieces)))
    places = bounds[steps][lines] + 2 * nth
    views = np.empty((bounds[-1], 4), np.int32)
    views[places] = of_constants[before]
    views[places + 1] = texts.views[which]
    views[bounds[1:][steps] - 1] = of_constants[_TAIL]
    buffers = [None, *map(buffer_of, (views, *texts.data, fixed))]
    pieces = pa.Array.from_buffers(pa.binary_view(), len(views), buffers).cast(pa.large_binary())
    _, offsets, data = pieces.buffers()
    return lines_of(data, numbers_in(offsets)[bounds], is_line)


def _views(spans: Spans, buffer: int) -> Numbers:
    return _views_at(spans.data, spans.starts, spans.sizes, buffer)


def _views_at(data: Numbers, starts: Numbers, sizes: Numbers, buffer: int) -> Numbers:
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
