"""Files and folders at an address such as `s3://bucket/runs/train`, through fsspec.

An `Address` is a `Path` that prints as its address. Reading, listing and `unlink` work as with any path;
`trajkit._core.sending` writes. Any other use as a local file ends in an error that names the address, never
in a folder of that name.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import io
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path, PosixPath, WindowsPath
from typing import TYPE_CHECKING, Any, Self, cast

from trajkit._core.lazy import need
from trajkit.errors import RequestError, StoreError, TrajkitError

if TYPE_CHECKING:
    _LocalPath = PosixPath
else:
    _LocalPath = WindowsPath if sys.platform == "win32" else PosixPath

_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.DOTALL)
_DATABASES = ("http", "https", "postgres", "postgresql", "clickhouse", "clickhouses")
"""Protocols of other systems, which only the commands that take their addresses read."""
_PACKAGES = {
    "s3": ("s3fs", "s3"),
    "s3a": ("s3fs", "s3"),
    "gs": ("gcsfs", "gcs"),
    "gcs": ("gcsfs", "gcs"),
    "az": ("adlfs", "azure"),
    "abfs": ("adlfs", "azure"),
    "abfss": ("adlfs", "azure"),
    "hf": ("huggingface_hub", "hub"),
}
"""The package that speaks each protocol, and the extra that installs it."""
_OPENED: dict[str, Any] = {}


def is_address(text: object) -> bool:
    """Whether a text is the address of a file or folder, not a local path or a database."""
    found = _ADDRESS.fullmatch(text) if isinstance(text, str) else None
    return isinstance(text, Address) or (found is not None and found[1] not in _DATABASES)


def place_of(given: str | Path) -> Path:
    """Return a local path, or an `Address` if the text is one; `file://` is a local path.

    Raises:
        RequestError: The address has no bucket, or holds a user, a password or a query.
    """
    if isinstance(given, Path):
        return given
    found = _ADDRESS.fullmatch(given)
    if found is None or found[1] in _DATABASES:
        return Path(given)
    protocol, rest = found[1], found[2].rstrip("/")
    if protocol == "file":
        return Path(rest)
    shown = f"{protocol}://{rest.partition('?')[0].rpartition('@')[2]}"
    if "@" in rest.partition("/")[0] or "?" in rest:
        raise RequestError(
            f"{shown}: an address holds no user, password or query",
            hint="credentials come from the environment and the service's own files: docs/storage.md",
        )
    parts = rest.split("/")
    if not all(parts) or ".." in parts or "." in parts:
        raise RequestError(
            f"{shown} is not an address of a file or folder", hint="such as s3://bucket/stores/train"
        )
    return Address(f"{protocol}:", *parts)


class Address(_LocalPath):
    """A file or folder at an address. Joined and split like any path."""

    def __str__(self) -> str:
        return f"{self.parts[0]}//{'/'.join(self.parts[1:])}"

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    def __fspath__(self) -> str:
        raise RequestError(
            f"{self} is an address, and this takes a local path", hint="docs/storage.md lists what takes one"
        )

    def is_absolute(self) -> bool:
        """An address is never relative to a folder."""
        return True

    def absolute(self) -> Self:
        """The address itself."""
        return self

    def resolve(self, strict: bool = False) -> Self:
        """The address itself."""
        return self

    def is_symlink(self) -> bool:
        """No service has links."""
        return False

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether a file has this address, or files are under it."""
        return self._kind() is not None

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether files are under it."""
        return self._kind() == "directory"

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a file."""
        return self._kind() == "file"

    def _kind(self) -> str | None:
        """Return `file`, `directory` or None. fsspec's own `exists` treats a refused request as None."""
        with reaching(self):
            try:
                return cast(str, filesystem(self).info(str(self))["type"])
            except FileNotFoundError:
                return None

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return the size of the file; services have no modes or owners."""
        with reaching(self):
            size = int(filesystem(self).size(str(self)))
        return os.stat_result((stat.S_IFREG | 0o644, 0, 0, 1, 0, 0, size, 0, 0, 0))

    def open(self, mode: str = "r", *given: Any, **options: Any) -> Any:
        """Open the file for reading; bytes are read on demand."""
        if mode not in ("r", "rt", "rb"):
            raise RequestError(f"{self} cannot be opened for writing")
        with reaching(self):
            raw = filesystem(self).open(str(self), "rb", cache_type="readahead", block_size=1 << 20)
            whole = io.BufferedReader(raw)  # it reads lines up to a size, as files do
            return whole if mode == "rb" else io.TextIOWrapper(whole, *given[1:], **options)

    def read_bytes(self) -> bytes:
        """Read the whole file."""
        with reaching(self):
            return cast(bytes, filesystem(self).cat_file(str(self)))

    def read_text(
        self, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> str:
        """Read the whole file as text."""
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file."""
        expected = (FileNotFoundError,) if missing_ok else ()
        with reaching(self), contextlib.suppress(*expected):
            filesystem(self).rm_file(str(self))

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of every file under this folder, by its path below it; one listing."""
        with reaching(self):
            system = filesystem(self)
            for known in _OPENED.values():
                known.forget()
            root = system._strip_protocol(str(self)).rstrip("/") + "/"
            found = system.find(str(self), detail=True)
            return {name.removeprefix(root): int(each["size"]) for name, each in found.items()}


@functools.lru_cache(maxsize=32)
def _filesystem(protocol: str) -> Any:
    module, extra = _PACKAGES.get(protocol, ("fsspec", "s3"))
    fsspec = need("fsspec", extra=extra)
    need(module, extra=extra)
    try:
        options = list(inspect.signature(fsspec.get_filesystem_class(protocol).__init__).parameters.values())
        if any(
            each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD for each in options[1:]
        ):
            raise ValueError("it needs settings that an address does not hold")
        # other processes write too: earlier listings are not reused
        system = fsspec.filesystem(protocol, use_listings_cache=False)
    except (ValueError, ImportError) as error:
        raise RequestError(f"{protocol}:// cannot be read: {str(error).splitlines()[0]}") from error
    from trajkit._core.ranges import Ranges

    _OPENED[protocol] = Ranges(system, protocol)
    return system


def filesystem(address: Path) -> Any:
    """Return the fsspec file system of an address.

    Raises:
        MissingExtra: The package of the service is not installed.
        RequestError: No package speaks this protocol.
    """
    return _filesystem(address.parts[0].removesuffix(":"))


def failures() -> tuple[type[Exception], ...]:
    """Errors of the services' packages; those of packages that were not loaded cannot occur."""
    names = (
        ("botocore.exceptions", "BotoCoreError"),
        ("botocore.exceptions", "ClientError"),
        ("aiohttp", "ClientError"),
        ("azure.core.exceptions", "AzureError"),
        ("gcsfs.retry", "HttpError"),
        ("google.auth.exceptions", "GoogleAuthError"),
        ("httpx", "HTTPError"),
        ("httpx2", "HTTPError"),
    )
    loaded = [getattr(sys.modules[module], name) for module, name in names if module in sys.modules]
    if "huggingface_hub.hf_file_system" in sys.modules:
        loaded.append(RuntimeError)  # wraps the failure of an upload
    return (OSError, TimeoutError, *loaded)


@contextlib.contextmanager
def reaching(address: Path) -> Iterator[None]:
    """Translate failures of a service into one line that names the address; nothing for a local path.

    Raises:
        StoreError: The service refused, or could not be reached.
    """
    try:
        yield
    except TrajkitError:
        raise
    except failures() as error:
        if not isinstance(address, Address):
            raise
        raise refused(address, error) from error


def readable(path: Path) -> Any:
    """Return an input for pyarrow: a local path itself, or the file at an address, read by ranges."""
    return path.open("rb") if isinstance(path, Address) else path


def refused(address: Path, error: Exception) -> StoreError:
    """Return the error of a service that refused or could not be reached."""
    if isinstance(error, FileNotFoundError):
        return StoreError(f"there is nothing at {address}")
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    is_denied = getattr(error, "status_code", None) in (401, 403)  # Azure; the others have a class or a word
    if is_denied or isinstance(error, PermissionError) or re.search("redential|Forbidden", reason):
        return StoreError(
            f"{address} is refused: {reason}",
            hint="check that the credentials of the environment are set, valid and allowed to do this",
        )
    return StoreError(f"{address} could not be reached: {reason}", hint="run the same command again")


def fetch(address: Path, goal: Path) -> str:
    """Copy a file from its address to a new local file.

    Returns:
        The hex sha256 of its bytes.
    """
    digest = hashlib.sha256()
    with reaching(address), address.open("rb") as source, goal.open("xb") as file:
        while piece := source.read(1 << 22):
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


@contextlib.contextmanager
def local_copy(place: str) -> Iterator[str]:
    """Yield a local place unchanged, or a temporary local copy of an address under the same name.

    Raises:
        RequestError: There is nothing at the address.
        StoreError: The service refused, or could not be reached.
    """
    if not is_address(place):
        yield place
        return
    address = place_of(place)
    if not isinstance(address, Address):  # file://
        yield str(address)
        return
    is_one = address.is_file()
    names = [address.name] if is_one else list(address.sizes())
    if not names:
        raise RequestError(f"there is no file or folder {address}")
    with tempfile.TemporaryDirectory(prefix="trajkit-") as folder:
        copy = Path(folder) / address.name
        for name in names:
            goal = copy if is_one else copy / name
            if not goal.resolve().is_relative_to(Path(folder).resolve()):
                raise StoreError(f"{address} has a file {name!r}, which lies outside it")
            goal.parent.mkdir(parents=True, exist_ok=True)
            fetch(address if is_one else address / name, goal)
        yield str(copy)


def spelled(address: Path) -> str:
    """Return an address as its file system writes it, such as `memory:///a` for `memory://a`."""
    system = filesystem(address)
    return str(system.unstrip_protocol(system._strip_protocol(str(address))))


def opened() -> list[Any]:
    """Return the file systems that this process has used, as DuckDB accepts them."""
    return list(_OPENED.values())
