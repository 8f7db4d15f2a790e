"""Episodes that a page has to show well: of one world by two variants, with tools, and hostile ones."""

from __future__ import annotations

import json
from typing import Any

from trajkit.schema import Episode, Feedback, Message, Transition, message

RUN_ME = (
    "<script>window.ran = 1</script>"
    "<img src=x onerror='window.ran = 2'>"
    '<a href="javascript:window.ran=3" onclick="window.ran=4">press me</a>'
    "</script><svg onload='window.ran = 5'></svg>"
    "'\"><iframe srcdoc='<script>parent.ran = 6</script>'></iframe>"
    "${window.ran = 7} {{constructor.constructor('window.ran = 8')()}} &lt;b&gt;"
)
"""What a page that took text for markup would run."""
TURNED = "right to left \u202e nwod edispu \u2066 and \x1b[31mred\x1b[0m\x07 \x00 end"
"""What would turn the text around or color a terminal."""
HOSTILE_ID = "hostile/?#%2e..&<b>\"'"
"""An id that is not to be taken for a part of an address."""


def episodes() -> list[Episode]:
    """`before` and `after` in two worlds, one with tools, one hostile, one of 450 steps, one empty."""
    walks = [walk(variant, seed) for seed in (7, 8) for variant in ("before", "after")]
    return [*walks, conversation(), hostile(), long(), Episode(episode_id="empty", source="test")]


def walk(variant: str, seed: int) -> Episode:
    """A history-in-prompt agent; `after` turns at step 9 and wins, `before` goes on and is cut off."""
    is_after = variant == "after"
    n = 12 if is_after else 20
    steps = []
    for index in range(n):
        action = "turn left" if is_after and index == 9 else "go forward"
        seen = f"a wall {n - index} steps forward" if index > 9 else f"a wall {20 - index} steps forward"
        is_last = index == n - 1
        steps.append(
            Transition(
                step_index=index,
                variant_name=variant,
                messages=(
                    message("system", "You walk. " * 40),
                    message("user", f"Observation:\n{seen}\nAnswer."),
                ),
                completion=message("assistant", json.dumps({"thinking": "I see it.", "action": action})),
                observation=seen,
                action=action,
                action_executed=action,
                action_valid=not (index == 3 and not is_after),
                reward=0.75 if is_last and is_after else 0.0,
                terminated=is_last and is_after,
                truncated=is_last and not is_after,
                loss_weight={4: 0.0, 5: 0.5}.get(index, 1.0),
                mask_reason="chosen by nobody" if index == 4 else None,
                n_input_tokens=300 + index,
                n_output_tokens=17,
                latency_s=0.25 * (index + 1),
            )
        )
    return Episode(
        episode_id=f"{variant}-{seed}",
        source="test",
        env_id="babyai",
        task="goto",
        seed=seed,
        purpose="train",
        outcome="success" if is_after else "truncated",
        total_reward=0.75 if is_after else 0.0,
        metrics={"progression": 1.0 if is_after else 0.25},
        origin={"mission": "go to the green key"},
        steps=tuple(steps),
    )


def conversation() -> Episode:
    """An append-only conversation with a thought, a tool call, its result and a long text."""
    rows = [{"id": number, "name": f"row {number}", "price": 0.1 * number} for number in range(130)]
    call = {
        "type": "tool_call",
        "id": "c1",
        "name": "search",
        "arguments": '{"query": "shoes", "page": 12345678901234567890}',
    }
    result = {
        "type": "tool_result",
        "id": "c1",
        "name": "search",
        "result": json.dumps({"rows": rows, "more": True}),
    }
    first = Transition(
        step_index=0,
        variant_name="tools",
        messages=(
            message("system", "You are a shop."),
            message("user", "I want shoes.\n" + "Very good shoes. " * 400),
        ),
        tools=({"name": "search", "description": "Looks for things.", "parameters": {"type": "object"}},),
        completion=_said("assistant", {"type": "thought", "text": "They want shoes. I search."}, call),
        reward=0.25,
        info={"shelf": 3},
        finish_reason="tool_call",
    )
    second = Transition(
        step_index=1,
        variant_name="tools",
        n_prompt_kept=3,
        messages=(_said("user", result),),
        completion=message("assistant", "Row 3 is good."),
        demonstration={"content": "Row 4 is better."},
        reward=-1.5,
        terminated=True,
    )
    feedback = Feedback(
        feedback_id="f1",
        episode_id="conversation",
        kind="comment",
        metric_name="comment",
        value="It went well.",
        created_at="2026-01-02T03:04:05Z",
    )
    return Episode(
        episode_id="conversation",
        source="test",
        task="shop",
        seed=1,
        outcome="failure",
        total_reward=-1.25,
        tags={"shift": "night"},
        steps=(first, second),
        feedback=(feedback,),
    )


def hostile() -> Episode:
    """Markup, scripts, marks that turn text around and a million letters, wherever text may stand."""
    bad = RUN_ME + TURNED
    block: dict[str, Any] = {"type": "unknown", "data": {bad: [bad]}}
    file = {
        "type": "file",
        "source_url": "javascript:window.ran=9",
        "mime_type": "text/html",
        "filename": bad,
    }
    call = {
        "type": "tool_call",
        "id": bad,
        "name": bad,
        "arguments": json.dumps({"__proto__": {"x": 1}, bad: bad}),
    }
    deep = {"type": "tool_result", "id": bad, "name": bad, "result": "[" * 5000 + "]" * 5000}
    steps = (
        Transition(
            step_index=0,
            variant_name=bad,
            messages=(
                _said("system", {"type": "text", "text": bad}),
                _said("user", {"type": "text", "text": bad}, block, file, deep),
            ),
            completion=_said(
                "assistant", {"type": "thought", "text": bad}, {"type": "text", "text": bad}, call
            ),
            action=bad,
            action_executed="javascript:window.ran=10",
            reward=0.0,
            loss_weight=0.0,
            mask_reason=bad,
            info={bad: bad},
            tools=({"name": bad, "description": bad},),
        ),
        Transition(
            step_index=1,
            n_prompt_kept=0,
            messages=(message("user", "x" * 1_000_000 + "the end"),),
            completion=message("assistant", bad * 20),
            reward=0.0,
        ),
    )
    return Episode(
        episode_id=HOSTILE_ID,
        source="test",
        env_id=bad,
        task=bad,
        seed=666,
        total_reward=0.0,
        origin={"mission": bad},
        tags={bad: bad},
        steps=steps,
    )


def long() -> Episode:
    """More steps than a page asks for at once."""
    steps = tuple(
        Transition(
            step_index=index,
            messages=(message("user", f"turn {index}"),),
            completion=message("assistant", f"answer {index}"),
            reward=0.01,
        )
        for index in range(450)
    )
    return Episode(
        episode_id="long",
        source="test",
        task="marathon",
        seed=3,
        outcome="success",
        total_reward=4.5,
        steps=steps,
    )


def many() -> list[Episode]:
    """230 short ones of a task of their own, each with a return of its own."""
    return [
        Episode(
            episode_id=f"many-{number:03d}",
            source="test",
            task="count",
            seed=number,
            outcome="success" if number % 2 else "failure",
            total_reward=float(number),
            steps=(Transition(step_index=0, completion=message("assistant", "one"), reward=float(number)),),
        )
        for number in range(230)
    ]


def _said(role: str, *blocks: dict[str, Any]) -> Message:
    return Message.model_validate({"role": role, "content": blocks})
