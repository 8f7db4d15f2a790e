from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import portions
from tests.store.conftest import make_episode
from trajkit.schema import Episode, Message, Transition, message
from trajkit.store.dataset import Dataset, open_dataset
from trajkit.store.engine import connect, literal
from trajkit.store.layout import TABLES
from trajkit.store.query import ask
from trajkit.store.reader import Store, open_store
from trajkit.store.view import create_views, full_steps, narrow_views
from trajkit.store.writer import StoreWriter, write_episodes


def prompts_of(rows: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[Message, ...] | None]:
    return {
        (row["episode_id"], row["step_index"]): None
        if row["prompt"] is None
        else tuple(Message.model_validate(item) for item in json.loads(row["prompt"]))
        for row in rows
    }


def expected_of(episodes: list[Episode]) -> dict[tuple[str, int], tuple[Message, ...] | None]:
    return {
        (episode.episode_id, index): prompt
        for episode in episodes
        for index, prompt in enumerate(episode.prompts())
    }


@portions(7)
@settings(settings.get_profile("store"))
@given(data=st.data())
def test_the_full_prompts_are_those_of_the_episode(
    portion: int, data: st.DataObject, any_episodes: st.SearchStrategy[list[Episode]]
) -> None:
    episodes = data.draw(any_episodes)
    with tempfile.TemporaryDirectory() as folder:
        write_episodes(Path(folder) / "store", episodes, kind="test")
        dataset = open_dataset(Path(folder) / "store")
        by_batches = dataset.arrow("steps_full").read_all().to_pylist()
        with ask(dataset.store, "SELECT episode_id, step_index, prompt FROM steps_full") as answer:
            by_query = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows()]
    assert prompts_of(by_batches) == expected_of(episodes)
    assert prompts_of(by_query) == expected_of(episodes)


@st.composite
def _chain(draw: st.DrawFn) -> list[Transition]:
    """Many steps that keep any number of what is there, none and all included."""
    steps: list[Transition] = []
    n_available = 0
    for index in range(draw(st.integers(1, 25))):
        kept = draw(st.sampled_from([0, n_available, max(n_available - 1, 0)]) | st.integers(0, n_available))
        messages = tuple(message("user", f"{index}.{i}") for i in range(draw(st.integers(0, 3))))
        answer = draw(st.sampled_from([None, message("assistant", f"answer {index}")]))
        steps.append(Transition(step_index=index, n_prompt_kept=kept, messages=messages, completion=answer))
        n_available = kept + len(messages) + (answer is not None)
    return steps


@portions(7)
@settings(settings.get_profile("store"))
@given(st.lists(_chain(), min_size=1, max_size=3))
def test_any_number_of_messages_may_be_kept(portion: int, chains: list[list[Transition]]) -> None:
    episodes = [Episode(episode_id=f"e{i}", source="t", steps=tuple(steps)) for i, steps in enumerate(chains)]
    with tempfile.TemporaryDirectory() as folder:
        write_episodes(Path(folder) / "store", episodes, kind="test")
        rows = open_dataset(Path(folder) / "store").arrow("steps_full").read_all().to_pylist()
    assert prompts_of(rows) == expected_of(episodes)


def test_a_long_conversation_is_stored_once(tmp_path: Path) -> None:
    # 100 turns: the first keeps nothing, each later one keeps all of the 2 * index messages before it
    steps = tuple(
        Transition(
            step_index=index,
            n_prompt_kept=2 * index,
            messages=(message("user", f"question {index}"),),
            completion=message("assistant", f"answer {index}"),
        )
        for index in range(100)
    )
    write_episodes(tmp_path / "store", [Episode(episode_id="a", source="t", steps=steps)], kind="test")
    dataset = open_dataset(tmp_path / "store")
    stored = sum(len(row["messages"]) for row in dataset.arrow("steps").read_all().to_pylist())
    full = dataset.arrow("steps_full").read_all().to_pylist()
    assert [len(json.loads(row["prompt"])) for row in full] == [2 * index + 1 for index in range(100)]
    assert sum(len(row["prompt"]) for row in full) > 90 * stored


def test_steps_that_keep_nothing_are_not_joined(ten: Store) -> None:
    with ask(ten, "SELECT count(*) FROM steps_full WHERE prompt != messages") as answer:
        assert list(answer.rows()) == [(0,)]
    assert "WHERE n_prompt_kept = 0\n    UNION ALL" in full_steps("steps")


def test_full_prompts_come_for_the_chosen_episodes_only(store_of: Callable[..., Store]) -> None:
    chain = (
        Transition(step_index=0, messages=(message("user", "a"),)),
        Transition(step_index=1, n_prompt_kept=1, messages=(message("user", "b"),)),
    )
    store = store_of([make_episode("x", steps=chain, seed=1), make_episode("y", steps=chain, seed=2)])
    rows = Dataset(store).where("seed = 2").arrow("steps_full").read_all().to_pylist()
    assert [(row["episode_id"], len(json.loads(row["prompt"]))) for row in rows] == [("y", 1), ("y", 2)]


def in_files(whole: Store, goal: Path) -> Store:
    """The same store, with a file of each table for each episode."""
    with connect() as connection, StoreWriter(goal, kind="test", metrics=whole.manifest.metrics) as writer:
        create_views(connection, whole)
        for (name,) in connection.execute("SELECT episode_id FROM episodes ORDER BY 1").fetchall():
            mine = {table: f"(SELECT * FROM {table} WHERE episode_id = {literal(name)})" for table in TABLES}
            writer.add(connection, **mine)
        writer.finish()
    return open_store(goal)


@pytest.mark.parametrize("has_statistics", [True, False])
def test_narrowed_views_read_only_the_files_of_a_span_until_they_are_created_again(
    tmp_path: Path, store_of: Callable[..., Store], has_statistics: bool
) -> None:
    ids = ["é[1]", "*", "a", "b'b", "\U0001f511", "zz"]
    store = in_files(store_of([make_episode(name) for name in ids]), tmp_path / "parts")
    for path in () if has_statistics else [*store.parts("steps"), *store.parts("episodes")]:
        pq.write_table(pq.ParquetFile(path).read(), path, write_statistics=False)
    with connect() as connection:
        create_views(connection, store)
        for lowest, highest in itertools.combinations_with_replacement(sorted(ids), 2):
            narrow_views(connection, store, lowest, highest)
            for table in ("episodes", "steps_full"):
                found = connection.execute(f"SELECT DISTINCT episode_id FROM {table}").fetchall()
                span = {name for name in ids if lowest <= name <= highest}
                assert {name for (name,) in found} == (span if has_statistics else set(ids))
        narrow_views(connection, store, "c", "d")  # no file has one
        between = "SELECT count(*) FROM steps WHERE episode_id BETWEEN 'c' AND 'd'"
        assert connection.execute(between).fetchall() == [(0,)]
        create_views(connection, store)
        assert connection.execute("SELECT count(*) FROM steps").fetchall() == [
            (store.manifest.counts.n_steps,)
        ]
