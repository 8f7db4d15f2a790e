"""Every example of `docs/agents.md` plays, and what the page says of prompts and settings is so."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.rollouts.loopback import Reply, said, serve
from tests.rollouts.test_agent import load, run
from trajkit.environments import environment_info, make
from trajkit.rollouts.agents.turn import Opening, Turn
from trajkit.rollouts.endpoints.policy import EndpointPolicy, EndpointSettings
from trajkit.rollouts.local.player import LocalSettings
from trajkit.rollouts.own_prompt import JsonMode
from trajkit.rollouts.plan import Job, Plan
from trajkit.rollouts.policies import Past, Situation
from trajkit.rollouts.records.record import Played, to_episode
from trajkit.rollouts.running.calling import Caller
from trajkit.schema import Outcome
from trajkit.stack import model_server

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def examples(tmp_path, monkeypatch):
    """The working folder with every example in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, code in EXAMPLES.items():
        (tmp_path / f"{name}.py").write_text(code)
    yield
    for name in EXAMPLES:
        sys.modules.pop(name, None)


def episodes(spec: str, settings=None, **changes) -> list[Played]:
    played = run(*load(spec, settings, **{"seeds": "0:4", "max_steps": None, "concurrency": 4, **changes}))
    assert {one.fault for one in played} == {None}
    return played


def test_every_block_of_code_is_an_example_that_is_played_here():
    assert len(re.findall(r"```python", PAGE)) == len(EXAMPLES)
    assert set(EXAMPLES) == {
        *("reflex", "explorer", "sweeper", "reasoner", "note_taker", "blocking"),
        "pair",  # in test_agent_gateway.py
    }


@pytest.mark.parametrize(
    ("spec", "settings"), [("reflex:act", {}), ("explorer:act", {}), ("sweeper:Sweeper", {"every": "3"})]
)
def test_the_agents_without_models_play(examples, spec, settings):
    played = episodes(spec, settings)
    assert [one.n_invalid for one in played] == [0] * 4
    assert {step.choice.action for one in played for step in one.steps} > {"go forward"}


def test_the_reasoner_solves_its_worlds_and_its_conversation_is_kept_once(examples):
    with model_server.start(mistakes=0, invalid=0) as server:
        played = episodes("reasoner:act", {"temperature": "0.5"}, url=f"{server.url}/v1")
    assert [one.outcome for one in played] == [Outcome.SUCCESS] * 4
    for one in played:
        steps = to_episode(one).steps
        assert [len(step.messages) for step in steps] == [2] + [1] * (len(steps) - 1)


def test_the_note_taker_calls_its_tool_before_it_acts(examples):
    call = {"id": "c", "type": "function", "function": {"name": "take_note", "arguments": '{"line": "a"}'}}

    def answer(body, n):
        return Reply(
            said("drop") if body["messages"][-1]["role"] == "tool" else said(None, tool_calls=[call])
        )

    with serve(answer) as server:
        (one,) = episodes("note_taker:NoteTaker", url=server.url, seeds="1:2", max_steps=2)
    assert [step.choice.action for step in one.steps] == ["drop", "drop"]
    assert [len(step.choice.calls) for step in one.steps] == [1, 1]
    assert 'Notes: [\'{"line": "a"}\']' in server.asked[2].body["messages"][1]["content"]


def test_the_agent_that_blocks_plays(examples):
    with serve(lambda body, n: Reply(said("turn left"))) as server:
        (one,) = episodes("blocking:act", url=server.url, seeds="1:2", max_steps=3)
    assert [step.choice.action for step in one.steps] == ["turn left"] * 3


def test_the_page_names_what_a_turn_and_an_opening_have():
    of_turn = {name for name in vars(Turn) if not name.startswith("_")} | set(Turn.__annotations__)
    table = PAGE.partition("| `turn.` |")[2].partition("\n\n")[0]
    named = {re.sub(r"\(.*", "", name) for name in re.findall(r"`([^`]+)`", table)}
    assert of_turn <= named
    begin = PAGE.partition("`episode` has ")[2].partition("`metrics`")[0]
    assert set(Opening._fields) == set(re.findall(r"`(\w+)`", begin))


def settings_in(text: str) -> list[tuple[str, str]]:
    """The settings that a part of the page names, and their defaults."""
    return re.findall(r"^\| `(\w+)=\w+` \| (.*?) \|", text, re.MULTILINE)


def test_the_page_names_the_settings_of_the_policy_local():
    section = PAGE.partition("## A model of this machine")[2].partition("\n## ")[0]
    assert {name for name, _ in settings_in(section)} == set(LocalSettings.model_fields)


def test_the_page_names_the_settings_of_the_policy_openai_and_their_defaults():
    rows = settings_in(PAGE.partition("## A model of this machine")[0])
    defaults = EndpointSettings().model_dump(mode="json")
    assert {name for name, _ in rows} == set(defaults)
    written = {"the server's": "None"} | {"false": "False"}
    assert {name: written.get(text, text) for name, text in rows} == {k: str(v) for k, v in defaults.items()}
    assert all(f"`{mode.value}`:" in PAGE for mode in JsonMode)


def test_the_words_of_the_prompt_are_those_of_the_page():
    situation = Situation(
        Job("a", "goto", 1), "e", 1, "MISSION", "SEEN", [Past("x", "drop", True)], make("babyai", "goto"), {}
    )

    async def ask(url: str) -> None:
        plan = Plan(env_id="babyai", tasks=("goto",), variants=("a",), seeds="0:1")
        caller = Caller(concurrency=1, timeout_s=5, retries=0)
        policy = EndpointPolicy(url, "m", None, plan, caller, rule=environment_info("babyai").rule)
        await policy.act(situation)
        await policy.close()

    with serve(lambda body, n: Reply(said("drop"))) as server:
        asyncio.run(ask(server.url))
    system, user = (message["content"] for message in server.asked[0].body["messages"])
    described = " ".join(PAGE.partition("The prompt:")[2].partition("| `--policy-set`")[0].split())
    of_system, _, of_user = described.partition("- user:")
    parts = [part.strip() for part in re.findall(r"`([^`]+)`", of_system)]
    assert [part.replace("…", "MISSION") in " ".join(system.split()) for part in parts] == [True, True]
    parts = [part for part in re.findall(r"`([^`]+)`", of_user) if part != "--history"]
    assert [part in user for part in parts] == [True, True, True]
