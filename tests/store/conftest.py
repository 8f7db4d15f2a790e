"""Builders of episodes and stores, and what hypothesis makes episodes of."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from tests.store.written import write_once
from trajkit.schema import Episode, Feedback, Message, Transition, message
from trajkit.store.reader import Store, open_store

settings.register_profile("store", max_examples=3, deadline=None)

START = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


def make_step(step_index: int = 0, **fields: Any) -> Transition:
    default = {
        "messages": (message("system", "Play."), message("user", f"turn {step_index}")),
        "completion": message("assistant", "go forward"),
        "action": "go forward",
        "observation": f"a red ball {step_index} steps forward",
        "reward": 0.0,
        "started_at": START + timedelta(seconds=step_index),
    }
    return Transition(step_index=step_index, **{**default, **fields})


def make_episode(name: str = "ep-0", *, n_steps: int = 2, **fields: Any) -> Episode:
    default: dict[str, Any] = {
        "source": "test",
        "env_id": "babyai",
        "task": "goto",
        "seed": 7,
        "metrics": {"episode_return": 0.7},
        "steps": tuple(make_step(i) for i in range(n_steps)),
    }
    return Episode(episode_id=name, **{**default, **fields})


def make_feedback(name: str, episode: str, **fields: Any) -> Feedback:
    default = {"kind": "float", "metric_name": "episode_return", "value": 0.5, "created_at": START}
    return Feedback(feedback_id=name, episode_id=episode, **{**default, **fields})


@pytest.fixture
def store_of(tmp_path: Path) -> Callable[[Iterable[Episode]], Store]:
    """Write episodes as a store and open it."""

    def write(episodes: Iterable[Episode], name: str = "store") -> Store:
        write_once(tmp_path / name, episodes)
        return open_store(tmp_path / name)

    return write


@pytest.fixture
def ten(store_of: Callable[..., Store]) -> Store:
    """Ten episodes: seeds 0 to 9, return seed/10, `goto` when even and `open` when odd, seed+1 steps."""
    return store_of(
        make_episode(
            f"ep-{seed}",
            seed=seed,
            task="goto" if seed % 2 == 0 else "open",
            n_steps=seed + 1,
            metrics={"episode_return": seed / 10, "ok": seed >= 5},
            tags={"level": str(seed % 3)},
            outcome="success" if seed >= 5 else "failure",
            feedback=(make_feedback(f"f-{seed}", f"ep-{seed}", value=seed / 10),),
        )
        for seed in reversed(range(10))
    )


@pytest.fixture
def python(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start a Python program in a process of its own, which does not outlive the test."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


# What hypothesis makes.

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_name = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
_number = st.floats(allow_nan=False, allow_infinity=False)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | _number | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=6,
)
_object = st.dictionaries(_text, _json, max_size=3)
_moment = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
_count = st.none() | st.integers(0, 2**61 - 1)  # those of four steps together are a number of a column

_block = st.one_of(
    st.builds(dict, type=st.just("text"), text=_text),
    st.builds(dict, type=st.just("thought"), text=st.none() | _text, signature=st.none() | _text),
    st.builds(dict, type=st.just("tool_call"), id=_text, name=_text, arguments=_text),
    st.builds(dict, type=st.just("tool_result"), id=_text, name=_text, result=_text),
    st.builds(dict, type=st.just("file"), storage_path=_json, filename=st.none() | _text),
    st.builds(dict, type=st.just("unknown"), data=_json),
)
_message = st.builds(
    lambda role, content: Message.model_validate({"role": role, "content": content}),
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.lists(_block, max_size=2),
)
# names that differ by more than case, with what has a meaning in SQL or JSON
_METRICS = ("episode_return", "is.ok", 'quo"ted', "it's", "task", "é", "100%", "{}")


@st.composite
def _steps(draw: st.DrawFn, *, n_most: int = 4) -> list[Transition]:
    steps = []
    n_available = 0
    for index in range(draw(st.integers(0, n_most))):
        messages = draw(st.none() | st.lists(_message, max_size=2).map(tuple))
        kept = draw(st.integers(0, n_available)) if messages is not None else 0
        completion = draw(st.none() | _message)
        n_available = 0 if messages is None else kept + len(messages) + (completion is not None)
        steps.append(
            Transition(
                step_index=index,
                n_prompt_kept=kept,
                messages=messages,
                completion=completion,
                inference_id=draw(st.none() | _name),
                tools=draw(st.none() | st.lists(_object, max_size=1).map(tuple)),
                input=draw(_json),
                observation=draw(st.none() | _text),
                action=draw(_json),
                action_valid=draw(st.none() | st.booleans()),
                reward=draw(st.none() | _number),
                metrics=draw(st.dictionaries(st.sampled_from(_METRICS), _number, max_size=2)),
                demonstration=draw(_json),
                n_input_tokens=draw(_count),
                latency_s=draw(st.none() | st.floats(0, 1e300)),
                started_at=draw(st.none() | _moment),
                extra=draw(st.none() | _object),
                prompt_token_ids=draw(st.none() | st.lists(st.integers(0, 2**31), max_size=3).map(tuple)),
                logprobs=draw(st.none() | st.lists(_number, max_size=2).map(tuple)),
                legal_actions=draw(st.none() | st.lists(_text, max_size=2).map(tuple)),
            )
        )
    return steps


@st.composite
def _episode(draw: st.DrawFn, name: str) -> Episode:
    ids = sorted(draw(st.sets(_name, max_size=2)))
    return Episode(
        episode_id=name,
        source=draw(_text),
        task=draw(st.none() | _text),
        seed=draw(st.none() | st.integers(-(2**63), 2**63 - 1)),
        purpose=draw(st.sampled_from(["train", "eval", "unknown"])),
        outcome=draw(st.sampled_from(["success", "failure", "truncated", "error", "unknown"])),
        started_at=draw(st.none() | _moment),
        total_reward=draw(st.none() | _number),
        metrics=draw(st.dictionaries(st.sampled_from(_METRICS), _number, max_size=3)),
        tags=draw(st.dictionaries(_text, _text, max_size=2)),
        origin=draw(st.none() | _object),
        steps=tuple(draw(_steps())),
        feedback=tuple(
            Feedback(
                feedback_id=each,
                episode_id=name,
                kind=draw(st.sampled_from(["float", "boolean", "comment", "demonstration"])),
                metric_name=draw(_name),
                value=draw(_json),
                tags=draw(st.dictionaries(_text, _text, max_size=1)),
                created_at=draw(_moment),
            )
            for each in ids
        ),
    )


@pytest.fixture(scope="session")
def any_json() -> st.SearchStrategy[Any]:
    return _json


@pytest.fixture(scope="session")
def any_episodes() -> st.SearchStrategy[list[Episode]]:
    """A few episodes of different ids."""
    return st.sets(_name, max_size=4).flatmap(
        lambda names: st.tuples(*map(_episode, sorted(names))).map(list)
    )
