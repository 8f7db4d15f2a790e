"""Names, files and JSON from outside, and secrets in texts: the doors that every room uses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from trajkit._core.outside import (
    json_from_outside,
    name_from_outside,
    regular_file,
    text_from_outside,
    yaml_from_outside,
)
from trajkit._core.secrets import hidden
from trajkit._core.settings import secret_from_environment
from trajkit.errors import ConfigError, DataError


@pytest.mark.parametrize("name", ["train", "val-2", "été", "a b", "x.parquet", "goto:200"])
def test_a_plain_name_is_taken(name: str) -> None:
    assert name_from_outside(name, what="the split") == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        ".",
        "..",
        "../x",
        "a/b",
        "/etc/x",
        "a\\b",
        "C:x",
        ".git",
        "a\0b",
        "a\nb",
        "a\u202eb",
        "\ud800",
    ],
)
def test_what_could_be_a_path_is_refused_as_a_name(name: str) -> None:
    with pytest.raises(DataError, match="the split cannot be"):
        name_from_outside(name, what="the split")


@pytest.mark.parametrize("name", ["x" * 201, None, 3, ["a"]])
def test_what_is_too_long_or_no_text_is_refused_as_a_name(name: object) -> None:
    with pytest.raises(DataError, match="the split cannot be"):
        name_from_outside(name, what="the split")


@given(st.text())
def test_a_name_that_is_taken_stays_in_its_folder(name: str) -> None:
    try:
        taken = name_from_outside(name, what="it")
    except DataError:
        return
    assert (Path("/some/folder") / taken).parent == Path("/some/folder")
    assert os.path.normpath(f"/some/folder/{taken}") == f"/some/folder/{taken}"


def test_a_fifo_a_device_and_a_folder_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(DataError, match="is a FIFO, not a regular file"):
        text_from_outside(tmp_path / "fifo")
    with pytest.raises(DataError, match="is a device"):
        text_from_outside(Path("/dev/zero"))
    with pytest.raises(DataError, match="is a folder"):
        text_from_outside(tmp_path)
    with pytest.raises(DataError, match="No such file"):
        text_from_outside(tmp_path / "missing")
    with pytest.raises(DataError, match="cannot be read"):
        text_from_outside(tmp_path / "a\0b")


def test_a_link_out_of_the_folder_is_refused_and_one_within_is_not(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.write_text("secret")
    (inside / "a").write_text("mine")
    (inside / "b").symlink_to(inside / "a")
    (inside / "c").symlink_to(outside)
    assert text_from_outside(inside / "b", within=inside) == "mine"
    with pytest.raises(DataError, match="link to a file outside"):
        regular_file(inside / "c", within=inside)


def test_a_file_that_is_too_large_or_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    with pytest.raises(DataError, match="larger than 4 bytes"):
        text_from_outside(tmp_path / "x", max_bytes=4)
    (tmp_path / "y").write_bytes(b"ab\xff")
    with pytest.raises(DataError, match="not UTF-8 at byte 2"):
        text_from_outside(tmp_path / "y")


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "1" * 5000, "{", "", b"\xff"])
def test_json_that_breaks_the_parser_is_an_error_with_its_place(text: str | bytes) -> None:
    with pytest.raises(DataError, match=r"^that file is "):
        json_from_outside(text, where="that file")


_MERGED = "a0: &a0 {k: v}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 9)
)


@pytest.mark.parametrize(
    "text",
    [
        _MERGED,
        "[" * 3000,
        "a: 2026-13-45",
        "a: " + "9" * 5000,
        "a: [",
        "a: !!python/name:os.x",
        "- a\n" * 60_000,
    ],
)
def test_yaml_that_breaks_the_parser_is_an_error_with_its_place(text: str) -> None:
    with pytest.raises(DataError, match=r"^that file (is|has) "):
        yaml_from_outside(text, where="that file")


def test_yaml_with_a_few_aliases_is_read() -> None:
    assert yaml_from_outside("a: &a [1]\nb: *a", where="that file") == {"a": [1], "b": [1]}


_AWKWARD = "sk-a\n\"b'\\c\x1b/é%+ d"


@pytest.mark.parametrize(
    "shown",
    [str, repr, json.dumps, lambda key: repr(key.encode()), lambda key: json.dumps(key, ensure_ascii=False)],
)
def test_a_secret_is_hidden_in_every_form(shown: object) -> None:
    assert callable(shown)
    assert hidden(f"x {shown(_AWKWARD)} y", SecretStr(_AWKWARD)).replace('"', "").replace("'", "") in (
        "x *** y",
        "x b*** y",
    )


def test_a_key_is_stripped_and_one_that_cannot_be_sent_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_KEY", " sk-good\n")
    key = secret_from_environment("SOME_KEY")
    assert key is not None
    assert key.get_secret_value() == "sk-good"
    monkeypatch.setenv("SOME_KEY", "\n")
    assert secret_from_environment("SOME_KEY") is None
    for bad in ("sk-\x1bbad", "sk-bad\nmore", "sk-bäd"):
        monkeypatch.setenv("SOME_KEY", bad)
        with pytest.raises(ConfigError) as caught:
            secret_from_environment("SOME_KEY")
        assert "bad" not in str(caught.value)
        assert "bäd" not in str(caught.value)
        assert "SOME_KEY" in str(caught.value)
