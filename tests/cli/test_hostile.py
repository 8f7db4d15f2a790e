"""Stores, files and arguments full of control characters: no command prints one of them as it is."""

from __future__ import annotations

import json
import re
import shutil
import unicodedata
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.terminal import seen
from tests.matrix import daily
from trajkit.cli.main import run
from trajkit.schema import Episode, Feedback, LineageEntry, Transition, message
from trajkit.schema.manifest import Left
from trajkit.store.writer import write_episodes

NASTY = "n\x1b]0;owned\x07\x1b[666m\x9b6n\u202e\u2066\u200f\r\x08\x7f\u2028\U000e0041\nerror: faked"
"""A title, a colour, a question to the terminal, turned text, a line of its own."""


def episode(name: str, *, task: str, reward: float) -> Episode:
    step = Transition(
        step_index=0,
        messages=(message("system", f"system {NASTY}"), message("user", f"user {NASTY} {name}")),
        completion=message("assistant", f"go {NASTY}"),
        observation=f"seen {NASTY}",
        action=f"go {NASTY}",
        action_valid=reward > 0.5,
        action_executed=f"go {NASTY}",
        reward=reward,
        variant_name=f"variant {NASTY}",
        model_name=f"model {NASTY}",
        agent_name=f"agent {NASTY}",
        terminated=True,
    )
    feedback = Feedback(
        feedback_id=name,
        episode_id=f"{name} {NASTY}",
        kind="comment",
        metric_name=f"comment {NASTY}",
        value=NASTY,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return Episode(
        episode_id=f"{name} {NASTY}",
        source=f"source {NASTY}",
        env_id=f"env {NASTY}",
        task=f"{task} {NASTY}",
        seed=int(name),
        outcome="success" if reward > 0.5 else "failure",
        metrics={f"metric {NASTY}": reward},
        total_reward=reward,
        tags={f"tag {NASTY}": f"value {NASTY}"},
        steps=(step,),
        feedback=(feedback,),
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which everything that can be is hostile."""
    store = tmp_path_factory.mktemp("hostile") / "store"
    entry = LineageEntry(
        verb="select",
        arguments={"where": NASTY, NASTY: NASTY},
        n_episodes_in=9,
        n_episodes_out=8,
        n_steps_in=9,
        n_steps_out=8,
        left=(Left(reason=f"left {NASTY}", n_episodes=1, n_steps=1),),
        done_at=datetime(2026, 1, 1, tzinfo=UTC),
        trajkit_version=NASTY,
    )
    episodes = [episode(str(n), task=f"task{n % 2}", reward=n % 3 / 2) for n in range(8)]
    write_episodes(store, episodes, kind=f"kind {NASTY}", lineage=(entry,), source={NASTY: NASTY})
    return store


@pytest.fixture
def hostile(written: Path, tmp_path: Path) -> Path:
    """A folder with that store, whose own name is hostile too."""
    return shutil.copytree(written, tmp_path / f"store {NASTY.replace('/', '')}")


COMMANDS = [
    ["info"],
    ["info", "--json"],
    ["show", "0"],
    ["show", "0", "--full-prompts"],
    ["show", "0", "--json"],
    ["query", "select * from episodes"],
    ["query", "select * from steps", "--json"],
    ["query", 'select task, env_id as "x \x1b]0;owned\x07" from episodes', "--csv"],
    ["query", f"select {NASTY}"],
    ["stats"],
    ["stats", "--json"],
    ["select", "--top", "3", "--control", "-o", f"out {NASTY}"],
    ["select", "--where", f"nothing = '{NASTY}'", "-o", "out"],
    ["dedupe", "--exact", "-o", f"out {NASTY}"],
    ["split", "--ratio", "train=0.5,val=0.5", "-o", f"out {NASTY}"],
    ["merge", "-o", f"out {NASTY}"],
    ["leak"],
    ["mask", "--reason", "no-op", "-o", f"out {NASTY}"],
    ["weight", "--scheme", "return", "-o", f"out {NASTY}"],
    ["redact", "-o", f"out {NASTY}"],
    ["pairs", "--match", "prompt", "--margin", "0.1", "-o", f"out {NASTY}"],
    ["score", "--with", "builtins:len", "--name", "x", "-o", "out"],
    ["replay"],
    ["reserve", "--seeds", NASTY],
    ["convert", "--to", "openai-sft", "-o", f"out {NASTY}.jsonl"],
    ["convert", "--to", NASTY, "-o", "out"],
    ["lineage"],
    ["lineage", "--json"],
    ["report"],
    ["report", "--metric", NASTY],
    ["view", "--html", f"out {NASTY}.html"],
    ["push", NASTY, "--dry-run"],
    ["import", "-o", "out"],
    ["sft", "local", "--model", NASTY, "--dry-run"],
    ["try", NASTY],
    ["serve", NASTY],
    ["run", NASTY],
    ["show", NASTY],
    [f"--{NASTY}"],
    [NASTY],
    ["info", f"--{NASTY}"],
    ["import", "--purpose", NASTY],
]


def typed(arguments: list[str], store: Path) -> list[str]:
    """A command with the store after its name."""
    if arguments[0].startswith("-") or arguments[0] == NASTY:
        return arguments
    if arguments[0] in ("leak", "merge"):
        return [arguments[0], str(store), str(store), *arguments[1:]]
    if arguments[:2] == ["sft", "local"]:
        return [*arguments, "--train", str(store)]
    return [arguments[0], str(store), *arguments[1:]]


def assert_harmless(printed: str) -> None:
    # what a terminal is sent by us: colours, and the moves of a progress bar
    text = re.sub(r"\x1b\[(?:\?25[hl]|[0-5]?\d(?:;\d+)*m|\d?[AK]|m)", "", printed).replace("\r", "")
    bad = {
        f"U+{ord(character):04X}"
        for character in text
        if character != "\n" and unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    }
    assert not bad, repr(text)


@pytest.mark.parametrize("arguments", daily(COMMANDS, 14), ids=lambda words: repr(" ".join(words))[:40])
def test_no_command_prints_control_characters_of_a_hostile_store(
    arguments: list[str], hostile: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = run(typed(arguments, hostile))
    printed = capfd.readouterr()
    assert code in (0, 1, 2, 3, 4)
    assert printed.out + printed.err
    for text in printed:
        assert_harmless(text)
        assert "\r" not in text


@pytest.mark.parametrize(
    "arguments",
    daily(
        [
            ["show", "0"],
            ["select", "--top", "3", "-o", f"out {NASTY}"],
            ["push", "me/it", "--dry-run"],
            [NASTY],
            ["info"],
            ["stats"],
            ["query", "select * from steps"],
            ["merge", "-o", f"out {NASTY}"],
            ["report", "--metric", NASTY],
        ],
        2,
    ),
    ids=lambda words: repr(" ".join(words))[:40],
)
def test_on_a_terminal_neither_text_nor_progress_does(arguments: list[str], hostile: Path) -> None:
    printed = seen(typed(arguments, hostile), columns=100, folder=hostile.parent)
    assert printed
    assert_harmless(printed)


def test_json_says_the_very_text_that_is_in_the_store(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["query", str(hostile), "select task from episodes order by seed limit 1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"task": f"task0 {NASTY}"}


def test_a_name_cannot_fake_a_line_of_the_result(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["info"],
        ["stats"],
        ["query", "select * from episodes"],
        ["select", "--top", "3", "-o", "x"],
    ):
        assert run(typed(arguments, hostile)) in (0, 1)
        printed = capsys.readouterr()
        assert not re.search(r"^error: faked", printed.out + printed.err, re.MULTILINE)


def test_a_shell_is_offered_no_name_with_control_characters(hostile: Path) -> None:
    printed = seen(
        ["info"],
        columns=80,
        folder=hostile.parent,
        _TRAJKIT_COMPLETE="zsh_complete",
        COMP_WORDS="trajkit info ",
        COMP_CWORD="2",
    )
    assert_harmless(printed)
