"""Parse a URL of ClickHouse or Postgres as TensorZero writes it, and print it without secrets."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from trajkit.errors import RequestError

_POSTGRES = ("postgres", "postgresql")
_TLS_SCHEMES = ("https", "clickhouses")
_TLS_PORTS = ("443", "8443")
_CLICKHOUSE = ("http", "clickhouse", *_TLS_SCHEMES)


class Address(NamedTuple):
    """A database URL taken apart."""

    host: str
    """Name or address; a folder (beginning with `/`) for a Unix socket of Postgres."""
    port: int
    user: str
    """Empty for libpq's default: PGUSER, else the operating system's user."""
    password: str
    """Empty for what libpq finds: PGPASSWORD, `~/.pgpass`."""
    database: str
    settings: tuple[tuple[str, str], ...] = ()
    """The parameters after the URL's `?`: settings of ClickHouse, or parameters of libpq."""
    scheme: str = "postgresql"
    """`http` or `https` for ClickHouse."""

    @property
    def is_postgres(self) -> bool:
        """Whether it is of Postgres."""
        return self.scheme == "postgresql"

    @property
    def is_tls(self) -> bool:
        """Whether it is of ClickHouse with TLS; for Postgres, libpq's parameters decide."""
        return self.scheme == "https"

    @property
    def place(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def shown(self) -> str:
        """The URL without credentials and settings."""
        if self.host.startswith("/"):
            return f"{self.scheme}:///{self.database}?host={self.host}"
        return f"{self.scheme}://{self.place}/{self.database}"

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        return self.host.startswith("127.") or self.host in ("localhost", "::1")

    def connection_string(self, **more: str) -> str:
        """The connection string for libpq, with the password.

        Args:
            more: Parameters, which the URL overrides.
        """
        own = {
            "host": self.host,
            "port": str(self.port),
            "user": self.user,
            "password": self.password,
            "dbname": self.database,
        }
        given = {**more, **dict(self.settings), **{name: text for name, text in own.items() if text}}
        return " ".join(f"{name}={_quoted(text)}" for name, text in given.items())

    def __repr__(self) -> str:
        """Never the password."""
        return f"Address({self.shown})"


def parse_url(url: str) -> Address:
    """Take apart `http://user:password@host:8123/database` or `postgresql://user:password@host:5432/database`.

    `https://` is ClickHouse with TLS, by default on port 8443, as in ClickHouse Cloud; `clickhouse://` is
    TLS on TLS ports. Parts before the `?` may also be parameters after it, by libpq's names.

    Raises:
        RequestError: It has no host, more than one, or another scheme. The message does not repeat the URL.
    """
    try:
        parts = urlsplit(url)
        named, after_host = parts.hostname or "", parts.netloc.rpartition("@")[2].rpartition("]")[2]
    except ValueError as error:
        raise RequestError(f"invalid database URL: {error}", hint=_SUCH_AS) from None
    is_postgres = parts.scheme in _POSTGRES
    if not is_postgres and parts.scheme not in _CLICKHOUSE:
        raise RequestError(
            "a database URL must start with http://, https:// or postgresql://"
            f" (it starts with {parts.scheme!r})",
            hint=_SUCH_AS,
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    # libpq also takes these after the `?`
    host = (options.pop("host", "") if is_postgres else "") or unquote(named)
    if not host or "," in after_host:
        raise RequestError("the database URL must name one host", hint=_SUCH_AS)
    port = (options.pop("port", "") if is_postgres else "") or after_host.partition(":")[2]
    if port and not (port.isascii() and port.isdigit() and int(port) < 65_536):
        raise RequestError("the database URL has a port that is not a number up to 65535", hint=_SUCH_AS)
    is_tls = parts.scheme in _TLS_SCHEMES or (parts.scheme == "clickhouse" and port in _TLS_PORTS)
    user, password = options.pop("user", None), options.pop("password", None)
    database = options.pop("dbname" if is_postgres else "database", None) or unquote(parts.path.strip("/"))
    return Address(
        host=host,
        port=int(port) if port else 5432 if is_postgres else 8443 if is_tls else 8123,
        user=user or unquote(parts.username or ("" if is_postgres else "default")),
        password=password or unquote(parts.password or ""),
        database=database or "tensorzero",
        settings=tuple(sorted(options.items())),
        scheme="postgresql" if is_postgres else "https" if is_tls else "http",
    )


_SUCH_AS = (
    "such as http://user:password@127.0.0.1:8123/tensorzero for ClickHouse,"
    " or postgresql://user:password@127.0.0.1:5432/tensorzero"
)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
