"""The databases that the folder and the environment name: do they answer, and are they TensorZero's?"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import SecretStr

from trajkit._core.settings import PROJECT_FILE, project, secret_from_environment
from trajkit.commands.checkup.address import ANSWER_S, reach, why
from trajkit.commands.checkup.check import Check, broken, note, well
from trajkit.commands.checkup.setting import DATABASES
from trajkit.errors import ConfigError, TrajkitError

_SOURCE = "source"


class Named(NamedTuple):
    """A database, and who named it."""

    name: str
    """The variable, or `source` for that of trajkit.toml."""
    url: SecretStr
    """It may hold a password."""


class _Found(NamedTuple):
    """A database that let us in."""

    shown: str
    required: Sequence[str]
    missing: Sequence[str]


def databases() -> list[Named]:
    """The databases that trajkit.toml and the environment name."""
    found = []
    with contextlib.suppress(ConfigError):  # what is wrong with the file is told as a setting
        source = project().source
        if source is not None and "://" in source:
            found.append(Named(_SOURCE, SecretStr(source)))
    for variable in DATABASES:
        with contextlib.suppress(ConfigError):
            if (url := secret_from_environment(variable)) is not None:
                found.append(Named(variable, url))
    return found


def database(named: Named) -> Check:
    """Whether a database answers, lets this user in, and has TensorZero's tables."""
    try:
        found = _look(named.url.get_secret_value())
    except TrajkitError as error:
        return broken(named.name, error.message, error.hint or _correct(named.name))
    if not found.missing:
        return well(named.name, f"{found.shown} answers and has TensorZero's tables", url=found.shown)
    if len(found.missing) == len(found.required):
        said = f"{found.shown} answers and has no table of TensorZero that this user may read"
        todo = "the database is the last part of the URL; in an empty one a gateway makes the tables"
        return note(named.name, said, todo, url=found.shown)
    return broken(
        named.name,
        f"{found.shown} lacks tables of TensorZero: {', '.join(found.missing)}",
        "open a gateway of TensorZero 2026.6.0 on it once, and let this user read all of them",
        url=found.shown,
    )


def _look(url: str) -> _Found:
    from trajkit.sources.access import Access
    from trajkit.sources.tensorzero.connect.database import connect
    from trajkit.sources.tensorzero.connect.url import parse_url

    address = parse_url(url)
    if not address.host.startswith("/"):  # a socket is here or not: nothing is waited for
        _reach(address.host, address.port, address.shown)
    access = Access(max_seconds=int(ANSWER_S)) if address.is_postgres else Access()
    dialect = connect(url, access)
    with contextlib.closing(dialect.connection):
        return _Found(address.shown, dialect.required, dialect.missing())


def _reach(host: str, port: int, shown: str) -> None:
    try:
        reach(host, port)
    except OSError as error:
        raise TrajkitError(f"nothing answers at {shown}: {why(error)}") from None


def _correct(name: str) -> str:
    """What puts another address in the place of one that does not answer."""
    if name == _SOURCE:
        return f"start the database, or correct `source` in {PROJECT_FILE}"
    return f"start the database, or correct it: export {name}=…"
