"""Let the real gateway load a configuration before it replaces the old one."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomlkit

from trajkit._core.lazy import need
from trajkit.errors import ConfigError, ServiceError
from trajkit.registry.toml_file import Configuration, TomlFile
from trajkit.stack.gateway import innermost_message

_PLACEHOLDER = "https://placeholder.invalid/"
"""Placeholder for a missing key or address; it is valid for both."""

_LATER = "dynamic::trajkit_placeholder"
"""Placeholder for a credential in a missing file or from a cloud service."""

_GOOGLE = ("gcp_vertex_gemini", "gcp_vertex_anthropic")
_GOOGLE_CREDENTIALS = "GCP_VERTEX_CREDENTIALS_PATH"
_MOST_PLACEHOLDERS = 40
_TIMEOUT_S = 120
_DATABASES = ("TENSORZERO_CLICKHOUSE_URL", "TENSORZERO_POSTGRES_URL", "TENSORZERO_VALKEY_URL")
_NEEDS_SERVER = ("Postgres(", "Clickhouse(", "Valkey(", "AuthNotSupportedInEmbeddedMode(")
_MISSING = re.compile(r"[Ee]nvironment variable [`'](\w+)['`]")
_VARIABLE = re.compile(r"env::(\w+)")

# a process of its own: the gateway reads the environment once, and it may crash
_CHILD = """
import json, sys
import tensorzero
try:
    tensorzero.TensorZeroGateway.build_embedded(config_file=sys.argv[1])
except Exception as error:
    print(json.dumps(str(error)))
    sys.exit(3)
print(json.dumps(None))
"""


def check_loads(configuration: Configuration) -> tuple[str, ...]:
    """Load a configuration with the embedded gateway, without a database and an object store.

    Copies of the files lie beside them meanwhile, so that relative paths stay valid; observability and object
    storage are disabled in the copies. A credential that is missing on this machine is replaced by a
    placeholder.

    Args:
        configuration: The files to check.

    Returns:
        Names of the environment variables that got a placeholder.

    Raises:
        ConfigError: The gateway refuses the configuration; the message is its own, with the file names.
        ServiceError: The gateway did not answer.
        MissingExtra: tensorzero is not installed.
    """
    need("tensorzero", extra="tensorzero")
    # another ending than .toml, so that a gateway that starts now with a pattern does not read the copies
    suffix = f".trajkit-{secrets.token_hex(6)}"
    copies = {file.path: file.path.with_name(f".{file.path.name}{suffix}") for file in configuration.files}
    try:
        for file in _harmless(configuration).files:
            copies[file.path].touch(mode=0o600, exist_ok=False)
            copies[file.path].write_bytes(file.text.encode("utf-8"))
            copies[file.path].chmod(file.path.stat().st_mode & 0o777)
        return _load(
            _pattern(list(copies.values()), suffix),
            {str(new): str(old) for old, new in copies.items()},
            _named_variables(configuration),
        )
    except OSError as error:
        raise ConfigError(
            f"{error.filename} cannot be written: {error.strerror or error}",
            hint="the gateway loads a copy beside the file, so that relative paths hold",
        ) from error
    finally:
        for copy in copies.values():
            copy.unlink(missing_ok=True)


def _harmless(configuration: Configuration) -> Configuration:
    """Disable the database, the object store and external credentials."""
    names = ("gateway", "observability")
    file = configuration.holder(*names) or configuration.holder("gateway") or configuration.files[0]
    configuration = configuration.replacing(_set(file, (*names, "enabled"), False))
    # the gateway writes a file into the object store when it loads
    storage = configuration.holder("object_storage")
    if storage is not None:
        configuration = configuration.replacing(_set(storage, ("object_storage",), {"type": "disabled"}))
    for file in configuration.files:
        changed = file
        for place, text in _texts(file.data):
            if place[-1].endswith("_location") and _is_elsewhere(text):
                changed = _set(changed, place, _LATER)
        configuration = configuration.replacing(changed)
    return _without_google(configuration)


def _is_elsewhere(location: str) -> bool:
    """Check whether a credential is in a missing file, or would be requested from a cloud service."""
    kind, _, rest = location.partition("::")
    if kind == "path":
        return not Path(rest).is_file()
    if kind == "path_from_env":
        return not Path(os.environ.get(rest, "")).is_file()
    return location == "sdk"


def _without_google(configuration: Configuration) -> Configuration:
    """Set Google's credentials to be dynamic; the default is a file, which no placeholder can replace."""
    if _GOOGLE_CREDENTIALS in os.environ:
        return configuration
    for provider in _GOOGLE:
        names = ("provider_types", provider, "defaults", "credential_location")
        if configuration.get(*names) is None:
            file = configuration.holder("provider_types", provider) or configuration.files[0]
            configuration = configuration.replacing(_set(file, names, _LATER))
    return configuration


def _set(file: TomlFile, names: tuple[str, ...], value: Any) -> TomlFile:
    """Set a value, and keep the file's text as far as possible."""
    try:
        return file.with_value(names, value)
    except ConfigError:
        data = json.loads(json.dumps(file.data, default=str))
        place = data
        for name in names[:-1]:
            place = place.setdefault(name, {})
        place[names[-1]] = value
        return TomlFile(file.path, tomlkit.dumps(data))


def _texts(value: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every text of a document with its path; texts in lists are left out."""
    if isinstance(value, str):
        yield names, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, (*names, name))


def _named_variables(configuration: Configuration) -> dict[str, str]:
    """Return placeholders for the variables that the files name and the environment lacks."""
    named = {
        found[1]
        for file in configuration.files
        for _, text in _texts(file.data)
        if (found := _VARIABLE.fullmatch(text))
    }
    return dict.fromkeys(sorted(named - os.environ.keys()), _PLACEHOLDER)


def _pattern(copies: list[Path], suffix: str) -> str:
    """Return a pattern that matches these files and no others."""
    if len(copies) == 1:
        return str(copies[0].absolute())
    return f"{os.path.commonpath([copy.absolute().parent for copy in copies])}/**/.*{suffix}"


def _load(pattern: str, names: Mapping[str, str], given: dict[str, str]) -> tuple[str, ...]:
    while True:
        problem = _ask(pattern, given)
        if problem is None:
            return tuple(sorted(given))
        missing = [name for name in _MISSING.findall(problem) if name not in os.environ and name not in given]
        if not missing or len(given) >= _MOST_PLACEHOLDERS:
            message = innermost_message(problem) or problem
            for copy, own in names.items():
                message = message.replace(copy, own).replace(Path(copy).name, Path(own).name)
            raise ConfigError(
                f"the gateway refuses the configuration: {message.strip()}", hint="nothing was changed"
            )
        given |= dict.fromkeys(missing, _PLACEHOLDER)


def _ask(pattern: str, given: dict[str, str]) -> str | None:
    """Return the gateway's error for the files; None when it accepts them."""
    environment = {name: value for name, value in os.environ.items() if name not in _DATABASES}
    quiet = {"RUST_LOG": "off", "TENSORZERO_DISABLE_PSEUDONYMOUS_USAGE_ANALYTICS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, pattern],
            env=environment | given | quiet,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceError(f"the gateway did not load the configuration within {_TIMEOUT_S} s") from error
    lines = done.stdout.splitlines()
    if done.returncode not in (0, 3) or not lines:
        raise ServiceError(f"the gateway ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    problem: str | None = json.loads(lines[-1])
    return None if problem is not None and _wants_database(problem) else problem


def _wants_database(problem: str) -> bool:
    """Check whether all files were read, and only a database or a separate gateway is missing.

    Rate limits and automatic experiments keep their counts in a database.
    """
    stage = problem.partition("client: ")[2]
    return stage.startswith(_NEEDS_SERVER) or (
        stage.startswith("EmbeddedGatewaySetup") and any(name in stage for name in _DATABASES)
    )
