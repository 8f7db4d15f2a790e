"""The conditions of an export in the user's own words, on a real ClickHouse and on a store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.sources.conftest import exported
from trajkit.curation.selection.select import select
from trajkit.errors import NothingMatched, QueryError, RequestError
from trajkit.sources.local import export_store
from trajkit.sources.request import ExportRequest, parse_time
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import open_store

CONDITIONS = (
    "episode_return >= 0.7",
    "episode_return > 0.7",
    "episode_return in (0.7, 0.25)",
    "not episode_return > 0.5",
    "episode_return != 0.7",
    "not episode_return = 0.7",
    "metrics.success",
    "not success",
    "success = false or n_steps > 2",
    "progression is null and not n_steps between 2 and 3",
    "variant = 'baseline' and function = 'act'",
    "list_contains(variant_names, 'history') or variant like '%+%'",
    "not list_contains(function_names, 'plan')",
    "n_output_tokens > 14",
    "n_output_tokens > 14 and episode_return > 0.5 or n_input_tokens < 12",
    "not n_output_tokens > 14",
    "cost_usd is null",
    "ended_at - started_at < interval 2 seconds",
    "started_at >= '2026-05-28T20:27:30Z'::timestamptz",
    "outcome = 'success'",
    "purpose = 'train' or task = 'goto'",
    "seed = 7 or env_id = 'babyai'",
    "tags.level = '2'",
    "tags.level not in ('1', '3')",
    "tags.\"it's; \\ odd\" like 'y%' and 0 < episode_return <= 1",
)


@pytest.fixture(scope="module")
def played(rows_of: Any) -> str:
    """A database with episodes that differ in all that a condition may ask; gives its URL."""
    rows, url = rows_of("played")
    for number, value in enumerate((0.7, 0.25, 0.9, None, 0.7, -1.0, 1 / 3)):
        tags = {"level": str(number % 4)} if number % 3 else {}
        if number % 2:
            tags |= {"trajkit.env": "babyai", "trajkit.task": "goto", "trajkit.seed": str(5 + number)}
        if number == 2:
            tags |= {"it's; \\ odd": "yes", "trajkit.purpose": "train"}
        episode_id = rows.episode(value, n_steps=1 + number % 3, tags=tags)
        if number % 2:
            rows.json_step(episode_id, variant="history", tags={"level": "9"})
        if number == 4:
            rows.json_step(episode_id, function="plan", variant="history")
        if number in (0, 3):
            rows.boolean(episode_id, number == 0)
        if number < 3:
            rows.float(episode_id, number / 2, metric="progression")
    return str(url)


@pytest.fixture(scope="module")
def everything(played: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of all of it."""
    goal = tmp_path_factory.mktemp("everything") / "all"
    exported(played, goal)
    return goal


def digest_or_none(make: Any, path: Path) -> str | None:
    try:
        make()
    except NothingMatched:
        return None
    return open_store(path).manifest.digest


def same_everywhere(
    conditions: Sequence[str], played: str, everything: Path, tmp_path: Path
) -> list[str | None]:
    """Demand one digest for each condition from the database, its store and `select`; give the digests."""
    digests = []
    for number, condition in enumerate(conditions):
        direct, again, chosen = (tmp_path / f"{name}-{number}" for name in ("direct", "again", "chosen"))
        request = ExportRequest(where=condition)
        expected = digest_or_none(
            lambda to=chosen, text=condition: select(everything, to, where=text), chosen
        )
        found = digest_or_none(lambda to=direct, text=condition: exported(played, to, where=text), direct)
        assert found == expected, condition
        found = digest_or_none(lambda to=again, asked=request: export_store(everything, asked, to), again)
        assert found == expected, condition
        digests.append(expected)
    return digests


def test_a_condition_means_the_same_of_a_database_of_its_store_and_to_select(
    played: str, everything: Path, tmp_path: Path
) -> None:
    assert len(set(same_everywhere(CONDITIONS[::7], played, everything, tmp_path))) > 3


@pytest.mark.full
def test_every_condition_means_the_same_of_a_database_of_its_store_and_to_select(
    played: str, everything: Path, tmp_path: Path
) -> None:
    digests = same_everywhere(CONDITIONS, played, everything, tmp_path)
    assert len(set(digests)) > 12
    assert sum(digest is None for digest in digests) < 3


@pytest.mark.full
def test_an_outcome_does_not_depend_on_which_other_episodes_are_brought(rows: Any, run: Any) -> None:
    by_success, by_progression, by_none = rows.episode(0.9), rows.episode(0.8), rows.episode(0.7)
    rows.boolean(by_success, False)
    for episode_id in (by_success, by_progression):
        rows.float(episode_id, 1.0, metric="progression")
    outcomes = {by_success: "failure", by_progression: "success", by_none: "unknown"}
    for condition in ("episode_return < 0.85", "episode_return > 0.85", "episode_return < 0.75"):
        _, episodes = run(where=condition)
        assert {key: one.outcome for key, one in episodes.items()} == {key: outcomes[key] for key in episodes}


def test_what_leaves_is_counted_under_the_condition(played: str) -> None:
    tally, _ = exported(played, None, where="episode_return >= 0.7")
    assert [(left.reason, left.n_episodes) for left in tally.left] == [("not (episode_return >= 0.7)", 4)]
    late, _ = exported(played, None, where="n_output_tokens > 7")
    ((reason, n),) = [(left.reason, left.n_episodes) for left in late.left]
    assert (reason, n) == ("not (n_output_tokens > 7)", 7 - late.n_episodes_kept)
    assert late.n_steps_seen - late.n_steps_kept == late.left[0].n_steps


def test_nothing_that_passes_is_an_error_that_says_what_there_is(played: str) -> None:
    for condition, hint in (
        ("episode_return > 5 or success = null", "episode_return of 6 episodes ranges from -1 to 0.9"),
        ("n_output_tokens > 5000 and progression > 0", "progression of 3 episodes ranges from 0 to 1"),
        ("n_output_tokens > 5000", None),
    ):
        with pytest.raises(NothingMatched, match=r"not \(.*\): 7") as caught:
            exported(played, None, where=condition)
        assert (caught.value.hint or "").partition(";")[0] == (hint or "")


# -- single steps --------------------------------------------------------------------------------------------


def steps(run: Any, **options: Any) -> dict[str, list[str | None]]:
    _, episodes = run(**options)
    return {
        episode_id: [step.mask_reason for step in episode.steps] for episode_id, episode in episodes.items()
    }


def test_a_condition_on_steps_chooses_steps(rows: Any, run: Any) -> None:
    episode_id, other = rows.id(), rows.episode(None)
    made = [rows.json_step(episode_id, tags={"k": str(n)}, variant="ab"[n % 2]) for n in range(4)]
    rows.float(made[1], 0.9, metric="step_score")
    rows.float(made[2], 0.2, metric="step_score")
    no = "not selected"
    assert steps(run, where="step_score > 0.1 and metrics.step_score > 0.1 and n_steps = 4") == {
        episode_id: [no, None, None, no]
    }
    assert steps(run, where="step.tags.k in ('0', '3')") == {episode_id: [None, no, no, None]}
    assert steps(run, where="step.step_index >= 2 and step.variant_name = 'b'") == {
        episode_id: [no, no, no, None]
    }
    assert steps(run, where="not step_score > 0.5") == {
        episode_id: [None, no, None, None],
        other: [None, None],
    }
    # what only the calls of models tell
    called = f"step.n_output_tokens = 7 and (step.step_index < 1 or step.inference_id = '{made[3]}')"
    assert steps(run, where=called) == {episode_id: [None, no, no, None], other: [None, no]}


@pytest.mark.full
def test_an_episode_none_of_whose_steps_passes_leaves_with_the_condition_as_its_reason(
    rows: Any, run: Any
) -> None:
    good, _ = rows.episode(None, variant="a"), rows.episode(None, variant="b")
    tally, episodes = run(where="step.variant_name = 'a'")
    assert set(episodes) == {good}
    assert [(left.reason, left.n_episodes) for left in tally.left] == [
        ("no step where step.variant_name = 'a'", 1)
    ]


@pytest.mark.full
def test_a_step_with_a_demonstration_can_be_asked_for(rows: Any, run: Any) -> None:
    episode_id = rows.id()
    made = [rows.json_step(episode_id) for _ in range(2)]
    rows.demonstration(made[1], '{"raw":"{}"}')
    assert steps(run, where="step.demonstration is not null") == {episode_id: ["not selected", None]}
    assert steps(run, where="step.demonstration is null") == {episode_id: [None, "not selected"]}


@pytest.mark.full
def test_a_store_gives_the_steps_and_the_first_episodes_that_its_database_gives(
    played: str, everything: Path, tmp_path: Path
) -> None:
    asked: tuple[dict[str, Any], ...] = (
        {"where": "step.variant_name = 'history'"},
        {"where": "step.n_output_tokens > 5 and n_steps > 2"},
        {"where": "step.step_index = 0"},
        {"limit": 3, "order_by": "episode_return desc, n_steps"},
        {"last_inference_only": True},
    )
    for number, options in enumerate(asked):
        first, second = tmp_path / f"first-{number}", tmp_path / f"second-{number}"
        exported(played, first, **options)
        export_store(everything, ExportRequest(**options), second)
        assert open_store(first).manifest.digest == open_store(second).manifest.digest


# -- the first of them, and the last step --------------------------------------------------------------------


def kept(run: Any, **options: Any) -> list[str]:
    return sorted(run(**options)[1])


def test_the_first_are_the_oldest_unless_an_order_says_otherwise(rows: Any, run: Any) -> None:
    made = [rows.episode(value, n_steps=n) for value, n in ((0.5, 3), (None, 1), (0.9, 2), (0.5, 1))]
    assert kept(run, limit=2) == made[:2]
    assert kept(run, limit=2, order_by="episode_return desc") == [made[0], made[2]]
    assert kept(run, limit=1, order_by="episode_return, started_at desc") == [made[3]]
    assert kept(run, limit=3, order_by="episode_return desc, n_steps") == [made[0], made[2], made[3]]
    assert kept(run, limit=1, order_by="n_output_tokens desc") == [made[0]]
    assert kept(run, limit=9) == made
    tally, _ = run(limit=1, order_by="episode_return desc", where="n_steps < 3")
    assert [(left.reason, left.n_episodes) for left in tally.left] == [
        ("after the first 1 by episode_return desc", 2),
        ("not (n_steps < 3)", 1),
    ]


@pytest.mark.full
def test_only_the_last_of_the_steps_that_were_asked_for_is_learned(rows: Any, run: Any) -> None:
    episode_id = rows.id()
    for variant in "aabb":
        rows.json_step(episode_id, variant=variant)
    not_last, no = "not the last step", "not selected"
    assert steps(run, last_inference_only=True, variants=("a",)) == {episode_id: [not_last, None, no, no]}
    assert steps(run, last_inference_only=True, where="step.step_index < 1") == {
        episode_id: [None, no, no, no]
    }


@pytest.mark.full
def test_the_functions_to_train_mask_the_others_and_leave_episodes_without_them(rows: Any, run: Any) -> None:
    both, other = rows.id(), rows.episode(None, function="plan", n_steps=1)
    for function in ("plan", "act", "plan"):
        rows.json_step(both, function=function)
    tally, episodes = run(train_functions=("act",))
    assert [step.mask_reason for step in episodes[both].steps] == [
        "another function",
        None,
        "another function",
    ]
    assert other not in episodes
    assert [(left.reason, left.n_episodes) for left in tally.left] == [
        ("no step of the functions to train", 1)
    ]
    assert [(entry.reason, entry.n_steps) for entry in tally.masked] == [("another function", 2)]


# -- as of a time --------------------------------------------------------------------------------------------


@pytest.mark.full
def test_what_was_logged_later_is_as_if_it_were_not_there(rows: Any, url: str, tmp_path: Path) -> None:
    first = rows.episode(0.2, tags={"k": "1"})
    exported(url, tmp_path / "before")
    rows.float(first, 0.9)
    rows.json_step(first, tags={"k": "2", "trajkit.purpose": "eval"})
    rows.comment(first, "x", tags={"trajkit.abandoned": "killed", "trajkit.purpose": "eval"})
    rows.episode(0.8)
    # the last row before was the fourth: ids are a second apart
    moment = parse_time("2026-05-28T20:26:46Z", option="--as-of")
    tally, manifest = exported(url, tmp_path / "then", as_of=moment)
    assert manifest.as_of == moment
    assert manifest.digest == open_store(tmp_path / "before").manifest.digest
    assert [(left.reason, left.n_episodes, left.n_steps) for left in tally.left] == [
        ("logged after the as-of time", 1, 3)
    ]
    assert manifest.lineage[0].arguments == {"as_of": "2026-05-28T20:26:46Z"}


@pytest.mark.full
def test_an_episode_is_of_the_functions_that_it_had_at_the_as_of_time(
    rows: Any, url: str, tmp_path: Path
) -> None:
    kept = rows.episode(0.2)
    other = rows.episode(0.4, function="another")
    late = rows.id()
    moment = datetime.fromtimestamp(int(late.replace("-", "")[:12], 16) / 1000, UTC)
    rows.json_step(kept)
    rows.json_step(other)
    asked = {"as_of": moment, "functions": ("act",)}
    tally, manifest = exported(url, tmp_path / "then", **asked)
    assert (tally.n_episodes_seen, tally.n_steps_seen) == (2, 6)
    assert [(left.reason, left.n_episodes, left.n_steps) for left in tally.left] == [
        ("logged after the as-of time", 0, 2),
        ("other functions or variants", 1, 2),
    ]
    assert (manifest.counts.n_episodes, manifest.counts.n_steps) == (1, 2)


@pytest.mark.full
def test_an_export_says_until_when_it_was_read_and_can_be_repeated(
    rows: Any, url: str, tmp_path: Path, client: Any
) -> None:
    rows.episode(0.2)
    _, first = exported(url, tmp_path / "first")
    late = rows.id(at_ms=int(first.as_of.timestamp() * 1000) + 1)
    assert first.as_of.microsecond % 1000 == 0
    rows.episode(0.3, n_steps=1)  # ids of the past: they count, whenever they came
    _, second = exported(url, tmp_path / "second", as_of=first.as_of)
    assert second.counts.n_episodes == 2
    rows.json_step(late, inference_id=late)
    _, third = exported(url, tmp_path / "third", as_of=first.as_of)
    assert third.digest == second.digest


# -- what is refused -----------------------------------------------------------------------------------------


REFUSED: tuple[tuple[dict[str, Any], str, str | None], ...] = (
    ({"where": "episode_retrun > 1"}, "no column 'episode_retrun' in this database", "episode_return"),
    ({"where": "total_reward > 1"}, "no column 'total_reward'", None),
    ({"where": "n_steps"}, "gives a BIGINT, not a boolean", "compare"),
    ({"where": "n_steps >"}, "is not a condition", None),
    ({"where": "exists(select 1)"}, "subquery is not allowed", None),
    ({"where": "tags.lvel = '1'"}, "has the tag 'lvel'", "trajkit info"),
    ({"where": "tags.trajkit.step = '1'"}, "tag of single steps", "step.tags.trajkit.step"),
    ({"where": "tags.level::int > 1"}, "cannot be computed", None),
    ({"where": "episode_return = 'x'"}, "cannot be computed", None),
    ({"limit": 1, "order_by": "step.step_index"}, "is about single steps", "started_at"),
    ({"limit": 1, "order_by": "tags.level::int"}, "cannot be computed", None),
    ({"limit": 1, "order_by": "n_stpes"}, "no column 'n_stpes'", "n_steps"),
)


def test_what_cannot_be_meant_is_refused(rows: Any, url: str) -> None:
    rows.episode(0.5, tags={"level": "high", "trajkit.step": "0"})
    for options, said, hint in REFUSED:
        with pytest.raises(QueryError) as caught:
            exported(url, None, **options)
        assert said in caught.value.message, options
        assert hint is None or hint in str(caught.value.hint), options


def test_an_order_without_a_limit_is_refused() -> None:
    with pytest.raises(ValidationError, match="which is not given"):
        ExportRequest(order_by="n_steps")


def test_a_metric_of_episodes_and_steps_is_refused_in_a_condition_too(rows: Any, url: str) -> None:
    episode_id = rows.episode(0.5)
    rows.float(rows.json_step(episode_id), 0.5)
    with pytest.raises(QueryError, match="logged on 1 episodes and on 1 inferences"):
        exported(url, None, where="episode_return > 0")


def test_a_store_refuses_what_only_a_database_can_do(everything: Path) -> None:
    for options in (
        {"as_of": datetime(2026, 1, 1, tzinfo=UTC)},
        {"template_variant": "x"},
        {"targets": "demonstration"},
        {"shard": {"number": 1, "n": 2}},
    ):
        with pytest.raises(RequestError, match="is for databases"):
            export_store(everything, ExportRequest(**options), None)


@pytest.mark.full
def test_tags_that_differ_by_case_are_not_taken_for_each_other(rows: Any, url: str, tmp_path: Path) -> None:
    low, _ = rows.episode(None, tags={"k": "1", "K": "2"}), rows.episode(None, tags={"k": "2", "K": "1"})
    exported(url, tmp_path / "all")
    for number, condition in enumerate(("tags.k = '1'", "tags.K = '2' and tags.k = '1'")):
        exported(url, tmp_path / f"direct-{number}", where=condition)
        select(tmp_path / "all", tmp_path / f"chosen-{number}", where=condition)
        for goal in (tmp_path / f"direct-{number}", tmp_path / f"chosen-{number}"):
            assert [one.episode_id for one in open_dataset(goal)] == [low]


@pytest.mark.full
def test_names_only_match_themselves(rows: Any, run: Any) -> None:
    odd = 'it\'s "odd"; DROP TABLE x; -- \\ é'
    episode_id, _ = rows.episode(None, tags={odd: odd}, variant=odd), rows.episode(None)
    rows.float(episode_id, 1.0, metric=odd)
    name, text = odd.replace('"', '""'), odd.replace("'", "''")
    measured = f'"{name}" > 0 and metrics."{name}" = 1'
    for condition in (f"tags.\"{name}\" = '{text}'", f"variant = '{text}' and {measured}"):
        assert kept(run, where=condition) == [episode_id]
