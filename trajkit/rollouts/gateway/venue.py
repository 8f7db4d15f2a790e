"""Find the gateway for a policy: by URL, with the user's database, or the local stack."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import SecretStr

from trajkit._core.settings import project, secret_from_environment
from trajkit.errors import ConfigError, RequestError
from trajkit.rollouts.faults import shown_url
from trajkit.rollouts.gateway.calls import Gateway
from trajkit.rollouts.plan import chosen
from trajkit.stack.gateway import open_gateway
from trajkit.stack.gateway_config import STAND_IN_HOST, GatewayConfig, prepare_config, read_config
from trajkit.stack.state import LocalStack, local_stack

DEFAULT_FUNCTION = "act"


class Venue(NamedTuple):
    """A gateway that can be opened, and the facts that are known before."""

    name: str
    """Its name in messages and in a store, without a password."""
    names: GatewayConfig | None
    """Its functions, variants and metrics; None when only the gateway knows them."""
    config_file: Path | None = None
    """The configuration to play with; None with a remote gateway, which has its own."""
    clickhouse_url: SecretStr | None = None
    """The database that the gateway writes to, if known."""
    gateway_url: str | None = None
    """URL of a running gateway; None opens one in this process."""
    model_url: str | None = None
    """The local model server, for a configuration that uses it."""
    model: str | None = None
    """The model that replaces the local model server."""
    served: tuple[str, ...] = ()
    """Models of the local model server; empty if it is the stand-in."""
    is_prepared: bool = False
    """Whether `trajkit up` prepared the configuration."""
    described_by: Path | None = None
    """The configuration that lists the gateway's functions; None when only the gateway knows them."""
    identity: tuple[str, ...] = ()
    """Identifies the venue without a password: its address and its configuration."""


def find_venue(config_file: Path | None = None) -> Venue:
    """Find the gateway: `TENSORZERO_GATEWAY_URL`, `TENSORZERO_CLICKHOUSE_URL`, or the local stack.

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
    if (gateway := secret_from_environment("TENSORZERO_GATEWAY_URL")) is not None:
        names = read_config(asked) if asked else None
        gateway_url = gateway.get_secret_value()
        name = shown_url(gateway_url)
        return Venue(
            name, names, None, database, gateway_url, described_by=asked, identity=(name, *_digest(asked))
        )
    if database is not None:
        if asked is None:
            raise RequestError(
                "TENSORZERO_CLICKHOUSE_URL names a database, but there is no configuration to play with",
                hint="--config tensorzero.toml",
            )
        return _own_database(database, asked, settings.model)
    stack = local_stack()
    if stack is None:
        raise RequestError(
            "there is no gateway to play through",
            hint="`trajkit up`, or TENSORZERO_GATEWAY_URL, or TENSORZERO_CLICKHOUSE_URL with --config",
        )
    return _on_local_stack(stack, config_file)


def _own_database(database: SecretStr, config_file: Path, model: str | None) -> Venue:
    names = read_config(config_file)
    name = shown_url(database.get_secret_value())
    model = model if names.needs_model_server else None
    return Venue(
        name,
        names,
        config_file,
        database,
        model=model,
        described_by=config_file,
        identity=(name, *_digest(config_file), model or ""),
    )


def _on_local_stack(stack: LocalStack, config_file: Path | None) -> Venue:
    is_prepared = config_file is None
    config_file = config_file or stack.config_file
    names = read_config(config_file)
    model = stack.model if names.needs_model_server else None
    mistakes = stack.model_server.mistakes if stack.model_server else None
    return Venue(
        "local stack",
        names,
        config_file,
        stack.clickhouse_url,
        model_url=None if is_prepared else stack.model_url,
        model=model,
        served=stack.served,
        is_prepared=is_prepared,
        described_by=config_file,
        # neither its ports, which change with every start, nor the path of the file
        identity=(
            str(stack.data_folder),
            *_digest(config_file, stack.model_url),
            model or "",
            f"mistakes {mistakes}",
            *(stack.model_server.arguments if stack.model_server else ()),
        ),
    )


def _digest(config_file: Path | None, model_url: str | None = None) -> tuple[str, ...]:
    """Return a hash of a configuration and its files, independent of the model server's address."""
    if config_file is None:
        return ()
    address = (model_url or "").removeprefix("http://").encode()
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(prefix="trajkit-") as folder:
        copy = prepare_config(
            config_file, Path(folder) / "config", model_url=f"http://{STAND_IN_HOST}"
        ).parent
        for path in sorted(path for path in copy.rglob("*") if path.is_file()):
            content = path.read_bytes()
            if address:
                content = content.replace(address, STAND_IN_HOST.encode())
            digest.update(f"{path.relative_to(copy).as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
    return (digest.hexdigest(),)


@contextlib.asynccontextmanager
async def open_venue(venue: Venue) -> AsyncIterator[Gateway]:
    """Open the gateway for the time of a block, set to write every row before it answers.

    Raises:
        ConfigError: The configuration is invalid.
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
        config = prepare_config(
            venue.config_file, copy, model_url=venue.model_url, model=venue.model, served=venue.served
        )
        async with open_gateway(config, clickhouse_url=venue.clickhouse_url) as gateway:
            yield gateway


def choose_function(venue: Venue, asked: str | None) -> str:
    """Choose the function to play.

    Raises:
        RequestError: The configuration has no such function, or several and none is named.
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
    """Choose the variants to play, in the requested order.

    Raises:
        RequestError: The function has no such variant, or several and none is named.
    """
    if venue.names is None:
        if not asked or "all" in asked:
            raise RequestError(
                f"the variants of the gateway at {venue.name} are unknown",
                hint="name them with --variant, or its configuration with --config",
            )
        return tuple(dict.fromkeys(asked))
    known = venue.names.functions[function_name]
    if not asked and len(known) != 1:
        raise RequestError(
            f"no variant of {function_name!r} is named", hint=f"--variant: {', '.join(known)}, or all"
        )
    return chosen(asked or known, known, noun="variant", of=f"the function {function_name!r}")


def check_metrics(venue: Venue, metrics: Sequence[str]) -> None:
    """Check that the gateway accepts the feedback of the episodes.

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
