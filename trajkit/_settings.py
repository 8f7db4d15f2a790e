"""What the working folder and the environment say: `trajkit.toml`, `.trajkit/`, the services' own names."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from trajkit._files import write_json
from trajkit.errors import ConfigError

STATE_FOLDER = Path(".trajkit")
"""What commands remember between runs, in the working folder."""


class Project(BaseModel):
    """Defaults for a working folder, from its `trajkit.toml`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    source: str | None = None
    """Where `export` reads: a database URL or a store."""
    config: str | None = None
    """The gateway's `tensorzero.toml`."""
    function: str | None = None
    """The gateway's function to play and to export."""
    stores: str = "stores"
    """Folder where stores are written when no -o is given."""
    model: str | None = None
    """Model that the variants use instead of the local stand-in, such as `openai::gpt-4.1-mini`."""


def project(folder: Path | None = None) -> Project:
    """The working folder's `trajkit.toml`; all defaults when there is none.

    Raises:
        ConfigError: The file is not TOML, has an unknown key, or a value of the wrong type.
    """
    path = (folder or Path()) / "trajkit.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Project()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    try:
        return Project.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}",
            hint=f"known keys: {', '.join(sorted(Project.model_fields))}",
        ) from error


def secret_from_environment(name: str) -> SecretStr | None:
    """An environment variable that may hold a password or a key; None when unset or empty."""
    value = os.environ.get(name, "")
    return SecretStr(value) if value else None


def remember(name: str, value: Any, *, folder: Path | None = None) -> None:
    """Keep a value for later commands in this folder, such as the last store."""
    write_json((folder or Path()) / STATE_FOLDER / f"{name}.json", value, mode=0o600)


def remembered(name: str, *, folder: Path | None = None) -> Any:
    """What `remember` kept under this name; None when there is nothing, or it cannot be read."""
    path = (folder or Path()) / STATE_FOLDER / f"{name}.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
