from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.curation.conftest import make_attempt
from tests.matrix import portions
from trajkit._core.settings import remembered
from trajkit.cli.main import run
from trajkit.curation.leaks.leak import leak
from trajkit.curation.selection.split import Missing, Split, parse_ratio, split
from trajkit.errors import NothingMatched, QueryError, RequestError, StoreError
from trajkit.schema import Episode, Transition, message
from trajkit.store.dataset import open_dataset
from trajkit.store.engine import connect
from trajkit.store.reader import open_store, verify
from trajkit.store.view import create_views
from trajkit.store.writer import StoreWriter

Write = Callable[..., Path]
HALVES = {"a": 0.5, "b": 0.5}


an_episode = partial(make_attempt, n_steps=1, score=None)


def sides_of(store: Path, **options: Any) -> dict[str, str]:
    """The side of every episode that is on one, as the stores that were written say it."""
    return split_of(store, **options)[1]


def split_of(store: Path, **options: Any) -> tuple[Split, dict[str, str]]:
    """What a split came to, and the side of every episode that is on one."""
    goal = store.with_name(f"{store.name}-{len(list(store.parent.iterdir()))}")
    report, manifests = split(store, goal, **options)
    return report, {
        str(episode_id): name
        for name in manifests
        for episode_id in open_dataset(goal / name).arrow().read_all().column("episode_id").to_pylist()
    }


def share_of(key: Sequence[str | None], seed: int) -> Decimal:
    """The documented rule in plain Python: where in [0, 1) a group's hash puts it."""
    text = json.dumps(key, separators=(",", ":"), ensure_ascii=False)
    return Decimal(int(hashlib.sha256(f"{seed}:{text}".encode()).hexdigest()[:13], 16)) / 2**52


def test_the_side_follows_from_the_documented_hash_of_the_key(write: Write) -> None:
    episodes, keys = [], {}
    for number in range(40):
        name = f"ep-{number}"
        for kind, fields, key in (
            ("s", {"seed": number}, ["world", "world", "goto", str(number)]),
            ("t", {"seed": -number, "env_id": None, "task": "tür"}, ["world", None, "tür", str(-number)]),
            ("h", {"seed": None, "initial_state_hash": f"{number:x}"}, ["initial_state", f"{number:x}"]),
            ("e", {"seed": None}, ["episode", f"e{name}"]),
        ):
            episodes.append(an_episode(f"{kind}{name}", **fields))
            keys[f"{kind}{name}"] = key
    ratio = {"train": 0.6, "val": 0.1, "test": 0.2}
    expected = {}
    for name, key in keys.items():
        share = share_of(key, 7)
        side = "train" if share < Decimal("0.6") else "val" if share < Decimal("0.7") else "test"
        if share < Decimal("0.9"):
            expected[name] = side
    assert sides_of(write(episodes), ratio=ratio, seed=7) == expected
    assert len(expected) < len(episodes)


_worlds = st.lists(
    st.tuples(
        st.none() | st.integers(0, 5),
        st.sampled_from(["goto", "open", None]),
        st.sampled_from([None, "x", "y", "z"]),
        st.sampled_from([None, "s1", "s2", "s3"]),
    ),
    min_size=8,
    max_size=30,
)
_RATIOS = [{"a": 0.5, "b": 0.3, "c": 0.2}, {"a": 0.4, "b": 0.4}, {"a": 3, "b": 2}, {"a": 1, "b": 1, "c": 1}]


@portions(4)
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    worlds=_worlds,
    n_first=st.integers(4, 30),
    ratio=st.sampled_from(_RATIOS),
    by=st.sampled_from([(), ("tags.customer",), ("task", "seed"), ("initial_state_hash",)]),
    seed=st.integers(0, 3),
)
def test_no_group_is_cut_and_adding_data_moves_only_what_an_empty_side_took(
    portion: int,
    write: Write,
    worlds: list[tuple[int | None, str | None, str | None, str | None]],
    n_first: int,
    ratio: dict[str, float],
    by: tuple[str, ...],
    seed: int,
) -> None:
    episodes = [
        an_episode(
            f"ep-{number}",
            seed=world,
            task=task,
            tags={"customer": customer} if customer else {},
            initial_state_hash=state,
        )
        for number, (world, task, customer, state) in enumerate(worlds)
    ]

    def key(episode: Episode) -> tuple[object, ...]:
        if by == ("tags.customer",):
            return (episode.tags.get("customer", episode.episode_id),)
        if by == ("task", "seed"):
            known = episode.task is not None and episode.seed is not None
            return (episode.task, episode.seed) if known else (episode.episode_id,)
        if by == ("initial_state_hash",):
            return (episode.initial_state_hash or episode.episode_id,)
        if episode.seed is not None:
            return (episode.task, episode.seed)
        return (episode.initial_state_hash or episode.episode_id,)

    found, n_taken = [], []
    for some in (episodes[:n_first], episodes):
        try:
            report, sides = split_of(write(some), ratio=ratio, by=by, seed=seed, missing=Missing.EPISODE)
        except (NothingMatched, RequestError, QueryError):
            assume(False)  # a side would be empty, or no episode has the tag: nothing was written
        found.append(sides)
        n_taken.append(len(report.nearest))
        by_key: dict[tuple[object, ...], set[str | None]] = {}
        for episode in some:
            by_key.setdefault(key(episode), set()).add(sides.get(episode.episode_id))
        assert all(len(where) == 1 for where in by_key.values())
    before, after = found
    is_shares = isinstance(next(iter(ratio.values())), float)
    keys = {episode.episode_id: key(episode) for episode in episodes}
    moved = {
        keys[name] for name, side in before.items() if after.get(name, None if is_shares else side) != side
    }
    # for each side that was empty, what it took goes back, and it may take another one
    assert len(moved) <= 2 * n_taken[0]


def test_a_split_by_default_leaks_nothing(write: Write, tmp_path: Path) -> None:
    store = write(
        an_episode(f"ep-{number}", seed=number // 3, initial_state_hash=f"h{number // 3}")
        for number in range(60)
    )
    report, _ = split(store, tmp_path / "out", ratio={"train": 0.7, "val": 0.3})
    assert (report.n_worlds_shared, report.n_states_shared) == (0, 0)
    assert not leak(tmp_path / "out" / "train", tmp_path / "out" / "val", reservations=()).leaks


def test_what_the_key_does_not_keep_together_is_told(write: Write) -> None:
    episodes = [
        an_episode(f"ep-{n}", seed=n % 4, initial_state_hash=f"h{n % 4}", tags={"c": str(n)})
        for n in range(40)
    ]
    report, _ = split(write(episodes), None, ratio=HALVES, by=["tags.c"])
    assert (report.n_worlds_shared, report.n_states_shared) == (4, 4)


@pytest.mark.full
def test_parts_order_and_threads_do_not_change_a_side(write: Write, tmp_path: Path) -> None:
    episodes = [an_episode(f"ep-{number:02}", seed=number, n_steps=number % 3) for number in range(30)]
    whole, backwards = write(episodes), write(reversed(episodes))
    with connect(threads=1) as connection, StoreWriter(tmp_path / "parts", kind="test") as writer:
        create_views(connection, open_store(whole))
        for part in range(3):
            mine = f"WHERE CAST(right(episode_id, 2) AS INTEGER) % 3 = {part}"
            writer.add(
                connection,
                episodes=f"(SELECT * FROM episodes {mine})",
                steps=f"(SELECT * FROM steps {mine})",
                feedback="feedback",
            )
        writer.finish()
    digests = []
    for number, store in enumerate((whole, backwards, tmp_path / "parts")):
        _, manifests = split(store, tmp_path / f"sides-{number}", ratio=HALVES, seed=3)
        digests.append({name: manifest.digest for name, manifest in manifests.items()})
    assert digests[0] == digests[1] == digests[2]


@pytest.mark.full
def test_the_manifest_says_the_side_and_the_rule_and_the_tally_adds_up(write: Write, tmp_path: Path) -> None:
    store = write(an_episode(f"ep-{number}", seed=number, n_steps=2) for number in range(30))
    ratio = {"train": 0.5, "val": 0.3}
    report, manifests = split(store, tmp_path / "out", ratio=ratio, by=["seed"], seed=7)
    assert list(manifests) == ["train", "val"]
    for side in report.sides:
        written = open_store(tmp_path / "out" / side.name)
        verify(written, deep=True)
        manifest = written.manifest
        assert (manifest.kind, manifest.split) == ("split", side.name)
        entry = manifest.lineage[-1]
        assert entry.parent_digest == open_store(store).manifest.digest
        assert entry.arguments == {
            "ratio": "train=0.5,val=0.3",
            "by": ["seed"],
            "seed": 7,
            "missing": None,
            "result": {"by": "seed", "rule": "sha256(seed:key), 52 bits", "side": side.name},
        }
        assert entry.n_episodes_in - entry.n_episodes_out == sum(left.n_episodes for left in entry.left)
        assert entry.n_steps_in - entry.n_steps_out == sum(left.n_steps for left in entry.left)
        assert {left.reason for left in entry.left} == {
            "outside the shares",
            f"in {'val' if side.name == 'train' else 'train'}",
        }
    assert report.n_episodes_left == 30 - sum(side.n_episodes for side in report.sides)


def test_counts_are_kept_exactly_with_groups_of_one(write: Write) -> None:
    store = write(an_episode(f"ep-{number}", seed=number) for number in range(30))
    report, _ = split(store, None, ratio={"train": 20, "val": 10})
    assert [(side.name, side.n_episodes) for side in report.sides] == [("train", 20), ("val", 10)]
    report, _ = split(store, None, ratio={"train": 7})
    assert [side.n_episodes for side in report.sides] == [7]
    assert report.n_episodes_left == 23


def test_a_count_is_never_exceeded_by_whole_groups(write: Write) -> None:
    store = write(an_episode(f"ep-{number}", seed=number // 4) for number in range(80))
    report, _ = split(store, None, ratio={"train": 10, "val": 9, "test": 5})
    assert [side.n_episodes for side in report.sides] == [8, 8, 4]


def test_counts_beyond_the_store_are_refused(write: Write) -> None:
    store = write(an_episode(f"ep-{number}", seed=number) for number in range(30))
    with pytest.raises(RequestError, match="train=25,val=10 asks for 35 episodes; there are 30"):
        split(store, None, ratio={"train": 25, "val": 10})
    with pytest.raises(RequestError, match=r"episodes fall to ., but 10 were asked for"):
        split(store, None, ratio={"a": 10, "b": 10, "c": 10})


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        ({"train": 0.9, "val": 0.2}, "the shares add up to 1.1, more than 1"),
        ({"train": 0.9, "val": 10}, "some sides have a share and some a count"),
        ({"train": 0.0}, r"train=0.0: a share or count must be above 0"),
        ({"train": float("nan")}, r"train=nan: a share or count must be above 0"),
        ({"../x": 0.5}, r"side '../x' cannot be a folder"),
        ({"a": 0.5, "A": 0.5}, "a, A differ only by case"),
        ({}, "a split needs sides"),
    ],
)
def test_a_ratio_that_cannot_be_is_refused(ratio: dict[str, float], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        split("nowhere", None, ratio=ratio)


@pytest.mark.parametrize(
    ("text", "ratio"),
    [
        ("train=0.9,val=0.1", {"train": 0.9, "val": 0.1}),
        (" train = 90%, val=10% ", {"train": 0.9, "val": 0.1}),
        ("train=500,val=100", {"train": 500, "val": 100}),
        ("train=1.0", {"train": 1.0}),
        ("one=1", {"one": 1}),
    ],
)
def test_a_ratio_is_read_as_it_is_typed(text: str, ratio: dict[str, float]) -> None:
    found = parse_ratio(text)
    assert found == ratio
    assert [type(value) for value in found.values()] == [type(value) for value in ratio.values()]


@pytest.mark.parametrize("text", ["", "train", "train=", "train=x", "train=0.5,train=0.5", "train=5%%"])
def test_a_text_that_is_no_ratio_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match=r"is not a side and its share|is given twice"):
        parse_ratio(text)


def test_shares_of_thirds_are_everything(write: Write) -> None:
    store = write(an_episode(f"ep-{number}", seed=number) for number in range(60))
    report, _ = split(store, None, ratio={"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})
    assert report.n_episodes_left == 0


def test_a_metric_or_a_list_can_be_the_key(write: Write) -> None:
    store = write(an_episode(f"ep-{n}", seed=n, metrics={"level": float(n % 6)}) for n in range(60))
    report, _ = split(store, None, ratio=HALVES, by=["level", "FUNCTION_NAMES"])
    assert (report.n_groups, report.by) == (6, "level and function_names")


def test_an_unknown_column_is_told_with_the_nearest(write: Write) -> None:
    store = write([an_episode("ep", tags={"customer_id": "x"})])
    with pytest.raises(QueryError, match="no column 'tsk'") as caught:
        split(store, None, ratio=HALVES, by=["tsk"])
    assert "task" in str(caught.value.hint)
    with pytest.raises(QueryError, match=r"no episode of .* has the tag 'custmer_id'") as caught:
        split(store, None, ratio=HALVES, by=["tags.custmer_id"])
    assert "customer_id" in str(caught.value.hint)


def test_a_key_that_most_episodes_lack_is_refused_until_it_is_said_what_becomes_of_them(write: Write) -> None:
    tags = [{"c": str(n % 10)} if n < 20 else {} for n in range(50)]
    store = write(an_episode(f"ep-{n}", seed=n, tags=mine) for n, mine in enumerate(tags))
    with pytest.raises(QueryError, match=r"30 of 50 episodes have no tags\.c"):
        split(store, None, ratio=HALVES, by=["tags.c"])
    report, _ = split(store, None, ratio=HALVES, by=["tags.c"], missing=Missing.EPISODE)
    assert (report.n_groups, report.n_episodes_without_key, report.n_episodes_left) == (40, 30, 0)
    report, _ = split(store, None, ratio=HALVES, by=["tags.c"], missing=Missing.LEAVE)
    assert (report.n_groups, report.n_episodes_without_key, report.n_episodes_left) == (10, 30, 30)
    assert report.entries[0].left[-1].reason == "without tags.c"
    assert report.entries[0].left[-1].n_episodes == 30


def test_a_side_that_nothing_falls_to_is_an_error_and_leaves_nothing(write: Write, tmp_path: Path) -> None:
    store = write(an_episode(f"ep-{number}") for number in range(5))
    with pytest.raises(NothingMatched, match=rf"no group falls to .: {store} has 1 group by environment"):
        split(store, tmp_path / "out", ratio=HALVES)
    assert [path.name for path in tmp_path.iterdir()] == [store.name]


def test_a_goal_that_exists_is_refused(write: Write, tmp_path: Path) -> None:
    store = write(an_episode(f"ep-{number}", seed=number) for number in range(20))
    (tmp_path / "out").mkdir()
    with pytest.raises(StoreError, match="exists already"):
        split(store, tmp_path / "out", ratio=HALVES)


def test_the_command_leaves_a_store_per_side(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = write(an_episode(f"ep-{n}", seed=n, tags={"c": str(n // 2)}) for n in range(40))
    monkeypatch.chdir(tmp_path)
    arguments = ["split", str(store), "--ratio", "train=20,val=10", "--by", "tags.c", "-o", "data"]
    assert run([*arguments, "--dry-run"]) == 0
    assert not Path("data").exists()
    assert run(arguments) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[-4].split() == ["val", "5", "10", "10"]
    assert lines[-3].split() == ["left:", "after", "the", "count", "was", "full", "10", "10"]
    assert lines[-2].startswith("data/train  20 episodes  20 steps  digest ")
    assert lines[-1].startswith("data/val  10 episodes  10 steps  digest ")
    assert "kept together by tags.c" in printed.err
    assert remembered("last_store") == {"path": str(tmp_path / "data" / "train")}
    assert run(["split", "--ratio", "x=0.5,y=0.5", "--json", "--dry-run"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [side["name"] for side in shown["sides"]] == ["x", "y"]
    assert shown["n_episodes"] == 20


def test_the_command_warns_of_worlds_that_the_key_cuts(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    store = write(an_episode(f"ep-{n}", seed=n % 4, initial_state_hash=f"h{n % 4}") for n in range(40))
    assert run(["split", str(store), "--by", "episode_id", "--ratio", "a=50%,b=50%", "--dry-run"]) == 0
    said = capsys.readouterr().err
    assert "warning: 4 worlds on more than one side" in said
    assert "warning: 4 initial states on more than one side" in said


@pytest.mark.full
def test_with_two_groups_or_more_no_side_is_empty_whatever_the_seed(write: Write) -> None:
    for n_groups in (2, 3, 18):
        store = write(an_episode(f"ep-{number}", seed=number) for number in range(n_groups))
        for seed in range(3):
            report, _ = split(store, None, ratio={"train": 0.9, "val": 0.1}, seed=seed)
            assert all(side.n_groups for side in report.sides)
            places = [share_of(["world", "world", "goto", str(n)], seed) for n in range(n_groups)]
            has = {"train": min(places) < Decimal("0.9"), "val": max(places) >= Decimal("0.9")}
            assert report.nearest == tuple(side for side, by_place in has.items() if not by_place)


@pytest.mark.full
def test_a_side_that_would_be_empty_has_the_group_nearest_to_it(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = [n for n in range(40) if share_of(["world", "world", "goto", str(n)], 0) < Decimal("0.9")][:4]
    store = write(an_episode(f"ep-{number}", seed=number) for number in numbers)
    assert run(["split", str(store), "-o", str(tmp_path / "out")]) == 0
    assert "note: no group falls to val by its hash: it gets the nearest group" in capsys.readouterr().err
    (taken,) = open_dataset(tmp_path / "out" / "val")
    assert taken.seed == max(numbers, key=lambda n: share_of(["world", "world", "goto", str(n)], 0))
    entry = open_store(tmp_path / "out" / "val").manifest.lineage[-1]
    assert entry.result["nearest"] == ["val"]


def a_conversation(name: str, *questions: str, **fields: Any) -> Episode:
    steps = tuple(
        Transition(
            step_index=index,
            messages=(message("system", "You help."), message("user", question)),
            completion=message("assistant", f"{name} answers {index}"),
        )
        for index, question in enumerate(questions)
    )
    return Episode(episode_id=name, source="test", steps=steps, **fields)


@pytest.mark.full
def test_what_shares_a_prompt_is_on_one_side_over_any_number_of_others(write: Write, tmp_path: Path) -> None:
    """0 and 1 share a question, 1 and 2 another one, and so on: a chain of 30 is one group."""
    chain = [a_conversation(f"chain-{n}", f"about {n}", f"about  {n + 1}!") for n in range(30)]
    others = [a_conversation(f"own-{n}", f"something else {n}") for n in range(40)]
    store = write([*chain, *others])
    report, sides = split_of(store, ratio=HALVES, by=["prompt"])
    assert report.n_groups == 41
    assert len({sides[episode.episode_id] for episode in chain}) == 1
    assert len({sides[episode.episode_id] for episode in others}) == 2
    assert (report.n_texts_shared, report.entries[0].arguments["by"]) == (0, ["prompt"])
    report, _ = split(store, None, ratio=HALVES)
    assert report.n_texts_shared > 0


@pytest.mark.full
def test_a_key_that_leaks_is_said_and_joined_with_prompts_leaks_nothing(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = write(
        a_conversation(f"ep-{n}", f"question {n % 25}", f"then {n}", tags={"customer": f"c{n // 2}"})
        for n in range(60)
    )
    by = ("split", str(store), "--ratio", "train=0.5,val=0.5", "--by", "tags.customer")
    assert run([*by, "-o", str(tmp_path / "leaky")]) == 0
    said = capsys.readouterr().err
    assert "which trajkit leak refuses; split with --by prompt as well" in said
    assert run(["leak", str(tmp_path / "leaky/train"), str(tmp_path / "leaky/val")]) == 1
    assert run([*by, "--by", "prompt", "-o", str(tmp_path / "clean")]) in (0, 1)


@pytest.mark.full
def test_a_world_on_two_keys_is_joined_where_a_cut_is_to_leak_nothing(write: Write, tmp_path: Path) -> None:
    """Two seeds are one initial state; an episode without a seed reads like one with a seed."""
    episodes = [
        an_episode(f"ep-{n}", seed=n, initial_state_hash=f"h{n // 2}", n_steps=0) for n in range(20)
    ] + [a_conversation(f"seedless-{n}", f"look {n}") for n in range(3)]
    episodes += [a_conversation(f"seeded-{n}", f"look {n}", env_id="w", task="t", seed=n) for n in range(6)]
    store = write(episodes)
    for seed in range(2):
        goal = tmp_path / f"out-{seed}"
        report, _ = split(store, goal, ratio=HALVES, seed=seed, leak_free=True)
        assert (report.n_groups, report.n_states_shared, report.n_texts_shared) == (10 + 6, 0, 0)
        assert not leak(goal / "a", goal / "b", reservations=()).leaks
