"""Whatever is wrong with a file is named with its place; what else is in it is read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.formats.test_atif import ASKS, DONE, USER, document
from trajkit.formats.reading.document import BadDocument
from trajkit.sources.files import documents as documents_module
from trajkit.sources.files import found, texts
from trajkit.sources.files.documents import documents
from trajkit.sources.files.importing import Wish, import_files
from trajkit.sources.files.texts import json_of, lines_of, read_whole

TALK = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
LINE = json.dumps(TALK).encode()


def said(*messages: dict[str, Any]) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "a"}, *messages]}).encode()


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
BAD = {
    "not JSON": b'{"messages": ]',
    "not UTF-8": b'{"messages": "\xff"}',
    "NaN or Infinity, which JSON does not have": b'{"messages": [], "x": NaN}',
    "not a list": json.dumps({**TALK, "tools": {"name": "x"}}).encode(),
    "not openai-chat": b'{"rows": []}',
    "sharegpt, not openai-chat": b'{"conversations": [{"from": "human", "value": "x"}]}',
    "not a chat message": said({"role": "narrator", "content": "x"}),
    "an answer that says nothing": said({"role": "assistant", "content": None}),
    "a tool call id that is there twice": said(
        {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]}
    ),
    "a tool result without its call": said(
        {"role": "tool", "tool_call_id": "z", "content": "x"}, {"role": "assistant", "content": "b"}
    ),
    "a message of the system in the middle": said(
        {"role": "system", "content": "x"}, {"role": "assistant", "content": "b"}
    ),
    "no message of the assistant": said(),
}


def test_each_kind_of_bad_line_is_counted_under_its_name_and_the_others_are_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join([LINE, *BAD.values(), LINE[:-5]]))
    imported, _ = import_files(path, tmp_path / "store", Wish(format="openai-chat", skip_bad=True))
    cut = "cut off: the file ends in the middle of it"
    assert imported.left == {f"cannot be read: {kind}": 1 for kind in (*BAD, cut)}
    assert imported.n_episodes == 1
    assert [one.split(": ")[0] for one in imported.problems] == ["a.jsonl:2", "a.jsonl:3", "a.jsonl:4"]


def test_a_last_line_without_a_line_break_is_a_line(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + LINE + b"\r\n\n" + LINE)
    assert [one.place for one in documents(path, "openai-chat") if one.problem is None] == [
        "a.jsonl:1",
        "a.jsonl:3",
    ]


def test_a_line_that_is_too_long_is_passed_over_in_pieces(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * 5000 + b"\n" + b"{}" + b"\n" + b"y" * 2000)
    with path.open("rb") as file:
        lines = list(lines_of(file, most_bytes=1000))
    assert [(line.number, line.is_cut) for line in lines] == [(1, True), (2, False), (3, True)]
    assert lines[1].data == b"{}"


@pytest.mark.full
def test_a_line_of_300_mb_is_named_and_never_in_memory(tmp_path):
    import resource

    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(LINE + b"\n")
        for _ in range(300):
            file.write(b"z" * 1_000_000)
        file.write(b"\n" + LINE + b"\n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    imported, _ = import_files(path, tmp_path / "store", Wish(format="openai-chat", skip_bad=True))
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert imported.left == {"cannot be read: longer than 100 MB": 1}
    assert imported.n_episodes == 2
    assert grown_mb < 280, grown_mb


def test_a_file_that_is_too_large_is_named(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"1" * 2000)
    with pytest.raises(BadDocument, match="longer than 0 MB"):
        read_whole(path, None, most_bytes=1000)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"[" * 300 + b"]" * 300, "recursion limit exceeded"),
        (b'{"a": "\\ud800"}', "not JSON"),
        (b"", "not JSON"),
        (b'{"a": Infinity}', "NaN or Infinity, which JSON does not have Infinity"),
    ],
)
def test_json_that_is_none_is_named(data, words):
    with pytest.raises(BadDocument, match=words):
        json_of(data)


@pytest.mark.parametrize("padding", [0, 5_000, 50_000, 5_000_000])
@pytest.mark.parametrize("word", ["1e308 ", "code ", "3e1234ab "])
def test_a_number_that_is_too_large_is_found_in_texts_of_every_size(padding, word):
    text = '{"before":"%s","n":%s,"after":"%s"}'
    around = (word * (padding // len(word)), "code " * (padding // 5))
    for number in ("1e309", "-1E309", "1e+309", "2.5E+0400", "1" * 310, f"-{'1' * 211}.5e99"):
        with pytest.raises(BadDocument, match="n: a number that is too large"):
            json_of((text % (around[0], number, around[1])).encode())
    for number in ("1e308", "-1e-400", "1" * 308, "0." + "1" * 400):
        assert json_of((text % (around[0], number, around[1])).encode())["n"] == json.loads(number)


@pytest.mark.parametrize("more", [{"metrics": None}, {"llm_call_count": 1}], ids=["usual", "unusual"])
def test_a_number_that_is_none_in_the_arguments_of_a_tool_is_named(more, tmp_path):
    text = json.dumps(document(USER, {**ASKS, **more}, DONE))
    (tmp_path / "a.json").write_text(text.replace('"n": 1', '"n": 1e999'))
    (tmp_path / "b.json").write_text(text.replace('"bug"', '"Infinity"'))
    imported, _ = import_files(tmp_path, tmp_path / "store", Wish(skip_bad=True))
    assert imported.left == {"cannot be read: a number that is too large": 1}
    assert imported.problems[0].startswith("a.json: steps.")
    assert imported.n_episodes == 1


def test_a_parquet_file_that_is_none_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 nonsense PAR1")
    (only,) = documents(path, "hf-messages")
    assert only.problem is not None
    assert only.problem.kind == "not a readable Parquet file"


def test_the_limits_are_what_the_page_says():
    assert found.MOST_BYTES == texts.MOST_BYTES == documents_module.MOST_BYTES == 100_000_000
