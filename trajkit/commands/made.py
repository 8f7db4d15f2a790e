"""What a verb made of a store: the new store, and the account of what it did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trajkit.errors import RequestError
from trajkit.schema import LineageEntry, Manifest
from trajkit.store.dataset import Dataset, open_dataset
from trajkit.store.tally import lines_of


@dataclass(frozen=True, repr=False)
class Made:
    """A new store and how it came to be; after a dry run only how it would."""

    entry: LineageEntry
    """What was done: in, out, and what left by reason."""
    path: Path | None = None
    """The new store's folder; None after a dry run."""
    manifest: Manifest | None = None
    """What the new store says about itself; None after a dry run."""
    report: Any = None
    """What else the verb has to say, such as the spread of weights; None where that is nothing."""

    @property
    def dataset(self) -> Dataset:
        """The new store's episodes.

        Raises:
            RequestError: It was a dry run.
        """
        if self.path is None:
            raise RequestError("a dry run makes no store", hint="leave dry_run out")
        return open_dataset(self.path)

    def __str__(self) -> str:
        return "\n".join(lines_of(self.entry))

    def __repr__(self) -> str:
        kept = f"{self.entry.n_episodes_out:,} of {self.entry.n_episodes_in:,} episodes"
        return f"<{self.entry.verb}: {kept}, {self.path or 'dry run'}>"

    def _repr_html_(self) -> str:
        from trajkit.store.notebook import entry_html

        return entry_html(self.entry, self.path)
