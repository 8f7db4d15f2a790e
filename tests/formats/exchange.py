"""Episodes to exchange, of which every field has a value, and what hypothesis makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from trajkit.curation.rows.writers.plain_line import Facts, PlainLines
from trajkit.formats.base import Example, PlainText
from trajkit.schema import Episode, Feedback, Message, Transition
from trajkit.store.arrow import json_text, message_value

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)

TOOLS = (
    {"name": "look", "description": "Look around.", "parameters": {"type": "object", "properties": {}}},
    {"name": "go", "description": "", "parameters": {"type": "object"}, "strict": True},
)


def say(role: str, *blocks: Any) -> Message:
    """A message; a text stands for a block of it."""
    content = [{"type": "text", "text": one} if isinstance(one, str) else one for one in blocks]
    return Message.model_validate({"role": role, "content": content})


def call(call_id: str = "c1", name: str = "look", arguments: str = "{}") -> dict[str, str]:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def result(call_id: str = "c1", text: str = "locked", name: str = "look") -> dict[str, str]:
    return {"type": "tool_result", "id": call_id, "name": name, "result": text}


def conversation(**fields: Any) -> Episode:
    """An agent that calls a tool, sees what comes back, and answers: two steps of one conversation."""
    first = [say("system", "rules"), say("user", "where is the key?")]
    asked = say("assistant", "I look.", call("c1", arguments='{"far":true}'))
    steps = (
        Transition(
            step_index=0,
            messages=tuple(first),
            completion=asked,
            tools=TOOLS,
            observation="where is the key?",
            action=[{"name": "look", "arguments": {"far": True}}],
        ),
        Transition(
            step_index=1,
            n_prompt_kept=3,
            messages=(say("tool", result("c1", "a key")),),
            completion=say("assistant", "It is here."),
            tools=TOOLS,
            observation="a key",
        ),
    )
    return Episode(**{"episode_id": "e1", "source": "test", "steps": steps, **fields})


def whole() -> Episode:
    """An episode of which every field of every noun has a value that is not its default."""
    base = conversation()
    steps = []
    for step in base.steps:
        steps.append(
            step.model_copy(
                update={
                    "inference_id": f"i{step.step_index}",
                    "function_name": "act",
                    "variant_name": "baseline",
                    "model_name": "small",
                    "input": {"system": {"mission": "find the key"}},
                    "observation": "a room",
                    "action": {"go": "left"},
                    "action_executed": "turn left",
                    "action_valid": True,
                    "reward": 0.5,
                    "terminated": step.step_index == 1,
                    "truncated": False,
                    "metrics": {"quality": 0.25},
                    "demonstration": "turn right",
                    "n_input_tokens": 7,
                    "n_output_tokens": 3,
                    "cost_usd": 0.001,
                    "latency_s": 0.5,
                    "finish_reason": "stop",
                    "cached": False,
                    "started_at": NOON + timedelta(seconds=step.step_index),
                    "loss_weight": 0.0,
                    "mask_reason": "not the best",
                    "snapshot_hash": "ab",
                    "extra": {"more": [1]},
                    "prompt_token_ids": (1, 2),
                    "completion_token_ids": (3,),
                    "logprobs": (-0.5,),
                    "model_version": "v2",
                    "agent_name": "scout",
                    "parent_step": 0,
                    "legal_actions": ("turn left", "turn right"),
                    "info": {"steps_left": 4},
                }
            )
        )
    feedback = Feedback(
        feedback_id="f1",
        episode_id="e1",
        kind="float",
        metric_name="success",
        value=1.0,
        created_at=NOON,
    )
    return Episode.model_validate(
        {
            "episode_id": base.episode_id,
            "source": base.source,
            "steps": tuple(steps),
            "env_id": "maze",
            "task": "key",
            "seed": 7,
            "initial_state_hash": "cd",
            "purpose": "train",
            "started_at": NOON,
            "ended_at": NOON + timedelta(seconds=9),
            "outcome": "success",
            "total_reward": 1.0,
            "metrics": {"success": 1.0},
            "tags": {"run": "r1"},
            "origin": {"run": "r1"},
            "feedback": (feedback,),
        },
        strict=False,
    )


_TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)


@st.composite
def conversations(draw: st.DrawFn) -> Episode:
    """Conversations that make sense: what is learned is answered to, in order, with tools or without."""
    steps: list[Transition] = []
    n_said = 0
    waiting: list[str] = []
    for index in range(draw(st.integers(1, 4))):
        new = [say("tool", result(call_id, draw(_TEXT))) for call_id in waiting]
        if index == 0 and draw(st.booleans()):
            new.append(say("system", draw(_TEXT)))
        if not new or draw(st.booleans()):
            new.append(say("user", draw(_TEXT)))
        waiting = [f"call_{index}_{number}" for number in range(draw(st.integers(0, 2)))]
        thought = [{"type": "thought", "text": draw(_TEXT)}] if draw(st.booleans()) else []
        answer = say("assistant", *thought, draw(_TEXT), *[call(one) for one in waiting])
        steps.append(
            Transition(
                step_index=index,
                n_prompt_kept=n_said,
                messages=tuple(new),
                completion=answer,
                tools=TOOLS if draw(st.booleans()) else None,
                reward=draw(st.none() | st.floats(-1, 1)),
                loss_weight=draw(st.sampled_from([1.0, 1.0, 0.0, 0.5])),
            )
        )
        n_said += len(new) + 1
    return Episode(
        episode_id=draw(_TEXT),
        source="test",
        task=draw(st.none() | _TEXT),
        seed=draw(st.none() | st.integers(0, 99)),
        steps=tuple(steps),
    )


def plain_lines(plain: PlainText, examples: Sequence[Example]) -> list[str | None]:
    """The lines of steps that stand alone, as columns give them; None where Python writes the row."""
    prompts = [json_text([message_value(each) for each in one.messages[:-1]]) for one in examples]
    answers = [json_text(message_value(one.messages[-1])) for one in examples]
    yes = np.ones(len(prompts), bool)
    facts = Facts(is_first=yes, is_joint=~yes, n_kept=0 * yes, has_answer=yes, is_learned=yes, is_simple=yes)
    columns = [pa.array(texts, pa.string()) for texts in (prompts, answers)]
    found: list[str | None] = PlainLines(plain, merges=False).of(*columns, facts).lines.to_pylist()
    return found
