from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trajkit.curation import derive
from trajkit.curation.derive import deriving
from trajkit.errors import DataError, NothingMatched, StoreError
from trajkit.schema import Episode, Left
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import Store, open_store, verify

Attempts = Callable[..., Store]
Attempt = Callable[..., Episode]


def test_a_copy_is_the_same_with_one_more_line_of_lineage(
    attempts: Attempts, attempt: Attempt, tmp_path: Path
) -> None:
    store = attempts([attempt("a"), attempt("b", n_steps=3)])
    with deriving(store.path) as derivation:
        manifest = derivation.write(tmp_path / "copy", verb="copy", arguments={"why": "test"})
        with pytest.raises(StoreError, match="exists already"):
            derivation.write(tmp_path / "copy", verb="copy", arguments={})
    assert manifest.digest == store.manifest.digest
    assert manifest.kind == "copy"
    entry = manifest.lineage[-1]
    assert (entry.verb, entry.arguments) == ("copy", {"why": "test"})
    assert entry.parent_digest == store.manifest.digest
    assert (entry.n_episodes_in, entry.n_episodes_out, entry.n_steps_in, entry.n_steps_out) == (2, 2, 5, 5)
    verify(open_store(tmp_path / "copy"), deep=True)


@pytest.mark.full
def test_what_stays_is_written_in_parts_that_fit_into_memory(
    attempts: Attempts, attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a", "b'", 'c"', "d\0", "e\n", "ü", "zz"]
    store = attempts([attempt(name, n_steps=3) for name in names])
    monkeypatch.setattr(derive, "_STEPS_PER_PART", 8)
    with deriving(store.path) as derivation:
        manifest = derivation.write(tmp_path / "copy", verb="copy", arguments={})
    assert manifest.digest == store.manifest.digest
    assert len([part for part in manifest.parts if part.path.startswith("steps/")]) == 4
    monkeypatch.setattr(derive, "_BYTES_PER_PART", 1)
    with deriving(store.path) as derivation:
        manifest = derivation.write(tmp_path / "small", verb="copy", arguments={})
    assert manifest.digest == store.manifest.digest
    assert len([part for part in manifest.parts if part.path.startswith("steps/")]) == len(names)


def test_a_verb_may_replace_columns_and_choose_episodes(
    attempts: Attempts, attempt: Attempt, tmp_path: Path
) -> None:
    store = attempts([attempt("a"), attempt("b"), attempt("c")])
    with deriving(store.path) as derivation:
        derivation.connection.execute(
            "CREATE TEMP TABLE mine AS SELECT unnest(['a', 'c', 'c']) AS episode_id"
        )
        manifest = derivation.write(
            tmp_path / "out",
            verb="halve",
            arguments={},
            kept="mine",
            steps="(SELECT * REPLACE (0.5 AS loss_weight) FROM steps)",
            episodes="(SELECT * REPLACE ('eval' AS purpose) FROM episodes)",
            left=[Left(reason="not mine", n_episodes=1, n_steps=2), Left(reason="no such thing")],
            masked=[Left(reason="nothing")],
            split="train",
        )
    assert manifest.lineage[-1].left == (Left(reason="not mine", n_episodes=1, n_steps=2),)
    assert manifest.lineage[-1].masked == ()
    assert manifest.split == "train"
    episodes = list(open_dataset(tmp_path / "out"))
    assert [(e.episode_id, e.purpose) for e in episodes] == [("a", "eval"), ("c", "eval")]
    assert {step.loss_weight for e in episodes for step in e.steps} == {0.5}
    verify(open_store(tmp_path / "out"), deep=True)


def test_a_tally_that_does_not_add_up_is_refused_and_nothing_is_left(
    attempts: Attempts, attempt: Attempt, tmp_path: Path
) -> None:
    store = attempts([attempt("a"), attempt("b")])
    with (
        deriving(store.path) as derivation,
        pytest.raises(DataError, match="1 episodes are left out; the reasons"),
    ):
        derivation.write(
            tmp_path / "out", verb="drop", arguments={}, kept="(SELECT 'a' AS episode_id) AS mine"
        )
    assert list(tmp_path.glob("*out*")) == []


def test_a_verb_that_leaves_nothing_says_why(attempts: Attempts, attempt: Attempt, tmp_path: Path) -> None:
    store = attempts([attempt("a")])
    with deriving(store.path) as derivation, pytest.raises(NothingMatched) as caught:
        derivation.write(
            tmp_path / "out",
            verb="drop",
            arguments={},
            kept="(SELECT NULL AS episode_id) AS none",
            left=[Left(reason="too dull", n_episodes=1, n_steps=2)],
        )
    assert caught.value.message == f"drop leaves no episode of {store.path}"
    assert caught.value.hint == "left: 1 episode, 2 steps: too dull"


def test_a_damaged_store_is_not_read(attempts: Attempts, attempt: Attempt) -> None:
    store = attempts([attempt("a")])
    (part,) = store.parts("steps")
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    with pytest.raises(StoreError, match="is not the file that was written"), deriving(store.path):
        pytest.fail("it was read")
    with (
        pytest.raises(StoreError, match="is not the file that was written"),
        deriving(store.path, verifies_beside=True) as derivation,
    ):
        derivation.entry(verb="copy", arguments={})
