"""Write the files of a conversion under temporary names, and rename them when all are complete."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from trajkit._core.address import Address
from trajkit._core.files import make_parent, refuse_existing, settle, temporary_beside, unwritable, write_text
from trajkit._core.sending import publish
from trajkit.curation.rows.provenance import is_ours, provenance_path
from trajkit.curation.rows.request import FileKind

_NAMES = {FileKind.JSONL: "train.jsonl", FileKind.PARQUET: "train.parquet"}
_SUFFIXES = (".jsonl", ".json", ".parquet")


class Place:
    """The goal of a conversion, and a folder beside it for its temporary files.

    Args:
        goal: The file or folder to write.
        kind: How rows are stored.
        is_folder: Whether the goal is a folder with the rows and other files.

    Raises:
        StoreError: The goal exists, or another file has the name of its provenance.
    """

    def __init__(self, goal: Path, kind: FileKind, *, is_folder: bool) -> None:
        self.goal = goal
        self.is_folder = is_folder
        self.kind = kind
        self.data = goal / _NAMES[kind] if is_folder else goal
        """The file with the rows."""
        self.provenance = provenance_path(self.data)
        """The file with the origin of the rows."""
        refuse_existing(goal)
        if not is_folder and not is_ours(self.provenance):
            refuse_existing(self.provenance)
        self.work = temporary_beside(goal)
        """The folder for temporary files."""

    @contextlib.contextmanager
    def open(self) -> Iterator[Path]:
        """Create the folder, and remove it afterwards in any case.

        Raises:
            StoreError: Something cannot be written.
        """
        try:
            make_parent(self.goal)
            self.work.mkdir()
            yield self.work
        except OSError as error:
            raise unwritable(self.goal, error) from error
        finally:
            shutil.rmtree(self.work, ignore_errors=True)

    def settle(self, rows: Path, provenance: Path | None, others: Mapping[str, str]) -> None:
        """Give the complete files their names.

        Args:
            rows: The file with the rows.
            provenance: The file with their origin; None without one.
            others: Texts of the other files of a folder, by name.
        """
        refuse_existing(self.goal)
        if self.is_folder:
            folder = self.work / "goal"
            folder.mkdir()
            rows.replace(folder / self.data.name)
            if provenance is not None:
                provenance.replace(folder / self.provenance.name)
            for name, text in others.items():
                write_text(folder / name, text, mode=0o755 if name.endswith(".sh") else 0o644)
            settle(folder, self.goal)
            return
        if provenance is None:
            settle(rows, self.goal)
            return
        if isinstance(self.goal, Address):
            publish({self.goal: rows, self.provenance: provenance}, self.goal)
            return
        provenance.replace(self.provenance)
        try:
            rows.replace(self.goal)
        except OSError:
            self.provenance.unlink(missing_ok=True)
            raise


def is_folder(goal: Path) -> bool:
    """Whether the name of a goal is a folder's, for formats with more than one file."""
    return goal.suffix not in _SUFFIXES
