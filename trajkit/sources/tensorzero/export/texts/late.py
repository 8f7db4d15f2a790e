"""Build the widest texts of a step, prompts and inputs, from the database's rows without DuckDB.

A prompt of plain text already has the store's JSON except for its system message. One pattern describes such
a prompt completely, so that a match need not be parsed. All other prompts go through the SQL macros.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trajkit.sources.tensorzero.connect.tables import pc, with_column
from trajkit.sources.tensorzero.export.spool import Group
from trajkit.sources.tensorzero.export.texts.selected import Texts, as_array
from trajkit.store.writing.part import Late

BUCKET, INPUT_ROW, CALL_ROW, SENT_ROW = "bucket", "input_row", "call_row", "sent_row"
"""Columns of `step_row`: its bucket; the row of its inference; that of its prompt, where that is plain and
not made elsewhere; and that of its prompt, where it has one."""

_FILLED_BYTES = 16_000_000
"""Approximate bytes of text that are filled in and written at a time."""

_ABSENT = (
    "reward",
    "terminated",
    "truncated",
    "prompt_token_ids",
    "completion_token_ids",
    "logprobs",
    "model_version",
    "agent_name",
    "parent_step",
    "legal_actions",
    "info",
)
"""Columns of a step that TensorZero does not record."""

# An escape that trajkit spells in another way (`\u`, `\/`) is not plain.
_TEXT = r'"(?:[^"\\\x00-\x1f]|\\["\\bfnrt])*"'
_BLOCK = r'\{"type":"text","text":' + _TEXT + r"\}"


def _message(roles: str) -> str:
    return rf'\{{"role":"(?:{roles})","content":\[{_BLOCK}(?:,{_BLOCK})*\]\}}'


_FIRST, _NEXT = _message("user|assistant|system"), _message("user|assistant")
_ONE = rf"\A\[{_FIRST}\]\z"
_SEVERAL = rf"\A\[{_FIRST}(?:,{_NEXT})+\]\z"
"""Lists of one message, and of several, with text blocks and nothing else."""

_CONTROL = re.compile(r"[\x00-\x07\x0b\x0e-\x1f]")  # without a short escape


_KNOWN: dict[str, pa.DataType] = {
    "has_messages": pa.bool_(),
    "is_plain": pa.bool_(),
    "may_go_on": pa.bool_(),
    "is_rendered": pa.bool_(),
    "unknown_because": pa.string(),
    "is_headless": pa.bool_(),
}
DESCRIBED = pa.schema(_KNOWN)
"""The facts about a prompt that SQL needs. `is_plain`: it can pass as it is; `may_go_on`: it may
have several messages; `is_rendered`: it was made from templates (`render/calls.py`); `unknown_because`: why
it could not be; `is_headless`: only its end is here (`heads.py`)."""
_SAID_BY_OTHERS = ("is_rendered", "unknown_because", "is_headless")
"""Columns of `DESCRIBED` that do not follow from the prompt's text."""


def described(calls: pa.RecordBatch) -> pa.RecordBatch:
    """Model calls with the columns of `DESCRIBED`."""
    messages = calls.column("input_messages")
    has_messages, is_one = pc.greater(pc.binary_length(messages), 0), _matches(messages, _ONE)
    is_plain = is_one if pc.all(is_one).as_py() else pc.or_(is_one, _matches(messages, _SEVERAL))
    if "head_bytes" in calls.schema.names:
        is_headless = pc.is_valid(calls.column("head_bytes"))
    else:
        is_headless = pa.repeat(False, calls.num_rows)
    # only SQL can count the messages of a prompt that is not plain text
    may_go_on = pc.or_(pc.and_not(has_messages, is_one), is_headless)
    found = [pc.fill_null(flags, False) for flags in (has_messages, is_plain, may_go_on)]
    sent = [pa.repeat(False, calls.num_rows), pa.nulls(calls.num_rows, pa.string())]  # none is rendered yet
    columns = [*calls.columns, *found, *sent, is_headless]
    return pa.RecordBatch.from_arrays(columns, names=[*calls.schema.names, *DESCRIBED.names])


def _matches(texts: pa.Array[Any], pattern: str) -> Any:
    return pc.fill_null(pc.match_substring_regex(texts, pattern), False)


def described_again(calls: pa.RecordBatch) -> pa.RecordBatch:
    """Described model calls whose prompts were changed."""
    made = described(undescribed(calls))
    for name in _SAID_BY_OTHERS:
        made = with_column(made, name, calls.column(name))
    return made


def undescribed(calls: pa.RecordBatch) -> pa.RecordBatch:
    """Model calls without the columns of `DESCRIBED`."""
    return calls.select([name for name in calls.schema.names if name not in DESCRIBED.names])


def without_inputs(inferences: pa.RecordBatch) -> int:
    """The bytes of inferences without their inputs, for an assembly of all together."""
    return inferences.nbytes - inferences.column("input").nbytes


def without_plain_prompts(calls: pa.RecordBatch) -> int:
    """The bytes of described calls without plain prompts, an upper bound for an assembly of all together."""
    lengths = pc.filter(pc.binary_length(calls.column("input_messages")), calls.column("is_plain"))
    return calls.nbytes - int(pc.sum(lengths).as_py() or 0)


def late_texts(inferences: Group, calls: Group) -> Late:
    """Fills `input`, and `messages` where SQL left them out; holds the texts of one bucket at a time.

    An input that is equal to the prompt, word for word, is null.

    Args:
        inferences: The rows that `input_row` counts.
        calls: The rows that `call_row` counts.
    """
    found: dict[int, _Bucket] = {}

    def bucket(number: int) -> _Bucket:
        if number not in found:
            found.clear()
            found[number] = _Bucket(inferences, calls, number)
        return found[number]

    def fill(batch: pa.RecordBatch) -> Mapping[str, pa.Array[Any]]:
        runs = pc.run_end_encode(batch.column(BUCKET))
        made, start = [], 0
        for end, number in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            made.append(bucket(number).fill(batch.slice(start, end - start)))
            start = end
        if len(made) == 1:  # `concat_arrays` would copy it
            return made[0]
        return {name: pa.concat_arrays([part[name] for part in made]) for name in ("input", "messages")}

    most_rows = max(1, int(_FILLED_BYTES // max(inferences.bytes_per_row + calls.bytes_per_row, 1)))
    keys = (BUCKET, INPUT_ROW, CALL_ROW, SENT_ROW)
    return Late(keys, (BUCKET,), fill, most_rows, spelled=("completion", "extra"), absent=("input", *_ABSENT))


class _Bucket:
    """The wide texts of one bucket."""

    def __init__(self, inferences: Group, calls: Group, number: int) -> None:
        self._first_input, self._first_call = inferences.first_row(number), calls.first_row(number)
        inputs = inferences.column(number, "input")
        self._inputs = Texts(inputs)
        self._has_input = inputs.is_valid().to_numpy()
        self._is_short = inferences.flags(number, "is_short")
        self._said = inferences.numbers_of(number, "said_bytes"), inferences.numbers_of(number, "said_hash")
        self._sent = calls.numbers_of(number, "n_bytes"), calls.numbers_of(number, "whole_hash")
        # without the bracket that begins a list: a prefix has it
        self._bodies = Texts(calls.column(number, "input_messages"), n_skipped=1)
        self._is_headless = calls.flags(number, "is_headless")
        systems: Any = calls.texts(number, "system").dictionary_encode()
        texts = systems.dictionary.cast(pa.string()).to_pylist()
        self._prefixes, self._input_prefixes = _prefixes(texts), input_prefixes(texts)
        self._prefix_of = systems.indices.fill_null(len(texts)).to_numpy()

    def fill(self, batch: pa.RecordBatch) -> dict[str, pa.Array[Any]]:
        """The texts of some of its steps."""
        given: Any = batch.column("messages")
        given = given.storage if isinstance(given, pa.ExtensionArray) else given
        rows: Any = pc.subtract(batch.column(CALL_ROW), self._first_call)
        messages = given.cast(pa.large_string())
        if rows.null_count < len(rows):
            built = self._joined(rows)
            messages = built if given.null_count == len(given) else pc.coalesce(messages, built)
        inputs = self._taken(
            pc.subtract(batch.column(INPUT_ROW), self._first_input).to_numpy(),
            pc.subtract(batch.column(SENT_ROW), self._first_call),
        )
        return {"input": inputs, "messages": messages}

    def _taken(self, rows: NDArray[np.int64], sent: Any) -> pa.Array[Any]:
        """The inputs of some inferences; null where the model was sent the same."""
        is_given = self._has_input[rows] & ~self._is_short[rows] & ~self._is_same(rows, sent)
        return as_array([self._inputs.picked(rows[is_given])], is_given)

    def _is_same(self, rows: NDArray[np.int64], sent: Any) -> NDArray[np.bool_]:
        """Which inputs are a system message and the messages that were sent, spelled in the same way."""
        has_sent = sent.is_valid().to_numpy(zero_copy_only=False)
        calls = sent.fill_null(0).to_numpy()
        is_same = np.zeros(len(rows), dtype=np.bool_)
        if not has_sent.any():
            return is_same
        prefixes = self._prefix_of[calls]
        n_around = _lengths(self._input_prefixes)[prefixes] + 1
        # few can be the same, and only those are looked at
        may_be = has_sent & (self._inputs.lengths(rows) == n_around + self._bodies.lengths(calls))
        found = np.flatnonzero(may_be & ~self._is_headless[calls])
        texts, bodies = self._inputs.at(rows[found]), self._bodies.at(calls[found])
        for place, text, body in zip(found.tolist(), texts, bodies, strict=True):
            start = self._input_prefixes[prefixes[place]]
            is_same[place] = b"".join((start, body, b"}")) == text
        # for a text without its head, the database sent the hash
        found = np.flatnonzero(has_sent & self._is_headless[calls])
        for place, text in zip(found.tolist(), self._inputs.at(rows[found]), strict=True):
            row, call = rows[place], calls[place]
            has_same_hash = all(
                said[row] == sent[call] for said, sent in zip(self._said, self._sent, strict=True)
            )
            start = self._input_prefixes[prefixes[place]]
            is_same[place] = has_same_hash and text[: len(start)] == start
        return is_same

    def _joined(self, rows: Any) -> pa.Array[Any]:
        """The prompts of some calls, null for null: a prefix and the messages."""
        chosen = rows.drop_null().to_numpy()
        parts = [self._prefixes.picked(self._prefix_of[chosen]), self._bodies.picked(chosen)]
        return as_array(parts, rows.is_valid().to_numpy(zero_copy_only=False))


def _lengths(texts: Sequence[bytes | memoryview]) -> NDArray[np.int64]:
    return np.fromiter(map(len, texts), np.int64, len(texts))


def _prefixes(systems: Sequence[str]) -> Texts:
    """`[` and the system message, for each distinct system text; and last, for none, just `[`."""
    made = [
        f'[{{"role":"system","content":[{{"type":"text","text":{_json_string(text)}}}]}},' for text in systems
    ]
    return Texts(pa.chunked_array([[*made, "["]], pa.string()))


def input_prefixes(systems: Sequence[str]) -> list[bytes]:
    """The beginning of an input equal to the prompt, up to the bracket; last, for no system message."""
    made = [f'{{"system":{_json_string(text)},"messages":[' for text in systems]
    return [text.encode() for text in (*made, '{"messages":[')]


def _json_string(text: str) -> str:
    """A text as JSON, spelled as the store does: control characters have upper-case digits."""
    spelled = json.dumps(text, ensure_ascii=False)
    if not _CONTROL.search(text):
        return spelled
    return "".join(
        f"\\u{ord(character):04X}"
        if _CONTROL.match(character)
        else json.dumps(character, ensure_ascii=False)[1:-1]
        for character in text
    ).join('""')
