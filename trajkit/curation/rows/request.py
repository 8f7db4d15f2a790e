"""What a conversion is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from trajkit._core.outside import problem_of
from trajkit.errors import RequestError
from trajkit.formats.base import (
    EpisodeFormat,
    ExperienceFormat,
    Format,
    JudgedFormat,
    Mask,
    PreferenceFormat,
    SftFormat,
    StartFormat,
    TableFormat,
    Unit,
)
from trajkit.formats.think import Thoughts
from trajkit.schema import Model

DEFAULT_MODEL = "Qwen/Qwen3-0.6B"
"""What the settings beside the rows train, where nobody says."""

_LENGTHS = frozenset({"max_length", "overlong", "tokenizer"})
_USED: dict[type[Format], frozenset[str]] = {
    SftFormat: frozenset({"unit", "thoughts", "model", "tools"}) | _LENGTHS,
    JudgedFormat: frozenset({"thoughts", "good", "tools"}) | _LENGTHS,
    PreferenceFormat: frozenset({"thoughts", "tools"}) | _LENGTHS,
    TableFormat: frozenset(),
    ExperienceFormat: frozenset({"unit"}),
    StartFormat: frozenset(),
    EpisodeFormat: frozenset(),
}
_ALWAYS = frozenset({"include_eval", "strict", "skip_bad", "kind"})


class Overlong(StrEnum):
    """What becomes of a row that is too long."""

    ERROR = "error"
    """Nothing is written, and the first few are named."""
    DROP = "drop"
    """It is left out and counted."""
    TRIM_HISTORY = "trim-history"
    """Its oldest turns go, until it fits. What must stay: the system message, the task (the first message of
    the user), the newest observation and the answer. A row that does not fit even so is left out."""


class FileKind(StrEnum):
    """How rows are stored."""

    JSONL = "jsonl"
    """A JSON object per line."""
    PARQUET = "parquet"
    """Columns."""


class Options(Model):
    """How rows are made."""

    unit: Unit = Unit.STEP
    """What becomes a row."""
    thoughts: Thoughts = Thoughts.KEEP
    """What becomes of thoughts."""
    max_length: Annotated[int, Field(gt=0)] | None = None
    """Most tokens of a row; None for any number. Needs `tokenizer`."""
    overlong: Overlong = Overlong.ERROR
    """What becomes of rows that have more."""
    tokenizer: str | None = None
    """What counts tokens: a folder with a Hugging Face tokenizer, or `tiktoken:NAME`."""
    good: str | None = None
    """Of judged answers: an SQL condition on episodes that says which are good; None for their outcome."""
    tools: str | None = None
    """Tools for rows that declare none, or call one that they do not declare: a file with a list of tools, or
    `from-calls` to declare them as they are called; None: such rows stay as they are."""
    model: str = DEFAULT_MODEL
    """The model in the settings beside the rows."""
    include_eval: bool = False
    """Take episodes that were played for evaluation as well."""
    strict: bool = False
    """Fail when a row cannot say all that the step does."""
    skip_bad: bool = False
    """Leave out rows that would be refused, and count them, instead of failing."""
    kind: FileKind | None = None
    """How rows are stored; None: by the name of the file."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.max_length is not None and self.tokenizer is None:
            raise ValueError("a length in tokens needs a tokenizer: --tokenizer DIR or tiktoken:NAME")
        if self.max_length is None and self.overlong != Overlong.ERROR:
            raise ValueError(f"--overlong {self.overlong} needs --max-length")
        return self

    def kind_of(self, goal: Path) -> FileKind:
        """How the rows of this file are stored."""
        if self.kind is not None:
            return self.kind
        return FileKind.PARQUET if goal.suffix == ".parquet" else FileKind.JSONL


def options_of(**given: object) -> Options:
    """The options, checked.

    Raises:
        RequestError: A value is not one of those there are, or one needs another.
    """
    try:
        return Options.model_validate(given)
    except ValidationError as error:
        raise RequestError(problem_of(error)) from error


def checked(form: Format, options: Mapping[str, Any]) -> Options:
    """The options, all of which the format has a use for.

    Without a unit a row is a step, or a conversation where the format learns every answer of a row: there a
    row of a later step would teach the answers before it again.

    Raises:
        RequestError: A value is not one of those there are, or an option makes no sense with the format.
    """
    asked = options_of(**options)
    for name in sorted(asked.model_fields_set - _USED[type(form)] - _ALWAYS):
        if getattr(asked, name) != Options.model_fields[name].default:
            raise RequestError(f"--{name.replace('_', '-')} makes no sense with {form.name}")
    if isinstance(form, ExperienceFormat):
        if "unit" in options and asked.unit not in form.units:
            raise RequestError(f"a row of {form.name} is one step, and not --unit {asked.unit}")
        return asked if "unit" in options else asked.model_copy(update={"unit": form.units[0]})
    if "unit" not in options and isinstance(form, SftFormat) and form.masks[Unit.STEP] == Mask.ALL:
        return asked.model_copy(update={"unit": Unit.EPISODE})
    return asked
