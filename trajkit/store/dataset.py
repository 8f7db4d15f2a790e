"""A lazy view of a store: verbs that choose episodes, and counts of the others by reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trajkit._core.lazy import need
from trajkit.errors import NothingMatched, QueryError
from trajkit.schema import Episode, Manifest
from trajkit.store.chosen import Chosen, Verb, try_verb
from trajkit.store.reader import Store, open_store
from trajkit.store.tally import Tally

if TYPE_CHECKING:
    import datasets
    import polars as pl
    import pyarrow as pa

Table = Literal["episodes", "steps", "feedback", "steps_full"]
"""The tables of a dataset."""


@dataclass(frozen=True, repr=False)
class Dataset:
    """The episodes of a store that some verbs choose. Nothing is read before it is needed.

    Episodes come in the order of `order_by`, else of their ids; the steps of an episode in their order.
    """

    store: Store
    verbs: tuple[Verb, ...] = ()
    """The verbs, oldest first."""

    def where(self, expression: str) -> Dataset:
        """Keep the episodes for which a condition is true.

        Args:
            expression: As in `trajkit select --where`: over the columns of `episodes`, its metrics and
                `tags.KEY`, such as `episode_return >= 0.7 and task = 'goto'`. A comparison with a missing
                value is false, its negation true. Only `select` supports groups of episodes (`rank`, `avg`,
                `n`, `pass@k`).

        Raises:
            QueryError: It is not a condition, or names no column; the hint gives the nearest names.
        """
        return self._then(Verb("where", expression))

    def order_by(self, expression: str, *, descending: bool = False) -> Dataset:
        """Sort by an expression; equal values by id, missing values last.

        Args:
            expression: As in `where`.
            descending: Largest first.

        Raises:
            QueryError: It is not one expression, or names no column.
        """
        return self._then(Verb("order_by", expression, is_descending=descending))

    def limit(self, n: int) -> Dataset:
        """Keep the first `n` episodes.

        Raises:
            QueryError: `n` is negative.
        """
        if n < 0:
            raise QueryError(f"a limit of {n} episodes; it must be 0 or more")
        return self._then(Verb("limit", str(n)))

    @property
    def n_episodes(self) -> int:
        """Number of chosen episodes."""
        return self._counts()[0]

    @property
    def n_steps(self) -> int:
        """Number of their steps."""
        return self._counts()[1]

    def __len__(self) -> int:
        return self.n_episodes

    def __bool__(self) -> bool:
        return True  # also if no episode matches: for that there is `n_episodes`

    def why(self) -> Tally:
        """Count the episodes by reason: first in the store's own lineage, then for each verb."""
        if not self.verbs:
            return Tally(self.store.manifest.lineage)
        with Chosen(self.store, self.verbs) as chosen:
            return Tally((*self.store.manifest.lineage, *chosen.lineage()))

    def arrow(self, table: Table = "episodes") -> pa.RecordBatchReader:
        """Stream the rows as Arrow batches; free-form columns are JSON text.

        Args:
            table: `steps_full` is `steps` with the column `prompt`: all messages that the model saw.
        """
        chosen = Chosen(self.store, self.verbs)
        return chosen.reader(table)

    def polars(self, table: Table = "episodes") -> pl.DataFrame:
        """Return the rows as a polars frame, in memory.

        Raises:
            MissingExtra: polars is not installed.
        """
        frame: pl.DataFrame = need("polars", extra="polars").from_arrow(self.arrow(table).read_all())
        return frame

    def hf(self, table: Table = "episodes") -> datasets.Dataset:
        """Return the rows as a Hugging Face dataset, in memory.

        Raises:
            MissingExtra: datasets is not installed.
        """
        rows: datasets.Dataset = need("datasets", extra="hf").Dataset(self.arrow(table).read_all())
        return rows

    def __iter__(self) -> Iterator[Episode]:
        """Iterate over the episodes as objects, read lazily, a few in memory at a time."""
        with Chosen(self.store, self.verbs) as chosen:
            yield from chosen.episodes()

    def episode(self, episode: str) -> Episode:
        """Return one of the chosen episodes.

        Args:
            episode: Its id, a prefix that only its id has, or its position from 0.

        Raises:
            NothingMatched: There is no such episode; the hint lists some.
            QueryError: Several ids have the prefix.
        """
        with Chosen(self.store, self.verbs) as chosen:
            return chosen.episode(episode)

    def save(self, goal: Path, *, kind: str = "select") -> Manifest:
        """Write the chosen episodes as a new store, with the verbs in its lineage.

        Args:
            goal: The folder to write.
            kind: The new store's kind.

        Raises:
            StoreError: `goal` exists, or cannot be written.
            NothingMatched: No episode is chosen.
        """
        with Chosen(self.store, self.verbs) as chosen:
            if not chosen.n_episodes:
                raise NothingMatched(f"no episode of {self.store.path} is left", hint=str(self.why()))
            return chosen.save(Path(goal), kind=kind)

    def __repr__(self) -> str:
        counts = self.store.manifest.counts
        verbs = "".join(f".{verb}" for verb in self.verbs)
        size = f"{counts.n_episodes:,} episodes, {counts.n_steps:,} steps"
        return f"<Dataset {self.store.path.name}{verbs} of {size}>"

    def _repr_html_(self) -> str:
        from trajkit.store.notebook import dataset_html

        return dataset_html(self)

    def _then(self, verb: Verb) -> Dataset:
        try_verb(self.store, verb)
        return replace(self, verbs=(*self.verbs, verb))

    def _counts(self) -> tuple[int, int]:
        if not self.verbs:
            counts = self.store.manifest.counts
            return counts.n_episodes, counts.n_steps
        with Chosen(self.store, self.verbs) as chosen:
            return chosen.n_episodes, chosen.n_steps


def open_dataset(path: str | Path) -> Dataset:
    """Open a store as a dataset of all its episodes.

    Args:
        path: The folder, or `sample:NAME`, such as `sample:babyai`.

    Raises:
        StoreError: It is not a store that this trajkit can read.
    """
    return Dataset(open_store(path))
