"""Every verb that makes a store of a store can be carried out again from what its lineage says."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import trajkit
from tests.curation.conftest import make_attempt
from tests.matrix import daily
from trajkit.cli.main import run
from trajkit.errors import DataError, RequestError
from trajkit.store.reader import open_store
from trajkit.store.writer import write_episodes

SCORER = """
def words(episode):
    return len(episode.steps[-1].completion.content[0].text.split())

def is_short(step):
    return len(step.completion.text) < 10
"""


def episodes() -> list[Any]:
    """Twelve attempts at six worlds, two of which say the same."""
    return [
        make_attempt(
            f"e{number:02}",
            score=(number % 5) / 4,
            seed=number // 2,
            prompts=[f"mail to a{number}@example.org about {number}", f"and then {number // 4}"],
            answers=["go forward", "turn left" if number % 3 else "go forward"],
            tags={"customer": f"c{number // 2}"},
            step={"observation": "a wall", "action_executed": "go forward", "reward": 1.0},
        )
        for number in range(12)
    ]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `stores/all`, `stores/other` and a scorer."""
    folder = tmp_path_factory.mktemp("rebuild")
    write_episodes(folder / "stores" / "all", episodes(), kind="test")
    other = make_attempt("other", seed=5, tags={"customer": "new"})
    write_episodes(folder / "stores" / "other", [other], kind="test")
    (folder / "checks.py").write_text(SCORER, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def folder(folder: Path, written: Path) -> Path:
    """A working folder that has all of it."""
    return shutil.copytree(written, folder, dirs_exist_ok=True)


def digest(path: str | Path) -> str:
    return open_store(path).manifest.digest


COMMANDS = {
    "split by": "split ALL --ratio train=60%,val=20% --by tags.customer --missing leave -o out",
    "score": "score ALL --with checks.py:words --name words --optimize min --max-bad 1 -o made",
    "redact": "redact ALL --skip phone --no-gate -o made",
    "leak train": "leak ALL stores/other --drop train --near 0.8 -o made",
    "merge": "merge ALL stores/other --prefer last -o made",
    "export": "export --source ALL --metric episode_return --min 0.5 --tag customer=c1 -o made",
}
MORE = {
    "control": "select ALL --sample 3 --control -o out/made",
    "dedupe": "dedupe ALL --exact --episodes -o made",
    "mask": "mask ALL --reason loop --reason after-success --success 'episode_return >= 1' -o made",
    "weight": "weight ALL --scheme exponential --temperature 0.5 --by tags.customer -o made",
    "select": 'select ALL --where "episode_return > 0.3" -o made',
    "select unreserved": "select ALL --unreserved --shortest -o made",
    "split": "split ALL --ratio train=0.6,val=0.4 -o out",
    "select random": "select ALL --best-of 2 --sample 5 --seed 3 -o made",
    "select many": "select ALL --balance task --max-per-task 9 --top 50% --by tags.customer -o made",
    "dedupe near": "dedupe ALL --near 0.5 --shingle 2 -o made",
    "split count": "split ALL --ratio train=6,val=2 --seed 4 -o out",
    "split prompt": "split ALL --ratio a=0.5,b=0.5 --by prompt --by tags.customer -o out --seed 1",
    "weight grpo": "weight ALL --scheme grpo --no-deviation --normalize task -o made",
    "score steps": "score ALL --with checks.py:is_short --name short --per step -o made",
    "leak eval": "leak stores/other ALL --drop eval --by tags.customer --strict-text -o made",
}
"""Other ways of the same commands, before a release."""


@pytest.mark.parametrize("name", daily([*COMMANDS, *MORE], {"score", "leak train", "export"}))
def test_a_command_is_carried_out_again(name: str, capsys: Any) -> None:
    assert run(shlex.split({**COMMANDS, **MORE}[name].replace("ALL", "stores/all"))) == 0
    made = sorted(path.parent for path in Path().rglob("manifest.json") if path.parts[0] != "stores")
    assert made
    for number, path in enumerate(made):
        goal = f"again-{number}"
        assert run(["rebuild", str(path), "-o", goal, "--yes"]) == 0, capsys.readouterr().err
        assert digest(goal) == digest(path)
        again, before = (open_store(each).manifest.lineage[-1] for each in (goal, path))
        assert (again.verb, again.options, again.left) == (before.verb, before.options, before.left)


@pytest.mark.full
def test_a_replay_is_carried_out_again() -> None:
    trajkit.select("sample:babyai", where="seed is not null", sample=1, output="stores/one")
    made = trajkit.replay("stores/one", only_verified=True, output="made").made
    assert made is not None
    assert made.manifest is not None
    with pytest.raises(RequestError, match="this runs babyai:X, and there is no terminal to ask on"):
        renamed(Path("made"), env="babyai:X")
    assert trajkit.rebuild("made", output="again").digest == made.manifest.digest == digest("again")


def test_a_chain_begins_at_the_nearest_store_that_is_left() -> None:
    """The first store and the last are gone: the second is enough."""
    trajkit.select("stores/all", where="episode_return > 0.1", output="stores/good")
    trajkit.mask("stores/good", reason="loop", output="stores/masked")
    sides = trajkit.split("stores/masked", ratio="train=0.5,val=0.5", output="stores/sides")
    shutil.copy("stores/sides/train/manifest.json", "train.json")
    for path in ("stores/all", "stores/masked", "stores/sides"):
        shutil.rmtree(path)
    plan = trajkit.rebuild("train.json", output="again", dry_run=True)
    assert [(each.place, each.missing) for each in plan.steps] == [
        ("stores/good", None),
        (None, None),
        (None, None),
    ]
    commands = [each.command for each in plan.steps]
    assert commands[1] == "trajkit mask stores/good --reason loop"
    assert str(commands[2]).startswith("trajkit split ")
    assert not Path("again").exists()
    found = trajkit.rebuild("train.json", output="again")
    assert found.digest == sides.made["train"].manifest.digest == digest("again")  # type: ignore[union-attr]
    assert trajkit.open_dataset("again").store.manifest.split == "train"
    assert [path.name for path in Path().iterdir() if path.name.startswith(".re")] == []


@pytest.mark.full
def test_what_is_missing_is_named_and_nothing_is_done(capsys: Any) -> None:
    trajkit.merge(["stores/all", "stores/other"], output="stores/both")
    trajkit.leak("stores/both", "stores/other", drop="train", output="stores/clean")
    gone = digest("stores/other")[:12]
    for name in ("both", "other"):
        shutil.rmtree(f"stores/{name}")
    assert run(["rebuild", "stores/clean", "-o", "again"]) == 1
    printed = capsys.readouterr()
    assert f"missing: the store {gone}" in printed.out
    assert (
        f"it cannot be rebuilt: the store {gone}; the store {gone}, which --evaluation names" in printed.err
    )
    assert not Path("again").exists()
    shutil.copytree("stores/all", "elsewhere/all")
    write_episodes(
        Path("elsewhere/other"), [make_attempt("other", seed=5, tags={"customer": "new"})], kind="test"
    )
    shutil.rmtree("stores/all")
    assert run(["rebuild", "stores/clean", "-o", "again", "--from", "elsewhere"]) == 0
    assert digest("again") == digest("stores/clean")


def renamed(store: Path, **options: Any) -> None:
    """Change options of a store's last entry, as another trajkit might have written it, and rebuild it."""
    file = store / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["lineage"][-1]["arguments"].update(options)
    (store.parent / "changed.json").write_text(json.dumps(manifest))
    trajkit.rebuild(store.parent / "changed.json", output="never")


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reasons": ["loop"]}, "'reasons' is not an option of `trajkit mask`: another version of trajkit"),
        ({"output": "/tmp/elsewhere"}, "'output' is not an option"),
        ({"reason": ["nonsense"]}, "nonsense"),
    ],
)
def test_an_entry_that_says_something_else_is_named(options: dict[str, Any], message: str) -> None:
    trajkit.mask("stores/all", reason="loop", output="stores/masked")
    with pytest.raises(DataError, match=message):
        renamed(Path("stores/masked"), **options)
    assert not Path("never").exists()


def test_patterns_of_a_redaction_are_not_recorded_and_that_is_said() -> None:
    trajkit.redact("stores/all", pattern={"place": "forward"}, gate=False, output="stores/public")
    with pytest.raises(DataError, match="the value of --pattern place is not recorded, as it may be secret"):
        trajkit.rebuild("stores/public", output="again")


def test_rollouts_are_not_played_again() -> None:
    trajkit.rollout("babyai", task="goto", policy="expert", seeds="0:1", output="stores/played")
    shutil.copytree("stores/played", "kept")
    shutil.rmtree("stores/played")
    with pytest.raises(DataError, match="it was played, and the same episodes are not played twice"):
        trajkit.rebuild("kept", output="again")


def test_a_scorer_that_has_changed_or_may_not_run_is_refused() -> None:
    trajkit.score("stores/all", with_="checks.py:words", name="words", output="stores/scored")
    with pytest.raises(RequestError, match=r"this runs checks\.py:words, and there is no terminal to ask on"):
        trajkit.rebuild("stores/scored", output="again")
    Path("checks.py").write_text(SCORER + "# changed\n")
    with pytest.raises(DataError, match=r"the checks\.py that scored: it has changed since"):
        trajkit.rebuild("stores/scored", output="again", yes=True)


@pytest.mark.full
def test_what_was_forgotten_does_not_come_back() -> None:
    trajkit.select("stores/all", where="episode_return > 0.1", output="stores/good")
    shutil.copytree("stores/good", "old")
    trajkit.forget(["e01", "e02"], output="new")
    assert "e01" not in Path("stores/catalog.json").read_text()
    again = trajkit.rebuild("new/good", output="again")
    assert again.digest == digest("new/good") == digest("again")
    with pytest.raises(DataError, match="2 episodes of it were forgotten since: it is not rebuilt"):
        trajkit.rebuild("old", output="never", dry_run=True)
    assert "trajkit forget: 2 episodes" in str(trajkit.log("new/good"))
    next(Path("stores/good/steps").iterdir()).unlink()  # a damaged store can be rebuilt all the same
    assert trajkit.rebuild("stores/good", output="never", dry_run=True).missing == ()
    assert not Path("never").exists()
    Path("stores/catalog.json").unlink()
    with pytest.raises(DataError, match=r"which stores/catalog\.json does not name"):
        trajkit.rebuild("new/good", output="never")


def test_an_import_is_read_again_from_its_file() -> None:
    trajkit.convert("stores/all", to="openai-sft", output="rows.jsonl")
    made = trajkit.import_("rows.jsonl", from_="openai-chat", purpose="train", output="stores/read")
    assert made.manifest is not None
    assert trajkit.rebuild("stores/read", output="again").digest == made.manifest.digest
    Path("rows.jsonl").unlink()
    with pytest.raises(DataError, match=r"rows\.jsonl, which was imported"):
        trajkit.rebuild("stores/read", output="never")
