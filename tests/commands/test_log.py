"""The history of a store is read back, and stores have names that stay."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trajkit
from tests.curation.conftest import make_attempt
from trajkit.cli.main import run
from trajkit.errors import RequestError, StoreError
from trajkit.store.catalog import Catalog
from trajkit.store.reader import open_store
from trajkit.store.writer import write_episodes


@pytest.fixture(autouse=True)
def _store(folder: Path) -> None:
    """A working folder with `stores/all`."""
    wall = {"observation": "a wall", "action_executed": "go forward"}
    every = [make_attempt(f"e{number}", score=number / 8, seed=number, step=wall) for number in range(8)]
    write_episodes(Path("stores/all"), every, kind="test")


def short(path: str) -> str:
    return open_store(path).manifest.digest[:12]


def test_the_newest_version_comes_first_with_what_left_and_why() -> None:
    trajkit.select("stores/all", where="episode_return > 0.2", output="stores/good")
    trajkit.split("stores/good", ratio="train=0.5,val=0.5", output="stores/sides")
    trajkit.tag("stores/sides/train", "best")
    shown = str(trajkit.log("@best")).split("\n\n")
    assert shown[0].splitlines()[0] == f"{short('stores/sides/train')}  (@best, stores/sides/train)"
    assert shown[0].splitlines()[1] == "    trajkit split stores/good --ratio train=0.5,val=0.5 --seed 0"
    assert "    left: " in shown[0]
    assert shown[1].splitlines()[1] == "    trajkit select stores/all --where 'episode_return > 0.2'"
    assert "6 of 8 episodes, 12 of 16 steps" in shown[1]
    assert "    left: 2 episodes: not (episode_return > 0.2)" in shown[1]
    assert shown[2].splitlines() == [f"{short('stores/all')}  (stores/all)", "    nothing is known of it"]


@pytest.mark.full
def test_merged_histories_are_set_in_and_what_they_share_stands_once() -> None:
    trajkit.select("stores/all", where="n_steps > 0", output="stores/first")
    trajkit.select("stores/first", where="episode_return < 0.5", output="stores/low")
    trajkit.select("stores/first", where="episode_return >= 0.5", output="stores/high")
    trajkit.mask("stores/high", reason="loop", output="stores/masked")
    trajkit.merge(["stores/low", "stores/masked"], output="stores/both")
    found = trajkit.log("stores/both", oneline=True)
    assert [(each.depth, each.version.entry and each.version.entry.verb) for each in found] == [
        (0, "merge"),
        (1, "select"),
        (1, "mask"),
        (1, "select"),
        (0, "select"),
        (0, None),
    ]
    lines = str(found).splitlines()
    assert "trajkit merge stores/low stores/masked" in lines[0]
    assert lines[2].startswith(f"| {short('stores/masked')}  (stores/masked)  trajkit mask stores/high")
    document = json.loads(json.dumps(found.to_json()))
    assert document[0]["parents"] == [open_store(f"stores/{n}").manifest.digest for n in ("low", "masked")]


def test_a_store_that_is_gone_is_the_beginning_of_its_digest_and_its_manifest_is_enough() -> None:
    trajkit.select("stores/all", sample=3, output="stores/few")
    gone = short("stores/all")
    shutil.rmtree("stores/all")
    shutil.rmtree("stores/few/steps")
    (first, before) = trajkit.log("stores/few")
    assert first.command == f"trajkit select {gone} --sample 3 --seed 0"
    assert before.names == ()


def test_what_an_older_trajkit_recorded_is_shown_as_it_was() -> None:
    (first,) = trajkit.log("sample:babyai")
    assert first.names == ("sample:babyai",)
    assert str(first.command).startswith("trajkit rollout babyai --variant baseline")
    assert "2 more" not in str(trajkit.log("sample:babyai", oneline=True))


def test_a_tag_names_a_store_wherever_a_store_is_named(capsys: Any) -> None:
    trajkit.tag("stores/all", "whole")
    assert run(["info", "@whole"]) == 0
    assert run(["select", "@whole", "--sample", "2", "-o", "stores/two"]) == 0
    assert run(["diff", "@whole", "stores/two"]) == 0
    assert run(["lineage", "@whole"]) == 0
    assert run(["export", "--source", "@whole", "--limit", "1", "-o", "stores/one"]) == 0
    assert run(["tag"]) == 0
    assert f"@whole  {short('stores/all')}  stores/all" in capsys.readouterr().out
    shutil.move("stores/all", "stores/moved")
    assert run(["info", "@whole"]) == 0, "a store that was moved is found by its digest"


def test_a_tag_of_another_store_or_of_none_is_an_error() -> None:
    trajkit.tag("stores/all", "whole")
    trajkit.select("stores/all", sample=2, output="two")
    before, after = short("stores/all"), short("two")
    shutil.rmtree("stores/all")
    with pytest.raises(
        StoreError, match=f"@whole is the store {before}, which is not at stores/all any more"
    ):
        trajkit.info("@whole")
    shutil.copytree("two", "stores/all")
    with pytest.raises(StoreError, match=f"@whole is the store {before}, and stores/all now holds {after}"):
        trajkit.info("@whole")
    with pytest.raises(RequestError, match="no store has the tag @hole") as caught:
        trajkit.info("@hole")
    assert caught.value.hint == "nearest: whole"
    with pytest.raises(RequestError, match="'-x' cannot be a tag"):
        trajkit.tag("two", "-x")


def test_a_tag_that_moves_keeps_where_it_was_and_a_deleted_one_is_gone() -> None:
    trajkit.tag("stores/all", "best")
    trajkit.select("stores/all", sample=2, output="stores/two")
    moved = trajkit.tag("stores/two", "best")
    assert [each.path for each in moved.tags["best"]] == ["all", "two"]
    newest, oldest = trajkit.log("@best")
    assert newest.names == ("@best", "stores/two")
    assert oldest.names[0].startswith("@best until 20")
    trajkit.tag(delete="best")
    assert trajkit.tag().tags == {}
    assert Path("stores/two").is_dir()
    with pytest.raises(RequestError, match="no store has the tag @best"):
        trajkit.tag(delete="best")


WRITER = """
import sys
from trajkit.store.catalog import Catalog
for number in range(8):
    Catalog("stores").tag(f"{sys.argv[1]}-{number}", "stores/all")
    Catalog("stores").forget([f"{number:064x}"])
"""


def test_no_tag_is_lost_when_several_processes_write() -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, name]) for name in ("a", "b")]
    assert [each.wait() for each in writers] == [0, 0]
    catalog = Catalog("stores")
    assert sorted(catalog.tags()) == [f"{name}-{number}" for name in "ab" for number in range(8)]
    assert len(catalog.forgotten()) == 8
    assert sorted(path.name for path in Path("stores").iterdir()) == [
        ".catalog.json.lock",
        "all",
        "catalog.json",
    ]


def test_a_damaged_catalog_is_named() -> None:
    Path("stores/catalog.json").write_text('{"tags": 3}')
    with pytest.raises(StoreError, match=r"stores/catalog\.json: tags: "):
        trajkit.tag()


def test_the_findings_of_an_older_entry_are_read_among_its_options() -> None:
    trajkit.split("stores/all", ratio="train=0.5,val=0.5", output="stores/sides")
    entry = open_store("stores/sides/train").manifest.lineage[-1]
    assert entry.result["side"] == "train"
    assert "result" not in entry.options
    flat = entry.model_copy(update={"arguments": {**entry.options, "side": "train"}})
    assert flat.result["side"] == "train"
