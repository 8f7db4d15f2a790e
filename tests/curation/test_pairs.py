"""Preference pairs: who is paired with whom, what never is, and what is on disk."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.matrix import daily, portions
from trajkit.curation.derive import deriving
from trajkit.curation.pair_file import Pair, Pairs, Turn, open_pairs, write_pairs
from trajkit.curation.preferences.pairing import Side, best_pairs
from trajkit.curation.preferences.pairs import pairs
from trajkit.curation.preferences.rows import demonstrated, says_the_same
from trajkit.errors import DataError, NothingMatched, QueryError, RequestError, StoreError
from trajkit.schema import Episode, Message, TextBlock, ThoughtBlock, ToolCallBlock, Transition, message
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import Store
from trajkit.store.writer import write_episodes

Attempts = Callable[..., Store]


def episode(
    name: str,
    score: float | None,
    actions: str,
    *,
    seen: str | None = None,
    step: dict[str, Any] | None = None,
    **fields: Any,
) -> Episode:
    """One letter per action; what is seen follows from the actions before, unless it is given."""
    steps = tuple(
        Transition(
            step_index=index,
            inference_id=f"{name}-{index}",
            **{
                "messages": (message("user", f"after {actions[:index]!r}"),),
                "completion": message("assistant", f"I do {action}"),
                "observation": seen[index] if seen else f"world {actions[:index]}",
                "action": action,
                "action_executed": action,
                "reward": 0.0,
                **(step or {}),
            },
        )
        for index, action in enumerate(actions)
    )
    default: dict[str, Any] = {"source": "test", "env_id": "world", "task": "goto", "seed": 1}
    metrics = {} if score is None else {"episode_return": score}
    return Episode(episode_id=name, steps=steps, **default | {"metrics": metrics} | fields)


def paired(store: Store | Path, goal: Path, **options: Any) -> Pairs:
    pairs(store.path if isinstance(store, Store) else store, goal, **options)
    return open_pairs(goal)


def sides(found: Pairs) -> list[tuple[str, int, str, int]]:
    return [
        (each.chosen_episode_id, each.chosen_step_index, each.rejected_episode_id, each.rejected_step_index)
        for each in found
    ]


def prompts(pair: Pair, turns: Sequence[Turn]) -> list[tuple[Message, ...]]:
    """The prompt of each turn of a side, by the rule of the format."""
    before: tuple[Message, ...] = pair.prompt
    found = []
    for turn in turns:
        prompt = before[: turn.n_prompt_kept] + (turn.messages or ())
        found.append(prompt)
        before = prompt if turn.completion is None else (*prompt, turn.completion)
    return found


def test_attempts_are_paired_where_they_part_for_the_first_time(attempts: Attempts, tmp_path: Path) -> None:
    store = attempts([episode("good", 1.0, "llr"), episode("bad", 0.0, "lrrr"), episode("best", 2.0, "x")])
    made = pairs(store.path, tmp_path / "out", margin=0.5, per_state=9)
    found = open_pairs(tmp_path / "out")
    # good says at the start what bad says there: of the two, bad is the worse
    assert sides(found) == [("best", 0, "bad", 0), ("good", 1, "bad", 1)]
    last = list(found)[-1]
    assert (last.chosen_action, last.rejected_action) == ("l", "r")
    assert (last.chosen_score, last.rejected_score) == (1.0, 0.0)
    assert (last.chosen_inference_id, last.rejected_inference_id) == ("good-1", "bad-1")
    assert [turn.completion for turn in last.chosen] == [message("assistant", "I do l")]
    assert prompts(last, last.chosen) == prompts(last, last.rejected) == [(message("user", "after 'l'"),)]
    assert last.chosen_group_key == last.rejected_group_key == '["world","world","goto","1"]'
    assert made.manifest == found.manifest
    assert [left.reason for left in made.entry.left] == []
    assert pairs(store.path, None, margin=0.5, per_state=9).report == made.report
    entry = found.manifest.lineage[-1]
    assert (entry.parent_digest, entry.arguments["margin"]) == (store.manifest.digest, 0.5)


@pytest.mark.full
def test_at_most_so_many_from_one_state_and_those_with_the_largest_margins(
    attempts: Attempts, tmp_path: Path
) -> None:
    store = attempts([episode("a", 1.0, "l"), episode("b", 0.5, "r"), episode("c", 0.0, "x")])
    assert sides(paired(store, tmp_path / "one", margin=0.1)) == [("a", 0, "c", 0)]
    both = paired(store, tmp_path / "two", margin=0.5, per_state=2)
    assert sides(both) == [("a", 0, "b", 0), ("a", 0, "c", 0)]
    with pytest.raises(NothingMatched, match="no pair"):
        pairs(store.path, None, margin=1.5)


def test_a_margin_survives_a_score_of_32_bits(attempts: Attempts) -> None:
    store = attempts([episode("a", 0.8999999761581421, "l"), episode("b", 0.800000011920929, "r")])
    assert pairs(store.path, None, margin=0.1).report.n_pairs == 1


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 2},
        {"task": "open"},
        {"initial_state_hash": "other"},
        {"purpose": "eval"},
        {"seen": "ab"},  # the same actions, and another world
    ],
)
def test_what_does_not_start_alike_is_not_paired(attempts: Attempts, other: dict[str, Any]) -> None:
    plain: dict[str, Any] = {"seen": "aa"} if "seen" in other else {"initial_state_hash": "one"}
    store = attempts([episode("a", 1.0, "ll", **plain), episode("b", 0.0, "lr", **plain | other)])
    with pytest.raises(NothingMatched):
        pairs(store.path, None, margin=0.1, include_eval=True)


def test_evaluation_and_unscored_episodes_are_left_out_and_counted(
    attempts: Attempts, tmp_path: Path
) -> None:
    episodes = [
        episode("a", 1.0, "l"),
        episode("b", 0.0, "r"),
        episode("eval", 3.0, "x", purpose="eval"),
        episode("unscored", None, "x"),
        episode("alone", 1.0, "x", seed=2),
        episode("nowhere", 1.0, "x", seed=None),
        episode("same", 1.0, "l"),
    ]
    made = pairs(attempts(episodes).path, tmp_path / "out", margin=0.1)
    assert {left.reason: left.n_episodes for left in made.entry.left} == {
        "played for evaluation": 1,
        "no score": 1,
        "the only attempt": 1,
        "no seed and no initial state": 1,
        "in no pair": 1,
    }
    assert (made.entry.n_episodes_in, made.entry.n_episodes_out) == (7, 2)


@pytest.mark.full
def test_masked_answers_and_answers_that_say_the_same_are_in_no_pair(attempts: Attempts) -> None:
    thinking = (ThoughtBlock(text="hm"), TextBlock(text="I do l"))
    same = message("assistant", "").model_copy(update={"content": thinking})
    good = episode("a", 1.0, "l")
    alike = [
        episode("masked", 0.0, "r", step={"loss_weight": 0, "mask_reason": "invalid action"}),
        _with_answer(episode("thinks", 0.0, "r"), same),
        _with_answer(episode("silent", 0.0, "r"), None),
    ]
    for other in alike:
        with pytest.raises(NothingMatched):
            pairs(attempts([good, other]).path, None, margin=0.1)
    calls = [
        message("assistant", "").model_copy(
            update={"content": (ToolCallBlock(id=name, name="move", arguments='{"to": 1}'),)}
        )
        for name in ("id-1", "id-2")
    ]
    twins = [_with_answer(good, calls[0]), _with_answer(episode("b", 0.0, "r"), calls[1])]
    with pytest.raises(NothingMatched):
        pairs(attempts(twins).path, None, margin=0.1)


def _with_answer(one: Episode, answer: Message | None) -> Episode:
    steps = (one.steps[0].model_copy(update={"completion": answer}), *one.steps[1:])
    return one.model_copy(update={"steps": steps})


def test_whole_episodes_that_differ_only_where_they_are_masked_are_no_pair(attempts: Attempts) -> None:
    def masked(name: str, score: float, actions: str) -> Episode:
        made = episode(name, score, actions)
        first = made.steps[0].model_copy(update={"loss_weight": 0.0, "mask_reason": "loop"})
        rest = [one.model_copy(update={"completion": message("assistant", "on")}) for one in made.steps[1:]]
        return made.model_copy(update={"steps": (first, *rest)})

    store = attempts([masked("a", 1.0, "lx"), masked("b", 0.0, "rx")])
    with pytest.raises(NothingMatched):
        pairs(store.path, None, margin=0.1, level="episode")
    plain = attempts([episode("a", 1.0, "lx"), episode("b", 0.0, "rx")])
    assert pairs(plain.path, None, margin=0.1, level="episode").report.n_pairs == 1


def test_the_turns_of_an_episode_have_the_prompts_that_the_model_saw(
    attempts: Attempts, tmp_path: Path
) -> None:
    def grows(one: Episode) -> Episode:
        steps = [each.model_copy(update={"n_prompt_kept": 2 * each.step_index}) for each in one.steps]
        return one.model_copy(update={"steps": tuple(steps)})

    good, bad = grows(episode("good", 1.0, "llrr")), grows(episode("bad", 0.0, "lrx"))
    (pair,) = paired(attempts([good, bad]), tmp_path / "out", margin=0.1, level="episode")
    assert prompts(pair, pair.chosen) == list(good.prompts())[1:]
    assert prompts(pair, pair.rejected) == list(bad.prompts())[1:]
    assert [turn.step_index for turn in pair.chosen] == [1, 2, 3]


def test_a_call_before_the_action_belongs_to_its_side(attempts: Attempts, tmp_path: Path) -> None:
    def planned(one: Episode) -> Episode:
        said = {"completion": message("assistant", f"plan of {one.episode_id}")}
        plan = one.steps[0].model_copy(
            update={"action": None, "action_executed": None, "reward": None} | said
        )
        later = (each.model_copy(update={"step_index": 1 + each.step_index}) for each in one.steps)
        return one.model_copy(update={"steps": (plan, *later)})

    store = attempts([planned(episode("a", 1.0, "l")), planned(episode("b", 0.0, "r"))])
    (pair,) = paired(store, tmp_path / "whole", margin=0.1, level="episode")
    assert [turn.step_index for turn in pair.chosen] == [0, 1]
    assert pair.chosen_action == "l"
    assert sides(paired(store, tmp_path / "step", margin=0.1)) == [("a", 1, "b", 1)]


@pytest.mark.full
def test_another_prompt_of_the_rejected_side_is_kept_and_can_be_refused(
    attempts: Attempts, tmp_path: Path
) -> None:
    bad = episode("b", 0.0, "r", step={"tools": ({"name": "look"},)})
    other = (message("system", "in other words"), message("user", "look"))
    bad = bad.model_copy(update={"steps": (bad.steps[0].model_copy(update={"messages": other}),)})
    store = attempts([episode("a", 1.0, "l"), bad])
    made = pairs(store.path, tmp_path / "out", margin=0.1)
    assert made.report.n_other_prompt == 1
    (pair,) = open_pairs(tmp_path / "out")
    assert prompts(pair, pair.rejected) == [other]
    with pytest.raises(NothingMatched):
        pairs(store.path, None, margin=0.1, same_prompt=True)
    same = attempts([episode("a", 1.0, "l"), episode("b", 0.0, "r")])
    assert pairs(same.path, None, margin=0.1, same_prompt=True).report.n_pairs == 1


@pytest.mark.full
def test_the_same_prompt_is_paired_within_a_group_or_on_one_side_of_a_split(
    attempts: Attempts, tmp_path: Path
) -> None:
    chat: dict[str, Any] = {"env_id": None, "task": None, "seed": None}
    episodes = [
        episode("a", 1.0, "l", tags={"who": "x"}, **chat),
        episode("b", 0.0, "r", tags={"who": "x"}, **chat),
        episode("c", 0.5, "s", tags={"who": "y"}, **chat),
    ]
    store = attempts(episodes)
    with pytest.raises(NothingMatched) as caught:
        pairs(store.path, None, match="prompt", margin=0.1)
    assert "`trajkit split` first" in (caught.value.hint or "")
    made = pairs(store.path, tmp_path / "who", match="prompt", margin=0.1, by=["tags.who"], per_state=9)
    found = open_pairs(tmp_path / "who")
    assert sides(found) == [("a", 0, "b", 0)]
    assert found.manifest.group == "tags.who"
    assert made.report.notes != ()
    with deriving(store.path) as derivation:
        derivation.write(tmp_path / "train", verb="split", arguments={}, split="train")
    side = paired(tmp_path / "train", tmp_path / "side", match="prompt", margin=0.1, per_state=9)
    assert sides(side) == [("a", 0, "b", 0), ("a", 0, "c", 0), ("c", 0, "b", 0)]
    assert {each.split for each in side} == {"train"}


@pytest.mark.full
def test_a_prompt_is_the_same_however_much_of_it_a_step_keeps(attempts: Attempts, tmp_path: Path) -> None:
    first, answer, second = (
        message(role, text) for role, text in (("user", "1"), ("assistant", "a"), ("user", "2"))
    )

    def chat(name: str, score: float, last: str, *given: tuple[int, tuple[Message, ...]]) -> Episode:
        answers = (answer, message("assistant", last))
        steps = tuple(
            Transition(step_index=index, n_prompt_kept=n_kept, messages=messages, completion=answers[index])
            for index, (n_kept, messages) in enumerate(given)
        )
        return Episode(episode_id=name, source="test", steps=steps, metrics={"episode_return": score})

    whole = (first, answer, second)
    episodes = [
        chat("whole", 1.0, "x", (0, (first,)), (0, whole)),
        chat("kept", 0.5, "y", (0, (first,)), (2, (second,))),
        chat("less", 0.0, "z", (0, (first,)), (1, (answer, second))),
        chat("other", 0.0, "w", (0, (first,)), (1, (second,))),
    ]
    store = attempts(episodes)
    with deriving(store.path) as derivation:
        derivation.write(tmp_path / "train", verb="split", arguments={}, split="train")
    found = paired(tmp_path / "train", tmp_path / "out", match="prompt", margin=0.1, per_state=9)
    assert sides(found) == [
        ("kept", 1, "less", 1),
        ("whole", 1, "kept", 1),
        ("whole", 1, "less", 1),
    ]


def test_a_pair_that_a_split_could_part_is_never_written(attempts: Attempts, tmp_path: Path) -> None:
    store = attempts([episode("a", 1.0, "l"), episode("b", 0.0, "r")])
    (pair,) = paired(store, tmp_path / "out", margin=0.1)
    apart = pair.model_copy(update={"rejected_group_key": "other"})
    with pytest.raises(DataError, match="a split could separate the pair of the episodes a and b"):
        write_pairs(tmp_path / "apart", [apart], facts={}, lineage=())
    assert not (tmp_path / "apart").exists()


DEMONSTRATED = (
    ("turn left", message("assistant", "turn left")),
    ([{"type": "text", "text": "turn left"}], message("assistant", "turn left")),
    ({"raw": '{"action":"l"}', "parsed": {"action": "l"}}, message("assistant", '{"action":"l"}')),
    ({"action": "l"}, message("assistant", '{"action": "l"}')),
    (
        [{"type": "tool_call", "name": "move", "arguments": {"to": 1}}],
        Message(role="assistant", content=(ToolCallBlock(id="", name="move", arguments='{"to": 1}'),)),
    ),
)


def test_a_demonstration_is_paired_with_the_answer_it_corrects(attempts: Attempts, tmp_path: Path) -> None:
    shown = [
        episode(f"a{number}", None, "r", step={"demonstration": demonstration})
        for number, (demonstration, _) in enumerate(DEMONSTRATED)
    ]
    store = attempts([*shown, episode("b", 1.0, "l")])
    made = pairs(store.path, tmp_path / "out", match="demonstration")
    for number, (pair, (_, answer)) in enumerate(
        zip(open_pairs(tmp_path / "out"), DEMONSTRATED, strict=True)
    ):
        assert [turn.completion for turn in pair.chosen] == [answer]
        assert [turn.completion for turn in pair.rejected] == [message("assistant", "I do r")]
        assert prompts(pair, pair.chosen) == prompts(pair, pair.rejected)
        assert (pair.chosen_inference_id, pair.rejected_inference_id) == (None, f"a{number}-0")
        assert (pair.chosen_score, pair.chosen_action) == (None, None)
    assert [left.reason for left in made.entry.left] == ["no demonstration"]


def test_a_demonstration_that_says_what_was_said_is_no_pair(attempts: Attempts) -> None:
    store = attempts([episode("a", None, "r", step={"demonstration": "I do r"})])
    with pytest.raises(NothingMatched) as caught:
        pairs(store.path, None, match="demonstration")
    assert "1 demonstrations equal the answer" in (caught.value.hint or "")
    assert says_the_same(demonstrated('{"a": 1, "b": 2}'), message("assistant", '{"b":2,"a":1}'))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "--margin is missing"),
        ({"margin": 0.0}, "--margin 0.0 is not above 0"),
        ({"margin": float("nan")}, "margin nan"),
        ({"margin": 0.1, "per_state": 0}, "per_state 0"),
        ({"margin": 0.1, "match": "luck"}, "match 'luck'"),
        ({"match": "demonstration", "margin": 0.1}, "has no score"),
        ({"match": "demonstration", "level": "episode"}, "is one answer"),
        ({"match": "prompt", "margin": 0.1, "env": "babyai"}, "are for --match state"),
        ({"margin": 0.1, "luck": 1}, "no option 'luck'"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_the_store_is_read(
    options: dict[str, Any], told: str
) -> None:
    with pytest.raises(RequestError, match=told):
        pairs("no-store", None, **options)


NO_MODEL = {"messages": None, "completion": None}


@pytest.mark.parametrize(
    ("played", "told"),
    daily(
        [
            ([episode(name, 1.0, name, step=NO_MODEL) for name in "lr"], "all of 2 attempts have the same"),
            (
                [episode("a", 1.0, "l", step=NO_MODEL), episode("b", 0.0, "r", step=NO_MODEL)],
                "no step has a known prompt and an answer that is learned",
            ),
            (
                [episode("a", 1.0, "l", seed=None), episode("b", 0.0, "r", seed=None)],
                "--match prompt needs no seeds",
            ),
            ([episode("a", 1.0, "l"), episode("b", 0.0, "l")], "no two attempts diverge at the same state"),
            (
                [episode("a", 1.0, "l"), episode("b", 0.9, "r")],
                "where they diverge, no two different answers are 0.5 of",
            ),
        ],
        3,
    ),
)
def test_where_there_is_no_pair_the_reason_is_told(
    attempts: Attempts, played: list[Episode], told: str
) -> None:
    with pytest.raises(NothingMatched) as caught:
        pairs(attempts(played).path, None, margin=0.5)
    assert told in (caught.value.hint or "")


def test_a_misspelt_score_or_column_is_told(attempts: Attempts) -> None:
    store = attempts([episode("a", 1.0, "l"), episode("b", 0.0, "r")])
    with pytest.raises(QueryError, match="no metric 'score_x'"):
        pairs(store.path, None, margin=0.1, score="score_x")
    with pytest.raises(QueryError, match="no column 'sede'"):
        pairs(store.path, None, margin=0.1, by=["sede"])


def test_pairs_that_were_changed_or_are_newer_are_not_read(attempts: Attempts, tmp_path: Path) -> None:
    store = attempts([episode("a", 1.0, "l"), episode("b", 0.0, "r")])
    goal = tmp_path / "out"
    pairs(store.path, goal, margin=0.1)
    with pytest.raises(StoreError, match="exists already"):
        pairs(store.path, goal, margin=0.1)
    manifest = json.loads((goal / "pairs.json").read_text())
    (goal / "pairs.json").write_text(json.dumps(manifest | {"format_version": 2}))
    with pytest.raises(StoreError, match="version 2"):
        open_pairs(goal)
    (goal / "pairs.json").write_text(json.dumps(manifest))
    data = goal / "pairs.parquet"
    data.write_bytes(data.read_bytes() + b" ")
    with pytest.raises(StoreError, match="sha256 differs"):
        open_pairs(goal)
    with pytest.raises(StoreError, match=r"no pairs at .*: no pairs.json"):
        open_pairs(tmp_path)


@pytest.fixture(scope="module")
def sample() -> list[Episode]:
    """Attempts of two variants at the same worlds of BabyAI, of two tasks."""
    return [each for each in open_dataset("sample:babyai") if each.task in ("goto", "pickup")]


def test_pairs_of_babyai_are_verified_by_replaying_both_episodes(
    sample: list[Episode], tmp_path: Path
) -> None:
    write_episodes(tmp_path / "store", sample, kind="test")
    made = pairs(tmp_path / "store", tmp_path / "out", margin=0.1)
    found = list(open_pairs(tmp_path / "out"))
    assert len(found) == made.report.n_verified == made.report.n_pairs > 0
    assert {each.is_verified for each in found} == {True}
    assert all(each.seed is not None and each.initial_state_hash is not None for each in found)
    unseen = pairs(tmp_path / "store", None, margin=0.1, verify=False)
    assert (unseen.report.n_pairs, unseen.report.n_verified) == (len(found), 0)


@pytest.mark.full
def test_an_episode_that_its_environment_contradicts_is_in_no_pair(
    sample: list[Episode], tmp_path: Path
) -> None:
    write_episodes(tmp_path / "store", sample, kind="test")
    before = list(paired(tmp_path / "store", tmp_path / "before", margin=0.1))
    liar = before[0].chosen_episode_id
    told = [_exaggerated(each) if each.episode_id == liar else each for each in sample]
    write_episodes(tmp_path / "told", told, kind="test")
    made = pairs(tmp_path / "told", tmp_path / "out", margin=0.1)
    after = list(open_pairs(tmp_path / "out"))
    assert {left.reason: left.n_episodes for left in made.entry.left}["replay differs"] == 1
    assert [each.pair_id for each in after] == [each.pair_id for each in before[1:]]
    blind = paired(tmp_path / "told", tmp_path / "blind", margin=0.1, verify=False)
    assert any(liar in each for each in sides(blind))


def _exaggerated(one: Episode) -> Episode:
    last = one.steps[-1].model_copy(update={"reward": 1.0})
    return one.model_copy(update={"steps": (*one.steps[:-1], last)})


def test_an_environment_that_only_the_data_names_is_not_run(attempts: Attempts) -> None:
    store = attempts(
        [
            episode(name, score, action, env_id="os:system")
            for name, score, action in (("a", 1.0, "l"), ("b", 0.0, "r"))
        ]
    )
    made = pairs(store.path, None, margin=0.1)
    assert made.report.unverified == {"no environment of trajkit's (os:system): name it with --env": 2}
    assert made.report.n_verified == 0


# Properties.

_SIDE = st.builds(
    Side,
    choice=st.sampled_from("lrx"),
    said=st.sampled_from("abc"),
    episode_id=st.text("0123456789", min_size=1, max_size=3),
    step_index=st.integers(0, 3),
    gain=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
)


@given(
    given_sides=st.lists(_SIDE, max_size=8, unique_by=lambda side: side[2:4]),
    margin=st.sampled_from([0.1, 0.25, 0.6]),
    most=st.integers(1, 5),
)
def test_the_pairs_of_a_state_are_the_best_of_all_that_there_are(
    given_sides: list[Side], margin: float, most: int
) -> None:
    found = best_pairs(given_sides, margin=margin, most=most)
    allowed = [
        (chosen, rejected)
        for chosen, rejected in itertools.permutations(given_sides, 2)
        if chosen.gain - rejected.gain >= margin
        and chosen.choice != rejected.choice
        and chosen.said != rejected.said
    ]
    by_content: dict[tuple[str, ...], float] = {}
    for chosen, rejected in allowed:
        content = (chosen.choice, chosen.said, rejected.choice, rejected.said)
        by_content[content] = max(by_content.get(content, 0), chosen.gain - rejected.gain)
    expected = sorted(by_content.values(), reverse=True)[:most]
    assert [pair.chosen.gain - pair.rejected.gain for pair in found] == expected
    assert all(tuple(pair) in allowed for pair in found)
    assert best_pairs(given_sides[::-1], margin=margin, most=most) == found


_RUN = st.tuples(
    st.text("lr", min_size=1, max_size=4), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([1, 2])
)


@portions(5)
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), runs=st.lists(_RUN, min_size=2, max_size=6))
def test_pairs_are_first_divergences_in_any_layout(
    portion: int,
    attempts: Attempts,
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    runs: list[tuple[str, float, int]],
) -> None:
    episodes = [
        episode(f"ep-{number}", score, actions, seed=seed)
        for number, (actions, score, seed) in enumerate(runs)
    ]
    expected = set()
    for (_, (actions, score, seed)), (_, (others, least, other_seed)) in itertools.permutations(
        enumerate(runs), 2
    ):
        n_shared = next((n for n, (a, b) in enumerate(zip(actions, others, strict=False)) if a != b), None)
        if seed == other_seed and score > least and n_shared is not None:
            expected.add((seed, actions[: n_shared + 1], others[: n_shared + 1]))
    order = data.draw(st.permutations(range(len(episodes))))
    cut = data.draw(st.integers(0, len(order)))
    digests = set()
    for layout in (None, [part for part in (order[:cut], order[cut:]) if part]):
        goal = tmp_path_factory.mktemp("pairs") / "out"
        store = attempts(episodes, layout)
        if not expected:
            with pytest.raises(NothingMatched):
                pairs(store.path, goal, margin=0.1, per_state=9)
            continue
        found = paired(store, goal, margin=0.1, per_state=9)
        by_name = {each.episode_id: run for each, run in zip(episodes, runs, strict=True)}
        parted = {
            (by_name[one][2], by_name[one][0][: at + 1], by_name[other][0][: at + 1])
            for one, at, other, _ in sides(found)
        }
        assert parted == expected
        assert all(by_name[one][1] > by_name[other][1] for one, _, other, _ in sides(found))
        digests.add(found.manifest.digest)
    assert len(digests) == bool(expected)
