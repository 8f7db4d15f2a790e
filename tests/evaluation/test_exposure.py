from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from trajkit._core.seeds import as_seeds
from trajkit.curation.preferences.pairs import pairs
from trajkit.errors import RequestError
from trajkit.evaluation.exposure import Exposure, Seen, exposure, is_reserved, refuse_overlap
from trajkit.schema import Episode, Transition, message
from trajkit.store.writer import write_episodes

SEEDS = as_seeds("200:220")


def episode(number: int, seed: int | None, *, task: str = "goto", env: str = "babyai", **fields) -> Episode:
    step = Transition(
        step_index=0,
        messages=(message("user", "what now?"),),
        completion=message("assistant", f"go {number}"),
        action=f"go {number}",
    )
    return Episode(
        episode_id=f"e{number}", source="test", env_id=env, task=task, seed=seed, steps=(step,), **fields
    )


def learned(path: Path, episodes: Iterable[Episode]) -> Seen:
    manifest = write_episodes(path, list(episodes), kind="test")
    return Seen(variant="tuned", model="job one", how="learned", store=path, digest=manifest.digest)


def look(*seen: Seen, tasks: tuple[str, ...] = ("goto", "open")) -> Exposure:
    return exposure(seen, "babyai", tasks, SEEDS)


def test_worlds_that_a_model_learned_are_found_and_refused(tmp_path: Path) -> None:
    seen = learned(
        tmp_path / "train",
        [episode(0, 219), episode(1, 205, task="open"), episode(2, 205), episode(3, 220), episode(4, 205)],
    )
    found = look(seen)
    (overlap,) = found.overlaps
    assert (overlap.seed, overlap.task, overlap.n_worlds) == (205, "goto", 3)
    assert found.unsure == ()
    with pytest.raises(RequestError, match=r"one \(tuned\) learned seed 205 of goto and 2 more") as caught:
        refuse_overlap(found)
    assert "--allow-leak" in str(caught.value.hint)


def test_other_seeds_tasks_and_environments_are_other_worlds(tmp_path: Path) -> None:
    seen = learned(
        tmp_path / "train",
        [episode(0, 199), episode(1, 220), episode(2, 205, task="pickup"), episode(3, 205, env="other")],
    )
    assert look(seen) == Exposure((), ())
    refuse_overlap(look(seen))


def test_a_room_that_a_model_learned_under_another_task_is_found(tmp_path: Path) -> None:
    seen = learned(
        tmp_path / "train", [episode(0, 205), episode(1, 206), episode(2, 207), episode(3, 207, task="open")]
    )

    def room_of(task: str, seed: int) -> str:
        return "" if seed == 205 and task == "open" else f"room {seed}"

    assert look(seen, tasks=("open",)).overlaps[0].n_worlds == 1  # without rooms: its own world alone
    world, room = exposure([seen], "babyai", ("open",), SEEDS, room_of).overlaps
    assert str(world) == "job one (tuned) learned seed 207 of open"
    assert str(room) == "job one (tuned) learned the same room in goto as seed 206 of open"
    with pytest.raises(RequestError, match="the same room in goto as seed 206 of open"):
        refuse_overlap(Exposure((room,), ()))


def test_of_episodes_without_seeds_nobody_is_sure_and_the_others_still_count(tmp_path: Path) -> None:
    found = look(learned(tmp_path / "train", [episode(0, None), episode(1, 205)]))
    assert [one.seed for one in found.overlaps] == [205]
    (unsure,) = found.unsure
    assert str(unsure).endswith("train have no seed")
    assert "1 episodes" in unsure.reason


def test_a_store_that_is_gone_or_another_one_leaves_a_doubt(tmp_path: Path) -> None:
    first = learned(tmp_path / "train", [episode(0, 205)])
    shutil.rmtree(tmp_path / "train")
    (gone,) = look(first).unsure
    assert str(tmp_path / "train") in gone.reason
    learned(tmp_path / "train", [episode(1, 205)])
    found = look(first)
    assert found.overlaps == ()
    assert "has changed since" in found.unsure[0].reason
    doubt = Seen(variant="tuned", model="ft:x", how="learned", doubt="it was tuned elsewhere")
    assert (
        str(look(doubt).unsure[0]) == "the training data of ft:x (tuned) is unknown: it was tuned elsewhere"
    )


def test_the_worlds_of_pairs_are_known_too(tmp_path: Path) -> None:
    write_episodes(
        tmp_path / "store",
        [episode(0, 205, metrics={"episode_return": 1.0}), episode(1, 205, metrics={"episode_return": 0.0})],
        kind="test",
    )
    made = pairs(tmp_path / "store", tmp_path / "pairs", margin=0.5, match="prompt")
    seen = Seen(
        variant="t", model="job", how="learned", store=tmp_path / "pairs", digest=made.manifest.digest
    )
    assert [one.seed for one in look(seen).overlaps] == [205]
    assert look(seen, tasks=("open",)).overlaps == ()


def test_seeds_that_a_checkpoint_was_chosen_by_are_seen() -> None:
    seen = Seen(
        variant="t", model="job", how="was chosen by playing", env="babyai", tasks=("goto",), seeds="210:230"
    )
    (overlap,) = look(seen).overlaps
    assert str(overlap) == "job (t) was chosen by playing seed 210 of goto and 9 more"
    assert exposure([seen], "other", ("goto",), SEEDS).overlaps == ()


def test_all_worlds_must_be_reserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not is_reserved("babyai", ("goto",), SEEDS)
    table = '[[reserved]]\nenv = "babyai"\ntasks = ["goto", "open"]\nseeds = "{}"\n'
    Path("trajkit.toml").write_text(table.format("200:210") + table.format("210:300"), encoding="utf-8")
    assert is_reserved("babyai", ("goto", "open"), SEEDS)
    assert not is_reserved("babyai", ("goto", "pickup"), SEEDS)
    assert not is_reserved("babyai", ("goto",), as_seeds("199:210"))
