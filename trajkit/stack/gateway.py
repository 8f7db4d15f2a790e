"""Open TensorZero's gateway inside this process or by URL, without its log output, and close it safely.

TensorZero 2026.6.0 for Python contains its gateway as a library that runs inside the process that uses it. It
serves no TensorZero HTTP API, so there is no server to start: every command opens a gateway on the database.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import re
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from pydantic import SecretStr

from trajkit._core.lazy import need
from trajkit._core.secrets import hidden
from trajkit._core.settings import secret_from_environment
from trajkit.errors import ConfigError, ServiceError, TrajkitError
from trajkit.stack.gateway_config import prepare_config

if TYPE_CHECKING:
    from tensorzero import AsyncTensorZeroGateway

_OPENING_S = 120.0
_CLOSING_S = 0.1


@contextlib.asynccontextmanager
async def open_gateway(
    config_file: Path | None = None,
    *,
    clickhouse_url: SecretStr | None = None,
    gateway_url: str | None = None,
    timeout_s: float | None = None,
) -> AsyncIterator[AsyncTensorZeroGateway]:
    """Open a gateway for the time of a block: the one at `gateway_url`, or else one in this process.

    The first gateway on an empty database creates the tables, which takes about 3 s.

    Args:
        config_file: The `tensorzero.toml`; unused with `gateway_url`. The gateway gets a copy that makes it
            write every row before it answers, whatever the file says.
        clickhouse_url: URL of the database, with user and password.
        gateway_url: URL of a running gateway.
        timeout_s: Seconds that one call may take; None for no limit.

    Raises:
        ConfigError: The configuration or a URL is invalid.
        ServiceError: The database or the gateway refused or could not be reached. Passwords are hidden.
    """
    tensorzero = _import_quietly()
    key = secret_from_environment("TENSORZERO_API_KEY")
    try:
        async with asyncio.timeout(_OPENING_S):
            if gateway_url is not None:
                await asyncio.to_thread(_check_reachable, gateway_url)
                gateway = await tensorzero.AsyncTensorZeroGateway.build_http(
                    gateway_url=gateway_url,
                    timeout=timeout_s,
                    api_key=key.get_secret_value() if key else None,
                )
            else:
                with _safe_copy(config_file) as copy:
                    gateway = await tensorzero.AsyncTensorZeroGateway.build_embedded(
                        config_file=str(copy),
                        clickhouse_url=clickhouse_url.get_secret_value() if clickhouse_url else None,
                        timeout=timeout_s,
                    )
    except (tensorzero.BaseTensorZeroError, ValueError) as error:
        # the cause would show the password
        raise _translated(str(error), config_file, clickhouse_url, gateway_url) from None
    except TimeoutError:
        raise ServiceError(f"the gateway could not be opened within {_OPENING_S:.0f} s") from None
    try:
        yield cast("AsyncTensorZeroGateway", gateway)
    finally:
        await gateway.close()
        # Its threads return to Python once more after their answer. An interpreter that ends at that moment
        # aborts ("PyGILState_Release": 11 of 40 runs without this pause, none with half of it).
        await asyncio.sleep(_CLOSING_S)


@contextlib.contextmanager
def _safe_copy(config_file: Path | None) -> Iterator[Path]:
    if config_file is None:
        raise ConfigError("a gateway inside this process needs a tensorzero.toml", hint="pass --config")
    with tempfile.TemporaryDirectory(prefix="trajkit-") as scratch:  # the gateway reads it once
        yield prepare_config(config_file, Path(scratch) / "config", model_url=None)


async def create_schema(config_file: Path, clickhouse_url: SecretStr) -> None:
    """Create or migrate TensorZero's tables, by opening a gateway once.

    Raises:
        ConfigError: The configuration is invalid.
        ServiceError: The database refused or could not be reached.
    """
    async with open_gateway(config_file, clickhouse_url=clickhouse_url):
        pass


def _import_quietly() -> ModuleType:
    # the library logs to stdout, which is for results; it reads this on import, and raises errors anyway
    os.environ.setdefault("RUST_LOG", "off")
    return need("tensorzero", extra="tensorzero")


def _check_reachable(url: str) -> None:
    try:
        urllib.request.urlopen(urllib.parse.urljoin(url.rstrip("/") + "/", "health"), timeout=20).close()
    except urllib.error.HTTPError as error:
        error.close()  # the gateway answers; later calls report their own errors
    except (OSError, ValueError) as error:
        password = url if "://" in url else None
        raise ServiceError(
            f"no gateway answers at {hidden(url, password)}: {hidden(str(error), password)}",
            hint="check TENSORZERO_GATEWAY_URL",
        ) from None


def _translated(text: str, config_file: Path | None, *secrets: SecretStr | str | None) -> TrajkitError:
    """Convert an error text of the library to an error of trajkit."""
    message = hidden(innermost_message(text) or text, *secrets).strip()
    if "Invalid ClickHouse database URL" in message:
        return ConfigError(
            "the ClickHouse URL is not a URL", hint="it looks like http://user:password@host:8123/tensorzero"
        )
    if "Error(Config" in text or "Glob" in text or "ConfigParsing" in text:
        return ConfigError(f"the gateway refuses {config_file}: {message}")
    if "AUTHENTICATION_FAILED" in message:
        return ServiceError(f"ClickHouse refused the user or the password: {message}")
    if "ClickHouse" in text:
        return ServiceError(f"the gateway cannot use ClickHouse: {message}")
    return ServiceError(f"the gateway did not open: {message}")


def innermost_message(text: str) -> str | None:
    """Return the innermost message of an error that is printed as nested Rust values; None without one."""
    messages = re.findall(r'message: ("(?:[^"\\]|\\.)*")', text)
    return _unquoted(messages[-1]) if messages else None


def _unquoted(literal: str) -> str:
    try:
        return str(ast.literal_eval(literal))
    except (SyntaxError, ValueError):  # Rust has escapes that Python lacks
        return literal.strip('"')
