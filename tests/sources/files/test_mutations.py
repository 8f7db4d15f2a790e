"""Files to import with bytes and values changed by chance: each ends in an exit code, never in a traceback.

The seeds are fixed. `TRAJKIT_FUZZ=40` tries forty times as many.
"""

from __future__ import annotations

import copy
import io
import json
import os
import random
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.formats.exchange import conversation, whole
from tests.formats.test_atif import ASKS, DONE, USER, document
from tests.formats.test_fuzz import DEEP
from tests.formats.test_inspect import LOG, SAMPLE
from tests.matrix import daily
from tests.sources.files.test_dialects import ANSWERED, ANTHROPIC, ASKED, LLAMA_FACTORY, PREFERENCES
from tests.sources.files.test_jobs import trial
from trajkit.cli.main import run
from trajkit.formats import format_named

FACTOR = int(os.environ.get("TRAJKIT_FUZZ", "1"))
MOST_SECONDS = 60
"""Of one import; usual are 0.05."""

VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 10**30, 2**63, "", "x", "\ud800", "\x1b[31m", "1e999", "../../etc/passwd"),
    *([], [1], [[]], [{}], {}, {"a": 1}, {"type": "text", "text": 1}, {"role": "assistant"}, "x" * 5000),
)
PIECES = (
    b"1e999",
    b"9" * 400,
    b"[" * 2000,
    b"{",
    b"\x00",
    b"\xff\xfe",
    b"NaN",
    b"\n",
    b'"',
    b"null",
    b"\\ud800",
)


def written(name: str, episode: Any) -> list[Any]:
    return list(format_named(name).write(episode).values)


DOCUMENTS: dict[str, list[Any]] = {
    "atif": [DEEP, document(USER, ASKS, DONE)],
    "atif of trajkit": written("atif", whole()),
    "adp": written("adp", whole()),
    "hf-messages": [
        *written("hf-messages", whole()),
        {"messages": [ASKED, ANSWERED], "reward": 1.0, "task": "t"},
    ],
    "openai-chat": written("openai-chat", conversation()),
    "anthropic": [ANTHROPIC],
    "llama-factory": [LLAMA_FACTORY],
    "sharegpt": [
        {
            "conversations": [
                {"from": "human", "value": "u"},
                {"from": "function_call", "value": '{"name": "f", "arguments": {}}'},
                {"from": "observation", "value": "x"},
                {"from": "gpt", "value": "b"},
            ],
            "tools": "[]",
        }
    ],
    "preference": list(PREFERENCES.values()),
    "alpaca": [{"instruction": "i", "input": "x", "output": "o", "history": [["p", "q"]]}],
}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a value: what holds it, and its key."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(item, dict | list):
            yield from places(item)


def changed(value: Any, chance: random.Random) -> Any:
    """A copy with a few values replaced, dropped or doubled."""
    value = copy.deepcopy(value)
    for _ in range(chance.randint(1, 3)):
        found = list(places(value))
        if not found:
            break
        holder, key = chance.choice(found)
        match chance.randrange(3):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[key]))
            case _:
                holder[key] = copy.deepcopy(chance.choice(VALUES))
    return value


def damaged(data: bytes, chance: random.Random) -> bytes:
    """The bytes with some flipped, cut, doubled or put in."""
    at = chance.randrange(len(data) + 1)
    match chance.randrange(4):
        case 0:
            return data[:at]
        case 1:
            flipped = bytearray(data)
            for _ in range(chance.randint(1, 4)):
                flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
            return bytes(flipped)
        case 2:
            return data[:at] + chance.choice(PIECES) + data[at:]
        case _:
            return data[:at] + data[max(0, at - 40) :]


def attempt(path: Path, *options: str) -> None:
    """Import it; whatever it is, there is an exit code in time, and a store only where it says so."""
    goal = path.parent / "store"
    began = time.monotonic()
    code = run(["import", str(path), "-o", str(goal), *options])
    assert code in (0, 1, 2), code
    assert goal.exists() == (code == 0)
    assert time.monotonic() - began < MOST_SECONDS
    shutil.rmtree(goal, ignore_errors=True)


@pytest.mark.parametrize("name", daily(DOCUMENTS, 5))
def test_documents_with_other_values_are_read_or_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for seed in range(FACTOR):
        chance = random.Random(f"{name} {seed}")
        lines = [json.dumps(changed(one, chance)) for one in DOCUMENTS[name] for _ in range(8)]
        path.write_text("\n".join([*lines, *map(json.dumps, DOCUMENTS[name])]))
        kind = "openai-chat" if name in ("anthropic", "llama-factory") else name.split(" ")[0]
        attempt(path, "--skip-bad", "--from", kind)
        attempt(path, "--metric", "columns.reward")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_damaged_bytes_are_read_or_named(name: str, tmp_path: Path) -> None:
    for seed in range(3 * FACTOR):
        chance = random.Random(f"bytes {name} {seed}")
        path = tmp_path / chance.choice(["a.jsonl", "a.json"])
        path.write_bytes(damaged("\n".join(map(json.dumps, DOCUMENTS[name])).encode(), chance))
        attempt(path, *chance.choice([[], ["--skip-bad"], ["--from", "sts"], ["--from", "inspect"]]))


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"messages": [[ASKED, ANSWERED]] * 5, "reward": [1.0] * 5}), sink)
    return sink.getvalue()


def log() -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps(LOG))
        archive.writestr("samples/1_epoch_1.json", json.dumps(SAMPLE))
    return sink.getvalue()


@pytest.mark.parametrize(("name", "make"), [("a.parquet", parquet), ("a.eval", log)])
def test_damaged_tables_and_logs_are_read_or_named(
    name: str, make: Callable[[], bytes], tmp_path: Path
) -> None:
    data = make()
    for seed in range(4 * FACTOR):
        (tmp_path / name).write_bytes(damaged(data, random.Random(f"{name} {seed}")))
        attempt(tmp_path / name, "--skip-bad")


def test_damaged_job_folders_are_read_or_named(tmp_path: Path) -> None:
    for seed in range(3 * FACTOR):
        chance = random.Random(f"job {seed}")
        folder = tmp_path / "job"
        trial(folder / "one", document(USER, ASKS, DONE))
        trial(folder / "two", document(USER, ASKS, DONE))
        (folder / "one" / "verifier" / "reward.txt").write_text("1")
        path = chance.choice(sorted(each for each in (folder / "one").rglob("*") if each.is_file()))
        if chance.random() < 0.5 and path.suffix == ".json":
            path.write_text(json.dumps(changed(json.loads(path.read_text()), chance)))
        else:
            path.write_bytes(damaged(path.read_bytes(), chance))
        attempt(folder, *chance.choice([["--skip-bad"], [], ["--include-errored"]]))
        shutil.rmtree(folder)
