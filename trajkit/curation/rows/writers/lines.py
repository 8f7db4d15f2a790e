"""Write lines in Python: for steps that are not plain text, and wherever tokens are counted.

`plain_line` writes all others: the same bytes, in columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


class Lines:
    """Makes the lines of episodes.

    Args:
        form: The format.
        options: The options.
        calls: Completes tool calls, and checks rows.
        lengths: Counts tokens, if asked for.
        tally: Counts losses and problems.
        verdicts: For judged answers: whether an episode is good, by its id; unknown if missing.
    """

    def __init__(
        self,
        form: SftFormat | JudgedFormat,
        options: Options,
        calls: Calls,
        lengths: Lengths | None,
        tally: Tally,
        verdicts: Mapping[str, bool],
    ) -> None:
        self._form, self._calls, self._lengths, self._tally = form, calls, lengths, tally
        self._verdicts = verdicts
        mask = form.masks[options.unit] if isinstance(form, SftFormat) else Mask.LAST
        self._learns_all = mask == Mask.ALL
        self.merges = options.unit == Unit.EPISODE and mask != Mask.LAST
        """Whether a row has all learned answers of an episode's conversation."""
        self._change = changing(options.thoughts, tally)
        self.columns: set[str] = set()
        """Columns that a row has had so far."""

    def of(self, rows: Sequence[dict[str, Any]]) -> list[Outcome]:
        """Return the result of each step of an episode.

        Raises:
            DataError: A prompt or an answer in the store is not valid.
        """
        steps = said(rows, self._change)
        outcomes = [Outcome(step.reason, n_characters=step.n_characters) for step in steps]
        for lesson in (merged_lessons if self.merges else lessons)(steps):
            self._write(lesson, steps, outcomes)
        return outcomes

    def _write(self, lesson: Lesson, steps: Sequence[Said], outcomes: list[Outcome]) -> None:
        taught = lesson.steps
        place = steps[taught[-1]].place
        if isinstance(self._form, JudgedFormat) and place.episode_id not in self._verdicts:
            outcomes[taught[-1]].reason = "neither good nor bad"
            return
        messages = self._calls.with_ids(lesson.example.messages)
        tools = self._calls.with_tools(lesson.example.tools, messages)
        example = lesson.example._replace(messages=messages, tools=tools)
        if self._lengths is not None:
            fitted = self._lengths.fit(example, place)
            for position in taught[: len(taught) - fitted.n_learned]:
                outcomes[position].reason = fitted.reason
            if fitted.example is None:
                return
            example = fitted.example
            taught = taught[len(taught) - fitted.n_learned :]
            outcomes[taught[-1]].n_tokens = fitted.n_tokens
        row = self._row(example, place.episode_id)
        if row.problems:
            reason = self._tally.refuse(place, row.problems)
            for position in taught:
                outcomes[position].reason = reason
            return
        self._tally.lose(place, row.losses)
        self.columns.update(row.value)
        outcomes[taught[-1]].line = json_line(row.value)

    def _row(self, example: Example, episode_id: str) -> Row:
        if isinstance(self._form, JudgedFormat):
            *prompt, answer = example.messages
            is_good = self._verdicts[episode_id]
            return self._calls.checked(self._form.row(Judged(tuple(prompt), answer, is_good, example.tools)))
        row = self._calls.checked(self._form.row(example))
        if self._learns_all and (unlearned := list(_answers_of_context(example))):
            return row._replace(problems=(*unlearned, *row.problems))
        return row


def changing(thoughts: Thoughts, tally: Tally) -> Callable[[Message], Message]:
    """Return the function that rewrites the thoughts of a message and counts those it strips."""

    def change(message: Message) -> Message:
        if thoughts == Thoughts.STRIP:
            tally.n_stripped += sum(isinstance(block, ThoughtBlock) for block in message.content)
        return with_thoughts(message, thoughts)

    return change


def _answers_of_context(example: Example) -> Iterator[Problem]:
    """Yield a problem for each answer that is only context, if the training would learn it."""
    for position, (message, weight) in enumerate(zip(example.messages, example.weights, strict=True)):
        if message.role == Role.ASSISTANT and weight <= 0:
            yield Problem(CONTEXT_ANSWER, f"messages.{position}")
