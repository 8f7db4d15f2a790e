"""Documents in which any value may be any other: each is read, or refused by name; nothing else happens."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.formats.exchange import conversation, whole
from tests.formats.test_atif import ASKS, DONE, USER, document
from tests.formats.test_inspect import ASKED as INSPECT_ASKED
from tests.formats.test_inspect import LOG, SAMPLE, call
from tests.formats.test_inspect import USER as INSPECT_USER
from tests.formats.test_sharegpt_read import turns
from tests.matrix import examples
from trajkit.formats import format_named
from trajkit.formats.adp import read_adp
from trajkit.formats.hf_messages import read_hf_messages
from trajkit.formats.openai_chat import read_openai_chat
from trajkit.formats.reading import benchflow, harbor
from trajkit.formats.reading.atif import read_atif
from trajkit.formats.reading.balrog import read_run
from trajkit.formats.reading.document import BadDocument
from trajkit.formats.reading.inspect import read_sample
from trajkit.formats.reading.sanity import problems
from trajkit.formats.reading.sharegpt import read_sharegpt
from trajkit.formats.sts import read_sts

CALLED = {"name": "look", "arguments": {}}
TRIAL = {
    "task_name": "t",
    "trial_name": "n",
    "agent_info": {"name": "a", "version": "1", "model_info": {"name": "m"}},
    "verifier_result": {"rewards": {"reward": 1.0}},
    "started_at": "2026-11-21T12:00:00Z",
}
ROLLOUT = {
    "task_name": "t",
    "rollout_name": "r",
    "rewards": {"reward": 1.0, "rubric": [{"name": "a", "score": 1}], "metrics": {"b": 2}},
    "trajectory_summary": {"partial_trajectory": False},
    "started_at": "2026-11-21 12:00:00",
}
EVENTS = [
    {"type": "user_message", "text": "x"},
    {"type": "tool_call", "tool_call_id": "a", "kind": "k", "content": [{"content": {"text": "y"}}]},
    {"type": "agent_message", "text": "z"},
]
EXCHANGES = [
    {
        "request": {
            "timestamp": "2026-11-21T12:00:00",
            "body": {"messages": [{"role": "user", "content": "x"}]},
        },
        "response": {
            "status_code": 200,
            "body": {"choices": [{"message": {"content": "y"}}], "usage": {"prompt_tokens": 1}},
        },
        "duration_ms": 3.0,
    }
]
RUN = {
    "action_frequency": {},
    "task": "t",
    "num_steps": 1,
    "seed": 3,
    "progression": 1.0,
    "client": {"model_id": "m"},
    "agent": {"type": "x"},
}
ROW = {"Step": "0", "Action": "a", "Observation": "o", "Reward": "0", "Done": "True"}


RICH = copy.deepcopy(ASKS)
RICH |= {"extra": {"a": 1}, "reasoning_effort": "high", "model_name": "m", "llm_call_count": 1}
RICH["tool_calls"][0]["extra"] = {"b": 2, "trajkit": "{}"}
RICH["observation"]["results"][0]["subagent_trajectory_ref"] = [{"trajectory_id": "helper"}]
RICH["observation"]["results"][0]["content"] = [
    {"type": "text", "text": "t"},
    {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}},
]
DEEP = document(
    USER,
    RICH,
    {**DONE, "is_copied_context": True},
    DONE,
    trajectory_id="main",
    notes="n",
    extra={"c": 3},
    subagent_trajectories=[document(USER, DONE, trajectory_id="helper")],
)


def written(name: str, episode: Any) -> Any:
    return list(format_named(name).write(episode).values)


READERS = {
    "atif": ([DEEP], lambda values: read_atif(values[0])),
    "atif of trajkit": (written("atif", whole()), lambda values: read_atif(values[0])),
    "adp": (written("adp", whole()), lambda values: read_adp(values[0])),
    "sts": (written("sts", whole()), read_sts),
    "hf-messages": (written("hf-messages", whole()), lambda values: read_hf_messages(values[0])),
    "openai-chat": (written("openai-chat", conversation()), lambda values: read_openai_chat(values[0])),
    "sharegpt": (
        [
            {
                **turns(("human", "x"), ("function_call", json.dumps(CALLED)), ("observation", "y")),
                "tools": "[]",
            }
        ],
        lambda values: read_sharegpt(values[0]),
    ),
    "inspect": ([SAMPLE, LOG], lambda values: read_sample(values[0], values[1])),
    "inspect with calls": (
        [{**SAMPLE, "events": [call([INSPECT_USER], INSPECT_ASKED)], "attachments": {"a": "b"}}, LOG],
        lambda values: read_sample(values[0], values[1]),
    ),
    "harbor": (
        [TRIAL, document(USER, DONE)],
        lambda values: harbor.read_trial(values[0], [values[1]], None),
    ),
    "benchflow calls": (
        [ROLLOUT, *EXCHANGES],
        lambda values: benchflow.has_whole_calls(values[1:]) and benchflow.read_calls(values[0], values[1:]),
    ),
    "benchflow events": ([ROLLOUT, *EVENTS], lambda values: benchflow.read_events(values[0], values[1:])),
    "balrog": ([RUN], lambda values: read_run(values[0], [ROW], "env")),
}

ANYTHING = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1.5,
        10**30,
        "",
        "x",
        "look",
        [],
        [1],
        [[]],
        [{}],
        {},
        {"a": 1},
        {"type": "x"},
        {"role": "user"},
    ]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a value that is below its top."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [path] if len(path) > 1 else []
    for key, item in inner:
        found += places(item, (*path, key))
    return found


def changed(values: list[Any], path: tuple[Any, ...], other: Any, *, is_gone: bool) -> list[Any]:
    copied = copy.deepcopy(values)
    at: Any = copied
    for key in path[:-1]:
        at = at[key]
    if is_gone and isinstance(at, dict):
        del at[path[-1]]
    else:
        at[path[-1]] = other
    return copied


@examples(40, 400)
@pytest.mark.parametrize("name", READERS)
def test_whatever_stands_anywhere_is_read_or_refused_by_name(name, n_examples):
    values, read = READERS[name]
    values = json.loads(json.dumps(values))
    assert read(values)
    everywhere = places(values)

    @settings(max_examples=n_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def check(data):
        given_values = values
        for _ in range(data.draw(st.integers(1, 2))):
            there = [path for path in everywhere if _is_there(given_values, path)]
            path = data.draw(st.sampled_from(there))
            given_values = changed(given_values, path, data.draw(ANYTHING), is_gone=data.draw(st.booleans()))
        try:
            reading = read(given_values)
        except BadDocument:
            return
        for episode in getattr(reading, "episodes", ()):
            list(problems(episode))

    check()


def _is_there(values: Any, path: tuple[Any, ...]) -> bool:
    at = values
    for key in path:
        is_inside = isinstance(at, list) and isinstance(key, int) and key < len(at)
        if not is_inside and not (isinstance(at, dict) and key in at):
            return False
        at = at[key]
    return True
