"""YAML with lines, and texts as they are typed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trajkit.commands.recipe.yaml_text import read_yaml, write_yaml
from trajkit.errors import ConfigError

TYPED = {
    "seeds": "1:40",
    "rate": "2e-4",
    "answer": "no",
    "day": "2026-11-21",
    "flag": True,
    "other": False,
    "nothing": None,
    "text": "true",
    "empty": "",
    "list": ["a: b", "null", "${good}/train"],
    "names": {"lora.r": "8"},
    "long": "episode_return >= 0.7 and purpose = 'train' " * 5,
}


def test_texts_stay_as_they_are_typed(write: Callable[[str], str]) -> None:
    text = "seeds: 1:40\nrate: 2e-4\nanswer: no\nday: 2026-11-21\nflag: true\nnothing:\nquoted: 'true'\n"
    assert read_yaml(Path(write(text))).data == {
        "seeds": "1:40",
        "rate": "2e-4",
        "answer": "no",
        "day": "2026-11-21",
        "flag": True,
        "nothing": None,
        "quoted": "true",
    }


def test_what_is_written_is_read_as_the_same(write: Callable[[str], str]) -> None:
    assert read_yaml(Path(write(write_yaml(TYPED)))).data == TYPED
    assert "rate: 2e-4\n" in write_yaml(TYPED)
    assert write_yaml({"version": 1, "flag": True}) == "version: 1\nflag: true\n"


def test_every_part_has_its_line(write: Callable[[str], str]) -> None:
    located = read_yaml(Path(write("a: 1\nb:\n  - x\n  - c:\n      d: 2\n")))
    assert [located.line(place) for place in (("a",), ("b",), ("b", "1"), ("b", "1", "c", "d"))] == [
        1,
        2,
        4,
        5,
    ]
    assert located.line(("b", "7", "gone")) == 2  # what is not there is where it should be


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: [1\n", "line 3: not YAML"),
        ("a: 1\nb: 2\na: 3\n", "line 3: 'a' is given already, in line 1"),
        ("a: !!python/object:os.system 1\n", "line 1: the tag"),
        ("a: !mine 1\n", "line 1: the tag !mine"),
        ("a: &x\n  - *x\n", "line 1: it contains itself"),
        ("? [a]\n: 1\n", "line 1: a key is not a text"),
        ("a: \x07\n", "not YAML"),
    ],
)
def test_what_is_no_document_is_named_with_its_line(
    write: Callable[[str], str], text: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_yaml(Path(write(text)))
    assert words in caught.value.message
    assert caught.value.message.startswith("recipe.yaml ")


def test_a_file_that_is_not_there_or_no_text_is_said(write: Callable[[str], str]) -> None:
    path = Path(write(""))
    path.write_bytes(b"\xff\xfe\xff")
    for each, words in ((path, "is not UTF-8 at byte 0"), (Path("other.yaml"), "cannot be read")):
        with pytest.raises(ConfigError, match=words):
            read_yaml(each)
