"""A deletion request is answered: where episodes are, stores without them, and who learned from them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import trajkit
from trajkit.errors import RequestError
from trajkit.schema import Episode
from trajkit.store.reader import open_store
from trajkit.store.writer import write_episodes


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, attempt: Callable[..., Episode]) -> Path:
    """Three stores: `all` has every episode, `good` two of them, `other` none of the named ones."""
    episodes = {name: attempt(name, score=score) for name, score in (("a", 0.9), ("b", 0.1), ("c", 0.8))}
    helper = attempt("a/helper").model_copy(update={"origin": {"parent_episode_id": "a"}})
    stores = tmp_path_factory.mktemp("forget") / "stores"
    write_episodes(stores / "all", [*episodes.values(), helper], kind="test")
    trajkit.select(stores / "all", where="episode_return > 0.5", output=stores / "chosen" / "good")
    write_episodes(stores / "other", [episodes["b"]], kind="test")
    return stores


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "stores")


def test_new_stores_lack_the_episodes_and_their_history_does_not_name_them(
    folder: Path, tmp_path: Path
) -> None:
    before = sorted(folder.rglob("*"))
    found = trajkit.forget(["a"], stores=folder, dry_run=True)
    assert [(each.path.name, each.n_episodes, each.n_others) for each in found.held] == [
        ("all", 2, 2),
        ("good", 1, 1),
    ]
    assert sorted(folder.rglob("*")) == before
    names = tmp_path / "ids.txt"
    names.write_text("a\n\n")
    done = trajkit.forget(episodes=names, stores=folder, output=tmp_path / "new")
    assert {new.relative_to(tmp_path).as_posix() for new in done.written.values()} == {
        "new/all",
        "new/chosen/good",
    }
    store = open_store(tmp_path / "new" / "all")
    assert sorted(episode.episode_id for episode in trajkit.open_dataset(store.path)) == ["b", "c"]
    entry = store.manifest.lineage[-1]
    assert (entry.verb, entry.arguments, entry.left[0].reason) == ("forget", {"n_episodes": 2}, "forgotten")
    assert '"a"' not in (store.path / "manifest.json").read_text()
    assert (folder / "all").is_dir()


def test_old_stores_are_deleted_only_when_that_is_said_and_after_the_new_ones_are_there(
    folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match="there is no terminal to ask on"):
        trajkit.forget(["a"], stores=folder, output=tmp_path / "new", delete=True)
    assert not (tmp_path / "new").exists()
    done = trajkit.forget(["a"], stores=folder, output=tmp_path / "new", delete=True, yes=True)
    assert {each.name for each in done.deleted} == {"all", "good"}
    assert sorted(each.name for each in folder.iterdir() if each.is_dir()) == ["chosen", "other"]
    assert open_store(tmp_path / "new" / "chosen" / "good").manifest.counts.n_episodes > 0
    assert "deleted" in str(done)


@pytest.mark.full
def test_a_store_of_nothing_else_and_pairs_of_them_are_only_deleted(
    folder: Path, tmp_path: Path, attempt: Callable[..., Episode]
) -> None:
    write_episodes(folder / "alone", [attempt("z")], kind="test")
    sides = [
        attempt(name, prompts=["same"], answers=[name], score=score)
        for name, score in (("y", 1.0), ("n", 0.0))
    ]
    write_episodes(folder / "sides", sides, kind="test")
    trajkit.pairs(folder / "sides", match="prompt", margin=0.5, output=folder / "pairs")
    done = trajkit.forget(["z", "y"], stores=folder, output=tmp_path / "new", delete=True, yes=True)
    assert {each.name for each in done.deleted} == {"alone", "sides", "pairs"}
    assert not (tmp_path / "new" / "alone").exists()
    assert not (tmp_path / "new" / "pairs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"episode_ids": []}, "no episode is named"),
        ({"episode_ids": ["nope"]}, "no store in .* and no model has nope"),
        ({"episode_ids": ["a"]}, "no folder is named for 2 stores without them"),
    ],
)
def test_a_wrong_request_is_refused(folder: Path, words: dict[str, list[str]], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        trajkit.forget(**words, stores=folder)


def test_a_folder_of_stores_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"there is no folder .*/strores"):
        trajkit.forget(["a"], stores=tmp_path / "strores", output=tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
