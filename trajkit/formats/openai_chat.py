"""Conversations in the spelling of OpenAI's chat API, one per line: `{"messages": […], "tools": […]}`.

A line has only messages and tools; all other values of an episode are counted as losses. If an agent rewrites
its prompts, an episode is several conversations, each a line of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from trajkit.formats.base import Document, EpisodeFormat, Loss, LossKind
from trajkit.formats.chat.conversation import (
    chat_value,
    conversation_of,
    function_tool,
    tools_among,
    tools_of,
    weights_of,
)
from trajkit.formats.chat.rows import lost_kind
from trajkit.formats.profile import EPISODE_FIELDS, STEP_FIELDS, Field, differing, episode_from
from trajkit.formats.reading.document import Reading, of_one
from trajkit.schema import (
    Episode,
    Message,
    Model,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    ToolResultBlock,
    Transition,
)
from trajkit.schema.base import JsonObject

_KNOWN = ("messages", "tools", "parallel_tool_calls")
_FACTS = tuple(name for name in STEP_FIELDS if name not in ("messages", "completion", "n_prompt_kept"))
"""Fields of a step besides its messages."""
_KINDS: dict[type[Model], LossKind] = {
    ThoughtBlock: LossKind.THOUGHT,
    ToolCallBlock: LossKind.TOOL_FIELD,
    ToolResultBlock: LossKind.TOOL_NAME,
    TextBlock: LossKind.JOINED_TEXT,
}
"""The loss of a block that is written in another way; `lost_kind` names those of the others."""


def is_openai_chat(value: Any) -> bool:
    """Whether a line is a conversation for OpenAI's API, and nothing else."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("messages"), list)
        and value.keys() <= {*_KNOWN, "metadata", "functions"}
    )


def read_openai_chat(value: dict[str, Any]) -> Reading:
    """Return the episode of a line. An answer with `weight` 0, or `train` false, is context only.

    Raises:
        BadDocument: It is not a conversation.
    """
    sent: Any = value.get("messages")
    messages = conversation_of(sent)
    tools = (
        tools_of(value.get("tools"))
        or tools_of(value.get("functions"), "functions")
        or tools_of(tools_among(sent))
    )
    others = {name: item for name, item in value.items() if name not in (*_KNOWN[:2], "functions")}
    fields = {
        "episode_id": "unnamed",
        "source": "openai-chat",
        "origin": {"line": others} if others else None,
    }
    episode = episode_from(fields, messages, None)
    steps = tuple(
        step.model_copy(update={"tools": tools, **weight})
        for step, weight in zip(episode.steps, weights_of(sent), strict=True)
    )
    return Reading((episode.model_copy(update={"steps": steps}),), is_named=False)


def write_openai_chat(episode: Episode) -> Document:
    """Return the conversations of an episode, and the losses."""
    rows: list[JsonObject] = []
    losses: list[Loss] = []
    for number, run in enumerate(_runs(episode, losses)):
        row = _row(run)
        read = read_openai_chat(row).episodes[0]
        if number == 0:
            losses.extend(
                Loss(Field[name.upper()], name) for name in differing(episode, read, EPISODE_FIELDS)
            )
        else:
            losses.append(Loss(Field["CONVERSATION"], run[0].where.rpartition(".prompt")[0]))
        losses.extend(_lost(run, row, read))
        rows.append(row)
    return Document(tuple(rows), tuple(losses))


OPENAI_CHAT = EpisodeFormat(
    name="openai-chat",
    about="conversations for OpenAI's chat API, one per line, and nothing else",
    write=write_openai_chat,
    read=of_one(read_openai_chat),
    is_trained_on=True,
)
"""Chat messages and nothing else, for any reader of them."""


class _Line(NamedTuple):
    """A message of a conversation."""

    message: Message
    where: str
    """Its place in the episode."""
    step: Transition | None
    """The step that it answers; None for a message of a prompt."""


def _runs(episode: Episode, losses: list[Loss]) -> Iterator[list[_Line]]:
    """Yield the conversations of an episode: in each, a prompt extends all earlier messages."""
    run: list[_Line] = []
    for step, prompt in zip(episode.steps, episode.prompts(), strict=True):
        where = f"steps.{step.step_index}"
        if prompt is None or step.completion is None:
            losses.append(Loss(Field["STEP"], where))
            continue
        n = len(run)
        if n and (len(prompt) < n or any(one.message != two for one, two in zip(run, prompt, strict=False))):
            yield run
            run, n = [], 0
        new = enumerate(prompt[n:], n)
        run += [_Line(message, f"{where}.prompt.{position}", None) for position, message in new]
        run.append(_Line(step.completion, f"{where}.completion", step))
    if run:
        yield run


def _row(run: Sequence[_Line]) -> JsonObject:
    messages: list[Any] = []
    for each in run:
        value = chat_value(each.message)
        if value["role"] == "assistant" and (each.step is None or each.step.loss_weight == 0):
            value["weight"] = 0
        messages.append(value)
    row: JsonObject = {"messages": messages}
    if tools := next((each.step.tools for each in run if each.step and each.step.tools), None):
        row["tools"] = [function_tool(tool) for tool in tools]
    return row


def _lost(run: Sequence[_Line], row: JsonObject, read: Episode) -> Iterator[Loss]:
    """Yield the losses of the steps in a line."""
    answers = iter(read.steps)
    for each, back in zip(run, conversation_of(row["messages"]), strict=True):
        yield from _lost_of_message(each.message, back, each.where)
        if each.message.role != Role.ASSISTANT:
            continue
        answer = next(answers)
        if each.step is None:
            yield Loss(Field["CONTEXT_ANSWER"], each.where)
            continue
        for name in differing(each.step, answer, _FACTS):
            yield Loss(Field[name.upper()], f"steps.{each.step.step_index}.{name}")


def _lost_of_message(message: Message, back: Message, where: str) -> Iterator[Loss]:
    if message == back:
        return
    lost = [
        Loss(
            _KINDS.get(type(block)) or lost_kind(block) or LossKind.UNKNOWN_BLOCK, f"{where}.content.{index}"
        )
        for index, block in enumerate(message.content)
        if block not in back.content
    ]
    yield from lost or [Loss(LossKind.BLOCK_ORDER, where)]
