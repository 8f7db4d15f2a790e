"""A person at a real terminal: a pseudo-terminal, with the run in a process of its own."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trajkit.environments import make
from trajkit.errors import RequestError
from trajkit.rollouts.agents.human import Human

PLAY = """
import asyncio, json, sys
from trajkit.rollouts.agents.human import Human
from trajkit.rollouts.plan import Plan
from trajkit.rollouts.running.runner import play

env_id, task, seeds = sys.argv[1:]
plan = Plan(env_id=env_id, tasks=(task,), variants=("human",), seeds=seeds, concurrency=1, max_steps=3)

def take(one):
    said = [step.choice.action for step in one.steps]
    print(json.dumps([one.job.seed, one.outcome, said, one.metrics]), flush=True)

reached = asyncio.run(play(plan, {"human": Human()}, on_played=take))
print(json.dumps(reached and str(reached)), flush=True)
"""

ROOM = """
from trajkit.environments.base import Result, Start

class Room:
    def reset(self, seed): return Start("say something", "an empty room")
    def step(self, text): return Result(f"echo: {text}", 1.0, False, False)

class Maze(Room):
    def legal_actions(self): return tuple(f"door {n}" for n in range(30))
"""


class Terminal:
    """A process whose terminal is ours; its stdout is a pipe, for results."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        (folder / "rooms.py").write_text(ROOM)
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", PLAY, *arguments],
            stdin=theirs,
            stderr=theirs,
            stdout=subprocess.PIPE,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""

    def wait_for(self, text: str, *, seconds: float = 20) -> str:
        """What is shown up to and with `text`, from where the last wait ended."""
        end = time.monotonic() + seconds
        while text not in self.shown:
            assert select.select([self._ours], [], [], max(0, end - time.monotonic()))[0], self.shown
            self.shown += os.read(self._ours, 4096).decode().replace("\r\n", "\n")
        before, found, self.shown = self.shown.partition(text)
        return before + found

    def type(self, text: str) -> str:
        """Wait for the prompt and type; what was shown before it."""
        shown = self.wait_for("action> ")
        os.write(self._ours, text.encode())
        return shown

    def results(self) -> list:
        """What it said on stdout, when it has ended of itself."""
        out, _ = self.process.communicate(timeout=20)
        assert self.process.returncode == 0
        return [json.loads(line) for line in out.splitlines()]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        os.close(self._ours)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator:
    opened: list[Terminal] = []

    def begin(*arguments: str) -> Terminal:
        opened.append(Terminal(tmp_path, *arguments))
        return opened[-1]

    yield begin
    for one in opened:
        one.close()


def test_a_person_sees_mission_observation_and_actions_and_types_numbers_or_texts(terminal):
    start = make("babyai", "goto").reset(1)
    person = terminal("babyai", "goto", "1:2")
    first = person.type("2\n")
    assert "babyai, task goto, seed 1\n" in first
    assert f"Mission: {start.mission}\n" in first
    assert f"\nStep 1\n{start.observation}\n\n  1  turn left\n  2  turn right\n" in first
    assert "\nStep 2\n" in person.type("turn left\n")
    person.type("  4 \n")
    assert "The episode is over: progression 0, episode_return 0\n" in person.wait_for("_return 0\n")
    scores = {"progression": 0.0, "episode_return": 0.0}
    assert person.results() == [[1, "truncated", ["turn right", "turn left", "pick up"], scores], None]


@pytest.mark.full
def test_what_is_no_action_is_asked_again_and_a_question_mark_helps(terminal):
    person = terminal("babyai", "goto", "1:2")
    person.type("fly\n")
    assert "'fly' is not one of the actions; ? shows them" in person.type("7\n")
    assert "'7' is not one of the actions" in person.type("0\n")
    assert "'0' is not one of the actions" in person.type("\n")
    assert person.type("?\n").count("is not one of") == 0
    shown = person.type("1\n")
    assert "Mission: " in shown
    assert "  6  toggle\nType the number of an action, or its text, and Enter.\nq stops" in shown
    assert "Step 2" in person.type("drop\n2\n")  # typed ahead
    person.wait_for("over")
    assert person.results()[0][2] == ["turn left", "drop", "turn right"]


def test_q_ends_the_run_and_only_finished_episodes_count(terminal):
    person = terminal("rooms:Room", "default", "5:9")
    for text in ("hello\n", "you\n", "there\n"):
        shown = person.type(text)
    assert "echo: you" in shown
    assert "task default, seed " in person.type("one more\n")
    person.type("q\n")
    first, reached = person.results()
    assert first[1:3] == ["success", ["hello", "you", "there"]]
    assert reached == "the player stopped"


@pytest.mark.full
def test_the_end_of_the_input_is_like_q(terminal):
    person = terminal("rooms:Room", "default", "5:9")
    person.type("\x04")
    assert person.results() == ["the player stopped"]


@pytest.mark.full
def test_many_actions_are_shown_on_demand(terminal):
    person = terminal("rooms:Maze", "default", "0:1")
    assert "30 actions; ? shows them\n" in person.type("?\n")
    assert " 30  door 29\n" in person.type("30\n")
    person.type("door 7\n")
    person.type("q\n")
    assert person.results() == ["the player stopped"]


@pytest.mark.full
def test_control_c_ends_it_at_once(terminal):
    person = terminal("rooms:Room", "default", "5:9")
    person.wait_for("action> ")
    began = time.monotonic()
    os.kill(person.process.pid, signal.SIGINT)
    person.process.wait(timeout=10)
    assert time.monotonic() - began < 10
    assert person.process.returncode in (1, -signal.SIGINT)  # the script does not catch the KeyboardInterrupt
    assert "Fatal" not in person.wait_for("KeyboardInterrupt")


@pytest.mark.parametrize("stdin", [None, io.StringIO("1\n")])
def test_without_a_terminal_it_is_refused(stdin, monkeypatch):
    monkeypatch.setattr(sys, "stdin", stdin)
    with pytest.raises(RequestError, match="the policy human needs a terminal for input"):
        Human()
