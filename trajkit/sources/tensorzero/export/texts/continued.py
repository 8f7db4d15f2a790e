"""Find the prompts that continue the prompt of the step before, by comparing the bytes from the database.

The prompts of a conversation repeat all earlier messages, so their text grows with the square of its turns.
Two neighbouring prompts are compared as bytes here, and only the new part goes on into SQL. Where the bytes
differ although the messages may be equal (the same JSON in two spellings), SQL compares the messages. For a
prompt that came without its head, the database sent length and hash of the head (`heads.py`).
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from trajkit.sources.tensorzero.connect.tables import pc
from trajkit.sources.tensorzero.export.spool import Group

_COMMA, _END = ord(","), ord("]")

_FOUND: dict[str, pa.DataType] = {
    "turn": pa.int64(),
    "chain": pa.int64(),
    "text": pa.large_string(),
    "has_system": pa.bool_(),
    "is_apart": pa.bool_(),
}
FOUND = pa.schema(_FOUND)
"""The result for each turn. `chain`: the number of a turn and the turns that continue it, one after another;
`text`: its new messages as a JSON list as they were sent, all of them at the start of a chain that continues,
null at the start of one that does not; `is_apart`: its bytes do not continue those of the turn before."""


def continuations(calls: Group, turns: pa.Table) -> pa.Table:
    """Compare each turn with the one before it.

    Args:
        calls: The model calls that `call_row` counts; the texts of one bucket are held at a time.
        turns: `turn` (a number that counts up), `bucket`, `call_row` and `row_before` (the call of the step
            before, null where there is none), those of an episode side by side and in order, the episodes of
            a bucket too.

    Returns:
        One row for each turn (`FOUND`).

    Raises:
        WithoutHead: A prompt without its head does not continue the one before, or the other way round.
    """
    made, n_chains, start = [], 0, 0
    runs = pc.run_end_encode(turns.column("bucket").combine_chunks())
    for end, number in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        found = _of_bucket(_Bodies.read(calls, number), turns.slice(start, end - start), n_chains)
        n_chains = found.column("chain")[-1].as_py()
        made.append(found)
        start = end
    return pa.concat_tables(made) if made else FOUND.empty_table()


class WithoutHead(Exception):
    """A whole text is needed, and only its end was transferred."""


class _Heads(NamedTuple):
    """Facts about the heads of the prompts of a bucket's calls."""

    n_bytes: list[int]
    whole_hash: list[int | None]
    head_bytes: list[int | None]
    head_hash: list[int | None]
    is_headless: list[bool]

    def goes_on(self, before: int, row: int) -> bool:
        """Whether the head of a row is known to be the prompt of the row before."""
        head = self.head_bytes[row]
        return (
            head is not None
            and head == self.n_bytes[before] - 1
            and self.head_hash[row] == self.whole_hash[before]
        )


class _Bodies(NamedTuple):
    """The prompts of a bucket's calls, as they were sent."""

    first_row: int
    offsets: list[int]
    data: Any
    """Their bytes, one after another."""
    systems: list[int | None]
    """A number for each distinct system message; None for none."""
    heads: _Heads | None
    """None if every text is whole."""

    @classmethod
    def read(cls, calls: Group, number: int) -> _Bodies:
        texts = calls.texts(number, "input_messages")
        # only the first buffer, which marks nulls, may be missing
        offsets, data = cast("list[Any]", texts.buffers()[1:])
        ends = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
        systems: Any = calls.texts(number, "system").dictionary_encode()
        heads = None
        if calls.has_column("head_bytes"):
            known: list[Any] = [calls.column(number, name).to_pylist() for name in _Heads._fields]
            heads = _Heads(*known)
        return cls(
            calls.first_row(number),
            ends.tolist(),
            np.frombuffer(data or b"", np.uint8),
            systems.indices.to_pylist(),
            heads,
        )

    def new_since(self, before: int | None, row: int) -> int | None:
        """Where the new text of a row begins: at a comma or, when all of it is new, at a bracket.

        None when it does not continue the row before.
        """
        heads = self.heads
        if heads is not None:
            is_short = heads.is_headless[row]
            has_same_system = before is not None and self.systems[before] == self.systems[row]
            if is_short or (before is not None and heads.is_headless[before]):
                # not if both texts are here: repairing invalid UTF-8 has changed the length
                if before is not None and has_same_system and heads.goes_on(before, row):
                    return self.offsets[row] + (0 if is_short else heads.head_bytes[row] or 0)
                raise WithoutHead
        return None if before is None else self._new_bytes(before, row)

    def _new_bytes(self, before: int, row: int) -> int | None:
        start, end = self.offsets[before], self.offsets[before + 1]
        mine, my_end = self.offsets[row], self.offsets[row + 1]
        n_same = end - start - 1  # without the bracket that ends the list
        if n_same < 1 or my_end - mine <= n_same or self.systems[before] != self.systems[row]:
            return None
        if self.data[end - 1] != _END or self.data[mine + n_same] != _COMMA:
            return None
        same = np.array_equal(self.data[start : start + n_same], self.data[mine : mine + n_same])
        return mine + n_same if same else None

    def text(self, row: int, start: int | None) -> bytes:
        """The messages of a row as a list: all of them, or those after a comma (or a bracket)."""
        end = self.offsets[row + 1]
        if start is None:
            return bytes(self.data[self.offsets[row] : end])
        return b"[" + bytes(self.data[start + 1 : end])


def _of_bucket(bodies: _Bodies, turns: pa.Table, n_chains: int) -> pa.Table:
    rows = pc.subtract(turns.column("call_row"), bodies.first_row).to_pylist()
    before = pc.subtract(turns.column("row_before"), bodies.first_row).to_pylist()
    starts = [bodies.new_since(b, row) for row, b in zip(rows, before, strict=True)]
    begins = [start is None for start in starts]
    goes_on = [*(not begin for begin in begins[1:]), False]
    texts = [
        None if begin and not followed else bodies.text(row, start)
        for row, start, begin, followed in zip(rows, starts, begins, goes_on, strict=True)
    ]
    columns = [
        turns.column("turn").combine_chunks(),
        pa.array(np.cumsum(begins) + n_chains, pa.int64()),
        pa.array(texts, pa.large_binary()).cast(pa.large_string()),
        pa.array([bodies.systems[row] is not None for row in rows], pa.bool_()),
        pa.array([start is None and b is not None for start, b in zip(starts, before, strict=True)]),
    ]
    return pa.Table.from_arrays(columns, schema=FOUND)
