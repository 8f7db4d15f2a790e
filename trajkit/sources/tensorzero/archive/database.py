"""An archive in the place of the database that it was made from: the same streams, from Parquet."""

from __future__ import annotations

from pathlib import Path

from trajkit.sources.tensorzero.archive.dialect import Archive
from trajkit.sources.tensorzero.archive.files import ArchiveFiles
from trajkit.sources.tensorzero.connect.database import TensorZero


def open_archive(folder: Path) -> TensorZero:
    """Open an archive to read it.

    Raises:
        StoreError: It is not an archive, is of a newer version, or a file is missing or of another size.
    """
    files = ArchiveFiles(folder)
    # what was logged later is not here
    return TensorZero(Archive(files), read_at=files.manifest.as_of)
