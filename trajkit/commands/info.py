"""Describe a store, a database or an archive of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from trajkit._core.address import place_of
from trajkit._core.output.console import talk
from trajkit.commands.options.types import Count, File, Option, ServerMemory, StoreLike
from trajkit.commands.place import store_path
from trajkit.commands.play.server import access, refuse_server_options
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.sources.tensorzero.look.models import DatabaseLook
    from trajkit.store.summary import Summary


def info(
    source: Annotated[StoreLike | None, Option(metavar="STORE|URL|ARCHIVE")] = None,
    *,
    database: bool = False,
    check: bool = False,
    timeout: Annotated[int | None, Option(least=1, metavar="SECONDS")] = None,
    max_threads: Count | None = None,
    max_server_memory: ServerMemory = None,
    ca_cert: File = None,
) -> Summary | DatabaseLook:
    """Describe a store, a database or an archive of one.

    The checksums of a store (a folder, or sample:babyai) are verified first, and its digest from the hashes
    of its episodes; --check reads every value. For a database the command shows functions and variants,
    metrics with the number of episodes that each bound keeps, dates and tags.

    A database is only read, and does the counting. A bound keeps the episodes that an export with it reads:
    the latest value of an episode counts, and evaluation and abandoned episodes are left out. A password in a
    typed URL stays in the shell history: --database uses the same URL as export.

    Args:
        source: A store, a URL or an archive. Default: the last store written here.
        database: Describe the database that export reads: of trajkit.toml, the environment, the stack.
        check: Check every value of a store, and compute its digest from them.
        timeout: Time limit of a query on the server, in seconds. Default: 60 if the user may set it.
        max_threads: Maximum server threads per query; two run at a time.
        max_server_memory: Maximum server memory per query, such as 2GB; two run at a time.
        ca_cert: CA certificates (PEM) to trust.

    Raises:
        RequestError: Both `source` and `database` are given, or an option is for databases.
        StoreError: The store is damaged.
        ServiceError: The database cannot be reached.

    Example:
        trajkit info stores/train
    """
    from trajkit._core.settings import project
    from trajkit.sources.open import find_source, look_at
    from trajkit.sources.tensorzero.archive.manifest import is_archive
    from trajkit.store.reader import open_store
    from trajkit.store.summary import summarize

    if database and source is not None:
        raise RequestError("--database and SOURCE both name what to describe", hint="leave one out")
    limits = access(max_threads, max_server_memory, ca_cert, max_seconds=timeout)
    location = find_source(None if database else store_path(source), project())
    value = location.value.get_secret_value()
    if not location.is_database:
        refuse_server_options(limits, why="this is read without one")
    if not location.is_database and not is_archive(place_of(value)):
        return summarize(open_store(value), deep=check)
    if check:
        raise RequestError("--check is for stores", hint="`trajkit archive verify` checks an archive")
    look = look_at(location, limits)
    for name, why in look.unknown.items():
        talk(f"not known: {name}: {why}")
    return look
