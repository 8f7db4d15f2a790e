"""Parse a Postgres URL as TensorZero writes it, and print it without secrets."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from trajkit.errors import RequestError

SCHEMES = ("postgres", "postgresql")
_PORT = 5432


class Address(NamedTuple):
    """A Postgres URL taken apart."""

    host: str
    """Name or address; a folder (beginning with `/`) for a Unix socket."""
    port: int
    user: str
    """Empty for libpq's default: PGUSER, else the operating system's user."""
    password: str
    """Empty for what libpq finds: PGPASSWORD, `~/.pgpass`."""
    database: str
    parameters: tuple[tuple[str, str], ...] = ()
    """The parameters after the URL's `?`, such as `sslmode=verify-full`: libpq takes these."""

    @property
    def place(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def shown(self) -> str:
        """The URL without credentials and parameters."""
        if self.host.startswith("/"):
            return f"postgresql:///{self.database}?host={self.host}"
        return f"postgresql://{self.place}/{self.database}"

    def connection_string(self, **more: str) -> str:
        """The connection string for libpq, with the password.

        Args:
            more: Parameters that hold unless the URL says otherwise.
        """
        said = {
            "host": self.host,
            "port": str(self.port),
            "user": self.user,
            "password": self.password,
            "dbname": self.database,
        }
        given = {**more, **dict(self.parameters), **{name: text for name, text in said.items() if text}}
        return " ".join(f"{name}={_quoted(text)}" for name, text in given.items())

    def __repr__(self) -> str:
        """Never the password."""
        return f"Address({self.shown})"


def is_postgres(url: str) -> bool:
    """Whether a URL is one of Postgres."""
    return url.partition("://")[0].lower() in SCHEMES


def parse_url(url: str) -> Address:
    """Take apart a URL: `postgresql://user:password@host:5432/database?sslmode=require`.

    Host, port, user, password and database may also stand after the `?`, as libpq has it.

    Raises:
        RequestError: It has no host, more than one, or another scheme. The message does not repeat the URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise RequestError(
            f"the Postgres URL must start with postgresql:// (it starts with {parts.scheme!r})", hint=_SUCH_AS
        )
    said = dict(parse_qsl(parts.query, keep_blank_values=True))
    host = said.pop("host", None) or unquote(parts.hostname or "")
    if not host or "," in parts.netloc.rpartition("@")[2]:
        raise RequestError("the Postgres URL must name one host", hint=_SUCH_AS)
    user, password = said.pop("user", None), said.pop("password", None)
    database = said.pop("dbname", None) or unquote(parts.path.strip("/"))
    return Address(
        host=host,
        port=_port(parts.netloc, said),
        user=user or unquote(parts.username or ""),
        password=password or unquote(parts.password or ""),
        database=database or "tensorzero",
        parameters=tuple(sorted(said.items())),
    )


_SUCH_AS = "such as postgresql://user:password@127.0.0.1:5432/tensorzero"


def _port(netloc: str, said: dict[str, str]) -> int:
    """The port that the URL says; only that part of it is in the error."""
    after_host = netloc.rpartition("@")[2].rpartition("]")[2].partition(":")[2]
    text = said.pop("port", None) or after_host or str(_PORT)
    if not (text.isascii() and text.isdigit() and int(text) < 65_536):
        raise RequestError("the Postgres URL has a port that is not a number up to 65535", hint=_SUCH_AS)
    return int(text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
