"""What commands return: an object that prints itself, shows itself in a notebook, and is JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from trajkit._core.output.console import line, plural, talk
from trajkit._core.output.result import Result
from trajkit.commands.place import remember_store
from trajkit.errors import RequestError
from trajkit.store.tally import tally_text

if TYPE_CHECKING:
    from trajkit.schema import LineageEntry, Manifest
    from trajkit.store.dataset import Dataset


@dataclass(frozen=True, repr=False)
class Made(Result):
    """A new store and how it was made; after a dry run only how it would be."""

    entry: LineageEntry
    """What was done: episodes and steps in, out, and left out by reason."""
    path: Path | None = None
    """The new store's folder; None after a dry run."""
    manifest: Manifest | None = None
    """The new store's manifest; None after a dry run."""
    report: Any = None
    """What else the command computed, such as the spread of weights; None if there is nothing else."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the JSON."""
    head: str = ""
    """What the text begins with, before the tally."""
    lines: tuple[str, ...] = ()
    """Further lines of the text, after the store."""

    @property
    def dataset(self) -> Dataset:
        """The new store's episodes.

        Raises:
            RequestError: It was a dry run.
        """
        from trajkit.store.dataset import open_dataset

        if self.path is None:
            raise RequestError("a dry run makes no store", hint="leave dry_run out")
        return open_dataset(self.path)

    def kept(self) -> Self:
        """Remember the store as the last one; print a note if nothing was written."""
        if self.path is None or self.manifest is None:
            talk("dry run: nothing was written")
        else:
            remember_store(self.path)
        return self

    def to_json(self) -> dict[str, Any]:
        """The store, its digest and the entry of its lineage."""
        return {
            "store": None if self.path is None else str(self.path),
            "digest": None if self.manifest is None else self.manifest.digest,
            **self.entry.model_dump(mode="json"),
            **self.more,
        }

    def __str__(self) -> str:
        last = () if self.path is None or self.manifest is None else (store_line(self.path, self.manifest),)
        head = (self.head,) if self.head else ()
        return "\n".join((*head, tally_text(self.entry), *last, *map(line, self.lines)))

    def __repr__(self) -> str:
        kept = f"{self.entry.n_episodes_out:,} of {self.entry.n_episodes_in:,} episodes"
        return f"<{self.entry.verb}: {kept}, {self.path or 'dry run'}>"

    def _repr_html_(self) -> str:
        from trajkit.store.notebook import entry_html

        return entry_html(self.entry, self.path)


def store_line(path: Path, manifest: Manifest) -> str:
    """The line that says which store now exists."""
    counts = manifest.counts
    kept = f"{plural(counts.n_episodes, 'episode')}  {plural(counts.n_steps, 'step')}"
    return line(f"{path}  {kept}  digest {manifest.digest[:12]}")
