"""Stores that are damaged, or made by hand to do harm: every verb ends with an error in words.

The seeds are fixed. `TRAJKIT_FUZZ=40` tries forty times as many.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.matrix import daily
from tests.store.conftest import make_episode, make_feedback, make_step
from trajkit.cli.main import run
from trajkit.store.writer import write_episodes

N_CASES = 400 * int(os.environ.get("TRAJKIT_FUZZ", "1"))
N_BATCHES = 16
MOST_SECONDS = 60
MOST_BYTES = 3 << 30

VERBS: tuple[tuple[str, ...], ...] = (
    ("info", "{store}"),
    ("info", "{store}", "--check", "--json"),
    ("show", "{store}", "0"),
    ("show", "{store}", "1", "--full-prompts", "--thoughts"),
    ("show", "{store}", "ep-2", "--json"),
    ("stats", "{store}"),
    ("query", "{store}", "SELECT * FROM steps_full"),
    ("query", "{store}", "SELECT * FROM episodes", "--json"),
    ("select", "{store}", "--where", "episode_return > 0.1", "-o", "{out}"),
    ("dedupe", "{store}", "--exact", "-o", "{out}"),
    ("dedupe", "{store}", "--near", "0.9", "-o", "{out}"),
    ("split", "{store}", "--by", "seed", "-o", "{out}"),
    ("mask", "{store}", "--reason", "no-op", "-o", "{out}"),
    ("weight", "{store}", "--scheme", "advantage", "-o", "{out}"),
    ("pairs", "{store}", "--margin", "0.1", "-o", "{out}.jsonl"),
    ("merge", "{store}", "{good}", "-o", "{out}"),
    ("leak", "{store}", "{good}"),
    ("redact", "{store}", "-o", "{out}"),
    ("convert", "{store}", "--to", "openai-sft", "-o", "{out}.jsonl"),
    ("convert", "{store}", "--to", "sts", "-o", "{out}"),
    ("report", "{store}"),
    ("view", "{store}", "--html", "{out}.html"),
)

HUGE = 10**400
HOSTILE_JSON = (
    "",
    "{",
    "null",
    "nul",
    "[]",
    "{}",
    '""',
    '"x',
    "[" * 100_000,
    '{"a":' * 3_000 + "1" + "}" * 3_000,
    "1" * 5_000,
    "1e999",
    "NaN",
    "-Infinity",
    '"\\ud800"',
    '{"\\udfff": 1}',
    '[{"role": "user"}]',
    '[{"role": 7, "content": [{"type": "text", "text": 3}]}]',
    '[{"role": "user", "content": "plain"}]',
    '[{"role": "user", "content": [{"type": "text", "text": "\\ud800"}]}]',
    '{"role": "assistant", "content": [{"type": "tool_call", "id": null, "name": [], "arguments": {}}]}',
    '{"a": 1, "a": 2}',
    "\0",
    "\u202e\x1b[31m",
    "[1, 2",
    "true",
    "'single'",
)
HOSTILE: tuple[Any, ...] = (
    None,
    "",
    "ep-1",
    "abc",
    "\0",
    "../../x",
    "\x1b]0;x\x07\u202e",
    "x" * 100_000,
    "9" * 400,
    -1,
    0,
    2**31,
    2**63 - 1,
    -(2**63),
    2**70,
    float("nan"),
    float("inf"),
    1e308,
    True,
    b"\xff\xfe\x00",
    [],
    ["a", None],
    [2**63 - 1],
    [float("nan")],
    {"a": 1},
    {},
)


def base(folder: Path) -> Path:
    """A store with a bit of everything."""
    episodes = [
        make_episode(
            f"ep-{n}",
            seed=n // 2,
            task="goto" if n < 4 else "open",
            n_steps=0,
            steps=tuple(
                make_step(
                    i,
                    n_prompt_kept=0 if i == 0 else 3 * i - 1 if n % 2 else 0,
                    inference_id=f"inf-{n}-{i}",
                    function_name="play",
                    variant_name=f"v{n % 2}",
                    reward=float(n) / 10,
                    metrics={"ok": 1.0},
                    info={"a": i},
                    logprobs=(-0.5,),
                    legal_actions=("go forward", "turn left"),
                    n_input_tokens=5,
                    n_output_tokens=2,
                    observation=None if i else "a ball",
                    demonstration="turn left" if i else None,
                )
                for i in range(3)
            ),
            metrics={"episode_return": n / 10, "success": n % 2},
            tags={"level": str(n)},
            outcome="success" if n % 2 else "failure",
            origin={"file": "x"},
            feedback=(make_feedback(f"f-{n}", f"ep-{n}", value=n / 10),),
        )
        for n in range(6)
    ]
    write_episodes(folder, episodes, kind="test")
    return folder


def sealed(store: Path) -> None:
    """Sizes, sums and counts of the manifest as the parts have them now."""
    path = store / "manifest.json"
    manifest = json.loads(path.read_text())
    for part in manifest["parts"]:
        content = (store / part["path"]).read_bytes()
        part["sha256"], part["n_bytes"] = hashlib.sha256(content).hexdigest(), len(content)
        # a damaged name of a column may be no UTF-8
        with contextlib.suppress(pa.ArrowException, OSError, UnicodeDecodeError):
            part["n_rows"] = pq.read_metadata(store / part["path"]).num_rows
            manifest["counts"][f"n_{part['path'].partition('/')[0]}"] = part["n_rows"]
    path.write_text(json.dumps(manifest))


def part_of(store: Path, chance: random.Random) -> Path:
    return chance.choice(sorted(store.glob("*/part-*.parquet")))


def flipped(store: Path, chance: random.Random) -> None:
    part = part_of(store, chance)
    content = bytearray(part.read_bytes())
    for _ in range(chance.choice((1, 1, 4))):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    part.write_bytes(content)


def cut(store: Path, chance: random.Random) -> None:
    part = part_of(store, chance)
    content = part.read_bytes()
    part.write_bytes(content[: chance.randrange(len(content))])


def flipped_and_sealed(store: Path, chance: random.Random) -> None:
    flipped(store, chance)
    sealed(store)


def cut_and_sealed(store: Path, chance: random.Random) -> None:
    cut(store, chance)
    sealed(store)


def exchanged(store: Path, chance: random.Random) -> None:
    """One table in the place of another."""
    one, other = part_of(store, chance), part_of(store, chance)
    other.write_bytes(one.read_bytes())
    sealed(store)


def _put(store: Path, part: Path, table: pa.Table) -> None:
    pq.write_table(table, part)
    sealed(store)


def another_column(store: Path, chance: random.Random) -> None:
    """A column is missing, has another name or another type."""
    part = part_of(store, chance)
    table = pq.read_table(part)
    at = chance.randrange(table.num_columns)
    name = table.column_names[at]
    match chance.randrange(4):
        case 0:
            table = table.remove_column(at)
        case 1:
            table = table.rename_columns([f"{n}x" if n == name else n for n in table.column_names])
        case 2:
            table = table.set_column(at, name, pa.nulls(table.num_rows))
        case 3:
            kind = chance.choice([pa.string(), pa.int32(), pa.float32(), pa.binary(), pa.large_string()])
            values = [None if kind != pa.string() else "x"] * table.num_rows
            table = table.set_column(at, name, pa.array(values, kind))
    _put(store, part, table)


def another_value(store: Path, chance: random.Random) -> None:
    """One value, or those of a column, are something else; the column's type follows where it must."""
    part = part_of(store, chance)
    table = pq.read_table(part)
    if not table.num_rows:
        return
    at = chance.randrange(table.num_columns)
    field = table.schema.field(at)
    column = table.column(at).combine_chunks()
    is_json = "json" in str(field.type)
    values = column.to_pylist()
    value = chance.choice(HOSTILE_JSON) if is_json or chance.random() < 0.1 else chance.choice(HOSTILE)
    for row in range(len(values)) if chance.random() < 0.3 else [chance.randrange(len(values))]:
        values[row] = value
    storage = field.type.storage_type if is_json else field.type
    try:
        made: Any = pa.array(values, storage)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        try:
            made = pa.array([None if v is None else str(v) for v in values], pa.string())
        except UnicodeEncodeError:
            return
    if is_json:
        made = pa.ExtensionArray.from_storage(field.type, made.cast(storage))
    _put(store, part, table.set_column(at, pa.field(field.name, made.type), made))


def other_rows(store: Path, chance: random.Random) -> None:
    """Rows are there twice, not at all, or in another order."""
    part = part_of(store, chance)
    table = pq.read_table(part)
    rows = list(range(table.num_rows))
    match chance.randrange(3):
        case 0:
            rows.append(chance.choice(rows))
        case 1:
            rows.remove(chance.choice(rows))
        case 2:
            chance.shuffle(rows)
    _put(store, part, table.take(pa.array(rows, pa.int64())))


def another_manifest(store: Path, chance: random.Random) -> None:
    """A value of the manifest is something else."""
    path = store / "manifest.json"
    manifest = json.loads(path.read_text())
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        keys = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            places.append((node, key))
            walk(node[key])

    walk(manifest)
    node, key = chance.choice(places)
    if chance.random() < 0.2:
        del node[key]
    else:
        values: list[Any] = [v for v in HOSTILE if not isinstance(v, bytes)]
        node[key] = chance.choice([*values, "\ud800", HUGE, "steps/part-00000.parquet", ["x"] * 3])
    path.write_text(json.dumps(manifest), encoding="utf-8", errors="surrogatepass")


def a_broken_manifest(store: Path, chance: random.Random) -> None:
    """The manifest is no JSON, or JSON that breaks parsers."""
    path = store / "manifest.json"
    text = path.read_text()
    broken = [
        "[" * 100_000,
        '{"a":' * 100_000,
        "1" * 10_000,
        text[: chance.randrange(len(text))],
        text.replace("{", '{"source": ' + '{"a":' * 2_000 + "1" + "}" * 2_000 + ",", 1),
        "\0",
    ]
    path.write_text(chance.choice(broken))


MUTATIONS: tuple[Callable[[Path, random.Random], None], ...] = (
    flipped,
    cut,
    flipped_and_sealed,
    cut_and_sealed,
    exchanged,
    another_column,
    another_column,
    other_rows,
    another_manifest,
    another_manifest,
    a_broken_manifest,
    *[another_value] * 8,
)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return base(tmp_path_factory.mktemp("good") / "store")


@pytest.mark.parametrize("batch", daily(range(N_BATCHES), 1))
def test_no_damage_ends_in_a_traceback(
    batch: int,
    good: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    failures: list[str] = []
    # forget the peak of the tests that ran before in this process
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    n_bytes_before = _memory("VmRSS")
    for case in range(batch, N_CASES, N_BATCHES):
        chance = random.Random(case)
        mutation = chance.choice(MUTATIONS)
        verb = chance.choice(VERBS)
        store, out = tmp_path / "store", tmp_path / "out"
        shutil.copytree(good, store)
        mutation(store, chance)
        began = time.process_time()
        words = [word.format(store=store, good=good, out=out) for word in verb]
        try:
            code: Any = run(words)
        except Exception as error:  # noqa: BLE001 -- what escapes is what is looked for
            code = f"{type(error).__name__}: {str(error)[:300]}"
        seconds = time.process_time() - began
        printed = capsys.readouterr()
        if code not in (0, 1, 2):
            failures.append(f"case {case}: {mutation.__name__}: {' '.join(verb)}: {code}")
        elif seconds > MOST_SECONDS:
            failures.append(f"case {case}: {mutation.__name__}: {' '.join(verb)}: {seconds:.0f} s")
        if code != 0 and "Traceback" in printed.err:
            failures.append(f"case {case}: a traceback is printed: {printed.err[-300:]}")
        for path in tmp_path.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert not failures, "\n".join(failures)
    assert _memory("VmHWM") - n_bytes_before < MOST_BYTES


def _memory(field: str) -> int:
    """Bytes of this process's memory: `VmRSS` now, `VmHWM` at its peak."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(f"{field}:"))
