"""The lines of a training file, and the tally of everything that is not in them."""

from __future__ import annotations

import functools
import json
from collections import Counter
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from trajkit.errors import DataError
from trajkit.formats.base import Example, Format, Problem, json_line
from trajkit.schema import Message, TextBlock, ToolCallBlock
from trajkit.schema.base import JsonObject

EMPTY_ANSWER = "empty answer"
"""Why a step whose answer has neither text nor a tool call is not learned."""

_PROMPT = TypeAdapter(tuple[Message, ...])
_MOST_SHOWN = 3


class Place(NamedTuple):
    """One step of one episode."""

    episode_id: str
    """The episode."""
    step_index: int
    """Position in it."""

    def __str__(self) -> str:
        return f"episode {self.episode_id} step {self.step_index}"


class LineTally:
    """Counts what was not written; bounded, whatever the number of rows."""

    def __init__(self) -> None:
        self.left: Counter[str] = Counter()
        """Steps that gave no line, by reason."""
        self.losses: Counter[str] = Counter()
        """What the lines do not say, by kind."""
        self.first_loss: str = ""
        """Where the first of them is."""
        self.n_refused = 0
        """Steps whose row would be refused."""
        self.refusals: list[str] = []
        """The first few of them, with the reason."""

    def refuse(self, place: Place, found: tuple[Problem, ...]) -> None:
        """Count a row that would be refused, under the first of its problems."""
        self.n_refused += 1
        self.left[f"would be refused: {found[0].kind}"] += 1
        if len(self.refusals) < _MOST_SHOWN:
            self.refusals.append(f"{place}: {'; '.join(map(str, found[:_MOST_SHOWN]))}")


def lines_of(batch: pa.RecordBatch, form: Format, tally: LineTally) -> list[str]:
    """The lines of a batch of `Steps.batches`, in order; what gives no line is added to the tally.

    Raises:
        DataError: A prompt or an answer in the store is not made of messages.
    """
    lines: list[str] = []
    given = zip(batch.column("reason").to_pylist(), batch.column("line").to_pylist(), strict=True)
    for position, (reason, line) in enumerate(given):
        if reason is not None:
            tally.left[reason] += 1
            continue
        if line is None:
            row = {name: batch.column(name)[position].as_py() for name in batch.schema.names}
            line = _line(row, form, tally)
        if line is not None:
            lines.append(line)
    return lines


def _line(row: dict[str, Any], form: Format, tally: LineTally) -> str | None:
    place = Place(row["episode_id"], row["step_index"])
    example = _example(place, row)
    if not any(
        isinstance(block, ToolCallBlock) or (isinstance(block, TextBlock) and block.text)
        for block in example.answer.content
    ):
        tally.left[EMPTY_ANSWER] += 1
        return None
    made = form.row(example)
    if made.problems:
        tally.refuse(place, made.problems)
        return None
    if made.losses and not tally.first_loss:
        tally.first_loss = f"{place}: {made.losses[0].where}"
    tally.losses.update(loss.kind.value for loss in made.losses)
    return json_line(made.value)


def _example(place: Place, row: dict[str, Any]) -> Example:
    try:
        return Example(
            prompt=_PROMPT.validate_json(row["prompt"]),
            answer=Message.model_validate_json(row["completion"]),
            tools=_tools(row["tools"]) if row["tools"] else (),
            weight=row["loss_weight"],
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"{place}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


@functools.lru_cache(maxsize=64)
def _tools(text: str) -> tuple[JsonObject, ...]:
    """The tools of a step, which are mostly those of the step before."""
    return tuple(json.loads(text) or ())
