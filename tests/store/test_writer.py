from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import daily, portions
from tests.store.conftest import make_episode, make_feedback, make_step
from trajkit.errors import DataError, StoreError
from trajkit.schema import Episode, Metric
from trajkit.store.dataset import open_dataset
from trajkit.store.layout import TABLES, columns, quoted
from trajkit.store.reader import open_store, verify
from trajkit.store.writer import StoreWriter, write_episodes

RETURN = Metric(name="episode_return", level="episode", kind="float")


@portions(7)
@settings(settings.get_profile("store"))
@given(data=st.data())
def test_what_was_written_is_what_is_read(
    portion: int, data: st.DataObject, any_episodes: st.SearchStrategy[list[Episode]]
) -> None:
    episodes = data.draw(any_episodes)
    with tempfile.TemporaryDirectory() as folder:
        manifest = write_episodes(Path(folder) / "store", episodes, kind="test")
        dataset = open_dataset(Path(folder) / "store")
        assert list(dataset) == sorted(episodes, key=lambda episode: episode.episode_id.encode())
        verify(dataset.store, deep=True)
    assert manifest.counts.n_steps == sum(episode.n_steps for episode in episodes)


@pytest.mark.full
def test_an_episode_of_five_thousand_steps_comes_back(tmp_path: Path) -> None:
    long = make_episode("long", n_steps=5_000)
    write_episodes(tmp_path / "store", [long, make_episode("short")], kind="test")
    assert list(open_dataset(tmp_path / "store")) == [long, make_episode("short")]


def add_relations(connection: duckdb.DuckDBPyConnection, source: Path, where: str) -> dict[str, str]:
    """The rows of a store again, as relations: in no order and with the columns the other way round."""
    relations = {}
    for table in TABLES:
        names = ", ".join(quoted(column.name) for column in reversed(columns(table, (RETURN,))))
        relations[table] = (
            f"(SELECT {names} FROM '{source}/{table}/*.parquet' WHERE {where} ORDER BY random())"
        )
    return relations


@pytest.mark.parametrize(("n_parts", "n_threads"), daily([(1, 4), (5, 2), (1, 1)], 2))
def test_parts_and_threads_do_not_change_the_digest(
    tmp_path: Path,
    n_parts: int,
    n_threads: int,
) -> None:
    episodes = [
        make_episode(
            f"ep-{i}",
            n_steps=i % 7,
            feedback=(make_feedback(f"f{i}", f"ep-{i}"), make_feedback(f"g{i}", f"ep-{i}")),
        )
        for i in range(50)
    ]
    expected = write_episodes(tmp_path / "one", episodes, kind="test")
    with (
        duckdb.connect() as connection,
        StoreWriter(tmp_path / "two", kind="test", metrics=[RETURN]) as writer,
    ):
        connection.execute(f"SET threads = {n_threads}")
        for part in range(n_parts):
            writer.add(
                connection,
                **add_relations(connection, tmp_path / "one", f"hash(episode_id) % {n_parts} = {part}"),
            )
        manifest = writer.finish()
    assert manifest.digest == expected.digest
    assert manifest.counts == expected.counts
    assert list(open_dataset(tmp_path / "two")) == list(open_dataset(tmp_path / "one"))


def test_the_columns_have_the_types_that_other_readers_know(tmp_path: Path) -> None:
    write_episodes(tmp_path / "store", [make_episode()], kind="test")
    schema = pq.read_schema(tmp_path / "store/steps/part-00000.parquet")
    assert schema.names == [column.name for column in columns("steps", ())]
    assert schema.field("messages").type == pa.json_()
    assert schema.field("started_at").type == pa.timestamp("us", tz="UTC")
    assert schema.field("prompt_token_ids").type.value_type == pa.int64()
    episodes = pq.read_schema(tmp_path / "store/episodes/part-00000.parquet")
    assert episodes.names[-1] == "content_hash"
    assert episodes.field("metrics").type == pa.struct([("episode_return", pa.float64())])


def test_json_text_is_kept_as_it_was_given(tmp_path: Path) -> None:
    write_episodes(tmp_path / "one", [make_episode(metrics={})], kind="test")
    odd = '{"b" : 1.0,"a":123456789012345678901234567890}'
    with duckdb.connect() as connection, StoreWriter(tmp_path / "two", kind="test") as writer:
        writer.add(
            connection,
            episodes=f"(SELECT * REPLACE ('{odd}' AS tags) FROM '{tmp_path}/one/episodes/*.parquet')",
            steps=f"'{tmp_path}/one/steps/*.parquet'",
            feedback=f"'{tmp_path}/one/feedback/*.parquet'",
        )
        writer.finish()
    assert pq.read_table(tmp_path / "two/episodes")["tags"].to_pylist() == [odd]


def test_a_store_of_nothing_has_a_part_of_every_table(tmp_path: Path) -> None:
    manifest = write_episodes(tmp_path / "store", [], kind="test")
    assert [part.path for part in manifest.parts] == [
        f"{table}/part-00000.parquet" for table in sorted(TABLES)
    ]
    assert manifest.counts.n_episodes == 0
    assert list(open_dataset(tmp_path / "store")) == []


def test_a_folder_that_exists_is_not_touched_and_one_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with pytest.raises(StoreError, match="exists already"):
        write_episodes(tmp_path / "store", [make_episode()], kind="test")
    assert list((tmp_path / "store").iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file/store"):
        write_episodes(tmp_path / "file" / "store", [make_episode()], kind="test")


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt])
def test_leaving_early_leaves_nothing(tmp_path: Path, stop: type[BaseException]) -> None:
    def some() -> Iterator[Episode]:
        yield make_episode()
        raise stop

    with pytest.raises(stop):
        write_episodes(tmp_path / "store", some(), kind="test")
    with StoreWriter(tmp_path / "store", kind="test"):
        pass  # not finished
    assert list(tmp_path.iterdir()) == []


# For programs of their own: relations of the right columns, all null.
NULLS = (
    "import pathlib, duckdb\n"
    "from trajkit.errors import StoreError\n"
    "from trajkit.store.layout import columns\n"
    "from trajkit.store.writer import StoreWriter, write_episodes\n"
    "def nulls(table, more=''):\n"
    "    names = ', '.join(f'CAST(NULL AS {c.sql_type}) AS {c.name}' for c in columns(table, ()))\n"
    "    return f'(SELECT {names} {more})'\n"
)


def test_ctrl_c_during_a_query_is_a_keyboard_interrupt_and_leaves_nothing(
    tmp_path: Path, python: Callable[[str], subprocess.Popen[str]]
) -> None:
    process = python(
        f"{NULLS}"
        "slow = 'FROM range(3000000)'\n"
        "try:\n"
        "    with duckdb.connect() as c, StoreWriter(pathlib.Path('s'), kind='test') as writer:\n"
        "        print('open', flush=True)\n"
        "        steps = nulls('steps', slow).replace('NULL', 'md5(range::VARCHAR)', 1)\n"
        "        writer.add(c, episodes=nulls('episodes'), steps=steps, feedback=nulls('feedback'))\n"
        "except KeyboardInterrupt:\n"
        "    print('stopped')\n"
    )
    assert process.stdout.readline() == "open\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert (printed, process.returncode) == ("stopped\n", 0), errors
    assert list(tmp_path.iterdir()) == []


def test_a_killed_writer_leaves_no_store_and_the_next_one_works(
    tmp_path: Path, python: Callable[[str], subprocess.Popen[str]]
) -> None:
    process = python(
        "import time, pathlib, duckdb\n"
        "from trajkit.store.writer import StoreWriter\n"
        "with StoreWriter(pathlib.Path('store'), kind='test') as writer:\n"
        "    print('open', flush=True)\n"
        "    time.sleep(60)\n"
    )
    assert process.stdout.readline() == "open\n"
    process.kill()
    process.communicate()
    assert not (tmp_path / "store").exists()
    assert not list(tmp_path.glob("**/manifest.json"))
    assert all(path.name.startswith(".store.") for path in tmp_path.iterdir())
    write_episodes(tmp_path / "store", [make_episode()], kind="test")
    assert len(open_dataset(tmp_path / "store")) == 1


@pytest.mark.full
def test_a_full_disk_is_told_with_the_path_and_leaves_nothing(
    tmp_path: Path, python: Callable[[str], subprocess.Popen[str]]
) -> None:
    # A limit on the size of files makes the kernel refuse the write itself, as a full disk does.
    process = python(
        f"{NULLS}"
        "import resource, signal\n"
        "from trajkit.schema import Episode, Transition\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "steps = tuple(Transition(step_index=i, observation=str(2**i)) for i in range(2_500))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))\n"
        "try:\n"
        "    episode = Episode(episode_id='a', source='x', steps=steps)\n"
        "    write_episodes(pathlib.Path('store'), [episode], kind='test')\n"
        "except StoreError as error:\n"
        "    print(error.message)\n"
        "noise = nulls('steps', 'FROM range(20000)').replace('NULL', 'sha256(range::VARCHAR)', 1)\n"
        "try:\n"
        "    with duckdb.connect() as c, StoreWriter(pathlib.Path('store'), kind='test') as writer:\n"
        "        writer.add(c, episodes=nulls('episodes'), steps=noise, feedback=nulls('feedback'))\n"
        "except StoreError as error:\n"
        "    print(error.message)\n"
    )
    printed, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    spooling, adding = printed.splitlines()
    assert f"{tmp_path / 'store'} could not be written" in spooling
    assert re.search(r"\.store\.\S+/steps/part-00000.parquet could not be written", adding)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(
    shutil.which("mount") is None or os.name == "nt" or os.geteuid() != 0, reason="needs root for tmpfs"
)
def test_a_full_tmpfs_leaves_nothing(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)], check=False)
    if mounted.returncode:
        pytest.skip("no right to mount here; the test before this one covers a refused write")
    try:
        noise = random.Random(1)
        episodes = (
            make_episode(f"ep-{i}", n_steps=1, tags={"noise": noise.randbytes(500).hex()})
            for i in range(5_000)
        )
        with pytest.raises(StoreError, match=r"store.* could not be written"):
            write_episodes(small / "store", episodes, kind="test")
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def rows(**tables: str) -> dict[str, str]:
    """One good episode of two steps, as SQL, with some columns replaced."""
    good = {
        "episodes": "'a' AS episode_id, 'x' AS source, 'train' AS purpose, "
        "'unknown' AS outcome, 2 AS n_steps, '{}' AS tags",
        "steps": "'a' AS episode_id, range AS step_index, 0 AS n_prompt_kept, 1.0 AS loss_weight, "
        "'[]' AS messages",
        "feedback": "'f' AS feedback_id, 'a' AS episode_id, 'float' AS kind, 'm' AS metric_name, "
        "'1' AS value, '{}' AS tags, TIMESTAMPTZ '2026-01-01 00:00:00+00' AS created_at",
    }
    counts = {"episodes": 1, "steps": 2, "feedback": 0}
    relations = {}
    for table, select in good.items():
        given = select.count(" AS ")
        missing = [c for c in columns(table, (RETURN,)) if f" AS {c.name}" not in select]
        nulls = "".join(f", CAST(NULL AS {c.sql_type}) AS {c.name}" for c in missing)
        assert given + len(missing) == len(columns(table, (RETURN,)))
        change = f" REPLACE ({tables[table]})" if table in tables else ""
        n = 1 if table in tables and not counts[table] else counts[table]
        relations[table] = f"(SELECT *{change} FROM (SELECT range, {select}{nulls} FROM range({n})))"
    return relations


def add_and_finish(goal: Path, *parts: dict[str, str]) -> None:
    with duckdb.connect() as connection, StoreWriter(goal, kind="test", metrics=[RETURN]) as writer:
        for part in parts:
            writer.add(connection, **part)
        writer.finish()


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"episodes": "3 AS n_steps"}, "episode 'a' says n_steps 3; it has 2"),
        ({"steps": "2 * range AS step_index"}, "do not count from 0 without gaps: 2 steps, from 0 to 2"),
        ({"steps": "0 AS step_index"}, "do not count from 0 without gaps"),
        ({"steps": "'b' AS episode_id"}, "steps of episode 'b', which is missing"),
        ({"feedback": "'b' AS episode_id"}, "feedback of episode 'b', which is missing"),
        ({"episodes": "'maybe' AS outcome"}, "episodes.outcome is 'maybe' in row 'a'; it may be success"),
        ({"episodes": "NULL AS source"}, "episodes.source is null"),
        ({"steps": "CAST('nan' AS DOUBLE) AS reward"}, "steps.reward is nan in episode 'a'"),
        (
            {"episodes": "{'episode_return': CAST('inf' AS DOUBLE)} AS metrics"},
            "metrics.episode_return is inf",
        ),
        ({"steps": "[CAST('-inf' AS DOUBLE)] AS logprobs"}, "steps.logprobs has a number that is not finite"),
        (
            {"steps": "range AS n_prompt_kept"},
            "step 1: n_prompt_kept is 1 and the step before has 0 messages",
        ),
        ({"steps": "'{bad' AS messages"}, "Malformed JSON"),
        ({"episodes": "'x' AS seed"}, "Could not convert"),
    ],
)
def test_what_is_not_a_store_is_refused(tmp_path: Path, tables: dict[str, str], message: str) -> None:
    with pytest.raises(DataError) as caught:
        add_and_finish(tmp_path / "store", rows(**tables))
    assert message in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_the_same_episode_twice_or_in_two_parts_or_without_a_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="episode 'a' occurs more than once"):
        add_and_finish(tmp_path / "store", rows(), rows())
    whole = rows()
    first = {**whole, "steps": f"(FROM {whole['steps']} WHERE step_index = 0)"}
    rest = {table: f"(FROM {relation} LIMIT 0)" for table, relation in whole.items()}
    rest["steps"] = f"(FROM {whole['steps']} WHERE step_index = 1)"
    with pytest.raises(DataError, match="the steps of episode 'a' are not all in one part"):
        add_and_finish(tmp_path / "store", first, rest)
    lacking = f"(SELECT * EXCLUDE (reward) FROM {whole['steps']})"
    with pytest.raises(DataError, match=r"steps: .*reward"):
        add_and_finish(tmp_path / "store", {**whole, "steps": lacking})


def test_metrics_of_two_kinds_or_of_one_name_or_without_a_column_are_refused(tmp_path: Path) -> None:
    for named, metrics, said in (
        ([{"ok": 1.0}, {"ok": True}], None, "metric 'ok' is boolean in episode e1 and float in another"),
        ([{"ok": 1.0, "OK": 2.0}], None, "'OK' and 'ok' differ at most by case"),
        ([{"other": 1.0}], [RETURN], "'other' has float values and no such column"),
    ):
        episodes = [make_episode(f"e{i}", metrics=each) for i, each in enumerate(named)]
        with pytest.raises(DataError, match=said):
            write_episodes(tmp_path / "store", episodes, kind="test", metrics=metrics)


def test_what_follows_from_the_steps_is_null_when_a_step_does_not_know(tmp_path: Path) -> None:
    known = [
        make_step(0, n_input_tokens=3, variant_name="b"),
        make_step(1, n_input_tokens=4, variant_name="a"),
    ]
    partly = [make_step(0, n_input_tokens=3), make_step(1)]
    write_episodes(
        tmp_path / "s", [make_episode("a", steps=known), make_episode("b", steps=partly)], kind="test"
    )
    table = pq.read_table(tmp_path / "s/episodes")
    assert table["n_input_tokens"].to_pylist() == [7, None]
    assert table["variant_names"].to_pylist() == [["a", "b"], []]
    assert table["n_steps"].to_pylist() == [2, 2]


def test_names_of_folders_may_have_any_characters(tmp_path: Path) -> None:
    goal = tmp_path / "it's [1] *?" / "a store"
    write_episodes(goal, [make_episode()], kind="test")
    verify(open_store(goal), deep=True)
    assert list(open_dataset(goal)) == [make_episode()]
