"""Where a gateway policy plays: a gateway by URL, the user's own database, or the local stack."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from pydantic import SecretStr

from trajkit._settings import project, secret_from_environment
from trajkit.errors import ConfigError, RequestError
from trajkit.rollout.gateway_policy import Gateway
from trajkit.rollout.plan import chosen
from trajkit.stack.gateway import open_gateway
from trajkit.stack.gateway_config import GatewayConfig, prepare_config, read_config
from trajkit.stack.state import local_stack

DEFAULT_FUNCTION = "act"


class Venue(NamedTuple):
    """A gateway that can be opened, and what is known of it beforehand."""

    name: str
    """What it is called in messages and in a store; holds no password."""
    names: GatewayConfig | None
    """Its functions, variants and metrics; None when only the gateway knows them."""
    config_file: Path | None = None
    """The configuration to play with; None with a gateway elsewhere, which has its own."""
    clickhouse_url: SecretStr | None = None
    """The database that the gateway writes to, where it is known."""
    gateway_url: str | None = None
    """A gateway that runs elsewhere; None opens one in this process."""
    model_url: str | None = None
    """The local model server, for a configuration that plays with it."""
    model: str | None = None
    """What takes the local model server's place."""
    is_prepared: bool = False
    """The configuration is one that `trajkit up` made."""


def find_venue(config_file: Path | None = None) -> Venue:
    """Where to play: `TENSORZERO_GATEWAY_URL`, else `TENSORZERO_CLICKHOUSE_URL`, else the local stack.

    Args:
        config_file: The gateway's `tensorzero.toml`; None takes the one in trajkit.toml, and with the local
            stack the one that it was started with.

    Raises:
        RequestError: There is none of the three, or a database without a configuration.
        ConfigError: The configuration cannot be read.
    """
    settings = project()
    asked = config_file or (Path(settings.config) if settings.config else None)
    database = secret_from_environment("TENSORZERO_CLICKHOUSE_URL")
    if gateway_url := os.environ.get("TENSORZERO_GATEWAY_URL"):
        names = read_config(asked) if asked else None
        return Venue(_host(gateway_url), names, None, database, gateway_url)
    if database is not None:
        if asked is None:
            raise RequestError(
                "TENSORZERO_CLICKHOUSE_URL names a database, but no configuration is given to play with",
                hint="--config tensorzero.toml",
            )
        names = read_config(asked)
        model = settings.model if names.needs_model_server else None
        return Venue(_host(database.get_secret_value()), names, asked, database, model=model)
    stack = local_stack()
    if stack is None:
        raise RequestError(
            "there is no gateway to play through",
            hint="`trajkit up`, or TENSORZERO_GATEWAY_URL, or TENSORZERO_CLICKHOUSE_URL with --config",
        )
    name, database = "local stack", stack.clickhouse_url
    if config_file is None:
        return Venue(name, read_config(stack.config_file), stack.config_file, database, is_prepared=True)
    names = read_config(config_file)
    model = stack.model if names.needs_model_server else None
    return Venue(name, names, config_file, database, model_url=stack.model_url, model=model)


@contextlib.asynccontextmanager
async def open_venue(venue: Venue) -> AsyncIterator[Gateway]:
    """Open the gateway for the time of a block, set to write every row before it answers.

    Raises:
        ConfigError: The configuration cannot be used.
        ServiceError: The database or the gateway refused or could not be reached.
    """
    if venue.config_file is None or venue.is_prepared:
        async with open_gateway(
            venue.config_file, clickhouse_url=venue.clickhouse_url, gateway_url=venue.gateway_url
        ) as gateway:
            yield gateway
        return
    with tempfile.TemporaryDirectory(prefix="trajkit-") as folder:
        copy = Path(folder) / "config"
        config = prepare_config(venue.config_file, copy, model_url=venue.model_url, model=venue.model)
        async with open_gateway(config, clickhouse_url=venue.clickhouse_url) as gateway:
            yield gateway


def choose_function(venue: Venue, asked: str | None) -> str:
    """The function to play.

    Raises:
        RequestError: The configuration has no such function, or several and none is asked for.
    """
    wanted = asked or project().function
    if venue.names is None:
        return wanted or DEFAULT_FUNCTION
    known = tuple(venue.names.functions)
    if wanted is None and len(known) == 1:
        return known[0]
    wanted = wanted or DEFAULT_FUNCTION
    if wanted not in known:
        raise RequestError(
            f"no function {wanted!r} in the gateway's configuration", hint=f"--function: {', '.join(known)}"
        )
    return wanted


def choose_variants(venue: Venue, function_name: str, asked: tuple[str, ...]) -> tuple[str, ...]:
    """The variants to play, in the order asked.

    Raises:
        RequestError: The function has no such variant, or several and none is asked for.
    """
    if venue.names is None:
        if not asked or "all" in asked:
            raise RequestError(
                f"which variants does the gateway at {venue.name} have?",
                hint="name them with --variant, or its configuration with --config",
            )
        return tuple(dict.fromkeys(asked))
    known = venue.names.functions[function_name]
    if not asked and len(known) != 1:
        raise RequestError(
            f"which variant of {function_name!r}?", hint=f"--variant: {', '.join(known)}, or all"
        )
    return chosen(asked or known, known, noun="variant", of=f"the function {function_name!r}")


def check_metrics(venue: Venue, metrics: Sequence[str]) -> None:
    """Make sure that the gateway takes the feedback that the episodes will end with.

    Raises:
        ConfigError: A metric is not declared, or not as a number about episodes; the hint has the lines.
    """
    if venue.names is None:
        return
    declared = venue.names.metrics
    wrong = [
        name
        for name in metrics
        if name not in declared or (declared[name].kind, declared[name].level) != ("float", "episode")
    ]
    if wrong:
        lines = [f'[metrics.{name}]\ntype = "float"\nlevel = "episode"\noptimize = "max"' for name in wrong]
        raise ConfigError(
            f"the gateway's configuration has no metric {', '.join(wrong)} of type float and level episode",
            hint="\n".join(["it needs these lines", *lines]),
        )


def _host(url: str) -> str:
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] + parts.path.rstrip("/")
