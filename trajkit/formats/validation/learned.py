"""How many tokens of a row carry loss, and what a length limit takes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trajkit.formats.tokenizer import Rendered, Tokenizer
from trajkit.formats.validation.shape import Shape

_IGNORED = -100


class RowTokens(NamedTuple):
    """The tokens of one row; of a preference, both conversations together."""

    n_tokens: int
    """All that the model reads."""
    n_learned: int
    """Those that carry loss."""
    n_learned_kept: int
    """Those of them that are left when the end is cut off at the limit."""
    ends_learned: bool | None
    """Whether the last learned token ends the turn; None when that cannot be told."""


def row_tokens(
    row: Mapping[str, Any], shape: Shape, tokenizer: Tokenizer, max_length: int | None
) -> RowTokens:
    """Count a row that has no flaw.

    Args:
        row: The row.
        shape: Its kind.
        tokenizer: Counts.
        max_length: What is beyond is cut off; None for no limit.

    Raises:
        RequestError: The chat template cannot write it.
    """
    match shape:
        case Shape.CHAT:
            parts = [_conversation(row["messages"], row.get("tools"), tokenizer)]
        case Shape.PREFERENCE:
            given = row["input"]
            parts = [
                _answer(given["messages"], row[name], given.get("tools"), tokenizer)
                for name in ("preferred_output", "non_preferred_output")
            ]
        case Shape.CHOSEN:
            parts = [_continued(row, row[name], tokenizer) for name in ("chosen", "rejected")]
        case Shape.COMPLETION | Shape.JUDGED:
            parts = [_continued(row, row["completion"], tokenizer)]
        case Shape.TOKENS:
            parts = [_given(row)]
        case Shape.TEXT:
            n_tokens = tokenizer.count(row["text"]) + 1  # trainers put the end of text behind it
            parts = [_Part(n_tokens, ((0, n_tokens),), True)]
    return _sum(parts, max_length)


class _Part(NamedTuple):
    n_tokens: int
    spans: Sequence[tuple[int, int]]
    ends_learned: bool | None


def _sum(parts: Sequence[_Part], max_length: int | None) -> RowTokens:
    ends = [part.ends_learned for part in parts]
    return RowTokens(
        sum(part.n_tokens for part in parts),
        sum(end - start for part in parts for start, end in part.spans),
        sum(
            max(0, min(end, max_length if max_length is not None else end) - start)
            for part in parts
            for start, end in part.spans
        ),
        None if None in ends else all(ends),
    )


def _conversation(messages: Sequence[Mapping[str, Any]], tools: Any, tokenizer: Tokenizer) -> _Part:
    """The answers but those of weight 0."""
    rendered = tokenizer.render(messages, tools)
    answers = [message for message in messages if message.get("role") == "assistant"]
    return _learned(rendered, [message.get("weight") != 0 for message in answers])


def _answer(
    prompt: Sequence[Mapping[str, Any]], answer: Sequence[Mapping[str, Any]], tools: Any, tokenizer: Tokenizer
) -> _Part:
    """Only what comes after the prompt."""
    rendered = tokenizer.render([*prompt, *answer], tools)
    n_before = sum(message.get("role") == "assistant" for message in prompt)
    return _learned(rendered, [position >= n_before for position in range(len(rendered.spans))])


def _learned(rendered: Rendered, is_learned: Sequence[bool]) -> _Part:
    spans = [span for span, learn in zip(rendered.spans, is_learned, strict=True) if learn]
    ends = None
    if rendered.ends_learned is not None:
        ends = all(end for end, learn in zip(rendered.ends_learned, is_learned, strict=True) if learn)
    return _Part(rendered.n_tokens, spans, ends)


def _continued(row: Mapping[str, Any], completion: Any, tokenizer: Tokenizer) -> _Part:
    """A prompt and what follows it, both texts or both messages; without a prompt all is learned."""
    prompt = row.get("prompt")
    if isinstance(completion, list):
        return _answer(prompt or [], completion, row.get("tools"), tokenizer)
    n_prompt = tokenizer.count(prompt) if prompt else 0
    n_tokens = n_prompt + tokenizer.count(completion) + 1  # the end of text
    return _Part(n_tokens, ((n_prompt, n_tokens),), True)


def _given(row: Mapping[str, Any]) -> _Part:
    n_tokens = len(row["input_ids"])
    is_learned = [True] * n_tokens
    for name in ("labels", "completion_mask", "assistant_masks"):
        if row.get(name) is not None:
            is_learned = [
                was and (value != _IGNORED if name == "labels" else bool(value))
                for was, value in zip(is_learned, row[name], strict=True)
            ]
    return _Part(n_tokens, [(i, i + 1) for i, learn in enumerate(is_learned) if learn], None)
