from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.store.test_mutations import sealed
from trajkit._core.settings import remember
from trajkit.cli.main import run
from trajkit.schema import Episode, Left, LineageEntry, Transition, message
from trajkit.store.writer import write_episodes

LINEAGE = LineageEntry(
    verb="export",
    arguments={"metric": "episode_return"},
    n_episodes_in=3,
    n_episodes_out=2,
    n_steps_in=5,
    n_steps_out=3,
    left=(Left(reason="episode_return below 0.7", n_episodes=1, n_steps=2),),
    done_at=datetime(2026, 1, 1, tzinfo=UTC),
    trajkit_version="0.1.0",
)


def an_episode(name: str, *, n_steps: int, **fields: object) -> Episode:
    steps = tuple(
        Transition(
            step_index=index,
            messages=(message("user", "look"),),
            completion=message("assistant", "turn left"),
            variant_name="history",
            n_input_tokens=100,
            n_output_tokens=5,
        )
        for index in range(n_steps)
    )
    return Episode(episode_id=name, source="test", env_id="babyai", task="goto", steps=steps, **fields)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    episodes = [
        an_episode("a", n_steps=1, outcome="success", purpose="train", metrics={"episode_return": 0.9}),
        an_episode("b", n_steps=2, outcome="failure", purpose="train", metrics={"episode_return": 0.7}),
    ]
    goal = tmp_path / "store"
    write_episodes(
        goal, episodes, kind="export", source={"kind": "clickhouse", "url": "x"}, lineage=[LINEAGE]
    )
    return goal


def test_info_says_what_a_store_is(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", str(store)]) == 0
    printed = capsys.readouterr().out
    size = r"[\d.]+ kB"
    assert re.match(rf"{store}: export, checksums match\n2 episodes  3 steps  0 feedback  {size}\n", printed)
    for line in (
        "source    kind=clickhouse  url=x",
        "purpose   train 2",
        "outcome   failure 1, success 1",
        "tokens    300 in, 15 out",
        "babyai/goto         2      3        1",
        "history         2      3        1",
        "episode_return  episode         2  0.7   0.8  0.9",
        "export: 3 episodes in, 2 out; 5 steps in, 3 out",
        "  left: 1 episode, 2 steps: episode_return below 0.7",
    ):
        assert f"{line}\n" in printed


def test_info_as_json_has_the_numbers(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", str(store), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["counts"] == {"n_episodes": 2, "n_steps": 3, "n_feedback": 0}
    assert value["tasks"] == [{"name": "babyai/goto", "n_episodes": 2, "n_steps": 3, "n_success": 1}]
    assert value["metrics"][0]["n"] == 2
    assert value["metrics"][0]["mean"] == pytest.approx(0.8)
    assert value["lineage"][0]["verb"] == "export"
    assert value["n_bytes"] == sum(path.stat().st_size for path in store.rglob("*.parquet"))


def test_info_says_how_many_answers_have_their_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"prompt_token_ids": (1, 2), "completion_token_ids": (3,), "model_version": "v1"}
    steps = [
        {"inference_id": "i0", **known, "logprobs": (-0.5,)},
        {"inference_id": "i1", **known, "logprobs": (-0.5, -0.5)},
        {"inference_id": "i2", **known},
        {"inference_id": "i3"},
        {},  # of an expert
    ]
    told = tuple(Transition.model_validate({"step_index": n, **step}) for n, step in enumerate(steps))
    write_episodes(tmp_path / "s", [Episode(episode_id="a", source="test", steps=told)], kind="test")
    assert run(["info", str(tmp_path / "s")]) == 0
    line = "sampled   1 of 4 answers with token ids and log-probabilities, 1 model version\n"
    assert line in capsys.readouterr().out


def test_info_without_a_store_takes_the_last_one(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info"]) == 2
    assert "no STORE given" in capsys.readouterr().err
    remember("last_store", {"path": str(store)})
    assert run(["info"]) == 0
    assert "checksums match" in capsys.readouterr().out


def test_info_of_a_damaged_store_names_the_part(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = store / "steps/part-00000.parquet"
    content = bytearray(part.read_bytes())
    content[100] ^= 1
    part.write_bytes(content)
    assert run(["info", str(store)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {part} is not the file that was written")


def test_info_stays_short_with_many_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    episodes = (Episode(episode_id=str(i), source="t", task=f"task {i}") for i in range(100))
    write_episodes(tmp_path / "store", episodes, kind="test")
    assert run(["info", str(tmp_path / "store")]) == 0
    printed = capsys.readouterr().out
    assert "… and 70 tasks more\n" in printed
    assert len(printed.splitlines()) < 60


def test_info_of_an_empty_store_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_episodes(tmp_path / "store", [], kind="test")
    assert run(["info", str(tmp_path / "store")]) == 0
    assert "tokens    unknown\n" in capsys.readouterr().out


def test_info_says_when_the_digest_is_not_that_of_the_episodes(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"digest": "0" * 64}))
    assert run(["info", str(store)]) == 1
    printed = capsys.readouterr()
    assert "checksums match" not in printed.out
    assert f"its manifest says {'0' * 64}" in printed.err


def test_info_check_finds_a_value_that_was_changed_with_its_checksum(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["info", str(store), "--check"]) == 0
    assert "checksums, digest and every value are right" in capsys.readouterr().out
    part = store / "episodes" / "part-00000.parquet"
    table = pq.read_table(part)
    at = table.schema.get_field_index("task")
    pq.write_table(table.set_column(at, "task", pa.array(["x", "y"])), part)
    sealed(store)
    assert run(["info", str(store)]) == 0
    capsys.readouterr()
    assert run(["info", str(store), "--check"]) == 1
    assert "has the content digest" in capsys.readouterr().err


def test_info_waits_for_no_fifo_and_follows_no_link_out_of_the_store(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = store / "steps" / "part-00000.parquet"
    part.rename(tmp_path / "elsewhere.parquet")
    os.mkfifo(part)
    assert run(["info", str(store)]) == 1
    assert f"{part} is a FIFO, not a regular file" in capsys.readouterr().err
    part.unlink()
    part.symlink_to(tmp_path / "elsewhere.parquet")
    assert run(["info", str(store)]) == 1
    assert f"{part} is a link to a file outside {store}" in capsys.readouterr().err
    part.unlink()
    (tmp_path / "elsewhere.parquet").rename(part)
    part.parent.rename(tmp_path / "steps")
    part.parent.symlink_to(tmp_path / "steps")
    assert run(["show", str(store), "0"]) == 1
    assert "is a link to a file outside" in capsys.readouterr().err
    (store / "manifest.json").unlink()
    os.mkfifo(store / "manifest.json")
    assert run(["info", str(store)]) == 1
    assert "is a FIFO, not a regular file" in capsys.readouterr().err
