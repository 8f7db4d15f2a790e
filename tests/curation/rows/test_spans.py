"""Where texts lie: found by their surroundings alone, in one column of many rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from trajkit.curation.rows.writers.spans import ROLES, Finder
from trajkit.schema import Message, message
from trajkit.store.arrow import json_text, message_value

BLOCK = 1 << 20
"""Bytes that are looked at together."""


def prompt(*messages: Message) -> str:
    return json_text([message_value(each) for each in messages])


def found(rows: list[str | None], *refused: bytes, is_list: bool = True) -> list[list[tuple[str, str]]]:
    spans = Finder(refused).spans(pa.array(rows, pa.string()), is_list=is_list)
    texts = [
        (ROLES[role], spans.data[start : start + size].tobytes().decode())
        for role, start, size in zip(spans.roles, spans.starts, spans.sizes, strict=True)
    ]
    ends = spans.counts.cumsum().tolist()
    return [texts[end - count : end] for end, count in zip(ends, spans.counts.tolist(), strict=True)]


def test_each_row_has_its_texts_as_json_spells_them() -> None:
    rows = [
        prompt(message("system", "Play."), message("user", 'a "b" \\ {')),
        None,
        prompt(message("user", "x"), message("assistant", "y"), message("user", "é\n")),
        "[]",
    ]
    assert found(rows) == [
        [("system", "Play."), ("user", r"a \"b\" \\ {")],
        [],
        [("user", "x"), ("assistant", "y"), ("user", r"é\n")],
        [],
    ]


def test_a_slice_of_a_column_is_read_as_such() -> None:
    rows = [prompt(message("user", f"turn {i}")) for i in range(5)]
    spans = Finder().spans(pa.array(rows, pa.string()).slice(2, 2), is_list=True)
    assert spans.counts.tolist() == [1, 1]
    assert spans.data[spans.starts[0] :][: spans.sizes[0]].tobytes() == b"turn 2"


@pytest.mark.parametrize(
    "row",
    [
        prompt(message("user", "")),
        prompt(message("tool", "x")),
        '[{"role":"user","content":[]}]',
        '[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]',
        '[{"role":"user","content":[{"type":"unknown","data":{"role":"user"}}]}]',
        '[{"role":"user","content":[{"type":"text","text":"a"}]},'
        '{"role":"user","content":[{"type":"unknown","data":{}}]}]',
        '[{"role":"user","content":[{"type":"thought","text":"a"}]}]',
        '[{"role": "user", "content": [{"type": "text", "text": "a"}]}]',
        '[{"role":"user","content":[{"type":"text","text":"a"}],"name":"b"}]',
        '{"role":"user","content":[{"type":"text","text":"a"}]}',
        "null",
        "x",
    ],
)
def test_what_is_not_made_of_texts_alone_has_none_and_its_neighbours_theirs(row: str) -> None:
    usual = prompt(message("user", "go"))
    assert found([usual, row, usual]) == [[("user", "go")], [], [("user", "go")]]
    assert found([row]) == [[]]


def test_a_message_of_its_own_is_no_list() -> None:
    row = prompt(message("assistant", "left"))[1:-1]
    assert found([row, f"[{row}]"], is_list=False) == [[("assistant", "left")], []]


@pytest.mark.parametrize("shift", range(-5, 5))
def test_what_is_refused_is_found_wherever_it_stands(shift: int) -> None:
    start = len(prompt(message("user", ""))) - len('"}]}]')
    text = "x" * (BLOCK - start + shift) + "<|end" + "y" * 10
    good = "x" * (BLOCK - start + shift) + "<end|" + "{" * 10
    rows = [prompt(message("user", text)), prompt(message("user", good)), prompt(message("user", "<|"))]
    assert [len(row) for row in found(rows, b"<|")] == [0, 1, 0]
    assert [len(row) for row in found(rows, b"\\u", b"<|end")] == [0, 1, 1]


@pytest.mark.parametrize("shift", range(-5, 5))
def test_what_is_refused_is_found_where_its_bytes_are_everywhere(shift: int) -> None:
    start = len(prompt(message("user", ""))) - len('"}]}]')
    around = r"u\nu"  # as JSON; neither of its backslashes is followed by a `u`
    n_repeated, n_more = divmod(BLOCK - start + shift, len(around))
    spelled = "x" * n_more + around * n_repeated
    frame = prompt(message("user", "TEXT"))
    good, bad = (frame.replace("TEXT", spelled + text) for text in ("u", r"\u0001"))
    assert [len(row) for row in found([good, bad, good], b"\\u")] == [1, 0, 1]
