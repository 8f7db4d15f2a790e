"""Find the models in a gateway's configuration that cost money: all that are not on this machine."""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from trajkit.errors import ConfigError
from trajkit.stack.gateway_config import STAND_IN_HOST


class Asked(NamedTuple):
    """The paid models and the calls of one step: of an inference of a variant, or without a gateway."""

    models: tuple[str, ...]
    """Models that cost money, by the names in the configuration."""
    n_calls: int | None
    """Calls of models; None when nothing limits them."""
    max_tokens: int | None = None
    """Maximum tokens per answer; None when the configuration does not set it."""
    n_prompt_characters: int = 0
    """Characters of the prompt's templates."""


def is_here(url: str) -> bool:
    """Check whether an address is on this machine, where calls are free."""
    host = urlsplit(url).hostname or ""
    if host in ("localhost", STAND_IN_HOST):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def asked_by(config_file: Path, function: str, variant: str, *, stand_in_is: str | None = None) -> Asked:
    """Find the paid models and the calls of one inference of a variant.

    Args:
        config_file: The gateway's `tensorzero.toml`.
        function: A function in it.
        variant: One of its variants.
        stand_in_is: The model that replaces the local stand-in; None for the stand-in itself.

    Raises:
        ConfigError: The file cannot be read.
    """
    try:
        document = tomllib.loads(config_file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{config_file} cannot be read: {error}") from error
    variants = document.get("functions", {}).get(function, {}).get("variants", {})
    tables = list(with_candidates(variants, variant, ()))
    names = dict.fromkeys(name for table in tables for name in texts(table, "model"))
    limits = [limit for table in tables if isinstance(limit := table.get("max_tokens"), int)]
    return Asked(
        models=tuple(name for name in names if _costs(document, name, stand_in_is)),
        n_calls=len(tables),
        max_tokens=max(limits) if limits and len(limits) == len(tables) else None,
        n_prompt_characters=sum(_n_characters(config_file.parent, table) for table in tables),
    )


def with_candidates(
    variants: Mapping[str, Any], name: str, above: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    """Yield a variant and the candidates that it calls first, for a best of n or a mixture."""
    table = variants.get(name)
    if not isinstance(table, Mapping) or name in above:
        return
    yield table
    for candidate in table.get("candidates", ()):
        yield from with_candidates(variants, candidate, (*above, name))


def texts(table: Any, key: str | None = None) -> Iterator[str]:
    """Yield the texts of a table under a key, at any depth; without a key, all of them."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from texts(value, key)
        elif key in (None, name) and isinstance(value, str):
            yield value


def _costs(document: Mapping[str, Any], model: str, stand_in_is: str | None) -> bool:
    providers = document.get("models", {}).get(model, {}).get("providers", {})
    if not providers:
        return not model.startswith("dummy::")
    for provider in providers.values():
        address = str(provider.get("api_base", ""))
        if STAND_IN_HOST in address and stand_in_is is not None:
            return not stand_in_is.startswith("dummy::")
        if provider.get("type") != "dummy" and not is_here(address):
            return True
    return False


def _n_characters(folder: Path, table: Mapping[str, Any]) -> int:
    """Count the characters of a variant's templates."""
    n = 0
    for value in texts(table):
        path = folder / value
        try:
            n += path.stat().st_size if value and path.is_file() else 0
        except OSError:  # a text that is too long for a file name
            continue
    return n
