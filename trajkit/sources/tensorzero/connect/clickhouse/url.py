"""Parse a ClickHouse URL as TensorZero writes it, and print it without secrets."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from trajkit.errors import RequestError

_TLS_SCHEMES = ("https", "clickhouses")
_SCHEMES = ("http", "clickhouse", *_TLS_SCHEMES)
_TLS_PORTS = (443, 8443)


class Address(NamedTuple):
    """A ClickHouse URL taken apart."""

    host: str
    port: int
    is_tls: bool
    user: str
    password: str
    database: str
    settings: tuple[tuple[str, str], ...] = ()
    """The parameters after the URL's `?`, such as `max_threads=2`: ClickHouse takes these as settings."""

    @property
    def place(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def shown(self) -> str:
        """The URL without credentials and settings."""
        return f"{'https' if self.is_tls else 'http'}://{self.place}/{self.database}"

    @property
    def is_local(self) -> bool:
        """Whether it is this machine."""
        return self.host.startswith("127.") or self.host in ("localhost", "::1")

    def __repr__(self) -> str:
        """Never the password."""
        return f"Address({self.shown})"


def parse_url(url: str) -> Address:
    """Take apart a URL as TensorZero writes it: `http://user:password@host:8123/database`.

    `https://` is TLS, with 8443 for a port that is not said, as ClickHouse Cloud has it; `clickhouse://` is
    TLS on the ports that are for it. User and password may also stand after the `?`.

    Raises:
        RequestError: It has no host, or is none of the kinds above. The message does not repeat the URL.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise RequestError("the ClickHouse URL has a port that is not a number up to 65535") from None
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise RequestError(
            "the ClickHouse URL must start with http:// or https:// and name a host"
            f" (it starts with {parts.scheme!r})",
            hint="such as http://user:password@127.0.0.1:8123/tensorzero",
        )
    is_tls = parts.scheme in _TLS_SCHEMES or (parts.scheme == "clickhouse" and port in _TLS_PORTS)
    said = dict(parse_qsl(parts.query, keep_blank_values=True))
    user, password = said.pop("user", None), said.pop("password", None)
    database = said.pop("database", None) or unquote(parts.path.strip("/"))
    return Address(
        host=parts.hostname,
        port=port or (8443 if is_tls else 8123),
        is_tls=is_tls,
        user=user or unquote(parts.username or "default"),
        password=password or unquote(parts.password or ""),
        database=database or "tensorzero",
        settings=tuple(sorted(said.items())),
    )
