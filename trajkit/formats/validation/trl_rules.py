"""What is wrong with rows of the other kinds that trainers take: texts, tokens, prompts with completions.

The traps are TRL 1.16's, each seen: a completion of several turns teaches what the user said in it; a prompt
that ends with a space melts into the completion; a row without an answer is dropped without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trajkit.formats.validation.chat_rules import conversation_flaws
from trajkit.formats.validation.content_rules import text_flaws
from trajkit.formats.validation.finding import Flaw, Severity, kind_of, shown, wrong_type
from trajkit.formats.validation.target import Target

_IGNORED = -100


def text_row_flaws(row: dict[str, Any], target: Target) -> Iterator[Flaw]:
    """A row of plain text."""
    text = row.get("text")
    if not isinstance(text, str) or not text:
        yield wrong_type("$.text", "a text that is not empty", text)
        return
    yield from text_flaws(text, "$.text", target)


def completion_flaws(row: dict[str, Any], target: Target) -> Iterator[Flaw]:
    """A prompt with its completion, both texts or both lists of messages."""
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
        yield from _answer_flaws(row, "completion", target)


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


def _answer_flaws(row: dict[str, Any], name: str, target: Target) -> Iterator[Flaw]:
    """The messages that a trainer learns."""
    path, answer = f"$.{name}", row[name]
    yield from conversation_flaws(answer, path, target, tools=row.get("tools"))
    roles = [message.get("role") for message in answer if isinstance(message, dict)]
    if roles and roles[-1] != "assistant":
        yield Flaw("it does not end with the assistant", path, "end it with an answer", shown(roles[-1]))
    elif any(role != "assistant" for role in roles):
        hint = "what others say in a completion is learned too: one answer in each row"
        yield Flaw("a completion of several turns", path, hint, shown(roles), Severity.WARNING)


def chosen_flaws(row: dict[str, Any], target: Target) -> Iterator[Flaw]:
    """A better and a worse answer, with their prompt or with it in both."""
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
        hint = "write the prompt in a key of its own: what both share is then found for sure"
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
        yield from _answer_flaws(row, "chosen", target)
        yield from _answer_flaws(row, "rejected", target)
    else:
        yield from _plain_flaws(prompt, str(chosen), target)


def judged_flaws(row: dict[str, Any], target: Target) -> Iterator[Flaw]:
    """A prompt with a completion that is good or bad."""
    if not isinstance(row.get("label"), bool):
        yield wrong_type("$.label", "true or false", row.get("label"))
    yield from completion_flaws(row, target)


def token_flaws(row: dict[str, Any], target: Target) -> Iterator[Flaw]:
    """Tokens that are ready: the masks must be as long, and something must be learned."""
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
