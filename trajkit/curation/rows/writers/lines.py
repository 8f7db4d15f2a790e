"""Write lines in Python: for steps that are not plain text, and wherever tokens are counted.

`plain_line` writes all others: the same bytes, in columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trajkit.curation.rows.calls import Calls
from trajkit.curation.rows.length import Lengths
from trajkit.curation.rows.merge import Lesson, Said, lessons, merged_lessons, said
from trajkit.curation.rows.request import Options
from trajkit.curation.rows.tally import CONTEXT_ANSWER, Tally
from trajkit.formats.base import Example, Judged, JudgedFormat, Mask, Problem, Row, SftFormat, Unit, json_line
from trajkit.formats.chat.think import Thoughts, with_thoughts
from trajkit.schema import Message, Role, ThoughtBlock


@dataclass
class Outcome:
    """Result of a step."""

    reason: str | None
    """Why it is in no row; None if it is in one."""
    line: str | None = None
    """The row, without line break; set at the last step that the row teaches."""
    n_characters: int = 0
    """Size of its prompt and answer in the store."""
    n_tokens: int | None = None
    """Tokens of the row at its last step, if counted."""


class Lines(Protocol):
    """Makes the lines of an episode."""

    columns: set[str]
    """Columns that a row has had so far."""

    def of(self, rows: Sequence[dict[str, Any]]) -> list[Outcome]:
        """Return the result of each step of an episode."""


class SftLines:
    """Lines of rows for supervised fine-tuning.

    Args:
        form: The format.
        options: The options.
        calls: Completes tool calls, and checks rows.
        lengths: Counts tokens, if asked for.
        tally: Counts losses and problems.
    """

    def __init__(
        self, form: SftFormat, options: Options, calls: Calls, lengths: Lengths | None, tally: Tally
    ) -> None:
        self._form = form
        self._calls = calls
        self._mask = form.masks[options.unit]
        self._merges = merges(form, options.unit)
        self._change = changing(options.thoughts, tally)
        self._lengths = lengths
        self._tally = tally
        self.columns: set[str] = set()

    def of(self, rows: Sequence[dict[str, Any]]) -> list[Outcome]:
        """Return the result of each step of an episode.

        Raises:
            DataError: A prompt or an answer in the store is not valid.
        """
        steps = said(rows, self._change)
        outcomes = [Outcome(step.reason, n_characters=step.n_characters) for step in steps]
        for lesson in (merged_lessons if self._merges else lessons)(steps):
            self._write(lesson, steps, outcomes)
        return outcomes

    def _write(self, lesson: Lesson, steps: Sequence[Said], outcomes: list[Outcome]) -> None:
        taught = lesson.steps
        example = completed(lesson.example, self._calls)
        place = steps[taught[-1]].place
        if self._lengths is not None:
            fitted = self._lengths.fit(example, place)
            for position in taught[: len(taught) - fitted.n_learned]:
                outcomes[position].reason = fitted.reason
            if fitted.example is None:
                return
            example = fitted.example
            taught = taught[len(taught) - fitted.n_learned :]
            outcomes[taught[-1]].n_tokens = fitted.n_tokens
        row = self._row(example)
        if row.problems:
            reason = self._tally.refuse(place, row.problems)
            for position in taught:
                outcomes[position].reason = reason
            outcomes[taught[-1]].n_tokens = None
            return
        self._tally.lose(place, row.losses)
        self.columns.update(row.value)
        outcomes[taught[-1]].line = json_line(row.value)

    def _row(self, example: Example) -> Row:
        row = self._calls.checked(self._form.row(example))
        if self._mask == Mask.ALL and (unlearned := list(answers_of_context(example))):
            return row._replace(problems=(*unlearned, *row.problems))
        return row


class JudgedLines:
    """Lines of answers that are good or bad, one per step.

    Args:
        form: The format.
        options: The options.
        calls: Completes tool calls, and checks rows.
        verdicts: Returns whether an episode is good; None if unknown.
        lengths: Counts tokens, if asked for.
        tally: Counts losses and problems.
    """

    def __init__(
        self,
        form: JudgedFormat,
        options: Options,
        calls: Calls,
        verdicts: Callable[[str], bool | None],
        lengths: Lengths | None,
        tally: Tally,
    ) -> None:
        self._form = form
        self._calls = calls
        self._verdict = verdicts
        self._change = changing(options.thoughts, tally)
        self._lengths = lengths
        self._tally = tally
        self.columns: set[str] = set()

    def of(self, rows: Sequence[dict[str, Any]]) -> list[Outcome]:
        """Return the result of each step of an episode.

        Raises:
            DataError: A prompt or an answer in the store is not valid.
        """
        verdict = self._verdict(rows[0]["episode_id"])
        steps = said(rows, self._change)
        outcomes = [Outcome(step.reason, n_characters=step.n_characters) for step in steps]
        for lesson in lessons(steps):
            self._write(lesson, verdict, steps, outcomes[lesson.steps[0]])
        return outcomes

    def _write(self, lesson: Lesson, verdict: bool | None, steps: Sequence[Said], outcome: Outcome) -> None:
        place = steps[lesson.steps[0]].place
        if verdict is None:
            outcome.reason = "neither good nor bad"
            return
        example = completed(lesson.example, self._calls)
        if self._lengths is not None:
            fitted = self._lengths.fit(example, place)
            if fitted.example is None:
                outcome.reason = fitted.reason
                return
            example, outcome.n_tokens = fitted.example, fitted.n_tokens
        judged = Judged(example.messages[:-1], example.messages[-1], verdict, example.tools)
        row = self._calls.checked(self._form.row(judged))
        if row.problems:
            outcome.reason = self._tally.refuse(place, row.problems)
            return
        self._tally.lose(place, row.losses)
        self.columns.update(row.value)
        outcome.line = json_line(row.value)


def completed(example: Example, calls: Calls) -> Example:
    """Return the example with call ids and tool declarations."""
    messages = calls.with_ids(example.messages)
    return example._replace(messages=messages, tools=calls.with_tools(example.tools, messages))


def merges(form: SftFormat, unit: Unit) -> bool:
    """Whether a row of the format has all learned answers of an episode's conversation."""
    return unit == Unit.EPISODE and form.masks[unit] != Mask.LAST


def changing(thoughts: Thoughts, tally: Tally) -> Callable[[Message], Message]:
    """Return the function that rewrites the thoughts of a message and counts those it strips."""

    def change(message: Message) -> Message:
        if thoughts == Thoughts.STRIP:
            tally.n_stripped += sum(isinstance(block, ThoughtBlock) for block in message.content)
        return with_thoughts(message, thoughts)

    return change


def answers_of_context(example: Example) -> Iterator[Problem]:
    """Yield a problem for each answer that is only context, if the training would learn it."""
    for position, (message, weight) in enumerate(zip(example.messages, example.weights, strict=True)):
        if message.role == Role.ASSISTANT and weight <= 0:
            yield Problem(CONTEXT_ANSWER, f"messages.{position}")
