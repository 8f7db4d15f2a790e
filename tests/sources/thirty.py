"""Thirty BabyAI episodes, played through the real client of a logging system, must come back the same.

An expert plays with tool calls in one growing conversation. Its answers reach the client over HTTP, from a
stand-in for a model's server: `Answers` gives the ones that are put into it. What an import brings back is
compared with what was played by `assert_same`.
"""

from __future__ import annotations

import json
import queue
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, NamedTuple

from tests.sources import foreign
from trajkit.environments.babyai import BabyAI
from trajkit.formats.chat.conversation import conversation_of
from trajkit.schema import Episode, Message, ToolCallBlock, ToolResultBlock

N_EPISODES = 30
MODEL = "stand-in"
SYSTEM = "You walk through a small world. Call the tool `act` with one action each turn."
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "act",
            "description": "Do one thing in the world.",
            "parameters": {
                "type": "object",
                "properties": {"action": {"type": "string"}},
                "required": ["action"],
            },
        },
    }
]
_MOST_STEPS = 12

Ask = Callable[[list[dict[str, Any]], list[dict[str, Any]]], Any]
"""Sends messages and tools through a client to the model that `Answers` stands for."""


class Played(NamedTuple):
    """An episode as it was played."""

    name: str
    """What the client should give as the id of the session."""
    seed: int
    messages: tuple[Message, ...]
    """The conversation up to the last answer."""
    episode_return: float


class Answers:
    """A stand-in for a model's server: an OpenAI chat endpoint that gives what is put into it, in order."""

    def __init__(self) -> None:
        waiting: queue.Queue[dict[str, Any]] = queue.Queue()

        def answer(method: str, _path: str, body: str) -> tuple[int, str]:
            if method != "POST":
                return 404, "{}"
            message = waiting.get(timeout=30)
            said = {
                "id": f"chatcmpl-{uuid.uuid4().hex}",
                "object": "chat.completion",
                "created": 1_790_000_000,
                "model": json.loads(body).get("model", MODEL),
                "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107},
            }
            return 200, json.dumps(said)

        self.put = waiting.put
        self._server = foreign.answering(answer)

    def __enter__(self) -> Answers:
        self.url = f"{self._server.__enter__()}/v1"
        return self

    def __exit__(self, *error: Any) -> None:
        self._server.__exit__(*error)


def play(
    answers: Answers,
    episode: Callable[[str], Any],
    score: Callable[[str, float], None],
    *,
    n_episodes: int = N_EPISODES,
) -> list[Played]:
    """Play the episodes through a client.

    Args:
        answers: The model.
        episode: Given the name of an episode, a context manager whose value is the `Ask` of its calls.
        score: Given the name of an episode and its return, logs the metric `episode_return`.
        n_episodes: How many; at most `N_EPISODES`.
    """
    played = []
    world = BabyAI("goto")
    for seed in range(n_episodes):
        name = f"babyai-{seed:03d}"
        with episode(name) as ask:
            one = _played(world, name, seed, answers, ask)
        score(name, one.episode_return)
        played.append(one)
    world.close()
    return played


@cache
def expected(n_episodes: int = N_EPISODES) -> tuple[Played, ...]:
    """What `play` plays, without a client: a record of an earlier day is compared with it."""
    with Answers() as nothing:
        return tuple(
            play(nothing, lambda _: nullcontext(lambda *_: None), lambda *_: None, n_episodes=n_episodes)
        )


def _played(world: BabyAI, name: str, seed: int, answers: Answers, ask: Ask) -> Played:
    start = world.reset(seed)
    said: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"{start.mission}\n\n{start.observation}"},
    ]
    total = 0.0
    for number in range(_MOST_STEPS):
        action = world.expert_action()
        call = {
            "id": f"call_{seed}_{number}",
            "type": "function",
            "function": {"name": "act", "arguments": json.dumps({"action": action})},
        }
        answer = {"role": "assistant", "content": f"I {action}.", "tool_calls": [call]}
        answers.put(answer)
        ask([dict(one) for one in said], TOOLS)
        said.append(answer)
        result = world.step(action)
        total += result.reward
        if result.terminated or result.truncated:
            break
        said.append({"role": "tool", "tool_call_id": call["id"], "content": result.observation})
    while said[-1]["role"] == "tool":
        said.pop()
    return Played(name, seed, tuple(conversation_of(said)), total)


def assert_same(
    episodes: Iterable[Episode], played: Sequence[Played], *, has_tools: bool = True, has_metric: bool = True
) -> None:
    """Assert that an import brought back what was played: prompts, answers, tool calls, order and metric.

    Args:
        episodes: What was imported, in any order.
        played: What was played.
        has_tools: Whether the source tells which tools were offered.
        has_metric: Whether the source has scores.
    """
    by_session: Mapping[str, Episode] = {
        str((one.origin or {}).get("session_id", one.episode_id)): one for one in episodes
    }
    assert sorted(by_session) == [one.name for one in played]
    for one in played:
        episode = by_session[one.name]
        answers = [position for position, message in enumerate(one.messages) if message.role == "assistant"]
        assert episode.n_steps == len(answers), one.name
        for step, prompt, position in zip(episode.steps, episode.prompts(), answers, strict=True):
            assert prompt is not None
            assert list(_plain(prompt)) == list(_plain(one.messages[:position])), (one.name, step.step_index)
            assert step.completion is not None
            assert list(_plain([step.completion])) == list(_plain([one.messages[position]]))
            if has_tools:
                assert step.tools is not None
                assert [tool["name"] for tool in step.tools] == ["act"]
        if has_metric:
            assert episode.metrics["episode_return"] == one.episode_return


def _plain(messages: Iterable[Message]) -> Iterator[tuple[Any, ...]]:
    """Role, text, calls and results; the name in a tool's result is left out, as no API sends it."""
    for message in messages:
        calls = [one for one in message.content if isinstance(one, ToolCallBlock)]
        results = [one for one in message.content if isinstance(one, ToolResultBlock)]
        yield (
            str(message.role),
            message.text,
            [(one.id, one.name, json.loads(one.arguments)) for one in calls],
            [(one.id, one.result) for one in results],
        )


@contextmanager
def plain_client(url: str) -> Iterator[Ask]:
    """An OpenAI client that no system watches."""
    from openai import OpenAI

    with OpenAI(base_url=url, api_key="none", max_retries=0) as client:

        def ask(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> Any:
            return client.chat.completions.create(model=MODEL, messages=messages, tools=tools)  # type: ignore[call-overload]

        yield ask
