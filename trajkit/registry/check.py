"""Let the real gateway load a configuration before it takes the place of the old one."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from trajkit._lazy import need
from trajkit.errors import ConfigError, ServiceError
from trajkit.registry.configuration import Configuration
from trajkit.registry.toml_file import TomlFile

_PLACEHOLDER = "a placeholder of trajkit's, used only to load the configuration"
_MOST_PLACEHOLDERS = 40
_TIMEOUT_S = 120
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")

# in a process of its own: the gateway reads the environment once, and a crash of it must not be ours
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
    """Load a configuration with the embedded gateway, without a database.

    Copies of the files stand beside them for that time, so that their relative paths hold; observability is
    off in the copies. A credential that is missing on this machine is no reason to refuse: the gateway gets a
    placeholder.

    Args:
        configuration: The files as they are to be.

    Returns:
        The environment variables that got a placeholder.

    Raises:
        ConfigError: The gateway refuses it; the message is its own, with the names of the files.
        ServiceError: The gateway did not answer.
        MissingExtra: tensorzero is not installed.
    """
    need("tensorzero", extra="tensorzero")
    suffix = f".trajkit-{secrets.token_hex(6)}.toml"
    copies = {file.path: file.path.with_name(f".{file.path.name}{suffix}") for file in configuration.files}
    try:
        for file in _unobserved(configuration).files:
            copies[file.path].write_text(file.text, encoding="utf-8")
        return _load(
            _pattern(list(copies.values()), suffix), {str(new): str(old) for old, new in copies.items()}
        )
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be written: {error.strerror}") from error
    finally:
        for copy in copies.values():
            copy.unlink(missing_ok=True)


def _unobserved(configuration: Configuration) -> Configuration:
    """The same, without a database."""
    names = ("gateway", "observability")
    file = configuration.holder(*names) or configuration.holder("gateway") or configuration.files[0]
    there = file.get(names)
    if isinstance(there, dict) or file.get(("gateway",)) is not None:
        return configuration.replacing(file.with_value((*names, "enabled"), False))
    return configuration.replacing(TomlFile(file.path, f"gateway.observability.enabled = false\n{file.text}"))


def _pattern(copies: list[Path], suffix: str) -> str:
    """What names these files and no others."""
    if len(copies) == 1:
        return str(copies[0].absolute())
    return f"{os.path.commonpath([copy.absolute().parent for copy in copies])}/**/.*{suffix}"


def _load(pattern: str, names: Mapping[str, str]) -> tuple[str, ...]:
    given: dict[str, str] = {}
    while True:
        problem = _ask(pattern, os.environ | given)
        if problem is None:
            return tuple(sorted(given))
        missing = [
            name for name in _VARIABLE.findall(problem) if name not in os.environ and name not in given
        ]
        if not missing or len(given) >= _MOST_PLACEHOLDERS:
            for copy, own in names.items():
                problem = problem.replace(copy, own).replace(Path(copy).name, Path(own).name)
            raise ConfigError(
                f"the gateway refuses the configuration: {problem.splitlines()[0]}",
                hint="nothing was changed",
            )
        given |= dict.fromkeys(missing, _PLACEHOLDER)


def _ask(pattern: str, environment: Mapping[str, str]) -> str | None:
    """What the gateway says against it; None when it takes it."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, pattern],
            env=dict(environment),
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
    return problem
