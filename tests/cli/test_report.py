from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.evaluation.conftest import make_played
from tests.matrix import daily
from trajkit.cli.main import run
from trajkit.registry.ledger import Learned, Ledger, Registration, TunedModel
from trajkit.store.writer import write_episodes

FEW = ["--resamples", "300"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`base` and `tuned` on 20 worlds: 5 and 15 successes."""
    folder = tmp_path_factory.mktemp("played")
    for variant, wins in (("base", range(5)), ("tuned", range(3, 18))):
        episodes = [make_played(variant, seed, is_success=seed in wins, n_tokens=4) for seed in range(20)]
        write_episodes(folder / variant, episodes, kind="test")
    return folder


@pytest.fixture(autouse=True)
def folder(folder: Path, written: Path) -> Path:
    """A working folder that has both."""
    return shutil.copytree(written, folder, dirs_exist_ok=True)


def test_it_prints_each_variant_and_the_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "base", "tuned", *FEW]) == 0
    said = capsys.readouterr()
    rows = [line.split() for line in said.out.splitlines()]
    assert ["base", "20", "0.250", "[0.112,", "0.469]"] in [row[:5] for row in rows]  # Wilson of 5 in 20
    assert ["tuned", "base", "success", "0.250", "0.750", "+0.500"] in [row[:6] for row in rows]
    assert "-o FOLDER" in said.err


def test_json_is_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "before=base", "after=tuned", "--json", "--confidence", "0.9", *FEW]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [group["name"] for group in found["groups"]] == ["before", "after"]
    assert (found["confidence"], found["resamples"], found["seed"]) == (0.9, 300, 0)
    assert {"before"} == {each["baseline"] for each in found["comparisons"]}


@pytest.mark.full  # tests/evaluation/test_report.py has such names every day
def test_names_that_a_chart_cannot_show_are_spelled_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("a\0b\x1b]0;x\x07\u202egnp", "</script>", "__proto__", "'\"\\")
    for number, name in enumerate(names):
        episodes = [make_played(name, seed, is_success=seed < 9, n_tokens=4) for seed in range(10)]
        elsewhere = [
            each.model_copy(update={"episode_id": f"x{each.episode_id}", "task": name}) for each in episodes
        ]
        write_episodes(folder / f"named{number}", [*episodes, *elsewhere], kind="test")
    stores = [f"named{number}" for number in range(len(names))]
    assert run(["report", "base", *stores, "-o", "out", *FEW]) == 0
    assert (folder / "out" / "charts" / "success-by-task.svg").stat().st_size > 1000
    assert "\x1b" not in capsys.readouterr().out


def test_a_requirement_is_a_gate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stores = ["report", "base", "tuned", *FEW]
    assert run([*stores, "--require", "success.low > 0"]) == 0
    assert "holds: success.low > 0" in capsys.readouterr().err
    # the files are there although it does not hold: somebody has to look at them
    assert run([*stores, "--require", "success.low > 0.9", "-o", "out"]) == 1
    said = capsys.readouterr().err
    assert "error: 'success.low > 0.9' does not hold: low is 0." in said
    assert "out/report.html is the page" in said
    found = {path.relative_to(folder / "out").as_posix() for path in (folder / "out").rglob("*.*")}
    assert {"report.html", "report.md", "report.json", "charts/success.png", "charts/success.svg"} <= found
    assert run([*stores, "-o", "out"]) == 1
    assert "out exists already" in capsys.readouterr().err
    assert run([*stores, "--require", "success.low >"]) == 2
    assert run([*stores, "--require", "speed.low > 0", "-o", "other"]) == 2
    assert not (folder / "other").exists()


def test_the_baseline_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "base", "tuned", "--baseline", "tuned", "--json", *FEW]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["comparisons"][0]["difference"] == -0.5
    assert run(["report", "base", "tuned", "--baseline", "tunde", *FEW]) == 2
    assert "nearest: tuned" in capsys.readouterr().err


@pytest.mark.full
def test_what_was_learned_is_taken_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learned = [make_played("expert", seed, prompt="goto 3 turn 0", purpose="train") for seed in (900, 901)]
    write_episodes(folder / "learned", learned, kind="test")
    assert run(["report", "base", "tuned", "--trained-on", "learned", *FEW]) == 0
    assert "aliased text: 1 of 20 worlds" in capsys.readouterr().out


def test_what_a_registered_variant_learned_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learned = Learned(store=folder / "good", digest="a" * 64, n_episodes=30, n_steps=200, n_learned=180)
    Ledger(folder / "runs").add(
        Registration(
            registration_id="one",
            model=TunedModel(name="my-model", train=learned),
            function="act",
            variant="tuned",
            template_variant="base",
            config=str(folder / "tensorzero.toml"),
            registered_at=datetime(2026, 1, 1, tzinfo=UTC),
            trajkit_version="0.1.0",
        )
    )
    assert run(["report", "base", "tuned", "--json", *FEW]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert [group["training"] and group["training"]["n_episodes"] for group in groups] == [None, 30]
    # by the model's name, where the variant's says nothing
    assert run(["report", "old=base", "new=tuned", "--trained", "old=my-model", "--json", *FEW]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert groups[0]["training"] == {"model": "my-model", "n_episodes": 30, "n_learned": 180}


def test_a_model_that_nobody_knows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "base", "tuned", "--trained", "tuned=my-job"]) == 2
    assert "no model 'my-job'" in capsys.readouterr().err
    assert run(["report", "base", "--trained", "tuned"]) == 2
    assert "is not NAME=JOB" in capsys.readouterr().err


@pytest.mark.full
def test_without_a_store_it_takes_the_last_evaluation_and_not_what_is_to_be_learned(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worlds = ("babyai", "--task", "goto", "--policy", "expert", "--quiet", "--seeds")
    assert run(["rollout", *worlds, "0:4", "-o", "played"]) == 0
    capsys.readouterr()
    assert run(["report", *FEW]) == 0
    assert "from played (last written)" in capsys.readouterr().err
    assert run(["split", "played", "--ratio", "train=0.5,val=0.5", "-o", "sides"]) == 0
    assert run(["report", *FEW]) == 2
    assert "no evaluation was played here" in capsys.readouterr().err
    assert run(["rollout", *worlds, "50:52", "--purpose", "eval", "-o", "measured"]) == 0
    assert run(["select", "played", "--top", "1", "-o", "chosen"]) == 0
    capsys.readouterr()
    assert run(["report", *FEW]) == 0
    assert "from measured (last evaluation)" in capsys.readouterr().err
    assert run(["report", "played", *FEW]) == 0
    assert "from " not in capsys.readouterr().err


@pytest.mark.parametrize(
    "verb", daily(["select --top 1", "stats", "mask --reason invalid", "weight --scheme uniform", "split"], 2)
)
def test_verbs_that_take_the_last_store_say_which(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["select", "base", "--top", "1", "-o", "chosen"]) == 0
    capsys.readouterr()
    run([*verb.split(), *([] if verb == "stats" else ["--dry-run"])])
    assert "from chosen (last written)" in capsys.readouterr().err
