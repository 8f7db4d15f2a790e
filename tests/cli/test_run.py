"""`trajkit run`, as a user types it."""

from __future__ import annotations

import json
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.commands.recipe.conftest import CHOOSE
from tests.matrix import daily
from tests.rollouts.loopback import said
from tests.training.hosted.loopback import Reply, Request
from tests.training.hosted.openai_server import KEY, FakeOpenAI
from trajkit._core.seeds import as_seeds
from trajkit._core.settings import reserved
from trajkit.cli.main import run
from trajkit.stack.process import end
from trajkit.store.dataset import open_dataset
from trajkit.training.hosted import launch
from trajkit.training.runs import Runs

VARIANT = "history_and_reasoning_sft"
TUNED = "ft:gpt-4.1-mini-2025-04-14:org-test::abc"


@pytest.fixture(autouse=True)
def _recipe() -> None:
    Path("choose.yaml").write_text(CHOOSE, encoding="utf-8")


def registered(folder: str) -> dict[str, str]:
    """The variant that a run has added to its copy of the configuration."""
    config = tomllib.loads(Path(folder, "config", "tensorzero.toml").read_text(encoding="utf-8"))
    variant: dict[str, str] = config["functions"]["act"]["variants"][VARIANT]
    return variant


@pytest.mark.full
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


class FakeWithModel(FakeOpenAI):
    """OpenAI with a tuned model that can be asked: it always goes forward."""

    n_asked = 0

    def answer(self, request: Request, body: Any) -> Reply:
        if str(request) != "POST /chat/completions":
            return super().answer(request, body)
        assert body["model"] == TUNED
        self.n_asked += 1
        return Reply(said('{"thinking": "", "action": "go forward"}'))


@pytest.mark.usefixtures("in_stack_folder")
def test_the_openai_recipe_is_the_whole_loop_and_pays_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch, "FIRST_POLL_S", 0.01)
    monkeypatch.setattr(launch, "LONGEST_POLL_S", 0.02)
    small = {
        **dict.fromkeys(("held_out.task", "played.task", "evaluated.task"), "goto"),
        "played.seeds": "0:6",
        "played.max_steps": "20",
        "sides.ratio": "train=0.6,val=0.4",
        "evaluated.seeds": "200:202",
        "evaluated.max_steps": "2",
        "tuned.tokenizer": "estimate",
        "tuned.profile": "openai",
    }
    changes = [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    command = ["run", "babyai_openai", "-o", "run", *changes]
    fake = FakeWithModel()
    with fake:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", fake.url)
        assert run([*command, "--dry-run"]) == 0
        printed = capsys.readouterr().err
        assert "sends the rows to a service, which bills them" in printed
        assert printed.count("writes to the gateway's database") == 2
        assert fake.calls == []
        assert run([*command, "--yes"]) == 0
        assert "5 USD for a million tokens" in capsys.readouterr().err
        assert run([*command, "--yes"]) == 0
    (body,) = fake.bodies
    assert body["suffix"] == "babyai"
    # the service has an address of its own, so the configuration has a block for it
    assert registered("run")["model"] == TUNED
    good, evaluated = (list(open_dataset(f"run/{name}")) for name in ("good", "evaluated"))
    assert good
    assert {episode.seed for episode in good} <= set(range(6))
    assert all(episode.metrics["episode_return"] >= 0.7 for episode in good)
    assert sorted((episode.origin or {})["policy"] for episode in evaluated) == [
        *("history_and_reasoning",) * 2,
        *(VARIANT,) * 2,
    ]
    assert fake.n_asked == 2 * 2  # both worlds, to the limit, once
    report = json.loads(Path("run/compared/report.json").read_text(encoding="utf-8"))
    assert {(each["baseline"], each["candidate"], each["n_pairs"]) for each in report["comparisons"]} == {
        ("history_and_reasoning", VARIANT, 2)
    }
    assert Path("run/compared/report.html").is_file()
    for path in [*Path("run").rglob("*.json"), *Path(".trajkit/runs").rglob("*.jsonl")]:
        assert KEY not in path.read_text(encoding="utf-8")


@pytest.mark.full
@pytest.mark.usefixtures("in_stack_folder")
def test_the_recipe_of_four_prompts_compares_them_on_the_same_worlds() -> None:
    small = {"evaluated.task": "goto", "evaluated.seeds": "200:202", "evaluated.max_steps": "3"}
    changes = [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    assert run(["run", "babyai_variants", "-o", "run", *changes, "--yes"]) == 0
    report = json.loads(Path("run/compared/report.json").read_text(encoding="utf-8"))
    names = ["baseline", "reasoning", "history", "history_and_reasoning"]
    assert [(each["name"], each["n_worlds"]) for each in report["groups"]] == [(name, 2) for name in names]
    assert {each["candidate"] for each in report["comparisons"]} == set(names[1:])
    assert reserved()[0].seeds == as_seeds("200:220")


def test_the_plan_comes_first_and_a_dry_run_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "choose.yaml", "-o", "run", "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert lines[0] == "choose  3 steps in run  (choose.yaml)"
    assert lines[2].split()[:3] == ["2", "sides", "to"]
    assert lines[2].endswith("trajkit split run/good --ratio train=0.8,val=0.2 -o run/sides")
    assert not Path("run").exists()


@pytest.mark.full
def test_json_is_one_document_and_steps_talk_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "choose.yaml", "-o", "run", "--yes", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert [(step["name"], step["status"]) for step in document["steps"]] == [
        *(("good", "done"), ("sides", "done"), ("checked", "done")),
    ]
    assert "run/sides/train" in printed.err  # what the step said itself


def test_a_step_that_fails_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "choose.yaml", "-o", "run", "--set", "good.where=episode_return > 7"]
    assert run([*command, "--yes"]) == 1
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert error.startswith("error: step good failed: ")
    assert hint.endswith(
        "`trajkit run choose.yaml -o run --set 'good.where=episode_return > 7'` continues there"
    )
    assert run([*command, "--dry-run"]) == 0
    assert "1  good     failed   trajkit select" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("choose.yaml", "-o", "run"), 2, "there is no terminal to ask on"),
        (("choose.yaml",), 2, "Missing option '-o'"),
        (("chose.yaml", "-o", "run"), 2, "chose.yaml cannot be read"),
        (("chose", "-o", "run"), 2, "there is no recipe 'chose'"),
        (("choose.yaml", "-o", "run", "--set", "good"), 2, "'good' is not NAME=VALUE"),
        (
            ("choose.yaml", "-o", "run", "--set", "good.tpo=1"),
            2,
            "--set good.tpo: select has no option 'tpo'",
        ),
        (("choose.yaml", "-o", "choose.yaml"), 2, "choose.yaml is not a run folder"),
    ],
)
def test_what_cannot_be_run_is_said(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, words: str
) -> None:
    assert run(["run", *arguments]) == code
    assert words in capsys.readouterr().err
    assert not Path("run").exists()


def bomb(n_levels: int) -> str:
    """A recipe of nested aliases, which stands for ten to the power of `n_levels` texts."""
    lists = [f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, n_levels)]
    return "\n".join(["version: 1", "name: r", "steps:", f"  l0: &l0 [{', '.join(['x'] * 10)}]", *lists])


TOO_ODD = {
    "aliases": (bomb(9), "has more than 200,000 characters when aliases are written out"),
    "long aliases": (
        f"version: 1\nname: r\nneeds: &n {'x' * 100_000}\nsteps: {{a: [{', '.join(['*n'] * 9)}]}}\n",
        "has more than 200,000 characters when aliases are written out",
    ),
    "depth": (f"version: 1\nname: r\nsteps: {'[' * 5000}{']' * 5000}\n", "recipe.yaml is nested too deep"),
    "less depth": (f"version: 1\nname: r\nsteps: {'{a: ' * 200}{'}' * 200}\n", "steps.a.verb is missing"),
    "length": (f"version: 1\nname: r\n# {'x' * 200_000}\n", "recipe.yaml is larger than 200,000 bytes"),
}


@pytest.mark.parametrize("kind", daily(TOO_ODD, 2))
def test_a_recipe_without_bounds_is_an_error_at_once(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, words = TOO_ODD[kind]
    Path("recipe.yaml").write_text(text, encoding="utf-8")
    started = time.monotonic()
    assert run(["run", "recipe.yaml", "-o", "out", "--yes"]) == 2
    assert words in capsys.readouterr().err
    assert time.monotonic() - started < 60
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("output", "words"),
    [
        *((name, f"something else is called {name!r}") for name in ("run.json", "recipe.yaml", "lock")),
        *((name, f"something else is called {name!r}") for name in ("steps", "runs", "RUN.JSON")),
        ("./run.json", "something else is called 'run.json'"),
        ("run.json/x", "something else is called 'run.json'"),
        ("sides-control", "something else is called 'sides-control'"),
        (r"a\0b", "holds a control character"),
        (".hidden", "begins with a dot"),
        ("../out", "is not in the run folder"),
    ],
)
def test_no_step_writes_over_the_record_of_its_run(
    output: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("recipe.yaml").write_text(
        "version: 1\nname: r\nsteps:\n"
        "  sides:\n    verb: select\n    store: sample:babyai\n    where: seed < 9\n    control: true\n"
        f'  good:\n    verb: select\n    store: sample:babyai\n    where: seed < 9\n    output: "{output}"\n',
        encoding="utf-8",
    )
    assert run(["run", "recipe.yaml", "-o", "out", "--yes"]) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert "recipe.yaml line 13: step good" in printed
    assert not Path("out").exists()


@pytest.mark.full
@pytest.mark.parametrize(
    "manifest", daily(["[" * 100_000, None, '{"digest": "abc"}', '{"digest": 5}', "\0"], 1)
)
def test_any_folder_may_be_a_file_of_a_recipe(manifest: str | None) -> None:
    Path("mine").mkdir()
    Path("mine/notes").write_text("hi", encoding="utf-8")
    if manifest is not None:
        Path("mine/manifest.json").write_text(manifest, encoding="utf-8")
    text = CHOOSE.replace("steps:", "files: {mine: mine}\nsteps:")
    Path("recipe.yaml").write_text(text, encoding="utf-8")
    assert run(["run", "recipe.yaml", "-o", "out", "--yes"]) == 0
    assert Path("out/mine/notes").read_text(encoding="utf-8") == "hi"
    assert run(["run", "recipe.yaml", "-o", "out", "--yes"]) == 0


def test_a_folder_that_holds_the_run_is_not_copied_into_it(capsys: pytest.CaptureFixture[str]) -> None:
    Path("recipe.yaml").write_text(CHOOSE.replace("steps:", "files: {mine: .}\nsteps:"), encoding="utf-8")
    assert run(["run", "recipe.yaml", "-o", "out", "--yes"]) == 2
    assert "recipe.yaml line 3" in (printed := capsys.readouterr().err)
    assert "would hold the run out itself" in printed


def test_the_name_of_a_job_in_a_recipe_is_no_path(capsys: pytest.CaptureFixture[str]) -> None:
    Path("recipe.yaml").write_text(
        "version: 1\nname: r\nsteps:\n  tuned:\n    verb: sft local\n    model: sample:tiny-base\n"
        "    train: sample:babyai\n    name: ../../x\n",
        encoding="utf-8",
    )
    assert run(["run", "recipe.yaml", "-o", "out", "--yes"]) == 2
    assert "line 8: step tuned: name cannot be '../../x'" in capsys.readouterr().err


def test_the_recipes_that_come_with_trajkit_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]]
    assert listed == [path.stem for path in sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))]
