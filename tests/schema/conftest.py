"""Builders of the nouns that default everything, and hypothesis strategies for whole ones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from trajkit.schema import Episode, Feedback, FeedbackKind, Message, Transition, message

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def say(text: str, role: str = "user") -> Message:
    return message(role, text)


def transition(step_index: int = 0, **given: Any) -> Transition:
    return Transition(step_index=step_index, **given)


def episode(*steps: Transition, **given: Any) -> Episode:
    return Episode(**{"episode_id": "e", "source": "test", "steps": steps, **given})


def feedback(**given: Any) -> Feedback:
    defaults = {"feedback_id": "f", "episode_id": "e", "kind": "float", "metric_name": "m", "value": 0.7}
    return Feedback(**{**defaults, "created_at": NOON, **given})


_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_BLOCK = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": _TEXT}),
    st.fixed_dictionaries({"type": st.just("thought"), "text": st.none() | _TEXT, "extra_data": _JSON}),
    st.fixed_dictionaries({"type": st.just("tool_call"), "id": _TEXT, "name": _TEXT, "arguments": _TEXT}),
    st.fixed_dictionaries({"type": st.just("tool_result"), "id": _TEXT, "name": _TEXT, "result": _TEXT}),
    st.fixed_dictionaries({"type": st.just("file"), "source_url": st.none() | _TEXT, "storage_path": _JSON}),
    st.fixed_dictionaries({"type": st.just("unknown"), "data": _JSON}),
)
_MESSAGE = st.builds(
    lambda role, content: Message.model_validate({"role": role, "content": content}),
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.lists(_BLOCK, max_size=3),
)


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    """Whole episodes, with prompts that extend the one before, that stand alone, and that are unknown."""
    steps: list[Transition] = []
    n_available = 0
    for step_index in range(draw(st.integers(0, 4))):
        messages = draw(st.none() | st.lists(_MESSAGE, max_size=3))
        completion = draw(st.none() | _MESSAGE)
        n_kept = 0 if messages is None else draw(st.integers(0, n_available))
        steps.append(
            Transition(
                step_index=step_index,
                n_prompt_kept=n_kept,
                messages=messages,
                completion=completion,
                input=draw(_JSON),
                action=draw(_JSON),
                reward=draw(st.none() | st.floats(-1, 1)),
                metrics=draw(
                    st.dictionaries(_TEXT, st.none() | st.booleans() | st.floats(-1, 1), max_size=2)
                ),
                started_at=draw(st.none() | st.just(NOON)),
            )
        )
        n_available = 0 if messages is None else n_kept + len(messages) + (completion is not None)
    given = [
        feedback(feedback_id=f"f{i}", kind=draw(st.sampled_from(FeedbackKind)), value=draw(_JSON))
        for i in range(draw(st.integers(0, 2)))
    ]
    return episode(*steps, tags=draw(st.dictionaries(_TEXT, _TEXT, max_size=2)), feedback=tuple(given))
