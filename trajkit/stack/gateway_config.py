"""Read a gateway's `tensorzero.toml`, and copy it for the local stack."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tomlkit
import tomlkit.exceptions
from tomlkit.items import AbstractTable

from trajkit._core.files import building_folder, write_text
from trajkit.errors import ConfigError

STAND_IN_HOST = "trajkit-model-server.invalid"
"""Placeholder host for the local model server, whose port is known only when it runs."""

Table = tomlkit.TOMLDocument | AbstractTable


class MetricConfig(NamedTuple):
    """A metric as the gateway declares it."""

    kind: str
    """`float` or `boolean`."""
    level: str
    """`episode` or `inference`."""
    optimize: str
    """`max` or `min`."""


class GatewayConfig(NamedTuple):
    """The names in a configuration."""

    functions: dict[str, tuple[str, ...]]
    """Variant names by function."""
    metrics: dict[str, MetricConfig]
    """Metrics by name."""
    needs_model_server: bool
    """Whether a variant uses a model of the local model server."""


class _Text(NamedTuple):
    """A text in a configuration, and its place."""

    holder: Any
    key: str
    text: str


def read_config(path: Path) -> GatewayConfig:
    """Read the names of functions, variants and metrics.

    Raises:
        ConfigError: The file cannot be read, or is not a gateway's configuration.
    """
    text = _text(path)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    try:
        return GatewayConfig(
            functions={
                name: tuple(function.get("variants", {}))
                for name, function in document.get("functions", {}).items()
            },
            metrics={
                name: MetricConfig(metric["type"], metric["level"], metric["optimize"])
                for name, metric in document.get("metrics", {}).items()
            },
            needs_model_server=bool(_stand_in_uses(document)),
        )
    except KeyError as error:
        raise ConfigError(f"{path}: a metric has no {error}") from error
    except (AttributeError, TypeError) as error:
        raise ConfigError(f"{path} is not a gateway's configuration: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"there is no {path}", hint="name a tensorzero.toml, not a pattern") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _stand_in_uses(document: Mapping[str, Any]) -> list[_Text]:
    """Return the places where a variant names a model at the placeholder host."""
    models = {
        name
        for name, model in document.get("models", {}).items()
        for provider in model.get("providers", {}).values()
        if STAND_IN_HOST in str(provider.get("api_base", ""))
    }
    return [
        found
        for found in _texts(document.get("functions", {}))
        if found.key == "model" and found.text in models
    ]


def prepare_config(
    source: Path,
    target: Path,
    *,
    model_url: str | None,
    model: str | None = None,
    served: Sequence[str] = (),
) -> Path:
    """Copy a configuration and the files that it names into a new folder, for use with the local stack.

    The copy keeps the comments. It makes the gateway write every row before it answers and disables its usage
    analytics; the placeholder host becomes the model server's address, or another model is set.

    Args:
        source: A `tensorzero.toml`.
        target: The new folder.
        model_url: Address of the model server; required when the configuration uses it and `model` is None.
        model: Model for the variants that use the stand-in, such as `openai::gpt-4.1-mini`.
        served: Models of the model server, if it is not the stand-in. The first replaces each model of the
            configuration that the server does not have.

    Returns:
        The `tensorzero.toml` in the new folder.

    Raises:
        ConfigError: `source` is invalid, or `model` would change nothing.
        StoreError: `target` exists.
    """
    config = read_config(source)
    document = tomlkit.parse(_text(source))
    if model is not None:
        _set_model(document, model, source=source)
    elif config.needs_model_server:
        if model_url is None:
            raise ConfigError(
                f"{source} uses the local model server, which is not running",
                hint="start it with `trajkit up`",
            )
        address = model_url.removeprefix("http://").rstrip("/")
        if served:
            _name_served(document, served)
        _change_texts(document, lambda _, text: text.replace(STAND_IN_HOST, address))
    _set(document, "gateway", "disable_pseudonymous_usage_analytics", value=True)
    _set(document, "gateway", "observability", "enabled", value=True)
    # with asynchronous writes, only 2,761 of 4,000 inferences were written, without an error
    _set(document, "gateway", "observability", "async_writes", value=False)
    with building_folder(target) as folder:
        _change_texts(document, lambda key, text: _carried(key, text, source.parent.resolve(), folder))
        write_text(folder / source.name, tomlkit.dumps(document))
    return target / source.name


def _set_model(document: Table, model: str, *, source: Path) -> None:
    uses = _stand_in_uses(document)
    if not uses:
        raise ConfigError(
            f"no variant in {source} uses the stand-in model, so the model {model!r} would change nothing",
            hint="leave out --model (and `model` in trajkit.toml); the configuration names its models itself",
        )
    for use in uses:
        use.holder[use.key] = model


def _name_served(document: Table, served: Sequence[str]) -> None:
    """Replace each unknown model name at the placeholder host by a served model."""
    for model in document.get("models", {}).values():
        for provider in model.get("providers", {}).values():
            is_there = STAND_IN_HOST in str(provider.get("api_base", ""))
            if is_there and provider.get("model_name") not in served:
                provider["model_name"] = served[0]


def _set(table: Table, *path: str, value: bool) -> None:
    *tables, key = path
    for name in tables:
        if name not in table:
            table[name] = tomlkit.table()
        table = table[name]
    table[key] = value


def _change_texts(document: Table, change: Callable[[str, str], str]) -> None:
    for holder, key, text in list(_texts(document)):
        if (changed := change(key, text)) != text:
            holder[key] = changed


def _texts(table: Any) -> Iterator[_Text]:
    for key, value in table.items():
        if isinstance(value, str):
            yield _Text(table, key, str(value))
        elif isinstance(value, Mapping):
            yield from _texts(value)


def _carried(key: str, text: str, home: Path, folder: Path) -> str:
    """Copy the file that a text names and return its name in the copy; return any other text unchanged."""
    named = home / text
    if key == "base_path":  # the folder of template includes stays where it is
        return str(named)
    try:
        if not text or Path(text).is_absolute() or not named.is_file():
            return text
    except OSError:  # a text too long to be a name
        return text
    if not named.resolve().is_relative_to(home):
        return str(named.resolve())
    (folder / text).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(named, folder / text)
    return text
