"""Builders of episodes and stores whose every field has a default, and the judge of rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.store.written import write_once
from trajkit.schema import Episode, Transition, message
from trajkit.store.dataset import Dataset, open_dataset

DatasetOf = Callable[..., Dataset]
Judged = Callable[[Path], list[dict[str, Any]]]


def step(step_index: int = 0, *, say: str | None = None, **fields: Any) -> Transition:
    default = {
        "messages": (message("system", "Play."), message("user", say or f"turn {step_index}")),
        "completion": message("assistant", f"answer {step_index}"),
    }
    return Transition(step_index=step_index, **{**default, **fields})


def episode(name: str = "ep-0", *, n_steps: int = 2, **fields: Any) -> Episode:
    default = {"source": "test", "purpose": "train", "steps": tuple(step(i) for i in range(n_steps))}
    return Episode(episode_id=name, **{**default, **fields})


@pytest.fixture
def dataset_of(tmp_path: Path) -> DatasetOf:
    """Write episodes as a store and open it."""

    def write(*episodes: Episode, name: str = "store") -> Dataset:
        write_once(tmp_path / name, episodes)
        return open_dataset(tmp_path / name)

    return write


# --- the judge: the published rules of a row, written apart from the code that follows them -----------------


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_PART = _object({"type": {"const": "text"}, "text": {"type": "string", "minLength": 1}}, "type", "text")
_CONTENT = {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "minItems": 1, "items": _PART}]}
_NAME = {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"}
_CALL = _object(
    {
        "id": {"type": "string", "minLength": 1},
        "type": {"const": "function"},
        "function": _object({"name": _NAME, "arguments": {"type": "string"}}, "name", "arguments"),
    },
    *("id", "type", "function"),
)
_ASSISTANT = {
    "role": {"const": "assistant"},
    "content": _CONTENT,
    "tool_calls": {"type": "array", "minItems": 1, "items": _CALL},
    "weight": {"enum": [0, 1]},
}
_MESSAGE = {
    "oneOf": [
        _object({"role": {"const": "system"}, "content": _CONTENT}, "role", "content"),
        _object({"role": {"const": "user"}, "content": _CONTENT}, "role", "content"),
        _object(_ASSISTANT, "role", "content"),
        _object({**_ASSISTANT, "content": False}, "role", "tool_calls"),
        _object(
            {"role": {"const": "tool"}, "tool_call_id": {"type": "string"}, "content": {"type": "string"}},
            *("role", "tool_call_id", "content"),
        ),
    ]
}
_FUNCTION = _object(
    {
        "name": _NAME,
        "description": {"type": "string"},
        "parameters": {"type": "object"},
        "strict": {"type": "boolean"},
    },
    "name",
)
_TOOL = _object({"type": {"const": "function"}, "function": _FUNCTION}, "type", "function")
_ROW = Draft202012Validator(
    _object(
        {
            "messages": {"type": "array", "minItems": 2, "items": _MESSAGE},
            "tools": {"type": "array", "minItems": 1, "items": _TOOL},
            "parallel_tool_calls": {"type": "boolean"},
        },
        "messages",
    )
)
_TOKEN = re.compile(r"<\|(end(oftext|ofprompt)|fim_(prefix|middle|suffix)|im_(start|end|sep))\|>")


def judge(line: str) -> dict[str, Any]:
    """The row of a line that the service would take; fails the test on any other."""
    row: dict[str, Any] = json.loads(line)
    _ROW.validate(row)
    messages = row["messages"]
    assert messages[-1]["role"] == "assistant"
    assert messages[-1].get("weight", 1) == 1
    _judge_calls(messages)
    assert not _TOKEN.search(line)
    return row


def _judge_calls(messages: list[dict[str, Any]]) -> None:
    for position, each in enumerate(messages):
        asked = [call["id"] for call in each.get("tool_calls", [])]
        assert len(set(asked)) == len(asked)
        following = messages[position + 1 : position + 1 + len(asked)]
        if position < len(messages) - 1:
            assert sorted(asked) == sorted(reply.get("tool_call_id", "") for reply in following)
    n_results = sum(each["role"] == "tool" for each in messages)
    assert n_results == sum(len(each.get("tool_calls", [])) for each in messages[:-1])


@pytest.fixture(scope="session")
def judged() -> Judged:
    """The rows of a file that the service would take."""

    def read(path: Path) -> list[dict[str, Any]]:
        data = path.read_bytes()
        assert not data.startswith(b"\xef\xbb\xbf")
        assert data.endswith(b"\n")
        lines: Iterable[str] = data.decode("utf-8").split("\n")[:-1]
        assert all(line == line.strip(" \t\r") for line in lines)
        return [judge(line) for line in lines]

    return read
