"""Define a format: a pair of pure functions between trajkit's nouns and JSON of others, with typed losses.

There are seven kinds of formats, by the content of a row:

- `SftFormat`: a conversation, and which of its answers are learned (`Example`)
- `PreferenceFormat`: a prompt with a better and a worse answer (`Preference`)
- `JudgedFormat`: a prompt with an answer that is good or bad (`Judged`)
- `TableFormat`: a step, as columns
- `ExperienceFormat`: sampled tokens with log-probabilities and advantages, as columns
- `StartFormat`: the start of an episode, to be played again
- `EpisodeFormat`: a whole episode, for exchange with other tools

`trajkit.formats.known` lists all formats.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

from trajkit.schema import Episode, Message
from trajkit.schema.base import JsonObject

Content = TypeVar("Content")


class LossKind(StrEnum):
    """Content that a format cannot carry; each name is a noun whose plural ends with s."""

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
    """Something in an example that its row does not have."""

    kind: StrEnum
    """A `LossKind`, or (`formats.profile.Field`) a field of ours."""
    where: str
    """Place in the example, such as `messages.2.content.0`."""


class Problem(NamedTuple):
    """A reason why the target would refuse the row."""

    kind: str
    """The reason, from a small set of texts, so that rows can be counted by it."""
    where: str
    """Place in the row, such as `messages.2.content`."""
    value: str = ""
    """The wrong value; empty if there is none to show."""

    def __str__(self) -> str:
        return f"{self.where}: {self.kind}{f' {self.value}' if self.value else ''}"


class Example(NamedTuple):
    """Content of one row: a conversation, some answers of which are learned."""

    messages: tuple[Message, ...]
    """The conversation; the last message is an answer that is learned."""
    weights: tuple[float, ...]
    """Weight of each message: above 0 for a learned answer, else 0 (context only)."""
    tools: tuple[JsonObject, ...] = ()
    """Tools that the model could call, each `{name, description, parameters, strict}`."""

    @property
    def learned(self) -> tuple[int, ...]:
        """Positions of the learned answers."""
        return tuple(position for position, weight in enumerate(self.weights) if weight > 0)


def one_answer(
    prompt: Sequence[Message], answer: Message, *, tools: tuple[JsonObject, ...] = (), weight: float = 1.0
) -> Example:
    """Return an example that teaches one answer to a prompt."""
    return Example((*prompt, answer), (*(0.0 for _ in prompt), weight), tools)


class Preference(NamedTuple):
    """A prompt with a better and a worse answer."""

    prompt: tuple[Message, ...]
    """All messages that the model saw."""
    chosen: Message
    """The better answer."""
    rejected: Message
    """The worse answer."""
    tools: tuple[JsonObject, ...] = ()
    """Tools that the model could call."""


class Judged(NamedTuple):
    """A prompt, and an answer that is good or bad."""

    prompt: tuple[Message, ...]
    """All messages that the model saw."""
    answer: Message
    is_good: bool
    tools: tuple[JsonObject, ...] = ()
    """Tools that the model could call."""


class Start(NamedTuple):
    """Where an episode begins: attempts with the same start begin in the same world."""

    env_id: str
    """The environment."""
    task: str
    """One of its tasks."""
    seed: int
    """Seed of the world."""


class Row(NamedTuple):
    """An example in a format."""

    value: dict[str, Any]
    """The JSON object."""
    losses: tuple[Loss, ...] = ()
    """Content of the example that is not in it."""
    problems: tuple[Problem, ...] = ()
    """Reasons why the target would refuse it; empty if it would accept it."""


class Document(NamedTuple):
    """An episode in a format."""

    values: tuple[JsonObject, ...]
    """One JSON object, or (`EpisodeFormat.is_lines`) the lines of its own file."""
    losses: tuple[Loss, ...] = ()
    """Content of the episode that is not in it."""


class Unit(StrEnum):
    """What a row is."""

    STEP = "step"
    """Each learned step, after its whole prompt."""
    EPISODE = "episode"
    """Each append-only conversation, with all its learned answers."""


class Mask(StrEnum):
    """Which answers of a row the training learns."""

    EACH = "each"
    """The answers that the row marks."""
    LAST = "last"
    """The last answer: an example with several becomes several rows."""
    ALL = "all"
    """All assistant messages: an example with an answer that is only context has no row."""


class PlainText(NamedTuple):
    """How a format writes messages of one text each, as the strings around the texts.

    The texts are JSON in the store already, so that such a row can be made by replacement, in columns. It has
    the same bytes as `json_line` of `row`. Other rows (other blocks, tools, partial weights) are left to
    `row`.
    """

    before: Mapping[str, str]
    """By role, the string before the text of a context message."""
    learned: str
    """The string before the text of a learned answer, except the last."""
    after: str
    """The string after any text except the last."""
    last: str
    """The string between the other messages and the text of the last answer."""
    tail: str
    """The string after the last answer's text."""
    head: str
    """The string before the messages."""
    between: str = ","
    """The string between two messages."""
    system: tuple[str, str] | None = None
    """The strings around the text of a first system message that stands before `head`; None if it is a
    message like the others."""
    opening: str = ""
    """The string before that."""
    refused: tuple[str, ...] = ()
    """A row with one of these texts is left to `row`."""
    alternates: bool = False
    """Whether only rows are plain in which user and assistant alternate, after a system message or none."""


@dataclass(frozen=True, kw_only=True)
class NamedFormat:
    """A format as users choose it."""

    name: str
    """Its name for users, such as `openai-sft`."""
    about: str
    """Its purpose, in a line."""


@dataclass(frozen=True, kw_only=True)
class RowFormat(NamedFormat, Generic[Content]):
    """Rows that are made of one content each."""

    row: Callable[[Content], Row]
    """Return the row of a content."""
    read: Callable[[JsonObject], Content]
    """Return the content of a row: the one that `row` got, without its losses."""
    columns: Mapping[str, str]
    """DuckDB types of the columns of a table of rows."""
    min_rows: int = 1
    """Minimum rows of a file that the target accepts."""
    target: str | None = None
    """The target whose rules rows follow, as in `trajkit validate --target`; None if no rules are known."""


@dataclass(frozen=True, kw_only=True)
class SftFormat(RowFormat[Example]):
    """Rows for supervised fine-tuning."""

    masks: Mapping[Unit, Mask]
    """Which answers the training learns, by unit."""
    otherwise: str | None = None
    """Name of a format for the same target that can carry answers that are only context; None without one."""
    plain: Callable[[Unit], PlainText] | None = None
    """How to write plain-text rows by columns; None if it cannot be declared."""
    files: Callable[[Training], Mapping[str, str]] | None = None
    """Return the other files of a folder to train from, by name; None if the rows are a single file."""


class PreferenceFormat(RowFormat[Preference]):
    """Rows of preferences between two answers."""


class JudgedFormat(RowFormat[Judged]):
    """Rows of answers that are good or bad."""


@dataclass(frozen=True, kw_only=True)
class TableFormat(NamedFormat):
    """A table of steps: a row is a step, made by columns alone."""

    columns: Mapping[str, str]
    """By name, an SQL expression over the columns of `steps_full` (as `s`) and `episodes` (as `e`)."""


@dataclass(frozen=True, kw_only=True)
class ExperienceFormat(NamedFormat):
    """Rows for training a policy: sampled ids, log-probabilities and advantages, made by columns alone."""

    columns: Mapping[str, str]
    """By name, an SQL expression over the columns of `trajkit.schema.experience.Experience`."""
    carries: frozenset[str]
    """Those of its columns that a row has; values of other columns are counted as lost."""
    units: tuple[Unit, ...] = (Unit.EPISODE, Unit.STEP)
    """Allowed units; the first is the default. An episode's row joins steps that extend the ids before."""


@dataclass(frozen=True, kw_only=True)
class StartFormat(NamedFormat):
    """Rows of starts, for a trainer that plays from them: each start once, however often it was played."""

    row: Callable[[Start], JsonObject]
    """The row of a start."""
    columns: Mapping[str, str]
    """Columns of a table of rows, with their types in DuckDB's words."""


@dataclass(frozen=True, kw_only=True)
class EpisodeFormat(NamedFormat):
    """Whole episodes, for exchange with other tools."""

    write: Callable[[Episode], Document]
    """Return the document of an episode."""
    read: Callable[[Sequence[JsonObject]], Episode]
    """Return the episode of a document: the one that `write` got, without its losses."""
    is_lines: bool = False
    """Whether a document is its own JSON Lines file; else it is a single object."""
    is_file: bool = False
    """Whether every document is its own file in a folder; else documents are the lines of one file."""
    is_trained_on: bool = False
    """Whether trainers read it directly: then evaluation episodes are refused."""


Format = (
    SftFormat | PreferenceFormat | JudgedFormat | TableFormat | ExperienceFormat | StartFormat | EpisodeFormat
)
"""Anything that `trajkit convert --to` takes."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """Facts about a training file, for the files beside it."""

    data: str
    """Name of the file with the rows."""
    unit: Unit
    """What a row is."""
    model: str
    """The model to train."""
    max_tokens: int
    """An upper bound of the tokens of a row."""
    columns: frozenset[str] = field(default_factory=frozenset)
    """Columns that at least one row has."""


def json_line(value: Mapping[str, Any]) -> str:
    """Write a row as one line of JSON without the line break: no spaces, unescaped characters."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
