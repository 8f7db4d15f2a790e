"""Pairs cut into two sides, and the proof that nothing is on both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trajkit._core.settings import Reservation
from trajkit.curation.leaks.report import LeakKind
from trajkit.curation.pair_file import Pair, Pairs, Turn, open_pairs, write_pairs
from trajkit.curation.preferences.cut import cut_pairs
from trajkit.curation.preferences.leak import leak_of_pairs
from trajkit.errors import NothingMatched
from trajkit.schema import message

FACTS = {"match": "state", "level": "step", "score": "episode_return", "group": "world"}


def turn(text: str) -> tuple[Turn, ...]:
    said = message("assistant", text)
    return (Turn(step_index=0, n_prompt_kept=1, messages=(), completion=said, loss_weight=1.0),)


def pair(number: int, *, seed: int | None, other: int | None = None, text: str | None = None) -> Pair:
    """A pair of two episodes of one world, or (`other`) of two."""
    names = {"chosen": f"e{number}a", "rejected": f"e{number}b"}
    keys = [
        f'["world","walk","go","{each}"]' if each is not None else f'["episode","{names[side]}"]'
        for side, each in (("chosen", seed), ("rejected", seed if other is None else other))
    ]
    if seed is None:
        keys[1] = keys[0]
    return Pair(
        pair_id=f"{number:064x}",
        match="state",
        level="step",
        env_id="walk",
        task="go",
        seed=seed if other is None else None,
        initial_state_hash=None if seed is None or other is not None else f"state {seed}",
        split=None if other is None else "train",
        chosen_group_key=keys[0],
        rejected_group_key=keys[1],
        chosen_episode_id=names["chosen"],
        chosen_step_index=0,
        chosen_inference_id=None,
        rejected_episode_id=names["rejected"],
        rejected_step_index=0,
        rejected_inference_id=None,
        chosen_action="left",
        rejected_action="right",
        chosen_score=1.0,
        rejected_score=0.0,
        is_verified=None,
        prompt=(message("user", text or f"prompt {number}"),),
        tools=None,
        chosen=turn("left"),
        rejected=turn("right"),
    )


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Pairs]:
    def write(name: str, *pairs: Pair) -> Pairs:
        facts = {**FACTS, "split": pairs[0].split, "functions": ["act"]}
        write_pairs(tmp_path / name, pairs, facts=facts, lineage=())
        return open_pairs(tmp_path / name)

    return write


def sides(path: Path) -> tuple[list[Pair], list[Pair]]:
    return list(open_pairs(path / "train")), list(open_pairs(path / "val"))


def test_a_world_is_on_one_side_and_the_lineage_says_so_and_more_pairs_move_nobody(
    written: Callable[..., Pairs], tmp_path: Path
) -> None:
    some = [pair(n, seed=n // 2) for n in range(100)]
    pairs = written("some", *some)
    found = cut_pairs(pairs, tmp_path / "cut", fraction=0.2)
    train, val = sides(tmp_path / "cut")
    assert found.n_pairs == {"train": len(train), "val": len(val)}
    assert (len(train) + len(val), found.n_parted) == (100, 0)
    assert 8 <= len(val) <= 34
    assert not {each.seed for each in train} & {each.seed for each in val}
    side = open_pairs(tmp_path / "cut/train")
    assert not leak_of_pairs(side, open_pairs(tmp_path / "cut/val")).leaks

    (entry,) = side.manifest.lineage
    assert (entry.verb, entry.parent_digest) == ("split", pairs.manifest.digest)
    assert (entry.n_episodes_in, entry.n_episodes_out) == (200, side.manifest.n_episodes)
    assert sum(each.n_episodes for each in entry.left) == 200 - entry.n_episodes_out
    assert sum(each.n_steps for each in entry.left) == 100 - len(train)
    assert side.manifest.functions == ("act",)

    cut_pairs(
        written("more", *some, *(pair(n, seed=n) for n in range(100, 200))), tmp_path / "again", fraction=0.2
    )
    again, _ = sides(tmp_path / "again")
    assert {each.pair_id for each in train} <= {each.pair_id for each in again}


def test_a_pair_between_the_sides_is_on_none_and_counted(
    written: Callable[..., Pairs], tmp_path: Path
) -> None:
    pairs = [pair(n, seed=n, other=n + 1) for n in range(60)]
    found = cut_pairs(written("pairs", *pairs), tmp_path / "cut", fraction=0.3)
    train, val = sides(tmp_path / "cut")
    assert found.n_parted == 60 - len(train) - len(val) > 0
    keys = [
        {key for each in side for key in (each.chosen_group_key, each.rejected_group_key)}
        for side in (train, val)
    ]
    assert not keys[0] & keys[1]


def test_too_few_groups_say_what_to_do(written: Callable[..., Pairs], tmp_path: Path) -> None:
    with pytest.raises(NothingMatched) as caught:
        cut_pairs(written("pairs", pair(0, seed=0)), tmp_path / "cut", fraction=0.1)
    assert "--val-fraction" in (caught.value.hint or "")
    assert not (tmp_path / "cut").exists()


def test_what_two_sides_share_is_found(written: Callable[..., Pairs]) -> None:
    train = written("train", pair(1, seed=1), pair(2, seed=2, text="the same"), pair(3, seed=3))
    val = written("val", pair(3, seed=3), pair(4, seed=1), pair(5, seed=5, text="the same"))
    found = {finding.kind: finding for finding in leak_of_pairs(train, val, reservations=()).findings}
    assert {kind: (one.n, one.n_blocking) for kind, one in found.items()} == {
        LeakKind.EPISODE_ID: (2, 2),
        LeakKind.WORLD: (2, 2),
        LeakKind.INITIAL_STATE: (2, 2),
        LeakKind.PROMPT: (2, 0),  # where both have seeds a world may read like another
    }


def test_without_seeds_a_shared_prompt_blocks(written: Callable[..., Pairs]) -> None:
    train = written("train", pair(1, seed=None, text="the same"))
    val = written("val", pair(2, seed=2, text="the same"))
    report = leak_of_pairs(train, val, reservations=())
    assert [finding.kind for finding in report.blocking] == [LeakKind.PROMPT]
    assert report.train.n_without_seed == 2


def test_reserved_worlds_are_found_by_seed_and_by_state(written: Callable[..., Pairs]) -> None:
    train = written("train", *(pair(n, seed=n) for n in range(5)))
    kept = (
        Reservation(env="walk", tasks=("go",), seeds="3:9"),
        Reservation(env="other", tasks=("go",), seeds="0:2", states=("state 1",)),
    )
    (finding,) = leak_of_pairs(train, None, reservations=kept).findings
    assert (finding.kind, finding.n_blocking) == (LeakKind.RESERVED, 3)
    assert {example.what for example in finding.examples} == {
        "walk go seed 3",
        "walk go seed 4",
        "state state 1",
    }


@pytest.mark.parametrize("n_groups", [2, 5, 9])
def test_with_two_groups_or_more_no_side_is_empty(
    written: Callable[..., Pairs], tmp_path: Path, n_groups: int
) -> None:
    for first in range(0, 8 * n_groups, n_groups):
        pairs = [pair(n, seed=n) for n in range(first, first + n_groups)]
        found = cut_pairs(written(f"few-{first}", *pairs), tmp_path / f"cut-{first}", fraction=0.1)
        assert all(found.n_pairs.values())
        assert sum(found.n_pairs.values()) == n_groups


def test_groups_that_share_a_prompt_without_a_seed_are_on_one_side(
    written: Callable[..., Pairs], tmp_path: Path
) -> None:
    pairs = [pair(n, seed=None, text=f"question {n % 20}") for n in range(60)]
    pairs += [pair(n, seed=n, text=f"seeded {n % 3}") for n in range(60, 90)]
    cut_pairs(written("pairs", *pairs), tmp_path / "cut", fraction=0.3)
    cut = [open_pairs(tmp_path / "cut" / side) for side in ("train", "val")]
    assert not leak_of_pairs(*cut, reservations=()).leaks
    assert {each.seed is None for each in cut[1]} == {True, False}
