"""Let DuckDB read any fsspec file system: each read is one range, and a size is requested once.

DuckDB checks four times per opened file whether it exists, how long it is and when it changed, and refuses
file systems without the last. Parts of a store never change.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem


class Ranges(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A read-only view of another file system.

    Args:
        system: That file system.
        protocol: The beginning of its addresses.
    """

    cachable = False

    def __init__(self, system: Any, protocol: str) -> None:
        super().__init__()
        self.system = system
        self.protocol = protocol
        self._known: dict[str, Any] = {}

    def forget(self) -> None:
        """Forget cached facts: another process may have written there."""
        self._known.clear()

    def info(self, path: str, **_: Any) -> Any:
        """Return size and kind of a file."""
        path = self.system._strip_protocol(path)
        if path not in self._known:
            self._known[path] = self.system.info(path)
        return self._known[path]

    def exists(self, path: str, **_: Any) -> bool:
        """Whether the file exists. fsspec's own method treats a refused request as none."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def modified(self, path: str) -> datetime:
        """Return always the same time."""
        return datetime(2000, 1, 1, tzinfo=UTC)

    def ls(self, path: str, detail: bool = True, **given: Any) -> Any:
        """List a folder."""
        return self.system.ls(path, detail=detail, **given)

    def unstrip_protocol(self, name: str) -> str:
        """Return the whole address."""
        return str(self.system.unstrip_protocol(name))

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        return _File(self, self.system._strip_protocol(path), mode, cache_type="none")


class _File(AbstractBufferedFile):  # type: ignore[misc]
    def _fetch_range(self, begin: int, end: int) -> Any:
        return self.fs.system.cat_file(self.path, start=begin, end=end)
