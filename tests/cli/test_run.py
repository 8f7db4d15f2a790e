"""`trajkit run`, as a user types it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.recipe.conftest import CHOOSE
from tests.targets.hosted.openai_server import KEY, FakeOpenAI, serving
from trajkit.cli.main import run
from trajkit.stack.process import end
from trajkit.targets.hosted import launch
from trajkit.targets.runs import Runs

VARIANT = "history_and_reasoning_sft"


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The recipe `choose.yaml` in an empty working folder."""
    monkeypatch.chdir(tmp_path)
    Path("choose.yaml").write_text(CHOOSE, encoding="utf-8")
    return tmp_path


def registered(folder: str) -> dict[str, str]:
    """The variant that a run has added to its copy of the configuration."""
    config = tomllib.loads(Path(folder, "config", "tensorzero.toml").read_text(encoding="utf-8"))
    variant: dict[str, str] = config["functions"]["act"]["variants"][VARIANT]
    return variant


@pytest.mark.usefixtures("recipe")
def test_the_local_recipe_tunes_and_registers_the_tiny_model(capsys: pytest.CaptureFixture[str]) -> None:
    changes = ("--set", "tuned.max_steps=18", "--set", "tuned.set.eval_steps=9")
    command = ["run", "babyai_local_sft", "-o", "run", *changes, "--yes"]
    assert run(command) == 0
    printed = capsys.readouterr()
    assert "cost      none" in printed.err
    assert printed.out.splitlines()[-1].startswith("run  4 steps done  ")
    job = Runs(Path("run/runs")).load("tuned")
    events = Runs(Path("run/runs")).events("tuned")
    losses = [event["eval_loss"] for event in events if event.get("eval_loss") is not None]
    assert job.result["eval_loss"] == min(losses) < losses[0]
    assert registered("run")["model"] == "tuned"
    assert (job.base, job.function) == ("sample:tiny-base", "act")
    assert job.process is not None
    end(job.process)  # it is about to end by itself

    assert run(command) == 0
    again = capsys.readouterr()
    assert "[4/4] variant: is done" in again.err
    assert again.out.splitlines() == ["run  4 steps done  0 s"]
    assert "tuned" in registered("run")["model"]


@pytest.mark.usefixtures("recipe")
def test_the_openai_recipe_pays_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch, "FIRST_POLL_S", 0.01)
    monkeypatch.setattr(launch, "LONGEST_POLL_S", 0.02)
    changes = ("--set", "good.source=sample:babyai", "--set", "tuned.tokenizer=estimate")
    command = ["run", "babyai_openai", "-o", "run", *changes, "--set", "tuned.profile=openai"]
    fake = FakeOpenAI()
    with serving(fake) as url:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        assert run([*command, "--dry-run"]) == 0
        assert "sends the rows to a service, which bills them" in capsys.readouterr().err
        assert fake.calls == []
        assert run([*command, "--yes"]) == 0
        assert "5 USD for a million tokens" in capsys.readouterr().err
        assert run([*command, "--yes"]) == 0
    (body,) = fake.bodies
    assert body["suffix"] == "babyai"
    # the service has an address of its own, so the configuration has a block for it
    assert registered("run")["model"] == "ft:gpt-4.1-mini-2025-04-14:org-test::abc"
    kept = "".join(path.read_text(encoding="utf-8") for path in Path("run").rglob("*.json"))
    assert KEY not in kept


@pytest.mark.usefixtures("recipe")
def test_the_plan_comes_first_and_a_dry_run_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "choose.yaml", "-o", "run", "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert lines[0] == "choose  3 steps in run  (choose.yaml)"
    assert lines[2].split()[:3] == ["2", "sides", "to"]
    assert lines[2].endswith("trajkit split run/good --ratio train=0.8,val=0.2 -o run/sides")
    assert not Path("run").exists()


@pytest.mark.usefixtures("recipe")
def test_json_is_one_document_and_steps_talk_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "choose.yaml", "-o", "run", "--yes", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert [(step["name"], step["status"]) for step in document["steps"]] == [
        *(("good", "done"), ("sides", "done"), ("checked", "done")),
    ]
    assert "run/sides/train" in printed.err  # what the step said itself


@pytest.mark.usefixtures("recipe")
def test_a_step_that_fails_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "choose.yaml", "-o", "run", "--set", "good.where=episode_return > 7"]
    assert run([*command, "--yes"]) == 1
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert error.startswith("error: step good failed: ")
    assert hint.endswith(
        "`trajkit run choose.yaml -o run --set 'good.where=episode_return > 7'` goes on there"
    )
    assert run([*command, "--dry-run"]) == 0
    assert "1  good     failed   trajkit select" in capsys.readouterr().err


@pytest.mark.usefixtures("recipe")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("choose.yaml", "-o", "run"), 2, "nobody is here to ask"),
        (("choose.yaml",), 2, "Missing option '-o'"),
        (("chose.yaml", "-o", "run"), 2, "chose.yaml cannot be read"),
        (("chose", "-o", "run"), 2, "there is no recipe 'chose'"),
        (("choose.yaml", "-o", "run", "--set", "good"), 2, "'good' is not NAME=VALUE"),
        (
            ("choose.yaml", "-o", "run", "--set", "good.tpo=1"),
            2,
            "--set good.tpo: select has no option 'tpo'",
        ),
        (("choose.yaml", "-o", "choose.yaml"), 2, "choose.yaml is there and is no run"),
    ],
)
def test_what_cannot_be_run_is_said(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, words: str
) -> None:
    assert run(["run", *arguments]) == code
    assert words in capsys.readouterr().err
    assert not Path("run").exists()
