"""The loss report: which tokens a trainer learns from each row of a file, and which a limit removes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trajkit._core.output.console import Cell, count, table_text
from trajkit.formats.tokens.tokenizer import Rendered, Tokenizer, Unwritable
from trajkit.formats.validation.finding import Flaw, Severity
from trajkit.formats.validation.target import Shape
from trajkit.schema import Model

_IGNORED = -100


class LossReport(Model):
    """Counts of tokens in a file."""

    tokenizer: str
    """Name of the tokenizer."""
    is_exact: bool
    """Whether the trainer sees exactly these tokens; else they are estimates."""
    max_length: int | None
    """The length limit; None without one."""
    n_rows: int
    """Counted rows: those without an error."""
    n_tokens: int
    """All tokens."""
    n_within: int
    """Tokens within the limit."""
    n_learned: int
    """Tokens that carry loss."""
    n_kept: int
    """Tokens that carry loss, within the limit."""
    quantiles: dict[str, int]
    """Tokens of a row: `p50`, `p95`, `max`."""
    n_without_loss: int
    """Rows in which nothing is learned."""
    n_cut: int
    """Rows longer than the limit."""
    n_answers_cut: int
    """Rows that lose learned tokens to the limit."""
    n_answers_gone: int
    """Rows that lose all learned tokens: trainers drop these silently."""
    n_endless: int | None
    """Rows whose answer is learned without the token that ends it; None if unknown."""
    notes: tuple[str, ...]
    """Notes about the trainer."""

    def __str__(self) -> str:
        limit = "" if self.max_length is None else f" of at most {count(self.max_length)} tokens"
        rows = [
            (f"rows{limit}", self.n_rows),
            ("tokens", self.n_tokens),
            ("tokens that carry loss", self.n_learned),
            *((f"tokens of a row, {name}", number) for name, number in self.quantiles.items()),
            ("rows without loss", self.n_without_loss),
        ]
        if self.max_length is not None:
            rows += [
                ("rows that the limit cuts", self.n_cut),
                ("rows that lose a part of the answer", self.n_answers_cut - self.n_answers_gone),
                ("rows that lose the whole answer", self.n_answers_gone),
            ]
        if self.n_endless is not None:
            rows.append(("rows that do not learn to end", self.n_endless))
        by = f"by {self.tokenizer}{'' if self.is_exact else ' (an estimate)'}"
        return table_text(
            [Cell(by), Cell("", is_number=True)], [(name, count(number)) for name, number in rows]
        )


@dataclass
class LossSums:
    """The counts of some rows of a file."""

    lengths: Counter[int] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)
    shape: Shape | None = None
    can_tell_ends: bool = True


class LossCount:
    """Counts the tokens of rows; memory is bounded by the longest row.

    Args:
        tokenizer: The tokenizer.
        max_length: The limit in tokens; None without one.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int | None) -> None:
        self._tokenizer, self._max_length = tokenizer, max_length
        self.sums = LossSums()
        """The counts so far."""

    def add(self, row: Mapping[str, Any], shape: Shape) -> Iterator[Flaw]:
        """Count a row without an error, and yield flaws of its loss."""
        mine = self.sums
        mine.shape = shape
        try:
            found = row_tokens(row, shape, self._tokenizer, self._max_length)
        except Unwritable as error:
            yield Flaw("the row cannot be written", "$", error.hint or "choose another template", str(error))
            return
        mine.lengths[found.n_tokens] += 1
        mine.sums.update(n_tokens=found.n_tokens, n_learned=found.n_learned, n_kept=found.n_learned_kept)
        limit = self._max_length
        mine.sums["n_within"] += found.n_tokens if limit is None else min(found.n_tokens, limit)
        mine.can_tell_ends = mine.can_tell_ends and found.ends_learned is not None
        if found.n_learned == 0:
            mine.sums["n_without_loss"] += 1
            yield Flaw("no token is learned", "$", "leave the row out", f"{found.n_tokens:,} tokens")
        elif found.ends_learned is False:
            mine.sums["n_endless"] += 1
            hint = "the template must write the end of the turn inside the generation mark"
            yield Flaw("the end of the answer is not learned", "$", hint, severity=Severity.WARNING)
        yield from self._cut(found.n_tokens, found.n_learned, found.n_learned_kept)

    def _cut(self, n_tokens: int, n_learned: int, n_kept: int) -> Iterator[Flaw]:
        limit = self._max_length
        if limit is None or n_tokens <= limit:
            return
        sums = self.sums.sums
        sums["n_cut"] += 1
        if n_kept == n_learned:
            return
        sums["n_answers_cut"] += 1
        sums["n_answers_gone"] += n_kept == 0 < n_learned
        what = "the whole answer is cut off" if n_kept == 0 else "the answer is cut off"
        hint = f"convert with --max-length {limit} --overlong trim-history, or allow longer rows"
        yield Flaw(
            what, "$", hint, f"{n_tokens:,} tokens, {n_learned - n_kept:,} of the answer beyond {limit:,}"
        )

    def take(self, other: LossSums) -> None:
        """Add the counts of other rows of the file."""
        mine = self.sums
        mine.lengths.update(other.lengths)
        mine.sums.update(other.sums)
        mine.shape = mine.shape or other.shape
        mine.can_tell_ends = mine.can_tell_ends and other.can_tell_ends

    def report(self) -> LossReport:
        """Return the counts."""
        mine = self.sums
        n_rows = mine.lengths.total()
        names = ("n_tokens", "n_within", "n_learned", "n_kept", "n_without_loss", "n_cut")
        return LossReport(
            tokenizer=self._tokenizer.name,
            is_exact=self._tokenizer.is_exact,
            max_length=self._max_length,
            n_rows=n_rows,
            **{name: mine.sums[name] for name in (*names, "n_answers_cut", "n_answers_gone")},
            quantiles=_quantiles(mine.lengths),
            n_endless=mine.sums["n_endless"] if mine.can_tell_ends and n_rows else None,
            notes=tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        if not self._tokenizer.is_exact:
            yield "an estimate: what a service adds to messages and tools is not public"
        if self.sums.shape == Shape.CHAT and self._tokenizer.has_marks is False:
            yield (
                "the chat template has no generation marks: TRL learns every token of such rows, and refuses"
                " assistant_only_loss; rows of prompt and completion teach the answer alone"
            )
        elif self.sums.shape == Shape.CHAT and self._tokenizer.has_marks:
            yield "TRL learns every token of such rows unless assistant_only_loss=True, which is counted here"


def _quantiles(lengths: Counter[int]) -> dict[str, int]:
    """Return the least lengths that at least half, and 95 %, of the rows do not exceed, and the longest."""
    if not lengths:
        return {}
    n_rows, seen, found = lengths.total(), 0, {}
    for length in sorted(lengths):
        seen += lengths[length]
        for name, share in (("p50", 0.5), ("p95", 0.95)):
            if name not in found and seen >= share * n_rows:
                found[name] = length
    return {**found, "max": max(lengths)}


class RowTokens(NamedTuple):
    """Token counts of one row; for a preference, of both conversations together."""

    n_tokens: int
    """All tokens."""
    n_learned: int
    """Tokens that carry loss."""
    n_learned_kept: int
    """Tokens that carry loss, within the limit."""
    ends_learned: bool | None
    """Whether the last learned token ends the turn; None if unknown."""


def row_tokens(
    row: Mapping[str, Any], shape: Shape, tokenizer: Tokenizer, max_length: int | None
) -> RowTokens:
    """Count the tokens of a row that has no flaw.

    Args:
        row: The row.
        shape: Its kind.
        tokenizer: The tokenizer.
        max_length: The limit beyond which tokens are cut off; None without one.

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
            n_tokens = tokenizer.count(row["text"]) + 1  # trainers append the end of text
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
    """Count a conversation, in which all answers but those of weight 0 are learned."""
    rendered = tokenizer.render(messages, tools)
    answers = [message for message in messages if message.get("role") == "assistant"]
    return _learned(rendered, [message.get("weight") != 0 for message in answers])


def _answer(
    prompt: Sequence[Mapping[str, Any]], answer: Sequence[Mapping[str, Any]], tools: Any, tokenizer: Tokenizer
) -> _Part:
    """Count a prompt and an answer, of which only the answer is learned."""
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
    """Count a prompt and its continuation, texts or messages; without a prompt everything is learned."""
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
