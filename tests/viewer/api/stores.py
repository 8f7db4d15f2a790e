"""Stores of every shape that episodes come in, small enough to be read at a glance."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.store.conftest import make_episode, make_step
from trajkit.schema import Episode, Feedback, Message, Transition, message
from trajkit.schema.content import (
    FileBlock,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
)
from trajkit.store.writer import write_episodes

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
HOSTILE = "</script><script>alert(1)</script><!-- \u2028 \u202e <img src=x onerror=alert(1)>"


def step(index: int = 0, **fields: Any) -> Transition:
    """A step of an agent that writes its history into the prompt."""
    return make_step(index, **{"variant_name": "baseline", "action_valid": True, **fields})


def episode(
    name: str, *, n_steps: int = 2, steps: Iterable[Transition] | None = None, **fields: Any
) -> Episode:
    """An episode of `goto`, seed 7."""
    made = tuple(map(step, range(n_steps)) if steps is None else steps)
    return make_episode(name, **{"metrics": {}, "started_at": START, "steps": made, **fields})


def ten(folder: Path) -> Path:
    """Ten episodes: seeds 0 to 9, return seed/10, `goto` when even and `open` when odd, seed+1 steps."""
    write_episodes(
        folder,
        (
            episode(
                f"ep-{seed}",
                seed=seed,
                task="goto" if seed % 2 == 0 else "open",
                n_steps=seed + 1,
                metrics={"episode_return": seed / 10, "ok": seed >= 5},
                tags={"level": str(seed % 3)},
                outcome="success" if seed >= 5 else "failure",
                purpose="eval" if seed == 9 else "train",
                started_at=START + timedelta(minutes=seed),
                origin={"mission": f"go to the {'red' if seed < 3 else 'blue'} ball"},
                feedback=(
                    Feedback(
                        feedback_id=f"f-{seed}",
                        episode_id=f"ep-{seed}",
                        kind="float",
                        metric_name="episode_return",
                        value=seed / 10,
                        created_at=START,
                    ),
                ),
            )
            for seed in range(10)
        ),
        kind="test",
    )
    return folder


def tuned(folder: Path) -> Path:
    """Four episodes of the same worlds after a training, under one id that is in `ten` too."""
    write_episodes(
        folder,
        (
            episode(
                f"ep-{seed}" if seed == 0 else f"after-{seed}",
                seed=seed,
                task="goto" if seed % 2 == 0 else "open",
                steps=[step(0, variant_name="tuned")],
                metrics={"episode_return": 0.9},
                outcome="success",
            )
            for seed in range(4)
        ),
        kind="test",
    )
    return folder


def conversation(n_turns: int = 4) -> Episode:
    """Tool calls in one conversation that only grows, with thoughts, of two agents; nothing was measured."""
    steps = []
    for turn in range(n_turns):
        call = ToolCallBlock(id=f"c{turn}", name="look", arguments='{"at": "the \\"door\\""}')
        new = (message("system", "Two robots."), message("user", "Find the key."))
        if turn:
            result = ToolResultBlock(id=f"c{turn - 1}", name="look", result="a wall")
            new = (Message(role="tool", content=(result,)),)
        steps.append(
            step(
                turn,
                n_prompt_kept=2 * turn + 1 if turn else 0,
                messages=new,
                completion=Message(
                    role="assistant",
                    content=(ThoughtBlock(text="hm", signature="s"), TextBlock(text="I look."), call),
                ),
                tools=({"name": "look", "description": "see", "parameters": {"type": "object"}},),
                action=[{"name": "look", "arguments": {"at": "the door"}}],
                agent_name="left" if turn % 2 == 0 else "right",
                parent_step=None if turn == 0 else turn - 1,
                variant_name=None,
                reward=None,
                action_valid=None,
                started_at=None,
                info={"battery": 0.5},
            )
        )
    unknown = {"env_id": None, "task": None, "seed": None, "started_at": None}
    return episode("talk", steps=steps, source="atif", **unknown)


def odd(folder: Path) -> Path:
    """What is rare: a conversation, files, unknown blocks, no steps, no prompt, hostile names, masks."""
    picture = FileBlock(mime_type="image/png", filename="<b>.png", storage_path={"kind": "disabled"})
    strange = UnknownBlock(data={"type": "video", "n": [1, {"deep": HOSTILE}]}, model_name="m")
    write_episodes(
        folder,
        [
            conversation(),
            episode("empty", steps=[]),
            episode(
                HOSTILE,
                task=HOSTILE,
                seed=-(2**63),
                tags={HOSTILE: HOSTILE},
                steps=[
                    step(
                        0,
                        messages=(Message(role="user", content=(TextBlock(text=HOSTILE), picture, strange)),),
                        completion=None,
                        action=None,
                        action_executed="done",
                        loss_weight=0.0,
                        mask_reason="not selected",
                        variant_name=HOSTILE,
                    ),
                    step(
                        1,
                        messages=None,
                        action_valid=False,
                        model_name="gpt",
                        terminated=True,
                        variant_name=HOSTILE,
                    ),
                ],
            ),
        ],
        kind="import",
    )
    return folder
