"""The options of a conversion."""

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
from trajkit.formats.chat.think import Thoughts
from trajkit.schema import Model

DEFAULT_MODEL = "Qwen/Qwen3-0.6B"
"""Default model in the settings that are written beside the rows."""

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
    """What happens to a row that is too long."""

    ERROR = "error"
    """An error names the first few, and nothing is written."""
    DROP = "drop"
    """The row is left out and counted."""
    TRIM_HISTORY = "trim-history"
    """The oldest turns are removed until the row fits. The system message, the task (the first user message),
    the newest observation and the answer stay. A row that still does not fit is left out."""


class FileKind(StrEnum):
    """How rows are stored."""

    JSONL = "jsonl"
    """A JSON object per line."""
    PARQUET = "parquet"
    """A Parquet file."""


class Options(Model):
    """How rows are made."""

    unit: Unit = Unit.STEP
    """What a row is."""
    thoughts: Thoughts = Thoughts.KEEP
    """What happens to thoughts."""
    max_length: Annotated[int, Field(gt=0)] | None = None
    """Maximum tokens per row; None for no limit. Needs `tokenizer`."""
    overlong: Overlong = Overlong.ERROR
    """What happens to longer rows."""
    tokenizer: str | None = None
    """Tokenizer that counts tokens: a folder with one of Hugging Face, or `tiktoken:NAME`."""
    good: str | None = None
    """For judged answers: an SQL condition on episodes that says which are good; None uses their outcome."""
    tools: str | None = None
    """Tools for rows that declare none, or call undeclared ones: a file with a list of tools, or `from-calls`
    to declare them from their calls; None leaves such rows as they are."""
    model: str = DEFAULT_MODEL
    """The model in the settings beside the rows."""
    include_eval: bool = False
    """Also take episodes that were played for evaluation."""
    strict: bool = False
    """Fail if a row cannot carry everything of its step."""
    skip_bad: bool = False
    """Leave out rows that the target would refuse, and count them, instead of failing."""
    kind: FileKind | None = None
    """How rows are stored; None derives it from the name of the file."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.max_length is not None and self.tokenizer is None:
            raise ValueError("a length in tokens needs a tokenizer: --tokenizer DIR or tiktoken:NAME")
        if self.max_length is None and self.overlong != Overlong.ERROR:
            raise ValueError(f"--overlong {self.overlong} needs --max-length")
        return self

    def kind_of(self, goal: Path) -> FileKind:
        """Return how the rows of this file are stored."""
        if self.kind is not None:
            return self.kind
        return FileKind.PARQUET if goal.suffix == ".parquet" else FileKind.JSONL


def checked(form: Format, options: Mapping[str, Any]) -> Options:
    """Validate options, and refuse those that the format does not use.

    The default unit is a step, or an episode if the format learns every answer of a row: then rows of later
    steps would teach the earlier answers again.

    Raises:
        RequestError: A value is invalid, or the format does not use an option.
    """
    try:
        asked = Options.model_validate(dict(options))
    except ValidationError as error:
        raise RequestError(problem_of(error)) from error
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
