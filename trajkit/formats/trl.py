"""TRL's datasets: conversations, prompts with completions, preferences, judged answers, and starts to play.

Contents are texts and arguments of tool calls are objects, as chat templates need them. TRL has no weight per
message (1.16.0): with `messages` every answer is learned (`assistant_only_loss=True`), else the completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from trajkit.formats.base import (
    Example,
    Judged,
    JudgedFormat,
    LossKind,
    Mask,
    PlainText,
    Preference,
    PreferenceFormat,
    Problem,
    Row,
    SftFormat,
    Start,
    StartFormat,
    Unit,
)
from trajkit.formats.chat.rows import Chat, ChatWriter, Dialect, read_example, read_functions, read_messages
from trajkit.schema import Message, Role
from trajkit.schema.base import JsonObject

DIALECT = Dialect(
    reasoning="reasoning_content", has_objects=True, has_parts=False, names_results=True, has_content=True
)
"""Spelling of messages for chat templates."""

_MESSAGES = (
    "STRUCT(role VARCHAR, reasoning_content VARCHAR, content VARCHAR, tool_calls JSON[], "
    '"name" VARCHAR, tool_call_id VARCHAR)[]'
)
_TOOLS = {"tools": "JSON[]"}


def _context(writer: ChatWriter, messages: Sequence[Message], where: str = "prompt") -> Chat:
    return writer.messages(messages, [0.0] * len(messages), where)


def _row(value: dict[str, Any], tools: Sequence[JsonObject], writer: ChatWriter) -> Row:
    if "prompt" in value and not value["prompt"]:
        writer.problems.append(Problem("no message before the answer", "prompt"))
    if "messages" in value and [each["role"] for each in value["messages"][-1:]] != ["assistant"]:
        writer.problems.append(Problem("the last message is not the assistant's", "messages"))
    for side in ("completion", "chosen", "rejected"):
        if side in value and [message["role"] for message in value[side]] != ["assistant"]:
            writer.problems.append(Problem("an answer that is not one message of the assistant", side))
    return writer.row(value, tools)


def _messages_row(example: Example) -> Row:
    writer = ChatWriter(DIALECT)
    value = {"messages": writer.messages(example.messages, example.weights)}
    return _row(value, example.tools, writer)


def _completion_row(example: Example) -> Row:
    writer = ChatWriter(DIALECT)
    value = {
        "prompt": _context(writer, example.messages[:-1], "messages"),
        "completion": list(
            writer.message(example.messages[-1], example.weights[-1], f"messages.{len(example.messages) - 1}")
        ),
    }
    return _row(value, example.tools, writer)


def _read_completion(value: JsonObject) -> Example:
    row: Any = value
    messages, _ = read_messages(row["prompt"] + row["completion"], DIALECT)
    return Example(messages, (*(0.0 for _ in messages[1:]), 1.0), read_functions(row))


def _preference_row(preference: Preference) -> Row:
    writer = ChatWriter(DIALECT)
    value = {
        "prompt": _context(writer, preference.prompt),
        "chosen": list(writer.message(preference.chosen, 1, "chosen")),
        "rejected": list(writer.message(preference.rejected, 1, "rejected")),
    }
    return _row(value, preference.tools, writer)


def _read_preference(value: JsonObject) -> Preference:
    row: Any = value
    chosen, _ = read_messages(row["prompt"] + row["chosen"], DIALECT)
    rejected, _ = read_messages(row["prompt"] + row["rejected"], DIALECT)
    return Preference(chosen[:-1], chosen[-1], rejected[-1], read_functions(row))


def _judged_row(judged: Judged) -> Row:
    writer = ChatWriter(DIALECT)
    value = {
        "prompt": _context(writer, judged.prompt),
        "completion": list(writer.message(judged.answer, 1, "completion")),
        "label": judged.is_good,
    }
    return _row(value, judged.tools, writer)


def _read_judged(value: JsonObject) -> Judged:
    row: Any = value
    messages, _ = read_messages(row["prompt"] + row["completion"], DIALECT)
    return Judged(messages[:-1], messages[-1], row["label"], read_functions(row))


_BEFORE = {role: f'{{"role":"{role}","content":"' for role in ("system", "user", "assistant")}
_WITHOUT_ANSWERS = {role: text for role, text in _BEFORE.items() if role != "assistant"}


def _plain_messages(unit: Unit) -> PlainText:
    return PlainText(
        before=_WITHOUT_ANSWERS,
        learned=_BEFORE["assistant"],
        after='"}',
        last="," + _BEFORE["assistant"],
        tail='"}]}',
        head='{"messages":[',
    )


def _plain_completion(unit: Unit) -> PlainText:
    return PlainText(
        before=_BEFORE,
        learned=_BEFORE["assistant"],
        after='"}',
        last='],"completion":[' + _BEFORE["assistant"],
        tail='"}]}',
        head='{"prompt":[',
    )


PLAY = "Reach the goal. Call the tool act, one action at a time, until the episode is over.\n\n"
"""The prompt of a start; `reset` of `trajkit.environments.adapters.trl_factory` gives what follows it."""


def start_row(start: Start, prompt: str = PLAY) -> JsonObject:
    """A row for GRPOTrainer: `environment` chooses the factory, if there are several by name."""
    return {
        "prompt": [{"role": "user", "content": prompt}],
        "environment": start.env_id,
        "task": start.task,
        "seed": start.seed,
    }


TRL_MESSAGES = SftFormat(
    name="trl-messages",
    about="TRL's SFTTrainer with assistant_only_loss=True: every answer of a row is learned",
    row=_messages_row,
    read=partial(read_example, dialect=DIALECT),
    columns={"messages": _MESSAGES, **_TOOLS},
    masks={Unit.STEP: Mask.ALL, Unit.EPISODE: Mask.ALL},
    otherwise="trl-prompt-completion",
    plain=_plain_messages,
    target="trl",
)
"""Conversations for TRL's SFTTrainer."""

TRL_PROMPT_COMPLETION = SftFormat(
    name="trl-prompt-completion",
    about="TRL's SFTTrainer: the completion is learned, the prompt is not",
    row=_completion_row,
    read=_read_completion,
    columns={"prompt": _MESSAGES, "completion": _MESSAGES, **_TOOLS},
    masks={Unit.STEP: Mask.LAST, Unit.EPISODE: Mask.LAST},
    plain=_plain_completion,
    target="trl",
)
"""Prompts with the answer to learn, for TRL's SFTTrainer."""

TRL_PREFERENCE = PreferenceFormat(
    name="trl-preference",
    about="TRL's DPOTrainer and RewardTrainer, from pairs",
    row=_preference_row,
    read=_read_preference,
    columns={"prompt": _MESSAGES, "chosen": _MESSAGES, "rejected": _MESSAGES, **_TOOLS},
    target="trl",
)
"""Preferences for TRL's DPOTrainer and RewardTrainer."""

TRL_KTO = JudgedFormat(
    name="trl-kto",
    about="TRL's KTOTrainer, from a store (good: the episode succeeded) or from pairs",
    row=_judged_row,
    read=_read_judged,
    columns={"prompt": _MESSAGES, "completion": _MESSAGES, "label": "BOOLEAN", **_TOOLS},
    target="trl",
)
"""Answers that are good or bad, for TRL's KTOTrainer."""

TRL_GRPO = StartFormat(
    name="trl-grpo",
    about="TRL's GRPOTrainer with environment_factory=trl_factory(ENVIRONMENT): each start once",
    row=start_row,
    columns={
        "prompt": "STRUCT(role VARCHAR, content VARCHAR)[]",
        "environment": "VARCHAR",
        "task": "VARCHAR",
        "seed": "BIGINT",
    },
)
"""Starts for TRL's GRPOTrainer, which plays them again."""


def _weighted_row(example: Example) -> Row:
    writer = ChatWriter(DIALECT)
    messages: list[dict[str, Any]] = []
    weights: list[float] = []
    for position, (message, weight) in enumerate(zip(example.messages, example.weights, strict=True)):
        for written in writer.message(message, weight, f"messages.{position}"):
            messages.append(written)
            if written["role"] == Role.ASSISTANT:
                weights.append(weight)
    value: dict[str, Any] = {"messages": messages, "weights": weights}
    if not any(weights):
        writer.problems.append(Problem("nothing to learn", "weights"))
    row = writer.row(value, example.tools)
    return row._replace(losses=tuple(loss for loss in row.losses if loss.kind != LossKind.PARTIAL_WEIGHT))


def _read_weighted(value: JsonObject) -> Example:
    row: Any = value
    messages, _ = read_messages(row["messages"], DIALECT)
    weights = iter(row["weights"])
    return Example(
        messages,
        tuple(float(next(weights)) if message.role == Role.ASSISTANT else 0.0 for message in messages),
        read_functions(row),
    )


WEIGHTED = SftFormat(
    name="weighted",
    about="conversations with a real weight for every answer, for training on this machine",
    row=_weighted_row,
    read=_read_weighted,
    columns={"messages": _MESSAGES, "weights": "DOUBLE[]", **_TOOLS},
    masks={Unit.STEP: Mask.EACH, Unit.EPISODE: Mask.EACH},
)
"""Rows of `messages`, `weights` (one for each message of the assistant, in order) and `tools`, for local
training. Other trainers cannot use the weights, so `trajkit convert` does not offer this format."""
