"""Handle rows with too many tokens: raise, leave them out, or trim their oldest turns."""

from __future__ import annotations

from typing import NamedTuple

from trajkit.curation.rows.request import Options, Overlong
from trajkit.curation.rows.tally import Step, Tally
from trajkit.formats.base import Example, Problem
from trajkit.formats.text import TEXT
from trajkit.formats.tokens.tokenizer import Tokenizer, Unwritable, load_tokenizer
from trajkit.formats.trl import TRL_MESSAGES
from trajkit.schema import Role, ToolResultBlock

TRIMMED = "trimmed with the history before it"
"""Reason for which an answer in a trimmed turn is not learned."""


class Fitted(NamedTuple):
    """An example that fits."""

    example: Example | None
    """The example or its rest; None if nothing is left."""
    n_learned: int
    """How many of its answers are still learned: the last ones."""
    reason: str | None
    """Why the others are not learned."""
    n_tokens: int
    """Number of tokens."""


class Lengths:
    """Counts tokens, and enforces the maximum tokens per row.

    Args:
        tokenizer: The tokenizer.
        asked: The maximum tokens per row, and what to do with longer rows.
        is_text: Whether rows are texts for a base model: then no chat template is used.
        tally: Counts the rows left out and trimmed.
    """

    def __init__(self, tokenizer: Tokenizer, asked: Options, *, is_text: bool, tally: Tally) -> None:
        self._tokenizer, self._is_text, self._tally = tokenizer, is_text, tally
        self._max_length, self._overlong = asked.max_length, asked.overlong
        self.is_exact = tokenizer.is_exact
        """Whether the training sees exactly these tokens."""

    def fit(self, example: Example, place: Step) -> Fitted:
        """Return the example, trimmed if it must be.

        Args:
            example: The example.
            place: Its last step, for messages.
        """
        n_learned = len(example.learned)
        try:
            n_tokens = self._count(example)
            if self._max_length is None or n_tokens <= self._max_length:
                return Fitted(example, n_learned, None, n_tokens)
            if self._overlong == Overlong.TRIM_HISTORY:
                return self._trimmed(example, place, n_tokens, self._max_length)
        except Unwritable as error:
            return Fitted(None, 0, self._tally.refuse(place, (Problem(error.message, "messages"),)), 0)
        return Fitted(None, 0, self._tally.too_long(place, n_tokens, self._max_length), n_tokens)

    def _count(self, example: Example) -> int:
        if self._is_text:  # one more for the token that ends the text
            return sum(map(self._tokenizer.count, TEXT.row(example).value.values())) + 1
        row = TRL_MESSAGES.row(example).value
        return self._tokenizer.render(row["messages"], row.get("tools")).n_tokens

    def _trimmed(self, example: Example, place: Step, n_tokens: int, max_length: int) -> Fitted:
        """Return the example without as few of its oldest turns as possible."""
        turns = history(example)
        fewest, most = 1, len(turns)
        best: tuple[Example, int] | None = None
        while fewest <= most:
            middle = (fewest + most) // 2
            shorter = without(example, turns[:middle])
            n_now = self._count(shorter)
            if n_now <= max_length:
                best, most = (shorter, n_now), middle - 1
            else:
                fewest = middle + 1
        if best is None:
            return Fitted(None, 0, self._tally.too_long(place, n_tokens, max_length), n_tokens)
        self._tally.n_trimmed += 1
        self._tally.n_turns_trimmed += fewest
        return Fitted(best[0], len(best[0].learned), TRIMMED, best[1])


def history(example: Example) -> list[range]:
    """Return the turns that may be trimmed, oldest first, as ranges of messages.

    A turn is an answer and the messages after it. Never trimmed are the first system message, the task (the
    first user message), the newest observation with the tool call that it answers, and the last answer.
    """
    messages = example.messages
    end = len(messages) - 1
    while end > 0 and messages[end - 1].role != Role.ASSISTANT:
        end -= 1
    newest = messages[end:-1]
    if any(isinstance(block, ToolResultBlock) for message in newest for block in message.content):
        end = max(end - 1, 0)
    first = next((i + 1 for i, message in enumerate(messages) if message.role == Role.USER), end)
    starts = [first, *(i for i in range(first + 1, end) if messages[i].role == Role.ASSISTANT)]
    return [range(a, b) for a, b in zip(starts, [*starts[1:], end], strict=True) if a < b]


def without(example: Example, turns: list[range]) -> Example:
    """Return the example without some of its messages."""
    gone = {position for turn in turns for position in turn}
    kept = [position for position in range(len(example.messages)) if position not in gone]
    return example._replace(
        messages=tuple(example.messages[position] for position in kept),
        weights=tuple(example.weights[position] for position in kept),
    )


def lengths_of(asked: Options, *, is_text: bool, tally: Tally) -> Lengths | None:
    """Return a counter of tokens; None if no tokenizer was given.

    Raises:
        RequestError: The tokenizer does not exist.
        MissingExtra: Its package is not installed.
    """
    if asked.tokenizer is None:
        return None
    return Lengths(load_tokenizer(asked.tokenizer), asked, is_text=is_text, tally=tally)
