"""Determine the kind of a row by its keys, check rows that are not conversations, and repair rows.

The pitfalls are TRL 1.16's, each observed: a completion of several turns teaches the user's messages in it; a
prompt that ends with a space merges with the completion; a row without an answer is dropped silently.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from trajkit.formats.chat.openai_rules import ROW_KEYS
from trajkit.formats.validation.chat_rules import (
    conversation_flaws,
    key_flaws,
    message_flaws,
    n_images,
    row_flaws,
    schema_flaws,
    text_flaws,
    tool_flaws,
)
from trajkit.formats.validation.finding import Flaw, Severity, kind_of, shown, wrong_type
from trajkit.formats.validation.target import Shape, Target

_IGNORED = -100
_PREFERENCE_KEYS = frozenset({"input", "preferred_output", "non_preferred_output"})
_ANSWERS = ("preferred_output", "non_preferred_output")


def text_row_flaws(row: dict[str, Any], target: Target) -> Iterator[Flaw]:
    """Yield the flaws of a row of plain text."""
    text = row.get("text")
    if not isinstance(text, str) or not text:
        yield wrong_type("$.text", "a text that is not empty", text)
        return
    yield from text_flaws(text, "$.text", target)


def completion_flaws(row: dict[str, Any], target: Target) -> Iterator[Flaw]:
    """Yield the flaws of a prompt with its completion, both texts or both lists of messages."""
    prompt, completion = row.get("prompt"), row.get("completion")
    if type(prompt) is not type(completion) or not isinstance(prompt, str | list):
        yield Flaw(
            "prompt and completion are not of one kind",
            "$",
            "both texts, or both lists of messages",
            f"{kind_of(prompt)} and {kind_of(completion)}",
        )
        return
    if isinstance(prompt, str):
        yield from _plain_flaws(prompt, str(completion), target)
    else:
        yield from _prompt_flaws(row, target)
        yield from _preferred_flaws(row, "completion", target)


def _plain_flaws(prompt: str, completion: str, target: Target) -> Iterator[Flaw]:
    for name, text in (("prompt", prompt), ("completion", completion)):
        if not text:
            yield Flaw(f"empty {name}", f"$.{name}", "leave the row out", '""')
        yield from text_flaws(text, f"$.{name}", target)
    if prompt.endswith(" "):
        hint = "move the space to the front of the completion: a tokenizer joins it with what follows"
        yield Flaw("the prompt ends with a space", "$.prompt", hint, shown(prompt[-30:]), Severity.WARNING)


def _prompt_flaws(row: dict[str, Any], target: Target) -> Iterator[Flaw]:
    yield from conversation_flaws(row["prompt"], "$.prompt", target, tools=row.get("tools"))


def _preferred_flaws(row: dict[str, Any], name: str, target: Target) -> Iterator[Flaw]:
    """Yield the flaws of messages that a trainer learns."""
    path, answer = f"$.{name}", row[name]
    yield from conversation_flaws(answer, path, target, tools=row.get("tools"))
    roles = [message.get("role") for message in answer if isinstance(message, dict)]
    if roles and roles[-1] != "assistant":
        yield Flaw("it does not end with the assistant", path, "end it with an answer", shown(roles[-1]))
    elif any(role != "assistant" for role in roles):
        hint = "what others say in a completion is learned too: one answer in each row"
        yield Flaw("a completion of several turns", path, hint, shown(roles), Severity.WARNING)


def chosen_flaws(row: dict[str, Any], target: Target) -> Iterator[Flaw]:
    """Yield the flaws of a better and a worse answer, with a separate prompt or with it in both."""
    prompt, chosen, rejected = row.get("prompt"), row.get("chosen"), row.get("rejected")
    if type(chosen) is not type(rejected) or not isinstance(chosen, str | list):
        kinds = f"{kind_of(chosen)} and {kind_of(rejected)}"
        yield Flaw(
            "chosen and rejected are not of one kind", "$", "both texts, or both lists of messages", kinds
        )
        return
    if chosen == rejected:
        yield Flaw("both answers are the same", "$.rejected", "leave the row out", shown(rejected))
    if prompt is None:
        hint = "write the prompt in a key of its own: the shared part is then certain"
        yield Flaw("no prompt", "$.prompt", hint, severity=Severity.WARNING)
        return
    if type(prompt) is not type(chosen):
        yield Flaw(
            "the prompt is of another kind than the answers",
            "$.prompt",
            "all texts, or all lists",
            kind_of(prompt),
        )
    elif isinstance(prompt, list):
        yield from _prompt_flaws(row, target)
        yield from _preferred_flaws(row, "chosen", target)
        yield from _preferred_flaws(row, "rejected", target)
    else:
        yield from _plain_flaws(prompt, str(chosen), target)


def judged_flaws(row: dict[str, Any], target: Target) -> Iterator[Flaw]:
    """Yield the flaws of a prompt with a completion that is good or bad."""
    if not isinstance(row.get("label"), bool):
        yield wrong_type("$.label", "true or false", row.get("label"))
    yield from completion_flaws(row, target)


def start_flaws(row: dict[str, Any], target: Target) -> Iterator[Flaw]:
    """Where an episode begins: TRL appends the first observation to a prompt that ends with the user."""
    prompt = row["prompt"]
    if not isinstance(prompt, list):
        yield wrong_type("$.prompt", "a list of messages", prompt)
    else:
        yield from _prompt_flaws(row, target)
        last = prompt[-1] if prompt else None
        if isinstance(last, dict) and last.get("role") != "user":
            hint = "end it with a message of the user: the first observation is appended to it"
            yield Flaw("the prompt does not end with the user", "$.prompt", hint, shown(last.get("role")))
    for name in ("environment", "task"):
        if not isinstance(row.get(name), str) or not row[name]:
            yield wrong_type(f"$.{name}", "a text that is not empty", row.get(name))
    seed = row.get("seed")
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        yield wrong_type("$.seed", "a whole number from 0", seed)


def token_flaws(row: dict[str, Any], target: Target) -> Iterator[Flaw]:
    """Yield the flaws of tokenized rows: masks must have their length, and something must be learned."""
    tokens = row.get("input_ids")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, int) for token in tokens):
        yield Flaw(
            "not a list of tokens",
            "$.input_ids",
            f"{target.name} takes whole numbers, at least one",
            shown(tokens),
        )
        return
    for name in ("labels", "completion_mask", "assistant_masks", "attention_mask"):
        mask = row.get(name)
        if mask is None:
            continue
        if not isinstance(mask, list) or len(mask) != len(tokens):
            length = f"{len(mask)} and {len(tokens)}" if isinstance(mask, list) else kind_of(mask)
            yield Flaw("not as long as input_ids", f"$.{name}", "one number for each token", length)
        elif (name == "labels" and all(label == _IGNORED for label in mask)) or (
            name != "labels" and not any(mask)
        ):
            yield Flaw("nothing to learn", f"$.{name}", "leave the row out: it gives no loss", shown(mask))


def preference_flaws(row: dict[str, Any], target: Target) -> Iterator[Flaw]:
    """Yield the flaws for which a row of preference tuning is refused."""
    yield from key_flaws(row, _PREFERENCE_KEYS, target)
    given = row.get("input")
    if not isinstance(given, dict):
        yield wrong_type("$.input", 'an object with "messages"', given)
        given = {}
    else:
        yield from _input_flaws(given, target)
    for name in _ANSWERS:
        yield from _answer_flaws(row.get(name), f"$.{name}", given.get("tools"), target)
    if all(isinstance(row.get(name), list) for name in _ANSWERS) and row[_ANSWERS[0]] == row[_ANSWERS[1]]:
        yield Flaw(
            "both answers are the same",
            "$.non_preferred_output",
            "leave the row out",
            shown(row[_ANSWERS[1]]),
        )


def _input_flaws(given: dict[str, Any], target: Target) -> Iterator[Flaw]:
    for key in sorted(given.keys() - ROW_KEYS):
        yield Flaw(
            "extra key", f"$.input.{key}", f"input takes {', '.join(sorted(ROW_KEYS))}", shown(given[key])
        )
    messages = given.get("messages")
    if not isinstance(messages, list):
        yield wrong_type("$.input.messages", "a list of messages", messages)
        return
    for flaw in tool_flaws(given, target):
        yield flaw._replace(path=flaw.path.replace("$.", "$.input.", 1))
    yield from conversation_flaws(messages, "$.input.messages", target, tools=given.get("tools"))
    if n_images(messages):
        yield Flaw("an image", "$.input.messages", "preference tuning takes text only: leave the row out")
    if messages and isinstance(messages[-1], dict) and messages[-1].get("role") == "assistant":
        hint = "end the input before the answer that is compared"
        yield Flaw("the input ends with an answer", f"$.input.messages[{len(messages) - 1}]", hint)


def _answer_flaws(answer: Any, path: str, tools: Any, target: Target) -> Iterator[Flaw]:
    if not isinstance(answer, list) or len(answer) != 1 or not isinstance(answer[0], dict):
        yield Flaw("not one assistant message", path, "a list of exactly one message", shown(answer))
        return
    message = answer[0]
    if message.get("role") != "assistant":
        yield Flaw(
            "not the assistant's",
            f"{path}[0].role",
            "the role of an answer is assistant",
            shown(message.get("role")),
        )
        return
    if "weight" in message:
        yield Flaw("weight in a preference", f"{path}[0].weight", "take it out", shown(message["weight"]))
    yield from message_flaws({k: v for k, v in message.items() if k != "weight"}, f"{path}[0]", target)
    yield from schema_flaws(answer, path, tools)


_KEYS: Mapping[Shape, frozenset[str]] = {
    Shape.CHAT: frozenset({"messages"}),
    Shape.PREFERENCE: _PREFERENCE_KEYS,
    Shape.JUDGED: frozenset({"prompt", "completion", "label"}),
    Shape.COMPLETION: frozenset({"prompt", "completion"}),
    Shape.CHOSEN: frozenset({"chosen", "rejected"}),
    Shape.START: frozenset({"prompt", "environment"}),
    Shape.TOKENS: frozenset({"input_ids"}),
    Shape.TEXT: frozenset({"text"}),
}
_RULES = {
    Shape.CHAT: row_flaws,
    Shape.PREFERENCE: preference_flaws,
    Shape.COMPLETION: completion_flaws,
    Shape.CHOSEN: chosen_flaws,
    Shape.JUDGED: judged_flaws,
    Shape.START: start_flaws,
    Shape.TEXT: text_row_flaws,
    Shape.TOKENS: token_flaws,
}


def shape_of(row: Mapping[str, Any], target: Target) -> Shape | None:
    """Return the kind of a row, of those that the target accepts; None if it has none of them."""
    taken = target.shapes
    whole = [shape for shape in taken if row.keys() >= _KEYS[shape]]
    if whole:
        return whole[0]
    # a row that lacks a key is recognised by its other keys
    part = [shape for shape in taken if row.keys() & _KEYS[shape]]
    return part[0] if part else None


def flaws_of(row: Mapping[str, Any], target: Target, of_file: Shape | None) -> Iterator[Flaw]:
    """Yield the flaws of a row of a file.

    Args:
        row: The row.
        target: The target of the file.
        of_file: The kind of the rows before it; None for the first row.
    """
    shape = shape_of(row, target)
    if shape is None:
        kinds = "; or ".join(target.shapes)
        yield Flaw(
            "not a row that is accepted",
            "$",
            f"{target.name} takes {kinds}",
            f"keys: {', '.join(sorted(row)) or 'none'}",
        )
        return
    if of_file is not None and shape != of_file:
        yield Flaw(
            "a row of another kind than the first",
            "$",
            f"the file began with rows of {of_file}: one kind in each file",
            shown(sorted(row)),
        )
        return
    if shape == Shape.TEXT and len(row.keys() & {"messages", "prompt"}) > 0:
        yield Flaw("a row of two kinds", "$", "text, or messages: not both", shown(sorted(row)))
    yield from _RULES[shape](dict(row), target)


def repaired(row: dict[str, Any], shape: Shape | None, target: Target, done: Counter[str]) -> dict[str, Any]:
    """Return the row with safe repairs.

    Args:
        row: Changed in place.
        shape: Its kind; a row of unknown kind (None) is not changed.
        target: The target of the file.
        done: Counts the repairs.
    """
    known = {
        Shape.CHAT: ROW_KEYS | ({"weight"} if target.has_row_weights else set()),
        Shape.PREFERENCE: _PREFERENCE_KEYS,
    }
    if shape in known and not target.takes_extra_keys:
        for key in sorted(row.keys() - known[shape]):
            del row[key]
            done[f"extra key {key!r} removed"] += 1
    for message in _messages(row):
        _repair_weight(message, done)
        if message.get("tool_calls") == []:
            del message["tool_calls"]
            done["empty tool_calls removed"] += 1
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict) and isinstance(call.get("function"), dict):
                _repair_arguments(call["function"], target, done)
    return row


def _messages(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all messages of a row, in whichever keys its kind has them."""
    if isinstance(value, dict):
        for name in (
            "messages",
            "input",
            "preferred_output",
            "non_preferred_output",
            "prompt",
            "completion",
            "chosen",
            "rejected",
        ):
            found = value.get(name)
            if isinstance(found, list):
                yield from (item for item in found if isinstance(item, dict))
            elif name == "input":
                yield from _messages(found)


def _repair_weight(message: dict[str, Any], done: Counter[str]) -> None:
    if "weight" not in message:
        return
    if message.get("role") != "assistant":
        del message["weight"]
        done["weight of another than the assistant removed"] += 1
    elif message["weight"] in (0, 1) and type(message["weight"]) is not int:
        message["weight"] = int(message["weight"])
        done["weight written as 0 or 1"] += 1


def _repair_arguments(function: dict[str, Any], target: Target, done: Counter[str]) -> None:
    arguments = function.get("arguments")
    if target.arguments == "text" and isinstance(arguments, dict):
        function["arguments"] = json.dumps(arguments, ensure_ascii=False)
        done["arguments written as a text"] += 1
    elif target.arguments == "object" and isinstance(arguments, str):
        try:
            found = json.loads(arguments)
        except ValueError:
            return
        if isinstance(found, dict):
            function["arguments"] = found
            done["arguments written as an object"] += 1
