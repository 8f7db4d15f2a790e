from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.matrix import daily
from tests.store.conftest import make_episode, make_step
from tests.store.test_view import in_files
from trajkit.curation.selection.select import select
from trajkit.errors import NothingMatched, QueryError, StoreError
from trajkit.schema import LineageEntry
from trajkit.store.dataset import Dataset, open_dataset
from trajkit.store.reader import Store, verify
from trajkit.store.writer import write_episodes


def seeds(dataset: Dataset) -> list[int | None]:
    return [episode.seed for episode in dataset]


def test_where_keeps_what_is_true(ten: Store) -> None:
    for expression, expected in {
        "episode_return >= 0.7 and n_steps < 10": [7, 8],
        "metrics.episode_return < 0.2": [0, 1],
        "task = 'open' and not ok": [1, 3],
        "tags->>'level' = '2'": [2, 5, 8],
        "tags.level = '2'": [2, 5, 8],
        "total_reward > 0": [],
        "not total_reward > 0": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
    }.items():
        assert seeds(Dataset(ten).where(expression)) == expected, expression


def test_verbs_chain_and_leave_the_dataset_before_them_alone(ten: Store) -> None:
    whole = Dataset(ten)
    good = whole.where("ok")
    best = good.order_by("episode_return", descending=True).limit(2)
    assert (len(whole), len(good), len(best)) == (10, 5, 2)
    assert seeds(best) == [9, 8]
    assert seeds(best.where("seed < 9")) == [8]
    assert seeds(good.limit(2)) == [5, 6]
    assert seeds(best.order_by("seed")) == [8, 9]
    assert (best.n_episodes, best.n_steps) == (2, 19)


def test_order_is_by_id_where_the_expression_is_equal(ten: Store) -> None:
    assert seeds(Dataset(ten).order_by("task")) == [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]


@pytest.mark.parametrize("verb", ["where", "order_by"])
def test_a_misspelt_column_is_told_at_once_with_the_nearest(ten: Store, verb: str) -> None:
    with pytest.raises(QueryError, match="no column 'episode_retrun'") as caught:
        getattr(Dataset(ten), verb)("episode_retrun > 0.5")
    assert caught.value.hint == "nearest: episode_return, metrics.episode_return, episode_id"


def test_an_expression_only_reads_the_store(ten: Store) -> None:
    outside = ten.path.parent / "other.json"
    outside.write_text('{"key": "sesame"}')
    for verb in ("where", "order_by"):
        for expression in (
            f"(select error(string_agg(t::varchar, '|')) from '{outside}' t) is null",
            "(with x as (copy (select 1) to 'x.csv') select true)",
            "true; drop view steps",
        ):
            with pytest.raises(QueryError) as caught:
                getattr(Dataset(ten), verb)(expression)
            assert "sesame" not in str(caught.value)
    with pytest.raises(QueryError, match="not a boolean"):
        Dataset(ten).where("n_steps")


def test_a_condition_means_the_same_as_in_select(store_of: Callable[..., Store], tmp_path: Path) -> None:
    store = store_of(
        make_episode(
            f"e{i}",
            metrics={"episode_return": i / 10, **({"speed": float(i % 3)} if i % 2 else {})},
            tags={"level": str(i % 4)},
        )
        for i in range(10)
    )
    for n, condition in enumerate(("0.2 < episode_return < 0.7", "not speed > 1 and tags.level = '1'")):
        select(store.path, tmp_path / f"selected-{n}", where=condition)
        expected = [each.episode_id for each in open_dataset(tmp_path / f"selected-{n}")]
        assert expected
        assert [each.episode_id for each in Dataset(store).where(condition)] == expected


@pytest.mark.full
@pytest.mark.parametrize("name", daily(["a*", "a[b]", 'it\'s "a"', "a?", "a[!c]", "{ab,ac}"], 2))
def test_a_folder_whose_name_looks_like_a_pattern_is_read_itself_and_no_other(
    store_of: Callable[..., Store], tmp_path: Path, name: str
) -> None:
    store_of([make_episode("other")], name="ab")
    store = store_of([make_episode("own", metrics={"it's": 1.0, 'x"y': 2.0})], name=name)
    verify(store, deep=True)
    assert [each.episode_id for each in Dataset(store).where('"it\'s" = 1 and metrics."x""y" = 2')] == ["own"]
    select(store.path, tmp_path / "selected*", where="n_steps > 0")
    assert [each.episode_id for each in open_dataset(tmp_path / "selected*")] == ["own"]


def test_a_value_that_cannot_be_compared_is_told_when_it_is_met_and_a_limit_at_once(ten: Store) -> None:
    dataset = Dataset(ten).where("CAST(task AS INTEGER) = 1")
    with pytest.raises(QueryError, match="Could not convert string"):
        len(dataset)
    with pytest.raises(QueryError, match="a limit of -1 episodes"):
        dataset.limit(-1)


def test_a_metric_named_like_a_column_does_not_hide_it(store_of: Callable[..., Store]) -> None:
    store = store_of([make_episode(metrics={"task": 1.0, "n_steps": 9.0})])
    assert len(Dataset(store).where("task = 'goto' and n_steps = 2")) == 1
    assert len(Dataset(store).where("metrics.task = 1 and metrics.n_steps = 9")) == 1


def test_why_says_what_left_and_adds_up(ten: Store) -> None:
    tally = Dataset(ten).where("ok").order_by("seed").limit(2).why()
    where, limit = tally
    assert (where.n_episodes_in, where.n_episodes_out, where.n_steps_in, where.n_steps_out) == (10, 5, 55, 40)
    assert [(left.reason, left.n_episodes, left.n_steps) for left in where.left] == [("not (ok)", 5, 15)]
    assert (limit.n_episodes_in, limit.n_episodes_out, limit.n_steps_out) == (5, 2, 13)
    assert where.parent_digest == ten.manifest.digest
    assert str(tally).splitlines() == [
        "where: 10 episodes in, 5 out; 55 steps in, 40 out",
        "  left: 5 episodes, 15 steps: not (ok)",
        "limit: 5 episodes in, 2 out; 40 steps in, 13 out",
        "  left: 3 episodes, 27 steps: after the first 2",
    ]


def test_why_begins_with_the_lineage_of_the_store(ten: Store, tmp_path: Path) -> None:
    Dataset(ten).where("ok").save(tmp_path / "good")
    verbs = [entry.verb for entry in open_dataset(tmp_path / "good").limit(1).why()]
    assert verbs == ["where", "limit"]
    assert len(Dataset(ten).why()) == 0


def test_a_saved_selection_is_a_store_of_those_episodes(ten: Store, tmp_path: Path) -> None:
    chosen = Dataset(ten).where("ok and task = 'goto'")
    manifest = chosen.save(tmp_path / "good")
    saved = open_dataset(tmp_path / "good")
    assert list(saved) == list(chosen)
    verify(saved.store, deep=True)
    assert manifest.digest == write_episodes(tmp_path / "again", chosen, kind="test").digest
    entry = manifest.lineage[0]
    assert isinstance(entry, LineageEntry)
    assert entry.arguments == {"expression": "ok and task = 'goto'"}


def test_a_store_of_many_files_has_the_same_episodes_in_every_order(
    ten: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("_STEPS_PER_BATCH", "_STEPS_PER_PART"):
        monkeypatch.setattr(f"trajkit.store.chosen.{bound}", 5)
    one, many = Dataset(ten), Dataset(in_files(ten, tmp_path / "files"))
    backwards = [each.order_by("seed % 3", descending=True) for each in (one, many)]
    for whole, cut in ((one, many), backwards):
        assert list(whole) == list(cut)
        for table in ("episodes", "steps", "feedback", "steps_full"):
            assert whole.arrow(table).read_all() == cut.arrow(table).read_all()
        assert cut.save(tmp_path / f"saved-{id(cut)}").digest == ten.manifest.digest


def test_saving_nothing_is_refused_with_the_tally(ten: Store, tmp_path: Path) -> None:
    with pytest.raises(NothingMatched) as caught:
        Dataset(ten).where("seed > 100").save(tmp_path / "none")
    assert "10 episodes, 55 steps: not (seed > 100)" in str(caught.value.hint)
    assert not (tmp_path / "none").exists()


def test_arrow_streams_every_table_in_the_order_of_the_dataset(ten: Store) -> None:
    dataset = Dataset(ten).where("seed < 3").order_by("seed", descending=True)
    reader = dataset.arrow()
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.read_all()["seed"].to_pylist() == [2, 1, 0]
    steps = dataset.arrow("steps").read_all()
    assert list(zip(steps["episode_id"].to_pylist(), steps["step_index"].to_pylist(), strict=True)) == [
        ("ep-2", 0),
        ("ep-2", 1),
        ("ep-2", 2),
        ("ep-1", 0),
        ("ep-1", 1),
        ("ep-0", 0),
    ]
    assert dataset.arrow("feedback").read_all()["feedback_id"].to_pylist() == ["f-2", "f-1", "f-0"]
    assert dataset.arrow("steps_full").schema.names[-1] == "prompt"


def test_columns_of_nothing_keep_their_types(ten: Store) -> None:
    nothing = Dataset(ten).limit(0)
    assert nothing.arrow("steps").read_all().num_rows == 0
    assert nothing.arrow("steps").schema == Dataset(ten).arrow("steps").schema
    assert list(nothing) == []


def test_polars_and_a_hugging_face_dataset_have_the_rows(ten: Store) -> None:
    frame = Dataset(ten).where("ok").polars("steps")
    assert frame.shape == (40, 38)
    assert frame["episode_id"].n_unique() == 5
    rows = Dataset(ten).hf()
    assert rows.num_rows == 10
    assert rows[7]["metrics"] == {"episode_return": 0.7, "ok": True}


def test_an_episode_is_found_by_id_beginning_and_position(store_of: Callable[..., Store]) -> None:
    dataset = Dataset(
        store_of([make_episode("abc-1"), make_episode("abm-2"), make_episode("0199"), make_episode("1")])
    )
    assert dataset.episode("abc-1").episode_id == "abc-1"
    assert dataset.episode("abm").episode_id == "abm-2"
    assert dataset.episode("01").episode_id == "0199"
    assert dataset.episode("0").episode_id == "0199"
    assert dataset.episode("1").episode_id == "1"  # an id goes before a position
    assert dataset.episode("2").episode_id == "abc-1"
    with pytest.raises(QueryError, match="several episodes begin with 'ab'") as several:
        dataset.episode("ab")
    assert several.value.hint == "abc-1, abm-2"
    with pytest.raises(NothingMatched, match="no episode 'abx-1'") as none:
        dataset.episode("abx-1")
    assert none.value.hint == "nearest: abc-1, abm-2, 1; or a position from 0 to 3"


def test_a_repr_is_short_and_what_was_not_chosen_is_not_found(ten: Store) -> None:
    with pytest.raises(NothingMatched):
        Dataset(ten).where("ok").episode("ep-1")
    assert (
        repr(Dataset(ten).where("ok").limit(3))
        == "<Dataset store.where('ok').limit(3) of 10 episodes, 55 steps>"
    )
    assert bool(Dataset(ten).limit(0))


@pytest.mark.full
def test_iteration_holds_a_few_episodes_at_a_time(store_of: Callable[..., Store]) -> None:
    text = "x" * 2_000
    steps = tuple(make_step(i, observation=text) for i in range(20))
    store = store_of(make_episode(f"e{i:04}", steps=steps) for i in range(400))  # 16 MB of observations
    tracemalloc.start()
    n_steps = sum(each.n_steps for each in Dataset(store))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n_steps == 8_000
    assert peak < 8_000_000


def test_a_part_that_goes_away_while_rows_are_read_is_an_error_of_the_store(ten: Store) -> None:
    rows = Dataset(ten).arrow("steps")
    for part in (ten.path / "steps").iterdir():
        part.unlink()
    with pytest.raises(StoreError, match="could not be read"):
        rows.read_all()


def test_saving_over_something_is_refused(ten: Store) -> None:
    with pytest.raises(StoreError, match="exists already"):
        Dataset(ten).save(ten.path)
