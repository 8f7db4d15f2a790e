from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trajkit.cli.main import run
from trajkit.schema import Episode, Feedback, Transition, message
from trajkit.store.writer import write_episodes

LONG = "a wall of words " * 30


@pytest.fixture
def store(tmp_path: Path) -> Path:
    steps = (
        Transition(
            step_index=0,
            messages=(message("system", "Play."), message("user", "You see a ball.")),
            completion=message("assistant", '{"action": "jump"}'),
            observation="You see a ball.\nIt is red.",
            action="jump",
            action_valid=False,
            action_executed="go forward",
            reward=0.0,
            variant_name="history",
        ),
        Transition(
            step_index=1,
            n_prompt_kept=3,
            messages=(message("user", LONG),),
            completion=message("assistant", "go \x1b[31mforward"),
            observation=LONG,
            action="go forward",
            action_valid=True,
            action_executed="go forward",
            reward=0.9,
            terminated=True,
            truncated=False,
        ),
    )
    episode = Episode(
        episode_id="0199-abc",
        source="test",
        env_id="babyai",
        task="goto",
        seed=7,
        outcome="success",
        metrics={"episode_return": 0.9},
        total_reward=0.9,
        tags={"trajkit.run": "r1"},
        steps=steps,
        feedback=(
            Feedback(
                feedback_id="f",
                episode_id="0199-abc",
                kind="float",
                metric_name="episode_return",
                value=0.9,
                created_at=datetime(2026, 1, 1, tzinfo=UTC),
            ),
        ),
    )
    write_episodes(tmp_path / "store", [episode, Episode(episode_id="0199-abd", source="test")], kind="test")
    return tmp_path / "store"


def test_an_episode_reads_as_a_story(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(store), "0199-abc"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[:12] == [
        "episode 0199-abc",
        "environment: babyai",
        "task: goto",
        "seed: 7",
        "purpose: unknown",
        "outcome: success",
        "reward: 0.9",
        "episode_return: 0.9",
        "steps: 2",
        "tags: trajkit.run=r1",
        "",
        "step 0  (history)",
    ]
    assert "observation:\n  You see a ball.\n  It is red.\n" in printed
    assert (
        'answer: {"action": "jump"}\naction: jump, which is not valid; executed: go forward\nreward: 0\n'
        in printed
    )
    assert "reward: 0.9\nend: terminated\n" in printed
    assert printed.endswith("feedback\nepisode_return of the episode, 2026-01-01 00:00:00 UTC: 0.9\n")


def test_a_long_text_is_whole_and_data_cannot_steer_the_terminal(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["show", str(store), "0"]) == 0
    printed = capsys.readouterr().out
    assert f"observation: {LONG}\n" in printed
    assert "\x1b" not in printed
    assert "go \\u001b[31mforward" in printed


def test_full_prompts_show_every_message(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(store), "0", "--full-prompts"]) == 0
    last = capsys.readouterr().out.partition("step 1")[2]
    assert last.index("prompt, system: Play.") < last.index("prompt, user: You see a ball.")
    assert last.index('prompt, assistant: {"action": "jump"}') < last.index(f"prompt, user: {LONG}")


def test_json_is_the_episode(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(store), "0199-abc", "--json"]) == 0
    episode = Episode.model_validate(json.loads(capsys.readouterr().out))
    assert episode.steps[1].observation == LONG
    assert run(["show", str(store), "0199-abc", "--json", "--full-prompts"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [len(step["prompt"]) for step in steps] == [2, 4]


def test_an_unknown_episode_lists_the_nearest(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(store), "0199-abx"]) == 1
    printed = capsys.readouterr()
    assert printed.err.splitlines()[1] == "hint: nearest: 0199-abc, 0199-abd; or a position from 0 to 1"


def test_a_beginning_of_several_lists_them(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(store), "0199"]) == 2
    assert "hint: 0199-abc, 0199-abd" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_on_a_terminal_it_is_coloured_and_wrapped(store: Path) -> None:
    outer, inner = pty.openpty()
    environment = {**os.environ, "COLUMNS": "60", "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-m", "trajkit", "show", str(store), "0"], stdout=inner, cwd=root, env=environment
    )
    os.close(inner)
    printed = b""
    while True:
        try:
            piece = os.read(outer, 65536)
        except OSError:  # Linux ends a pseudo-terminal with an error
            break
        if not piece:
            break
        printed += piece
    os.close(outer)
    assert process.wait(30) == 0
    assert b"\x1b[1mepisode 0199-abc\x1b[0m" in printed
    assert b"\x1b[31maction: jump" in printed
    plain = re.sub(r"\x1b\[[0-9;]*m", "", printed.decode().replace("\r", ""))
    assert max(len(line) for line in plain.splitlines()) <= 60
    assert " ".join(plain.split()).count("wall of words") == 30
