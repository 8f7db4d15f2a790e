"""Running recipes: what is left, and what happens the second time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.commands.recipe.conftest import CHOOSE
from trajkit._core.lock import locked
from trajkit.commands.recipe.folder import RunFolder, StepStatus
from trajkit.commands.recipe.load import load
from trajkit.commands.recipe.runner import Report, check_same, run
from trajkit.commands.recipe.steps import plan
from trajkit.commands.recipe.verb import Verb
from trajkit.errors import RequestError, StoreError
from trajkit.store.reader import open_store

Runner = Callable[..., Report]
FOLDER = Path("out")


@pytest.fixture
def play(write: Callable[[str], str]) -> Runner:
    """Run a recipe into `out`."""

    def play(text: str = CHOOSE, **settings: str) -> Report:
        given = {name.replace("__", "."): value for name, value in settings.items()}
        loaded = load(write(text), given)
        return run(loaded, plan(loaded, FOLDER), RunFolder(FOLDER))

    return play


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    """A run of the recipe, and its folder."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("recipe.yaml").write_text(CHOOSE, encoding="utf-8")
        loaded = load("recipe.yaml", {})
        return run(loaded, plan(loaded, FOLDER), RunFolder(FOLDER)), folder / FOLDER


@pytest.fixture
def first(finished: tuple[Report, Path], play: Runner) -> Report:
    """That run is in `out`."""
    report, folder = finished
    shutil.copytree(folder, FOLDER)
    return report


def test_a_run_leaves_what_its_steps_leave_and_what_became_of_them(first: Report) -> None:
    report = first
    assert report.failed is None
    assert [record.status for record in report.records] == [StepStatus.DONE] * 3
    good = report.records[0]
    assert good.output_digest == open_store(FOLDER / "good").manifest.digest
    assert set(good.inputs) == {"sample:babyai"}
    assert good.inputs["sample:babyai"] == open_store("sample:babyai").manifest.digest
    assert report.records[2].inputs == {"sides": report.records[1].output_digest}
    assert {path.name for path in FOLDER.iterdir()} == {
        *("good", "sides", "steps", "recipe.yaml", "run.json", "lock"),
    }
    facts = RunFolder(FOLDER).facts()
    assert (facts.recipe, facts.source, set(facts.versions) >= {"python", "trajkit"}) == (
        *("choose", "recipe.yaml"),
        True,
    )


def test_what_is_done_is_not_done_again_nor_by_two_processes(first: Report, play: Runner) -> None:
    assert play() == first  # to the very times
    is_refused = pytest.raises(RequestError, match=f"process {os.getpid()} runs out already")
    with locked(FOLDER / "lock"), is_refused:
        play()


@pytest.mark.full
def test_the_kept_recipe_does_the_same_again(play: Runner) -> None:
    report = play(good__where="episode_return >= 0.9")
    kept = load("out/recipe.yaml")
    again = run(kept, plan(kept, Path("more")), RunFolder(Path("more")))
    assert [record.output_digest for record in again.records] == [r.output_digest for r in report.records]


@pytest.mark.usefixtures("first")
def test_another_recipe_says_what_differs(play: Runner) -> None:
    for settings, words in (
        ({"sides__ratio": "train=0.5,val=0.5"}, "sides.ratio was train=0.8,val=0.2, is train=0.5,val=0.5"),
        ({"sides__seed": "1"}, "sides.seed was not given, is 1"),
    ):
        with pytest.raises(RequestError, match="out is a run of another recipe") as caught:
            play(**settings)
        assert words in caught.value.message


@pytest.mark.usefixtures("first")
def test_other_steps_and_other_recipes_are_told_apart(write: Callable[[str], str]) -> None:
    shorter, _, last = CHOOSE.partition("  checked:")
    for text, words in (
        (shorter, "step checked is gone"),
        (CHOOSE.replace("checked:", "proved:"), "step checked is gone; step proved is new"),
        (CHOOSE.replace("name: choose", "name: other"), "the run is one of choose, this is other"),
        (
            CHOOSE.replace(f"  checked:{last}", "").replace("steps:\n", f"steps:\n  checked:{last}"),
            "another order",
        ),
    ):
        with pytest.raises(RequestError, match=words):
            check_same(load(write(text)), RunFolder(FOLDER))


def test_what_a_done_step_left_is_proved(first: Report, play: Runner) -> None:
    for part in (FOLDER / "good").glob("episodes/*"):
        part.unlink()
    (FOLDER / "good" / "manifest.json").write_text("{}", encoding="utf-8")
    with pytest.raises(StoreError, match="out/good is no longer the output of step good"):
        play()
    subprocess.run(["rm", "-r", "out/good"], check=True)
    again = play()  # what is gone is made again, and is the same: what follows stands
    assert again.records[0].started_at > first.records[0].started_at
    assert again.records[1:] == first.records[1:]


def test_input_that_changed_is_an_error(play: Runner) -> None:
    Path("fn.py").write_text("def fn(episode):\n    return 1.0\n", encoding="utf-8")
    text = CHOOSE + "  scored:\n    verb: score\n    store: ${good}\n    with: fn.py:fn\n    name: one\n"
    assert play(text).failed is None
    Path("fn.py").write_text("def fn(episode):\n    return 2.0\n", encoding="utf-8")
    with pytest.raises(RequestError, match=r"step scored is done, and fn\.py:fn, which it read, has changed"):
        play(text)


def test_a_step_that_fails_is_told_and_ends_the_run(play: Runner) -> None:
    report = play(good__where="episode_return > 7")
    assert report.failed is not None
    assert (report.failed.name, report.failed.status, report.failed.exit_code) == ("good", "failed", 1)
    assert "no episode" in (report.failed.error or "")
    assert RunFolder(FOLDER).record("sides") is None
    assert RunFolder(FOLDER).record("good") == report.failed


@pytest.mark.full
def test_a_failed_step_is_done_again_and_the_rest_after_it(play: Runner) -> None:
    text = CHOOSE + "  scored:\n    verb: score\n    store: ${good}\n    with: fn.py:fn\n    name: one\n"
    first = play(text)
    assert first.failed is not None
    assert (first.failed.name, first.failed.exit_code) == ("scored", 2)
    Path("fn.py").write_text("def fn(episode):\n    return 1.0\n", encoding="utf-8")
    second = play(text)
    assert second.failed is None
    assert second.records[:3] == first.records[:3]


@pytest.mark.full
def test_files_are_copied_first_and_counted_as_input(play: Runner) -> None:
    Path("mine").mkdir()
    Path("mine/fn.py").write_text("def fn(episode):\n    return 1.0\n", encoding="utf-8")
    text = CHOOSE.replace("steps:", "files:\n  code: mine\nsteps:").replace(
        "  checked:",
        "  scored:\n    verb: score\n    store: ${good}\n    with: ${code}/fn.py:fn\n    name: x\n  checked:",
    )
    report = play(text)
    assert report.failed is None
    assert Path("out/code/fn.py").is_file()
    assert report.records[2].inputs["code"] == RunFolder(FOLDER).facts().files["code"]
    Path("mine/fn.py").write_text("", encoding="utf-8")
    with pytest.raises(RequestError, match="mine has changed"):
        play(text)


def test_a_file_that_is_not_there_is_named_with_its_line(play: Runner) -> None:
    with pytest.raises(RequestError, match=r"recipe\.yaml line 4: .*gone does not exist"):
        play(CHOOSE.replace("steps:", "files:\n  code: gone\nsteps:"))
    assert not FOLDER.exists()


@pytest.mark.parametrize("name", ["mine", "mine/fn.py"])
def test_a_file_that_is_a_link_out_of_its_folder_is_not_copied(name: str, play: Runner) -> None:
    Path("elsewhere").mkdir()
    Path("elsewhere/secret").write_text("hunter2", encoding="utf-8")
    Path("mine").mkdir()
    Path("mine/fn.py").symlink_to(Path("elsewhere/secret").absolute())
    with pytest.raises(RequestError, match=r"recipe\.yaml line 4: .*fn\.py is a link to a file outside"):
        play(CHOOSE.replace("steps:", f"files:\n  code: {name}\nsteps:"))
    assert not FOLDER.exists()


@pytest.mark.full
def test_a_folder_with_something_else_is_left_alone(play: Runner) -> None:
    FOLDER.mkdir()
    (FOLDER / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(RequestError, match="out is not a run folder"):
        play()
    assert [path.name for path in FOLDER.iterdir()] == ["mine.txt"]
    (FOLDER / "mine.txt").unlink()
    assert play().failed is None  # an empty one will do


WAITS = """\
import time
from pathlib import Path

def fn(episode):
    while not Path("go").exists():
        Path("waiting").touch()
        time.sleep(0.02)
    return 1.0
"""


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.full)])
def test_a_run_that_was_ended_in_the_middle_goes_on_there(
    play: Runner, write: Callable[[str], str], number: signal.Signals
) -> None:
    Path("fn.py").write_text(WAITS, encoding="utf-8")
    text = CHOOSE + "  scored:\n    verb: score\n    store: ${good}\n    with: fn.py:fn\n    name: one\n"
    command = [sys.executable, "-m", "trajkit", "run", write(text), "-o", "out", "--yes"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    deadline = time.monotonic() + 60
    while not Path("waiting").exists():
        assert time.monotonic() < deadline
        assert child.poll() is None
        time.sleep(0.05)
    child.send_signal(number)
    _, said = child.communicate(timeout=60)
    record = json.loads(Path("out/steps/scored.json").read_text(encoding="utf-8"))
    if number == signal.SIGINT:
        assert (child.returncode, record["status"]) == (130, "stopped")
        assert "`trajkit run recipe.yaml -o out` continues from here" in said
    else:
        assert (child.returncode, record["status"]) == (-signal.SIGKILL, "running")
    before = [RunFolder(FOLDER).record(name) for name in ("good", "sides", "checked")]
    Path("go").touch()
    report = play(text)
    assert report.failed is None
    assert list(report.records[:3]) == before


class Dry:
    """Commands that are read and not run; `refused` ends with 1."""

    def __init__(self) -> None:
        self.called: list[tuple[str, bool]] = []
        self.refused = ""

    def __call__(self, verb: Verb, arguments: Sequence[str]) -> int:
        self.called.append((verb.name, "--yes" in arguments))
        return int(verb.name == self.refused)


SERVICES = """\
version: 1
name: services
steps:
  started:
    verb: up
  shown:
    verb: status
  tuned:
    verb: sft openai
    train: sample:babyai
  registered:
    verb: register
    job: ${tuned}
    config: ${run}/tensorzero.toml
  ended:
    verb: down
"""


def test_services_are_started_again_when_a_run_goes_on(write: Callable[[str], str]) -> None:
    loaded, dry = load(write(SERVICES.replace("  tuned", "  played").partition("  played")[0])), Dry()
    steps = plan(loaded, FOLDER)
    dry.refused = "status"
    assert run(loaded, steps, RunFolder(FOLDER), call=dry).failed is not None
    dry.refused = ""
    for _ in range(2):
        assert run(loaded, steps, RunFolder(FOLDER), call=dry).failed is None
    assert [name for name, _ in dry.called] == ["up", "status", "up", "status"]  # the third time nothing


@pytest.mark.parametrize("agreed", [False, True])
def test_what_costs_money_is_asked_again_unless_that_was_agreed(
    write: Callable[[str], str], agreed: bool
) -> None:
    loaded, dry = load(write(SERVICES)), Dry()
    with pytest.raises(RequestError, match="no job 'tuned'"):  # the dry command leaves none
        run(loaded, plan(loaded, FOLDER), RunFolder(FOLDER), agreed=agreed, call=dry)
    assert dry.called == [("up", False), ("status", False), ("sft openai", agreed)]
