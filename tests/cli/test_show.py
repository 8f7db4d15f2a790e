from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.terminal import plain, seen
from trajkit.cli.main import run
from trajkit.schema import (
    Episode,
    Feedback,
    Message,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
    Transition,
    message,
)
from trajkit.store.writer import write_episodes

LONG = "a wall of words " * 30


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    goal = tmp_path_factory.mktemp("store") / "store"
    write_episodes(goal, [episode, Episode(episode_id="0199-abd", source="test")], kind="test")
    return goal


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


def test_on_a_terminal_it_is_coloured_and_wrapped(store: Path) -> None:
    printed = seen(["show", str(store), "0"], columns=60, folder=store.parent)
    assert "\x1b[1mepisode 0199-abc\x1b[0m" in printed
    assert "\x1b[31maction: jump" in printed
    lines = plain(printed).splitlines()
    assert max(map(len, lines[:-2])) <= 60  # the last ones may hold a path
    assert " ".join(plain(printed).split()).count("wall of words") == 30
    assert "next of 2: trajkit show" in plain(printed)
    assert f"{len(lines) - 3} lines: --steps 0:5 for some, or `| less`" in lines
    assert "\x1b[3" not in seen(["show", str(store), "0"], columns=60, folder=store.parent, NO_COLOR="1")


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A conversation with tools, thoughts, masks and weights, as other tools leave it."""
    call = ToolCallBlock(id="c1", name="search", arguments=json.dumps({"query": "x" * 90, "limit": 3}))
    rows = {"rows": [{"id": number, "note": "y" * 40} for number in range(3)], "ok": True}
    steps = (
        Transition(
            step_index=0,
            messages=(message("system", "Help. " * 100), message("user", "Who is new?")),
            completion=Message(role="assistant", content=(ThoughtBlock(text="I think hard."), call)),
            n_input_tokens=1200,
            n_output_tokens=64,
            latency_s=0.734,
        ),
        Transition(
            step_index=1,
            n_prompt_kept=3,
            messages=(
                Message(
                    role="tool",
                    content=(ToolResultBlock(id="c1", name="search", result=json.dumps(rows)),),
                ),
                message("user", "Well?"),
            ),
            completion=message("assistant", "Nobody."),
            loss_weight=0.0,
            mask_reason="not selected",
        ),
        Transition(
            step_index=2,
            n_prompt_kept=6,
            messages=(message("user", "Thanks"),),
            completion=message("assistant", "Bye"),
            loss_weight=0.35,
            demonstration="Goodbye",
        ),
    )
    goal = tmp_path_factory.mktemp("talk") / "talk"
    write_episodes(goal, [Episode(episode_id="t", source="test", steps=steps)], kind="test")
    return goal


def test_a_conversation_shows_what_is_new_its_tools_and_what_each_answer_counts(
    talk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["show", str(talk), "0"]) == 0
    first, second, third = capsys.readouterr().out.split("\nstep ")[1:]
    assert "… (600 characters; --full-prompts prints them)\nmessage, user: Who is new?" in first
    assert "  [thought: 13 characters, --thoughts]\n" in first
    query = f'    "query": "{"x" * 90}",'
    assert f'  [tool call c1] search({{\n  {query[2:]}\n    "limit": 3\n  }})\n' in first
    assert "spent: 1,200 tokens in, 64 out, 0.734 s\n" in first
    assert "reward" not in first  # it was not measured
    assert f'  {{\n    "rows": [\n      {{"id": 0, "note": "{"y" * 40}"}},\n' in second
    assert "message, user: Well?\nanswer: Nobody.\nnot learned: not selected\n" in second
    assert third.startswith("2\nmessage, user: Thanks\nanswer: Bye\nbetter answer: Goodbye\nweight: 0.35\n")


def test_thoughts_are_shown_on_request_and_steps_can_be_chosen(
    talk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["show", str(talk), "0", "--thoughts", "--steps", "0"]) == 0
    printed = capsys.readouterr().out
    assert "[thought] I think hard." in printed
    assert "step 1" not in printed
    assert run(["show", str(talk), "0", "--steps", "1:"]) == 0
    printed = capsys.readouterr().out
    assert [f"step {number}" in printed for number in range(3)] == [False, True, True]


@pytest.mark.parametrize("steps", ["7", "3:", "2:1", "one", "0-2"])
def test_steps_that_are_not_there_are_refused(
    talk: Path, capsys: pytest.CaptureFixture[str], steps: str
) -> None:
    assert run(["show", str(talk), "0", "--steps", steps]) == 2
    assert f"--steps {steps}" in capsys.readouterr().err


def test_json_in_a_narrow_terminal_keeps_its_margins(talk: Path) -> None:
    printed = plain(seen(["show", str(talk), "0", "--steps", "1"], columns=50, folder=talk.parent))
    assert max(map(len, printed.splitlines())) <= 50
    lines = [line.rstrip() for line in printed.splitlines()]
    at = lines.index('      {"id": 0, "note":')
    assert lines[at + 1] == f'      "{"y" * 40}"}},'
