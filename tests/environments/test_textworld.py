"""The games of TextWorldExpress, against the package's own client, and the traps that it has."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.matrix import daily
from trajkit.cli.main import main
from trajkit.environments import environment_info, make
from trajkit.environments.textworld import GAMES, TASKS, TextWorld
from trajkit.errors import RequestError, RolloutError, StackError
from trajkit.store.dataset import open_dataset

if shutil.which("java") is None:
    pytest.skip("there is no Java: `make system` installs it", allow_module_level=True)


@pytest.fixture(scope="module")
def official() -> Iterator[Any]:
    """The package's own client."""
    import textworld_express

    client = textworld_express.TextWorldExpressEnv(envStepLimit=10_000)
    yield client
    client.close()
    client.close = lambda: None  # its finaliser closes again, and complains
    process = client._gateway.java_process
    # py4j has threads that read what it prints, and close that when it is over
    process.wait(timeout=20)
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


@pytest.fixture(scope="module")
def world() -> Iterator[TextWorld]:
    """One for all tests: each begins an episode."""
    world = TextWorld("cookingworld", max_steps=6, numLocations=1, numIngredients=1)
    yield world
    world.close()


# a game in one fold, and another in the next
@pytest.mark.parametrize("task", daily(TASKS, ["coin-dev"]))
def test_every_game_and_fold_plays_as_the_packages_own_client_does(task: str, official: Any) -> None:
    game, _, fold = task.partition("-")
    with_world = make("textworld", task)
    chance = random.Random(task)
    try:
        for seed in (0, 20_001):
            observation, infos = official.reset(
                seed=seed, gameFold=fold or "train", gameName=game, gameParams=""
            )
            start = with_world.reset(seed)
            assert (start.mission, start.observation) == (infos["taskDescription"], observation)
            for _ in range(25):
                assert with_world.legal_actions() == tuple(sorted(set(infos["validActions"])))
                action = chance.choice([*sorted(infos["validActions"]), "fly to the moon"])
                observation, reward, done, infos = official.step(action)
                result = with_world.step(action)
                assert result.observation == observation
                assert result.reward == pytest.approx(reward)
                assert result.terminated == (infos["tasksuccess"] or infos["taskfailure"]) == done
                assert result.action_valid == (action != "fly to the moon")
                assert with_world.statistics()["progression"] == pytest.approx(min(max(infos["score"], 0), 1))
                if done:
                    break
    finally:
        with_world.close()


@pytest.mark.parametrize("game", daily(GAMES, [GAMES[1]]))
def test_the_expert_solves_every_game_from_the_beginning_and_when_asked_later(game: str) -> None:
    expert = make("textworld", game)
    try:
        for seed in range(2):
            expert.reset(seed)
            result = expert.step(expert.expert_action())  # type: ignore[attr-defined]
            while not (result.terminated or result.truncated):
                result = expert.step(expert.expert_action())  # type: ignore[attr-defined]
            assert result.terminated
            assert expert.statistics() == {"progression": 1.0, "success": 1.0}
    finally:
        expert.close()


def test_the_step_limit_is_exact_and_no_end_of_the_tasks_own(world: TextWorld) -> None:
    world.reset(0)
    ends = [world.step("look around")[2:4] for _ in range(6)]
    assert ends == [(False, False)] * 5 + [(False, True)]
    with pytest.raises(RolloutError, match="the episode is over"):
        world.step("look around")


def test_help_is_a_step_like_any_other_and_ends_with_the_limit(world: TextWorld) -> None:
    start = world.reset(0)
    results = [world.step(" help ") for _ in range(6)]
    assert {result.observation for result in results} == {start.mission}
    assert [result.truncated for result in results] == [False] * 5 + [True]
    assert not any(result.action_valid for result in results)


def test_nothing_and_odd_texts_take_a_step_and_change_nothing(world: TextWorld) -> None:
    world.reset(0)
    legal = world.legal_actions()
    for text in (None, "", "LOOK AROUND", "x" * 10_000, "naïve\n"):
        assert world.step(text)[1:4] == (0.0, False, False)
        assert world.legal_actions() == legal


@pytest.mark.parametrize("seed", [None, -1, 2**31, 1.0, True, "1"])
def test_a_seed_that_the_game_would_not_take_or_would_make_up_is_refused(seed: Any, world: TextWorld) -> None:
    with pytest.raises(RequestError, match="of textworld"):
        world.reset(seed)


@pytest.mark.full
def test_another_fold_is_another_world_of_the_same_seed() -> None:
    starts = []
    for task in ("coin", "coin-dev", "coin-test"):
        world = make("textworld", task)
        starts.append(world.reset(7).initial_state_hash)
        world.close()
    assert len(set(starts)) == 3


@pytest.mark.full
def test_what_the_games_path_has_that_does_nothing_is_left_out() -> None:
    """In `cookingworld` it now and then opens what is open."""
    world, n_left_out = TextWorld("cookingworld"), 0
    try:
        for seed in range(4, 7):
            world.reset(seed)
            result = world.step(world.expert_action())
            while not (result.terminated or result.truncated):
                assert result.action_valid
                result = world.step(world.expert_action())
            assert world.statistics()["success"] == 1.0
            assert world._path is not None
            n_left_out += len(world._path) - len(world._done)
    finally:
        world.close()
    assert n_left_out > 0


def test_an_expert_that_was_not_heard_says_so(world: TextWorld) -> None:
    world.reset(0)
    assert world.expert_action() == "look around"
    world.step("inventory")
    with pytest.raises(RolloutError, match="has only one path, and step 1 is not on it"):
        world.expert_action()


@pytest.mark.parametrize(
    ("task", "settings", "words"),
    [
        ("chess", {}, "no task 'chess'"),
        ("coin-validation", {}, "no task 'coin-validation'"),
        ("cookingworld", {"nRooms": "3"}, "Unrecognized property name"),
        ("cookingworld", {"numLocations": "99"}, "less than or equal to 11"),
        ("cookingworld", {"numLocations": "many"}, "numLocations='many' of textworld is not a whole number"),
        ("cookingworld", {"numLocations": "1,numIngredients=1"}, "not a whole number"),
        ("cookingworld", {"max_steps": "0"}, "max_steps=0 is below 1"),
    ],
)
def test_what_there_is_not_is_said(task: str, settings: dict[str, str], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        environment_info("textworld", settings).make(task)


@pytest.mark.full
def test_worlds_side_by_side_in_threads_do_not_touch_each_other() -> None:
    """`sorting` keeps static state: in one Java process two of them spoil each other."""

    def play(seed: int) -> list[Any]:
        world, chance = make("textworld", "sorting"), random.Random(seed)
        try:
            said: list[Any] = [world.reset(seed)]
            for _ in range(15):
                said.append(world.step(chance.choice(world.legal_actions())))
                if said[-1].terminated:
                    break
            return said
        finally:
            world.close()

    alone = [play(seed) for seed in range(4)]
    together: dict[int, list[Any]] = {}
    threads = [
        threading.Thread(target=lambda seed=seed: together.update({seed: play(seed)})) for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[seed] for seed in range(4)] == alone


def test_a_world_of_before_a_fork_is_refused_after_it(world: TextWorld) -> None:
    world.reset(0)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover -- another process
        try:
            world.step("look around")
            os.write(writer, b"played")
        except RolloutError as error:
            os.write(writer, error.message.encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    assert os.read(reader, 1000) == b"this environment was started in another process"
    os.close(reader)
    assert world.step("look around").action_valid


@pytest.mark.full
def test_a_java_process_that_dies_is_an_error_and_the_next_episode_has_another(world: TextWorld) -> None:
    world.reset(0)
    assert world._jvm is not None
    world._jvm._process.kill()
    with pytest.raises(RolloutError, match="Java process failed"):
        world.step("look around")
    world.close()
    world.close()
    assert world.reset(0).observation


def test_the_java_process_ends_with_the_one_that_began_it() -> None:
    code = (
        "import time\nfrom trajkit.environments import make\nworld = make('textworld', 'coin')\n"
        "print(world._jvm._process.pid, flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        java = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.kill(java, 0)
            if Path(f"/proc/{java}/stat").read_text().split()[2] == "Z":
                return
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.01)
    pytest.fail("it still runs")


def fake_java(folder: Path, words: str) -> Path:
    """A program of this name that says something on stderr and fails."""
    java = folder / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(f"#!/bin/sh\necho '{words}' >&2\nexit 1\n")
    java.chmod(0o755)
    return java


def test_without_java_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StackError, match="there is none in JAVA_HOME") as found:
        make("textworld", "coin")
    assert "Java 17" in (found.value.hint or "")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match="there is none on this machine"):
        make("textworld", "coin")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "Error: A JNI error: UnsupportedClassVersionError: class file version 61.0",
            "java is too old for",
        ),
        (
            "Error: could not create the Java Virtual Machine.",
            "java does not start: Error: could not create",
        ),
    ],
)
@pytest.mark.parametrize("way", ["JAVA_HOME", "PATH"])
def test_a_java_that_is_too_old_or_broken_is_named(
    way: str, said: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = fake_java(tmp_path / "bin", said)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if way == "PATH":
        monkeypatch.setenv("PATH", f"{java.parent}{os.pathsep}{os.environ['PATH']}")
    else:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StackError, match=words) as found:
        make("textworld", "coin")
    assert str(java) in found.value.message
    assert "Java 17" in (found.value.hint or "")


@pytest.mark.full
def test_an_environment_that_nobody_closed_ends_without_a_word() -> None:
    code = "from trajkit.environments import make\nworld = make('textworld', 'coin')\nworld.reset(0)"
    ended = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.full
def test_a_rollout_of_the_expert_keeps_what_was_legal_and_does_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["rollout", "textworld", "--game", "cookingworld", "--policy", "expert", "--seeds", "0:4"]
    with pytest.raises(SystemExit) as leaving:
        main([*command, "-o", "store"])
    assert not leaving.value.code
    episodes = list(open_dataset(tmp_path / "store"))
    assert [episode.outcome for episode in episodes] == ["success"] * 4
    steps = [step for episode in episodes for step in episode.steps]
    assert all(step.legal_actions for step in steps)
    assert all(step.action_valid and step.action_executed in (step.legal_actions or ()) for step in steps)
    assert sum(step.reward or 0.0 for step in episodes[0].steps) == pytest.approx(1.0)
    for episode in episodes:  # what a model would have seen: the task, what came before, what may be done
        for step, prompt in zip(episode.steps, episode.prompts(), strict=True):
            assert prompt is not None
            system, user = (message.text for message in prompt)
            assert "Your mission: You are hungry!" in system
            assert ("History:\n" in user) == (step.step_index > 0)
            assert user.count("\nAction: ") == min(step.step_index, 8)
            assert f"Observation:\n{step.observation}" in user
            assert all(f"- {action}\n" in user for action in step.legal_actions or ())
            assert step.completion is not None
            assert json.loads(step.completion.text) == {"action": step.action_executed}


def test_what_an_expert_did_is_a_dataset_of_transitions_and_cut_off_ones_are_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def said(*command: str) -> None:
        with pytest.raises(SystemExit) as leaving:
            main(list(command))
        assert not leaving.value.code

    play = ("rollout", "textworld", "--game", "cookingworld", "--policy", "expert", "--seeds", "0:4")
    said(*play, "--max-steps", "17", "-o", "cut")
    outcomes = [str(episode.outcome) for episode in open_dataset(tmp_path / "cut")]
    assert set(outcomes) == {"success", "truncated"}  # of these four worlds some take more than 17 steps
    said("select", "cut", "--where", "outcome = 'success'", "-o", "whole")
    assert [str(one.outcome) for one in open_dataset("whole")] == ["success"] * outcomes.count("success")
    said("convert", "whole", "--to", "transitions", "-o", "transitions/train.parquet")
    datasets = pytest.importorskip("datasets")
    rows = datasets.load_dataset("transitions", split="train", cache_dir=str(tmp_path / "cache"))
    assert {"prompt", "action", "reward", "done"} <= set(rows.column_names)
    assert sum(rows["done"]) == outcomes.count("success")
    assert sum(rows["reward"]) == pytest.approx(outcomes.count("success"))
    assert rows[0]["prompt"][0]["role"] == "system"
    assert rows[0]["action"] in rows[0]["legal_actions"]
