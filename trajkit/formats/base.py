"""What a format is: a pair of pure functions between our nouns and somebody's JSON, with typed losses.

There are seven kinds of formats, by what one row of theirs is made of:

- `SftFormat`: a conversation, and which of its answers are learned (`Example`)
- `PreferenceFormat`: a prompt with a better and a worse answer (`Preference`)
- `JudgedFormat`: a prompt with an answer that is good or bad (`Judged`)
- `TableFormat`: a step, as columns
- `ExperienceFormat`: tokens as they were sampled
- `StartFormat`: where an episode begins, to be played again
- `EpisodeFormat`: an episode whole, for exchange with other tools

`trajkit.formats.known` lists them all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from trajkit.schema import Episode, Message
from trajkit.schema.base import JsonObject


class LossKind(StrEnum):
    """What a format could not carry; a noun that takes an s."""

    THOUGHT = "thought"
    THOUGHT_SIGNATURE = "thought signature"
    IMAGE = "image"
    FILE = "file"
    FILE_FIELD = "file field"
    UNKNOWN_BLOCK = "unknown block"
    PARTIAL_WEIGHT = "partial weight"
    TEXT_BESIDE_CALL = "text beside a tool call"
    JOINED_TEXT = "joined text"
    JOINED_MESSAGE = "joined message"
    BLOCK_ORDER = "block order"
    MESSAGE_ROLE = "message role"
    BLOCK_AS_TEXT = "block as text"
    LATER_TURN = "later turn"
    TOOL = "tool"
    TOOL_CALL_ID = "tool call id"
    TOOL_NAME = "tool name"
    TOOL_FIELD = "tool field"
    REPEATED_START = "repeated start"
    INITIAL_STATE = "initial state"
    EPISODE_REWARD = "episode reward"


class Loss(NamedTuple):
    """One thing that the row does not say although the example did."""

    kind: StrEnum
    """What it was: a `LossKind`, or (`formats.profile.Field`) a field of ours."""
    where: str
    """Its place in the example, such as `messages.2.content.0`."""


class Problem(NamedTuple):
    """One thing for which the row would be refused by those it is written for."""

    kind: str
    """What is wrong, in words of which there are few, so that rows can be counted by it."""
    where: str
    """Its place in the row, such as `messages.2.content`."""
    value: str = ""
    """The value that is wrong; empty when there is none to show."""

    def __str__(self) -> str:
        return f"{self.where}: {self.kind}{f' {self.value}' if self.value else ''}"


class Example(NamedTuple):
    """What one row teaches: a conversation, of which some answers are learned."""

    messages: tuple[Message, ...]
    """The conversation; the last message is an answer that is learned."""
    weights: tuple[float, ...]
    """How much each message counts: above 0 for an answer that is learned, else 0 (context only)."""
    tools: tuple[JsonObject, ...] = ()
    """Tools that the model could call, each `{name, description, parameters, strict}`."""

    @property
    def learned(self) -> tuple[int, ...]:
        """Positions of the answers that are learned."""
        return tuple(position for position, weight in enumerate(self.weights) if weight > 0)


def one_answer(
    prompt: Sequence[Message], answer: Message, *, tools: tuple[JsonObject, ...] = (), weight: float = 1.0
) -> Example:
    """An example that teaches one answer: after this prompt, say this."""
    return Example((*prompt, answer), (*(0.0 for _ in prompt), weight), tools)


class Preference(NamedTuple):
    """A prompt, and two answers of which one is better."""

    prompt: tuple[Message, ...]
    """Every message that the model saw."""
    chosen: Message
    """The better answer."""
    rejected: Message
    """The worse one."""
    tools: tuple[JsonObject, ...] = ()
    """Tools that it could call."""


class Judged(NamedTuple):
    """A prompt, and an answer that is good or bad."""

    prompt: tuple[Message, ...]
    """Every message that the model saw."""
    answer: Message
    """What it said."""
    is_good: bool
    """Whether it shall say so."""
    tools: tuple[JsonObject, ...] = ()
    """Tools that it could call."""


class Start(NamedTuple):
    """Where an episode begins: attempts with the same start begin in the same world."""

    env_id: str
    """The environment."""
    task: str
    """One of its tasks."""
    seed: int
    """Seed of the world."""


class Row(NamedTuple):
    """An example in somebody's shape."""

    value: dict[str, Any]
    """The JSON object."""
    losses: tuple[Loss, ...] = ()
    """What of the example is not in it."""
    problems: tuple[Problem, ...] = ()
    """Why it would be refused; empty when it would be taken."""


class Document(NamedTuple):
    """An episode in somebody's shape."""

    values: tuple[JsonObject, ...]
    """One JSON object, or (`EpisodeFormat.is_lines`) the lines of a file of its own."""
    losses: tuple[Loss, ...] = ()
    """What of the episode is not in it."""


class Unit(StrEnum):
    """What becomes a row."""

    STEP = "step"
    """Each step that is learned, after its whole prompt."""
    EPISODE = "episode"
    """Each append-only conversation, with every answer of it that is learned."""


class Mask(StrEnum):
    """Which answers of a row the training learns, as far as the row can say it."""

    EACH = "each"
    """Those that the row names."""
    LAST = "last"
    """The last one: an example with several becomes several rows."""
    ALL = "all"
    """All that the assistant says: an example with an answer that is only context cannot be said."""


class PlainText(NamedTuple):
    """How a format writes messages of one text each, as what stands around the text.

    Texts are JSON where they come from, so that such a row can be made by replacing, in columns. It has the
    same bytes as `json_line` of `row`; what is not plain (other blocks, tools, partial weights) goes there.
    """

    before: Mapping[str, str]
    """By role, what comes before the text of a message that is context."""
    learned: str
    """What comes before the text of an answer that is learned, but for the last."""
    after: str
    """What comes after any text but the last."""
    last: str
    """What comes between the other messages and the text of the last answer."""
    tail: str
    """What comes after it."""
    head: str
    """What comes before the messages."""
    between: str = ","
    """What comes between two messages."""
    system: tuple[str, str] | None = None
    """What comes around the text of a first system message that stands before `head`; None where it is a
    message like the others."""
    opening: str = ""
    """What comes before that."""
    refused: tuple[str, ...] = ()
    """A row with one of these texts is for `row` to look at."""
    alternates: bool = False
    """Only rows are plain in which user and assistant take turns, after a system message or none."""


@dataclass(frozen=True, kw_only=True)
class SftFormat:
    """Rows for supervised fine-tuning."""

    name: str
    """What the user calls it, such as `openai-sft`."""
    about: str
    """What it is for, in a line."""
    row: Callable[[Example], Row]
    """The row of an example."""
    read: Callable[[JsonObject], Example]
    """The example of a row: what `row` was given, without what its losses name."""
    columns: Mapping[str, str]
    """Columns of a table of rows, with their types in DuckDB's words."""
    masks: Mapping[Unit, Mask]
    """What the training learns of rows of each unit."""
    otherwise: str | None = None
    """Name of the format that says the same where an answer is only context; None where there is none."""
    min_rows: int = 1
    """Files with fewer rows are refused; 1 when any number will do."""
    target: str | None = None
    """Whose rules every row follows, as `trajkit validate --target` calls it; None where none are known."""
    plain: Callable[[Unit], PlainText] | None = None
    """The usual case by columns; None when there is none."""
    files: Callable[[Training], Mapping[str, str]] | None = None
    """The other files of a folder to train from, by name; None when a single file is all."""


@dataclass(frozen=True, kw_only=True)
class PreferenceFormat:
    """Rows of preferences between two answers."""

    name: str
    """What the user calls it."""
    about: str
    """What it is for, in a line."""
    row: Callable[[Preference], Row]
    """The row of a preference."""
    read: Callable[[JsonObject], Preference]
    """The preference of a row: what `row` was given, without what its losses name."""
    columns: Mapping[str, str]
    """Columns of a table of rows, with their types in DuckDB's words."""
    min_rows: int = 1
    """Files with fewer rows are refused."""
    target: str | None = None
    """Whose rules every row follows, as `trajkit validate --target` calls it; None where none are known."""


@dataclass(frozen=True, kw_only=True)
class JudgedFormat:
    """Rows of answers that are good or bad."""

    name: str
    """What the user calls it."""
    about: str
    """What it is for, in a line."""
    row: Callable[[Judged], Row]
    """The row of a judged answer."""
    read: Callable[[JsonObject], Judged]
    """The judged answer of a row: what `row` was given, without what its losses name."""
    columns: Mapping[str, str]
    """Columns of a table of rows, with their types in DuckDB's words."""
    min_rows: int = 1
    """Files with fewer rows are refused."""
    target: str | None = None
    """Whose rules every row follows, as `trajkit validate --target` calls it; None where none are known."""


@dataclass(frozen=True, kw_only=True)
class TableFormat:
    """A table of steps: a row is a step, made by columns alone."""

    name: str
    """What the user calls it."""
    about: str
    """What it is for, in a line."""
    columns: Mapping[str, str]
    """By name, an SQL expression over the columns of `steps_full` (as `s`) and `episodes` (as `e`)."""


@dataclass(frozen=True, kw_only=True)
class ExperienceFormat:
    """Rows to train a policy on: ids as sampled, log-probabilities and advantages, made by columns alone."""

    name: str
    """What the user calls it."""
    about: str
    """What it is for, in a line."""
    columns: Mapping[str, str]
    """By name, an SQL expression over the columns of `trajkit.schema.experience.Experience`."""
    carries: frozenset[str]
    """Those of its columns that a row says; where others have a value, it is counted as lost."""
    units: tuple[Unit, ...] = (Unit.EPISODE, Unit.STEP)
    """What a row may be; the first is the default. An episode is as much of it as extends the ids before."""


@dataclass(frozen=True, kw_only=True)
class StartFormat:
    """Rows of starts, for a trainer that plays from them: each start once, however often it was played."""

    name: str
    """What the user calls it."""
    about: str
    """What it is for, in a line."""
    row: Callable[[Start], JsonObject]
    """The row of a start."""
    columns: Mapping[str, str]
    """Columns of a table of rows, with their types in DuckDB's words."""


@dataclass(frozen=True, kw_only=True)
class EpisodeFormat:
    """Whole episodes, for exchange with other tools."""

    name: str
    """What the user calls it."""
    about: str
    """What it is for, in a line."""
    write: Callable[[Episode], Document]
    """The document of an episode."""
    read: Callable[[Sequence[JsonObject]], Episode]
    """The episode of a document: what `write` was given, without what its losses name."""
    is_lines: bool = False
    """A document is a JSON Lines file of its own; else a single object."""
    is_file: bool = False
    """Every document is a file of its own in a folder; else they are the lines of one file."""
    is_trained_on: bool = False
    """Whether trainers read it as it is: then what was played for evaluation is kept out."""


Format = (
    SftFormat | PreferenceFormat | JudgedFormat | TableFormat | ExperienceFormat | StartFormat | EpisodeFormat
)
"""Anything that `trajkit convert --to` takes."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """What is known of a training file when the files beside it are written."""

    data: str
    """Name of the file with the rows."""
    unit: Unit
    """What a row is."""
    model: str
    """The model to train."""
    max_tokens: int
    """No row has more tokens than this."""
    columns: frozenset[str] = field(default_factory=frozenset)
    """Columns that at least one row has."""


def json_line(value: Mapping[str, Any]) -> str:
    """A row as one line of JSON, without the line break: no spaces, characters as they are."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
