"""The result of a conversion: its file, counts and losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import trajkit
from trajkit._core.output import console
from trajkit._core.output.result import Result
from trajkit.curation.rows.place import Place
from trajkit.curation.rows.request import Options
from trajkit.curation.rows.spool import Written
from trajkit.curation.rows.steps import Steps
from trajkit.formats.base import Format, JudgedFormat, PreferenceFormat, SftFormat, Unit
from trajkit.schema import Model
from trajkit.store.dataset import Dataset

Progress = Callable[[int, int], None]
"""Called with the number of steps done, and the total."""


class Saving(Model):
    """Size that is saved by merging the steps of conversations."""

    measure: str
    """`tokens`, or `characters` of the messages as the store spells them."""
    n: int
    """Size of the rows."""
    n_by_step: int
    """Size of the rows if each step had its own."""


class Conversion(Result, Model):
    """The contents of a training file, and counts of what it lacks."""

    path: Path
    """The file, or the folder."""
    data: Path
    """The file with the rows: `path`, or a file in it."""
    provenance: Path | None = None
    """The file with the origin of each row; None if the rows contain it themselves."""
    format: str
    """Name of the format."""
    unit: Unit | None = None
    """Whether a row is a step or an episode; None if neither."""
    n_rows: int
    """Number of rows."""
    n_bytes: int
    """Size of the rows' file; of all files if each row has its own."""
    sha256: str
    """Hash of the rows' file; of several files, over their names and hashes in order."""
    store: Path
    """The store, or the pairs."""
    store_digest: str
    """Content digest of the store, or of the pairs."""
    n_episodes: int
    """Episodes that were read."""
    n_steps: int
    """Their steps; for preferences, the pairs."""
    n_learned: int
    """Steps that the rows teach; with `left` they add up to `n_steps`."""
    n_evaluation_episodes: int = 0
    """Episodes that were played for evaluation."""
    left: dict[str, int] = {}
    """Steps that are in no row, by reason."""
    losses: dict[str, int] = {}
    """Contents of steps that the format cannot carry, by kind."""
    n_stripped: int = 0
    """Thoughts that were left out as asked."""
    n_trimmed: int = 0
    """Rows that lost their oldest turns."""
    n_turns_trimmed: int = 0
    """Number of these turns."""
    n_tokens: int | None = None
    """Tokens of all rows; None if they were not counted."""
    is_exact: bool = False
    """Whether the training sees exactly these tokens; else they are an estimate."""
    saving: Saving | None = None
    """Size saved by merging; None if no steps are merged."""
    warnings: tuple[str, ...] = ()
    """Warnings to read before using the file."""

    def __str__(self) -> str:
        noun = "line" if self.data.suffix != ".parquet" else "row"
        parts = [str(self.path), console.plural(self.n_rows, noun)]
        if self.n_tokens is not None:
            parts.append(f"{'' if self.is_exact else 'about '}{console.plural(self.n_tokens, 'token')}")
        parts.append(console.size(self.n_bytes))
        if self.provenance and self.data == self.path:
            parts.append(f"and {self.provenance.name}")
        return console.line("  ".join(parts))


def converted(
    form: Format, dataset: Dataset, steps: Steps, place: Place, written: Written, **more: Any
) -> Conversion:
    """Return the result of converting a store to one file of rows.

    Args:
        form: The format.
        dataset: The episodes that were read.
        steps: Their steps.
        place: Where the file is.
        written: Its size and hash.
        more: Other fields of `Conversion`: what the rows teach, and what they lack.
    """
    warnings = tuple(warnings_of(form, written.n_rows, steps.n_evaluation))
    return Conversion(
        path=place.goal,
        data=place.data,
        format=form.name,
        n_rows=written.n_rows,
        n_bytes=written.n_bytes,
        sha256=written.sha256,
        store=dataset.store.path,
        store_digest=dataset.store.manifest.digest,
        n_episodes=steps.n_episodes,
        n_evaluation_episodes=steps.n_evaluation,
        **({"n_steps": steps.n_steps, "warnings": warnings} | more),
    )


def facts(made: Conversion, asked: Options) -> dict[str, Any]:
    """Return the counts and options for the provenance, without file names, which may change."""
    return {
        "conversion": made.model_dump(mode="json", exclude={"path", "data", "provenance"}),
        "options": asked.model_dump(mode="json"),
        "trajkit_version": trajkit.__version__,
    }


def warnings_of(form: Format, n_rows: int, n_evaluation: int) -> Iterator[str]:
    """Yield warnings about a file.

    Args:
        form: Its format.
        n_rows: Its number of rows.
        n_evaluation: Evaluation episodes in it.
    """
    least = form.min_rows if isinstance(form, SftFormat | PreferenceFormat | JudgedFormat) else 1
    if n_rows < least:
        yield f"{console.plural(n_rows, 'row')}: {form.name} needs at least {least}, or the file is refused"
    if n_evaluation:
        episodes = console.plural(n_evaluation, "evaluation episode")
        yield f"{episodes} included: evaluating on them is then void"
