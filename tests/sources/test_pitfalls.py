"""The pitfalls that a reader of TensorZero's tables meets, each on a real ClickHouse."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trajkit.schema import Purpose
from trajkit.sources.request import MetricCondition
from trajkit.sources.tensorzero.connect.database import TensorZero, open_database

RETURN = "episode_return"
BASE_MS = 1_780_500_000_000
WORKFLOW_OFFSET_MS = 10_000_000_000_000
TEXT = [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
SAID = [{"type": "text", "text": "hi"}]


@pytest.fixture
def database(url: str) -> Iterator[TensorZero]:
    found = open_database(url)
    yield found
    found.close()


@pytest.fixture
def snapshots(client: Any, url: str) -> Iterator[None]:
    """No configurations but those of the test."""
    client.command("TRUNCATE TABLE ConfigSnapshot")
    client.command("TRUNCATE TABLE DynamicEvaluationRunEpisode")
    yield
    client.command("TRUNCATE TABLE ConfigSnapshot")
    client.command("TRUNCATE TABLE DynamicEvaluationRunEpisode")


def left(tally: Any) -> dict[str, int]:
    return {entry.reason: entry.n_episodes for entry in tally.left}


def test_02_an_export_as_of_a_time_is_the_same_after_later_feedback(rows: Any, run: Any) -> None:
    episode_id = rows.id()
    rows.json_step(episode_id)
    first, later = rows.id(at_ms=BASE_MS), rows.id(at_ms=BASE_MS + 2000)
    rows.float(episode_id, 0.2, id=first)
    as_of = datetime.fromtimestamp(BASE_MS / 1000, UTC) + timedelta(seconds=1)
    _, before = run(as_of=as_of)
    rows.float(episode_id, 0.8, id=later)
    _, again = run(as_of=as_of)
    assert again == before
    _, now = run()
    assert now[episode_id].metrics == {RETURN: 0.8}
    # which feedback it was can be read from the store
    assert [item.feedback_id for item in before[episode_id].feedback] == [first]
    assert [item.feedback_id for item in now[episode_id].feedback] == [first, later]


@pytest.mark.full
def test_05_a_configurations_hash_is_64_digits_even_when_it_begins_with_zeros(
    rows: Any, run: Any, database: TensorZero, snapshots: None
) -> None:
    number = 0xAB << 8
    episode_id = rows.id()
    rows.chat_step(episode_id, output=SAID, prompt=TEXT, snapshot_hash=number)
    rows.insert("ConfigSnapshot", config="", extra_templates={}, hash=number, tensorzero_version="x")
    _, episodes = run()
    shown = "0" * 60 + "ab00"
    assert episodes[episode_id].steps[0].snapshot_hash == shown
    assert [row["snapshot_hash"] for batch in database.snapshots() for row in batch.to_pylist()] == [shown]


def test_06_of_rows_that_replace_each_other_the_last_counts(
    rows: Any, run: Any, client: Any, database: TensorZero, snapshots: None
) -> None:
    for second in (3, 1, 2):
        rows.insert(
            "ConfigSnapshot",
            config=f"# used at {second}",
            extra_templates={"x": str(second)},
            hash=7,
            tensorzero_version="x",
            last_used=f"2026-06-01 00:00:0{second}",
        )
    (row,) = [row for batch in database.snapshots() for row in batch.to_pylist()]
    assert (row["config"], row["templates"]) == ("# used at 3", [("x", "3")])
    gone, kept = (rows.id(at_ms=BASE_MS + WORKFLOW_OFFSET_MS + n) for n in range(2))
    for episode_id, is_deleted in ((gone, False), (gone, True), (kept, False)):
        client.command(
            "INSERT INTO DynamicEvaluationRunEpisode"
            " (run_id, episode_id_uint, variant_pins, datapoint_name, tags, is_deleted, updated_at)"
            f" VALUES ('{rows.id()}', toUInt128(toUUID('{episode_id}')), map(), 't', map(), {is_deleted},"
            f" now64() + {int(is_deleted)})"
        )
    assert [row["episode_id"] for batch in database.tasks() for row in batch.to_pylist()] == [kept]


@pytest.mark.full
def test_07_the_lookup_tables_need_not_be_complete(rows: Any, run: Any, client: Any) -> None:
    episode_id = rows.episode(0.9)
    for table in ("InferenceById", "InferenceByEpisodeId", "EpisodeById", "FloatMetricFeedbackByTargetId"):
        client.command(f"TRUNCATE TABLE {table}")
    _, episodes = run(MetricCondition(name=RETURN, min=0.5))
    assert (set(episodes), episodes[episode_id].n_steps) == ({episode_id}, 2)


def test_09_a_workflow_evaluation_starts_when_its_inferences_do_and_has_its_task(
    rows: Any, run: Any, client: Any, snapshots: None
) -> None:
    first = rows.id(at_ms=BASE_MS)
    episode_id = rows.id(at_ms=BASE_MS + WORKFLOW_OFFSET_MS)
    named, own = rows.id(at_ms=BASE_MS + WORKFLOW_OFFSET_MS + 1), {"trajkit.task": "mine"}
    tags = {"tensorzero::workflow_evaluation_run_id": "r", "tensorzero::internal": "true"}
    rows.json_step(episode_id, inference_id=first, tags=tags)
    rows.json_step(named, tags=tags | own)
    for of in (episode_id, named):
        client.command(
            "INSERT INTO DynamicEvaluationRunEpisode"
            " (run_id, episode_id_uint, variant_pins, datapoint_name, tags)"
            f" VALUES ('{rows.id()}', toUInt128(toUUID('{of}')), map(), 'task_1', map())"
        )
    (year,) = client.query(f"SELECT toYear(UUIDv7ToDateTime(toUUID('{episode_id}')))").result_rows[0]
    assert year == 2343
    _, episodes = run(include_eval=True, until=datetime(2030, 1, 1, tzinfo=UTC))
    episode = episodes[episode_id]
    assert episode.started_at == datetime.fromtimestamp(BASE_MS / 1000, UTC)
    assert (episode.task, episode.purpose) == ("task_1", Purpose.EVAL)
    assert episodes[named].task == "mine"


@pytest.mark.full
def test_12_a_step_that_failed_left_no_row_and_the_others_are_counted_without_gaps(
    rows: Any, run: Any
) -> None:
    episode_id = rows.id()
    for number in (0, 2):
        rows.json_step(episode_id, tags={"trajkit.step": str(number)})
    _, episodes = run()
    assert [step.step_index for step in episodes[episode_id].steps] == [0, 1]


@pytest.mark.full
def test_14_a_cached_answer_says_so_and_keeps_what_the_cache_kept(rows: Any, run: Any) -> None:
    episode_id = rows.id()
    inference_id = rows.json_step(episode_id, calls=0)
    rows.call(inference_id, user="u", text="x", cached=True, response_time_ms=0, cost=0, input_tokens=40)
    _, episodes = run()
    (step,) = episodes[episode_id].steps
    assert (step.cached, step.cost_usd, step.n_input_tokens, step.latency_s) == (True, 0, 40, 0.02)


@pytest.mark.full
def test_18_rows_that_come_late_are_unknown_until_they_are_there(rows: Any, run: Any) -> None:
    episode_id = rows.id()
    inference_id = rows.json_step(episode_id, calls=0)
    _, episodes = run()
    assert episodes[episode_id].steps[0].mask_reason == "prompt unknown"
    rows.call(inference_id, user="now", text='{"thinking":"", "action":"go forward"}')
    _, episodes = run()
    assert episodes[episode_id].steps[0].mask_reason is None


def test_11_19_a_pinned_variant_is_no_evaluation_and_tags_are_texts_of_which_reserved_ones_are_kept(
    rows: Any, run: Any
) -> None:
    tags = {"number": "7", "empty": "", "tensorzero::variant_pinned": "x", 'quo"ted': "\\"}
    episode_id = rows.episode(None, tags=tags)
    _, episodes = run()
    assert episodes[episode_id].tags == tags
    assert episodes[episode_id].purpose == Purpose.UNKNOWN


@pytest.mark.full
def test_20_of_configurations_that_differ_the_newest_counts_and_the_data_say_the_level(
    rows: Any, run: Any, database: TensorZero, snapshots: None
) -> None:
    for number, (level, optimize) in enumerate((("inference", "max"), ("episode", "min"))):
        text = f'[metrics.m]\ntype = "float"\nlevel = "{level}"\noptimize = "{optimize}"\n'
        rows.insert(
            "ConfigSnapshot",
            config=text,
            extra_templates={},
            hash=number,
            tensorzero_version="x",
            last_used=f"2026-06-0{number + 1} 00:00:00",
        )
    episode_id = rows.id()
    rows.float(rows.json_step(episode_id), 0.5, metric="m")
    assert database.metrics()["m"] == ("float", "episode", "min")
    _, episodes = run(MetricCondition(name="m", min=0.5))
    assert episodes[episode_id].steps[0].metrics == {"m": 0.5}


def test_21_the_prompt_is_what_was_rendered_even_where_the_input_has_no_system(rows: Any, run: Any) -> None:
    episode_id = rows.id()
    content = [{"type": "text", "text": "plain"}]
    inference_id = rows.json_step(
        episode_id, calls=0, input={"messages": [{"role": "user", "content": content}]}
    )
    rows.call(inference_id, user="wrapped: plain", text="x", system="A static prompt.")
    _, episodes = run()
    assert [message.text for message in episodes[episode_id].prompt(0) or ()] == [
        "A static prompt.",
        "wrapped: plain",
    ]


@pytest.mark.full
def test_24_a_batch_inference_has_no_time_of_its_own(rows: Any, run: Any) -> None:
    episode_id = rows.id()
    rows.chat_step(episode_id, output=SAID, prompt=TEXT, processing_time_ms=None)
    _, episodes = run()
    (step,) = episodes[episode_id].steps
    assert (step.latency_s, step.mask_reason) == (None, None)
    assert episodes[episode_id].ended_at == step.started_at
