"""Read a gateway's configuration: one TOML file, or several that match a pattern, read as one."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trajkit.errors import ConfigError
from trajkit.registry.toml_file import TomlFile


class Configuration:
    """The files of a configuration.

    Args:
        files: At least one.
    """

    def __init__(self, files: Sequence[TomlFile]) -> None:
        self.files = tuple(files)

    @classmethod
    def read(cls, pattern: str | Path) -> Configuration:
        """Read a file, or all that a pattern such as `config/**/*.toml` names, as the gateway does.

        Raises:
            ConfigError: There is none, or one is not TOML.
        """
        text = str(pattern)
        if any(mark in text for mark in "*?["):
            anchor = Path(Path(text).anchor or ".")
            inside = text.removeprefix(str(anchor)).lstrip("/") if Path(text).is_absolute() else text
            paths = sorted(path for path in anchor.glob(inside) if path.is_file())
        else:
            paths = [Path(text)] if Path(text).is_file() else []
        if not paths:
            raise ConfigError(f"no configuration at {text}", hint="--config tensorzero.toml")
        return cls([TomlFile.read(path) for path in paths])

    def get(self, *names: str) -> Any:
        """The value at a path; tables that are spread over several files are merged."""
        found = [value for file in self.files if (value := file.get(names)) is not None]
        if not found:
            return None
        if all(isinstance(value, dict) for value in found):
            merged: dict[str, Any] = {}
            for value in found:
                _merge(merged, value)
            return merged
        return found[0]

    def holder(self, *names: str) -> TomlFile | None:
        """The first file that has a value at a path."""
        return next((file for file in self.files if file.get(names) is not None), None)

    def replacing(self, changed: TomlFile) -> Configuration:
        """The configuration with a file changed."""
        return Configuration([changed if file.path == changed.path else file for file in self.files])


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = copy.deepcopy(value)  # a copy, so that reading does not change the files' values
