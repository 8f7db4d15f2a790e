"""What a conversion wrote, and what it did not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trajkit
from trajkit._core import console
from trajkit._core.result import Result
from trajkit.curation.rows.request import Options
from trajkit.curation.rows.tally import plural
from trajkit.formats.base import EpisodeFormat, ExperienceFormat, Format, StartFormat, TableFormat, Unit
from trajkit.schema import Model


class Saving(Model):
    """What merging the steps of conversations saves."""

    measure: str
    """`tokens`, or `characters` of the messages as the store spells them."""
    n: int
    """As many the rows have."""
    n_by_step: int
    """As many as a row for each step would have."""


class Conversion(Result, Model):
    """What a training file holds, and what it does not."""

    path: Path
    """The file, or the folder."""
    data: Path
    """The file with the rows: `path`, or in it."""
    provenance: Path | None = None
    """The file that says where each row is from; None where the rows say it themselves."""
    format: str
    """Its format."""
    unit: Unit | None = None
    """What a row is; None where it is neither."""
    n_rows: int
    """How many there are."""
    n_bytes: int
    """Size of the rows' file, or of all files where each row is one."""
    sha256: str
    """Of its bytes; of files, over their names and sums in order."""
    store: Path
    """Where the steps came from."""
    store_digest: str
    """The content digest of that store, or of the pairs."""
    n_episodes: int
    """Episodes that were looked at."""
    n_steps: int
    """Their steps; of preferences, the pairs."""
    n_learned: int
    """Steps that the rows teach; with `left` they add up to `n_steps`."""
    n_evaluation_episodes: int = 0
    """Those of the episodes that were played for evaluation."""
    left: dict[str, int] = {}
    """Steps that are in no row, by reason."""
    losses: dict[str, int] = {}
    """What the rows do not say although the steps did, by kind."""
    n_stripped: int = 0
    """Thoughts that were left out as asked."""
    n_trimmed: int = 0
    """Rows that lost their oldest turns."""
    n_turns_trimmed: int = 0
    """How many turns that were."""
    n_tokens: int | None = None
    """Tokens of all rows; None when they were not counted."""
    is_exact: bool = False
    """Whether these are the tokens that the training sees; else they are an estimate."""
    saving: Saving | None = None
    """What merging saves; None where no steps are merged."""
    warnings: tuple[str, ...] = ()
    """What a user should know before using the file."""

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return self.model_dump(mode="json")

    def __str__(self) -> str:
        noun = "line" if self.data.suffix != ".parquet" else "row"
        parts = [str(self.path), console.plural(self.n_rows, noun)]
        if self.n_tokens is not None:
            parts.append(f"{'' if self.is_exact else 'about '}{console.plural(self.n_tokens, 'token')}")
        parts.append(console.size(self.n_bytes))
        if self.provenance and self.data == self.path:
            parts.append(f"and {self.provenance.name}")
        return console.line("  ".join(parts))


def facts(made: Conversion, asked: Options) -> dict[str, Any]:
    """What was done, for the provenance: without the names of files, which may be moved."""
    return {
        "conversion": made.model_dump(mode="json", exclude={"path", "data", "provenance"}),
        "options": asked.model_dump(mode="json"),
        "trajkit_version": trajkit.__version__,
    }


def warnings_of(form: Format, n_rows: int, n_evaluation: int) -> Iterator[str]:
    """What a user should know before using a file.

    Args:
        form: Its format.
        n_rows: How many rows it has.
        n_evaluation: Evaluation episodes that are in it.
    """
    has_no_least = isinstance(form, TableFormat | ExperienceFormat | StartFormat | EpisodeFormat)
    least = 1 if has_no_least else form.min_rows
    if n_rows < least:
        yield f"{plural(n_rows, 'row')}: {form.name} wants at least {least}, or the file is refused"
    if n_evaluation:
        yield f"training takes in {plural(n_evaluation, 'evaluation episode')}: what they measure is void"
