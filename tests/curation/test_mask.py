"""Masks: each reason by itself, the order between them, and what stays."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.matrix import daily, portions
from tests.store.test_mutations import sealed
from trajkit.cli.main import run
from trajkit.curation.masks.mask import REASON_TEXTS, Masked, MaskReason, mask
from trajkit.errors import NothingMatched, QueryError, RequestError
from trajkit.schema import Episode, Transition, message
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import Store

Attempts = Callable[..., Store]
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LATER = START + timedelta(hours=1)


def step(index: int, **fields: Any) -> Transition:
    default: dict[str, Any] = {
        "inference_id": None,
        "messages": (message("user", f"turn {index}"),),
        "completion": message("assistant", f"go {index}"),
        "observation": f"room {index}",
        "action": f"go {index}",
        "action_executed": f"go {index}",
        "action_valid": True,
        "reward": 0.0,
        "terminated": False,
        "finish_reason": "stop",
        "cached": False,
        "n_output_tokens": 10,
    }
    return Transition(step_index=index, **default | fields)


def episode(name: str = "ep", steps: Sequence[dict[str, Any]] = ({}, {}, {}), **fields: Any) -> Episode:
    default: dict[str, Any] = {"source": "test", "env_id": "world", "task": "goto", "seed": 1}
    made = tuple(step(index, **each) for index, each in enumerate(steps))
    return Episode(episode_id=name, steps=made, **default | {"started_at": START} | fields)


def masked(made: Masked, goal: Path) -> dict[tuple[str, int], str]:
    """The steps that are not learned, by their place."""
    assert made.manifest is not None
    found = {}
    for each in open_dataset(goal):
        for one in each.steps:
            assert (one.loss_weight == 0) == (one.mask_reason is not None)
            if one.mask_reason is not None:
                found[each.episode_id, one.step_index] = one.mask_reason
    return found


ONE_OF_EACH: dict[str, tuple[list[Episode], set[tuple[str, int]]]] = {
    "copied": ([episode(steps=({}, {"extra": {"is_copied_context": True}}, {}))], {("ep", 1)}),
    "after-success": ([episode(steps=({}, {"terminated": True}, {}), outcome="success")], {("ep", 2)}),
    "truncated": ([episode(steps=({}, {"finish_reason": "MAX_TOKENS"}, {}))], {("ep", 1)}),
    "unparsed": ([episode(steps=({}, {"action": None, "action_executed": "wait"}, {}))], {("ep", 1)}),
    "invalid": ([episode(steps=({}, {"action_valid": False}, {}))], {("ep", 1)}),
    "no-op": ([episode(steps=({}, {"observation": "hall"}, {"observation": "hall"}, {}))], {("ep", 1)}),
    "loop": (
        [episode(steps=({"observation": "a", "action_executed": "x"}, {}) * 2)],
        {("ep", 2)},
    ),
    "cached": (
        [
            episode("first", steps=({"completion": message("assistant", "y")},)),
            episode("later", steps=({"completion": message("assistant", "y"), "cached": True}, {})),
        ],
        {("later", 0)},
    ),
}

JUDGED_BELOW = {MaskReason.TRUNCATED, MaskReason.UNPARSED, MaskReason.INVALID, MaskReason.NO_OP}
"""Reasons that other daily tests judge alone and with others."""


@pytest.mark.parametrize("reason", daily(MaskReason, set(MaskReason) - JUDGED_BELOW))
def test_each_reason_masks_its_own_step_and_no_other_reason_does(
    attempts: Attempts, tmp_path: Path, reason: MaskReason
) -> None:
    episodes, places = ONE_OF_EACH[reason]
    store = attempts(episodes)
    made = mask(store.path, tmp_path / "masked", reasons=[reason])
    assert masked(made, tmp_path / "masked") == dict.fromkeys(places, REASON_TEXTS[reason])
    assert [(left.reason, left.n_steps) for left in made.entry.masked] == [
        (REASON_TEXTS[reason], len(places))
    ]
    n_steps = store.manifest.counts.n_steps
    assert (made.report.n_learned_before, made.report.n_learned) == (n_steps, n_steps - len(places))
    assert made.report.n_tokens == 10 * made.report.n_learned
    # an answer that names no action is not valid either; nothing else overlaps in these stores
    others = [other for other in MaskReason if other != reason]
    counts = {each.reason: each.n_masked for each in mask(store.path, None, reasons=others).report.reasons}
    assert {name for name, n in counts.items() if n} == set()


def test_nothing_is_masked_unasked() -> None:
    with pytest.raises(RequestError, match="no reason to mask steps is given"):
        mask("no-store", None, reasons=[])
    with pytest.raises(RequestError, match="unknown reason 'lazy'"):
        mask("no-store", None, reasons=["lazy"])


@pytest.mark.full
def test_of_several_reasons_the_first_in_the_documented_order_is_kept(
    attempts: Attempts, tmp_path: Path
) -> None:
    worst = {
        "finish_reason": "length",
        "action": None,
        "action_executed": "wait",
        "action_valid": False,
        "observation": "room 0",
    }
    store = attempts([episode(steps=({"action_executed": "wait"}, worst, worst, {}))])
    goals = iter(tmp_path / f"masked-{number}" for number in range(9))
    reasons: list[MaskReason] = list(MaskReason)
    expected = [MaskReason.TRUNCATED, MaskReason.UNPARSED, MaskReason.INVALID, MaskReason.LOOP]
    for reason in expected:
        goal = next(goals)
        # their order on the command line means nothing
        made = mask(store.path, goal, reasons=reasons[::-1])
        if reason == MaskReason.LOOP:
            assert masked(made, goal)["ep", 1] == REASON_TEXTS[MaskReason.NO_OP]
            reasons.remove(MaskReason.NO_OP)
            goal = next(goals)
            made = mask(store.path, goal, reasons=reasons)
        assert masked(made, goal)["ep", 1] == REASON_TEXTS[reason]
        by_reason = {each.reason: each for each in made.report.reasons}
        assert by_reason[reason].n_masked == 2
        for later in expected[expected.index(reason) + 1 :]:
            assert by_reason[later].n_matched >= 2
        reasons.remove(reason)


def test_the_answer_stays_in_the_prompts_that_follow(attempts: Attempts, tmp_path: Path) -> None:
    grows = episode(
        steps=(
            {},
            {"n_prompt_kept": 2, "action_valid": False},
            {"n_prompt_kept": 4},
        )
    )
    store = attempts([grows])
    mask(store.path, tmp_path / "masked", reasons=["invalid"])
    (after,) = open_dataset(tmp_path / "masked")
    assert list(after.prompts()) == list(grows.prompts())
    assert len(after.prompt(2) or ()) == 5
    assert [one.completion for one in after.steps] == [one.completion for one in grows.steps]
    assert [one.loss_weight for one in after.steps] == [1, 0, 1]


def test_what_was_masked_before_keeps_its_reason_but_a_mere_weight_of_0_does_not(
    attempts: Attempts, tmp_path: Path
) -> None:
    bad: dict[str, Any] = {"action_valid": False, "loss_weight": 0}
    store = attempts(
        [episode(steps=(bad | {"mask_reason": "not selected"}, bad | {"mask_reason": "weight 0"}, {}))]
    )
    made = mask(store.path, tmp_path / "masked", reasons=["invalid"])
    assert masked(made, tmp_path / "masked") == {("ep", 0): "not selected", ("ep", 1): "invalid action"}
    report = made.report
    assert (report.n_masked_before, report.n_learned_before, report.n_learned) == (2, 1, 1)


def test_a_step_after_success_is_found_by_a_rule_over_the_rewards_so_far(
    attempts: Attempts, tmp_path: Path
) -> None:
    earned = episode("earned", steps=tuple({"reward": reward} for reward in (0.0, 0.5, 0.5, 0.0)))
    # it held, and then not: only from the last time on success was certain
    lost = episode("lost", steps=tuple({"reward": reward} for reward in (1.0, -1.0, 1.0, 0.0)))
    unknown = episode("unknown", steps=tuple({"reward": reward} for reward in (None, 1.0, 0.0)))
    store = attempts([earned, lost, unknown])
    made = mask(store.path, tmp_path / "masked", reasons=["after-success"], success="episode_return >= 1")
    assert set(masked(made, tmp_path / "masked")) == {("earned", 3), ("lost", 3)}
    with pytest.raises(QueryError, match=r"'progress'.*not measured step by step"):
        mask(store.path, None, reasons=["after-success"], success="progress >= 1")
    with pytest.raises(RequestError, match="--success needs"):
        mask(store.path, None, reasons=["loop"], success="episode_return >= 1")


def test_a_rule_of_success_may_name_a_metric_of_steps(attempts: Attempts, tmp_path: Path) -> None:
    values = ({"progress": 0.0}, {"progress": 1.0}, {}, {"progress": 1.0})
    store = attempts([episode(steps=tuple({"metrics": each} for each in values))])
    made = mask(store.path, tmp_path / "masked", reasons=["after-success"], success="progress >= 1")
    assert set(masked(made, tmp_path / "masked")) == {("ep", 2), ("ep", 3)}


HALL = {"observation": "hall"}


@pytest.mark.parametrize(
    ("steps", "n_unjudged"),
    [
        # steps that earn something are none, and nothing is seen after the last step
        ((HALL | {"reward": 1.0}, HALL | {"reward": -0.1}, HALL, {}), 1),
        # a step that calls another agent is none
        (tuple(HALL | {"agent_name": name} for name in ("main", "sub", "sub")), 2),
    ],
)
def test_a_no_op_changes_nothing_that_its_own_agent_sees(
    attempts: Attempts, steps: Sequence[dict[str, Any]], n_unjudged: int
) -> None:
    (count,) = mask(attempts([episode(steps=steps)]).path, None, reasons=["no-op"]).report.reasons
    assert (count.n_masked, count.n_matched, count.n_unjudged) == (1, 1, n_unjudged)


def test_calls_of_a_model_before_the_action_are_no_steps_of_the_world(attempts: Attempts) -> None:
    call = {"action": None, "action_executed": None, "action_valid": None, "reward": None}
    act = {"observation": "hall", "action_executed": "look"}
    store = attempts(
        [episode(steps=(call | act | {"action_executed": None}, act, call, act | {"reward": 0.0}))]
    )
    counts = {each.reason: each for each in mask(store.path, None, reasons=list(MaskReason)).report.reasons}
    assert counts["no-op"].n_matched == 1
    assert counts["loop"].n_matched == 1
    assert counts["unparsed"].n_masked == 0
    assert counts["unparsed"].n_unjudged == 2


def test_tool_calls_of_a_conversation_are_no_no_ops_and_text_answers_come_between(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(name: str, key: str) -> dict[str, Any]:
        function = {"name": name, "arguments": json.dumps({"key": key})}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": name + key, "type": "function", "function": function}],
        }

    def result(name: str, key: str) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": name + key, "content": "ok"}

    said: list[dict[str, Any]] = [{"role": "user", "content": "go on"}]
    for name, key in (("write", "a"), ("write", "b"), ("ask_agent", "c"), ("status", "d"), ("status", "e")):
        said += [call(name, key), result(name, key)]
    said += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "go on"}]
    said += [call("write", "f"), result("write", "f"), {"role": "assistant", "content": "Done."}]
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": said}) + "\n", encoding="utf-8")
    chats, goal = str(tmp_path / "chats"), str(tmp_path / "masked")
    assert run(["import", str(tmp_path / "chats.jsonl"), "-o", chats]) == 0
    assert run(["mask", chats, "--reason", "no-op", "-o", goal, "--json"]) == 0
    assert all(each.loss_weight == 1 for each in next(iter(open_dataset(goal))).steps)
    (count,) = mask(chats, None, reasons=["no-op"]).report.reasons
    assert (count.n_matched, count.n_unjudged) == (0, 8)


@pytest.mark.full
@pytest.mark.parametrize(
    "command",
    [["mask", "--reason", "no-op"], ["mask", "--reason", "cached"], ["weight", "--scheme", "return"]],
)
def test_a_step_that_is_there_twice_ends_the_command_at_once(
    command: list[str], attempts: Attempts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = attempts([episode(steps=({},) * 4000, metrics={"episode_return": 1.0})]).path
    (part,) = store.glob("steps/*.parquet")
    steps = pq.read_table(part)
    at = steps.schema.get_field_index("step_index")
    same = pa.array([0] * steps.num_rows, pa.int64())
    pq.write_table(steps.set_column(at, steps.schema.field(at), same), part)
    sealed(store)
    started = time.monotonic()
    assert run([command[0], str(store), *command[1:], "-o", str(tmp_path / "out")]) == 1
    assert "step 0 of episode 'ep' occurs more than once" in capsys.readouterr().err
    assert time.monotonic() - started < 60


@pytest.mark.full
def test_the_copy_is_in_the_episode_that_began_later(attempts: Attempts, tmp_path: Path) -> None:
    told = ({"inference_id": "i-0"}, {"inference_id": "i-1"})
    original = episode("z-original", steps=told)
    copy = episode("a-copy", steps=(*told, {"inference_id": "i-2"}), started_at=LATER)
    store = attempts([original, copy])
    made = mask(store.path, tmp_path / "masked", reasons=["copied"])
    assert set(masked(made, tmp_path / "masked")) == {("a-copy", 0), ("a-copy", 1)}


def test_of_cached_answers_one_stays_that_is_learned(attempts: Attempts, tmp_path: Path) -> None:
    said = {"messages": (message("user", "same"),), "completion": message("assistant", "y")}
    hit = said | {"cached": True}
    episodes = [
        episode("a", steps=(hit,), started_at=START + timedelta(hours=2)),
        episode("b", steps=(hit,), started_at=LATER),
        episode("c", steps=(said | {"action_valid": False, "cached": False},)),
        episode("d", steps=(hit | {"messages": (message("user", "other"),)},)),
        episode("e", steps=(hit | {"messages": (message("user", "third"),)},)),
        episode("f", steps=(said | {"messages": (message("user", "third"),)},), started_at=LATER),
    ]
    goal = tmp_path / "masked"
    made = mask(attempts(episodes).path, goal, reasons=["cached", "invalid"])
    # c gave the answer first and is masked: so b, the earliest of the others, is the one to learn; and f,
    # which no cache gave, whenever it was given
    gone = dict.fromkeys((("a", 0), ("e", 0)), "cached duplicate")
    assert masked(made, goal) == {**gone, ("c", 0): "invalid action"}


def test_a_mask_that_leaves_nothing_to_learn_is_refused(attempts: Attempts, tmp_path: Path) -> None:
    store = attempts([episode(steps=({"action_valid": False},) * 2)])
    with pytest.raises(NothingMatched, match=r"no step of .* to learn"):
        mask(store.path, tmp_path / "masked", reasons=["invalid"])
    assert not (tmp_path / "masked").exists()
    assert mask(store.path, None, reasons=["invalid"]).report.n_learned == 0


_STEP = st.fixed_dictionaries(
    {
        "observation": st.sampled_from([None, "a", "b"]),
        "action": st.sampled_from([None, "x", "y"]),
        "action_executed": st.sampled_from(["x", "y"]),
        "action_valid": st.sampled_from([None, True, False]),
        "reward": st.sampled_from([None, 0.0, 1.0]),
        "finish_reason": st.sampled_from([None, "stop", "length"]),
        "loss_weight": st.sampled_from([1.0, 0.5, -1.0]),
    }
)


def _expected(one: Episode) -> list[str | None]:
    """The rules once more, in plain Python."""
    found: list[str | None] = []
    before: set[tuple[str | None, str | None]] = set()
    for index, each in enumerate(one.steps):
        place = (each.observation, each.action_executed)
        is_last = index + 1 == len(one.steps)
        is_same = not is_last and each.observation == one.steps[index + 1].observation
        holds = {
            "truncated answer": each.finish_reason == "length",
            "answer not parsed": each.action is None,
            "invalid action": each.action_valid is False,
            "no-op": each.observation is not None and is_same and (each.reward or 0) <= 0,
            "loop": each.observation is not None and place in before,
        }
        before.add(place)
        found.append(next((reason for reason, is_so in holds.items() if is_so), None))
    return found


@pytest.mark.full
@portions(6)
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), runs=st.lists(st.lists(_STEP, min_size=1, max_size=6), min_size=1, max_size=4))
def test_masks_follow_the_rules_in_any_layout_and_the_tally_adds_up(
    portion: int,
    attempts: Attempts,
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    runs: list[list[dict[str, Any]]],
) -> None:
    episodes = [episode(f"ep-{number}", steps=steps) for number, steps in enumerate(runs)]
    reasons = ["truncated", "unparsed", "invalid", "no-op", "loop"]
    expected = {
        (one.episode_id, index): reason
        for one in episodes
        for index, reason in enumerate(_expected(one))
        if reason is not None
    }
    order = data.draw(st.permutations(range(len(episodes))))
    cut = data.draw(st.integers(0, len(order)))
    layouts = [None, [part for part in (order[:cut], order[cut:]) if part]]
    digests = set()
    folder = tmp_path_factory.mktemp("masks")
    for number, layout in enumerate(layouts):
        store = attempts(episodes, layout)
        goal = folder / str(number)
        if len(expected) == store.manifest.counts.n_steps:
            with pytest.raises(NothingMatched):
                mask(store.path, goal, reasons=reasons)
            continue
        made = mask(store.path, goal, reasons=reasons)
        assert masked(made, goal) == expected
        assert sum(left.n_steps for left in made.entry.masked) == len(expected)
        assert made.report.n_learned_before - made.report.n_learned == len(expected)
        assert made.manifest is not None
        digests.add(made.manifest.digest)
    assert len(digests) <= 1
